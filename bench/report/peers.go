package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	gxtime "github.com/dubbogo/gost/time"
	siddontang "github.com/siddontang/go/timingwheel"
	"github.com/zeromicro/go-zero/core/collection"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// This file adapts the wheels of other libraries to workload.Impl. An adapter adds only what every
// caller of the library has to write. Each wheel ticks every millisecond, the default of this
// library, if its design allows that.

// peers has the implementations that package workload lacks.
var peers = []workload.Impl{goZero, gost, siddon, scannedMap, lockedHeap}

// A Timer panics with a lacking if its library has no such call. The panic ends the child process.
// The parent knows it by its text and shows "lacks", not "failed".
type lacking string

const lackingPrefix = "lacks: "

func (l lacking) Error() string { return lackingPrefix + string(l) }

// goZero is go-zero's collection.TimingWheel: one goroutine behind unbuffered channels. With a tick
// of 1 ms and 4,096 slots, a tick visits 250 of a million timers. Callbacks that are due in one
// tick share a goroutine.
var goZero = workload.Impl{Name: "go-zero", Open: func() workload.Instance {
	tw, err := collection.NewTimingWheel(time.Millisecond, 4096, func(_, f any) { f.(func())() })
	if err != nil {
		panic(err) // the arguments above are wrong
	}
	return workload.Instance{
		Start: func(d time.Duration, f func()) workload.Timer {
			t := &goZeroTimer{tw, f}
			t.Reset(d)
			return t
		},
		New:   func(f func()) workload.Timer { return &goZeroTimer{tw, f} },
		Close: tw.Stop,
	}
}}

// A goZeroTimer is its own key in the wheel.
type goZeroTimer struct {
	tw *collection.TimingWheel
	f  func()
}

// Stop cannot tell whether it came in time, because the library does not say.
func (t *goZeroTimer) Stop() bool { return t.tw.RemoveTimer(t) == nil }

func (t *goZeroTimer) Reset(d time.Duration) bool { return t.tw.SetTimer(t, t.f, d) == nil }

// gost is dubbogo/gost's TimerWheel: five sorted lists behind a queue, with a tick of 10 ms. It has
// no counterpart of New. A timer that has fired cannot be armed again, and Reset counts from when
// the timer was started and not from now.
var gost = workload.Impl{Name: "gost", Open: func() workload.Instance {
	tw := gxtime.NewTimerWheel()
	// A deadline counts from the latest tick, and before the first tick from the start of the
	// program.
	time.Sleep(50 * time.Millisecond)
	return workload.Instance{
		Start: func(d time.Duration, f func()) workload.Timer {
			for {
				if t := tw.AfterFunc(d, f); t != nil {
					return &gostTimer{t}
				}
				runtime.Gosched() // the queue of 128 requests was full
			}
		},
		// Close of the library would wait for a goroutine that waits for a ticker that Close has
		// stopped, unless a tick comes in between.
		Close: tw.Stop,
	}
}}

type gostTimer struct{ t *gxtime.Timer }

// Stop cannot tell whether it came in time, or whether the request was lost because the queue was
// full: the library does not say. The library panics if a timer is stopped twice, hence the nil.
func (t *gostTimer) Stop() bool {
	if t.t == nil {
		return false
	}
	t.t.Stop()
	t.t = nil
	return true
}

func (*gostTimer) Reset(time.Duration) bool { panic(lacking("Reset from now")) }

// siddon is siddontang/go's wheel: a ring of channels, one for each tick of the longest delay. An
// empty wheel for an hour with a tick of 1 ms would take 370 MB; with 10 ms it takes 37 MB. Its
// only call is After, so a callback takes a goroutine that waits, and nothing can be stopped.
var siddon = workload.Impl{Name: "siddontang", Open: func() workload.Instance {
	const tick = 10 * time.Millisecond
	tw := siddontang.NewTimingWheel(tick, int(61*time.Minute/tick))
	var started atomic.Int64
	return workload.Instance{
		Start: func(d time.Duration, f func()) workload.Timer {
			if started.Add(1) > siddonMax {
				panic(lacking("room for more than 2 M goroutines"))
			}
			due := tw.After(max(d, 0)) // it panics if d is negative
			go func() {
				<-due
				f()
			}()
			return siddonTimer{}
		},
		Close: tw.Stop,
	}
}}

// siddonMax bounds the memory of the goroutines, which take 2 KB each or more.
const siddonMax = 2_000_000

type siddonTimer struct{}

func (siddonTimer) Stop() bool               { panic(lacking("Stop")) }
func (siddonTimer) Reset(time.Duration) bool { panic(lacking("Reset")) }
func (siddonTimer) Unstoppable()             {}

// impls has all implementations, this library's first.
var impls = append(slices.Clone(workload.Impls), peers...)
