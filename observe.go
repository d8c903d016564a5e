package timingwheel

import (
	"context"
	"reflect"
	"runtime"
	"runtime/trace"
	"time"
)

// This file holds what tells callbacks apart by name: the hook for those that hold up
// the wheel, regions for runtime/trace, and labels for profiles. With none of it asked for,
// a callback costs a comparison and an atomic load more.

// SlowCallback tells of a callback that the wheel, or the executor, had to wait for.
type SlowCallback struct {
	// Name is the name of the function, as package runtime has it: that of a function
	// literal is the enclosing function's with a number, such as main.serve.func1.
	Name string

	// Waited says that the executor of WithExecutor was given the callback and had not
	// begun it. Otherwise the callback, or the executor that was to take it, held up the driver,
	// and with it every other timer of the wheel.
	Waited bool

	// For is how long so far, Over whether that is over: a callback that has been slow is
	// told of twice, when it has reached the limit and when it returns, one that is stuck
	// once. One that waited is told of when it begins.
	For  time.Duration
	Over bool
}

// WithSlowCallback has h called when a callback holds up the driver for longer than
// limit, because it runs inline or because the executor blocks; and when an executor
// begins a callback later than limit after it was given it. A callback on a goroutine
// of its own holds up nobody, and is never slow. Package wheeldebug has a hook that logs.
//
// The hook is called on goroutines of package time's, of the driver and of the executor,
// also at the same time, and should return soon. Cost: for each callback that is not on
// a goroutine of its own two clock readings, and a timer of package time that is stopped.
// WithSlowCallback panics if limit is not positive or h nil.
func WithSlowCallback(limit time.Duration, h func(SlowCallback)) Option {
	if limit <= 0 {
		panic("timingwheel: WithSlowCallback with the non-positive limit " + limit.String())
	}
	if h == nil {
		panic("timingwheel: WithSlowCallback with a nil hook")
	}
	return func(tw *TimingWheel) { tw.slow, tw.slowLimit = h, limit }
}

// watch calls f, which holds up the driver on behalf of the callback named.
func (tw *TimingWheel) watch(named, f func()) {
	if tw.slow == nil {
		f()
		return
	}
	began := time.Now()
	tell := func(over bool) {
		tw.slow(SlowCallback{Name: nameOf(named), For: time.Since(began), Over: over})
	}
	alarm := time.AfterFunc(tw.slowLimit, func() { tell(false) })
	defer func() {
		if !alarm.Stop() {
			tell(true)
		}
	}()
	f()
}

// observe calls f for invoke.
func (tw *TimingWheel) observe(f func()) {
	if trace.IsEnabled() {
		defer trace.StartRegion(context.Background(), "timingwheel: callback "+nameOf(f)).End()
	}
	if tw.around != nil {
		tw.around(nameOf(f), f)
		return
	}
	f()
}

// region begins a region of the driver's in an execution trace, if one is being taken.
func region(name string) *trace.Region {
	if !trace.IsEnabled() {
		return nil
	}
	return trace.StartRegion(context.Background(), "timingwheel: "+name)
}

func endRegion(r *trace.Region) {
	if r != nil {
		r.End()
	}
}

// traceWakeup notes in an execution trace how late the alarm was: what comes to that
// later is the driver's, or the callbacks'.
func (tw *TimingWheel) traceWakeup(armed int64) {
	if armed != unset && armed != awake && trace.IsEnabled() {
		late := time.Duration(tw.now()) - saturated(armed, tw.tick)
		trace.Log(context.Background(), "timingwheel", "the alarm rang "+late.String()+" after its tick")
	}
}

func nameOf(f func()) string {
	return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
}
