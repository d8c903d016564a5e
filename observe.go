package timingwheel

import (
	"sync"
	"time"
)

// This file holds what observes callbacks by name: the hook for slow ones, and the one that package
// wheeldebug uses for labels. It sets the observer of the executor, which also writes the regions
// of execution traces. Without an observer a callback costs a comparison and an atomic load more.
// Only the caller's functions are observed, and not ours that lead to them, such as a schedule's
// run.

// SlowCallback describes a callback that took longer than the limit of WithSlowCallback.
type SlowCallback struct {
	// Name is the name of the function, as package runtime has it. A function
	// literal has the name of the enclosing function with a number, such as main.serve.func1.
	Name string

	// Waited says that the callback waited for longer than the limit until the executor of
	// WithExecutor began it.
	Waited bool

	// Alone says that the callback runs on a goroutine of its own, the default, and so holds up no
	// other. If neither Waited nor Alone is set, the callback, or the executor that was to take it,
	// held up the driver, and so every other timer of the wheel.
	Alone bool

	// For is how long the callback has taken so far, and Over says whether that is over. A slow
	// callback is reported twice, when it reaches the limit and when it returns. One that never
	// returns is reported once. One that waited is reported when it begins.
	For  time.Duration
	Over bool
}

// WithSlowCallback makes the wheel call h when a callback runs for longer than limit, on a
// goroutine of its own or inline. With WithExecutor, it calls h when the executor blocks the driver
// for longer than limit, and when it begins a callback more than limit after receiving it. It does
// not watch how long a callback runs on such an executor. Each run of a schedule counts by itself.
// Package wheeldebug has a hook that logs.
//
// h is called on a goroutine of package time, and on those of the callbacks, the driver and the
// executor, possibly on several at once. It should return soon. Cost: for each callback a clock
// reading, two allocations, and two uses of a mutex that all callbacks share; for the wheel one
// timer of package time while callbacks run. WithSlowCallback panics if limit is not positive or if
// h is nil.
func WithSlowCallback(limit time.Duration, h func(SlowCallback)) Option {
	if limit <= 0 {
		panic("timingwheel: WithSlowCallback with the non-positive limit " + limit.String())
	}
	if h == nil {
		panic("timingwheel: WithSlowCallback with a nil hook")
	}
	return func(c *config) { c.slow = &slowWatch{limit: limit, hook: h} }
}

// A slowWatch finds the calls that last longer than its limit. All calls have the same limit, so
// they reach it in the order in which they began: one alarm is enough, set for the first. When it
// rings, what has reached the limit is reported and taken off the list. It does not know the wheel,
// so that it does not keep one alive until the alarm has rung.
type slowWatch struct {
	limit time.Duration
	hook  func(SlowCallback)

	mu          sync.Mutex // guards what follows and the list's links; not held while the hook runs
	first, last *slowCall  // those that have not reached the limit, the oldest first
	alarm       *time.Timer
	armed       bool // the alarm is to ring, or is ringing
}

// A slowCall is a call that is being watched.
type slowCall struct {
	named      func()
	alone      bool
	began      time.Time
	reported   bool // and no longer in the list
	next, prev *slowCall
}

// watch calls f on behalf of the callback named.
func (w *slowWatch) watch(named func(), alone bool, f func()) {
	c := &slowCall{named: named, alone: alone, began: time.Now()}
	w.begin(c)
	defer w.end(c)
	f()
}

func (w *slowWatch) begin(c *slowCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.prev = w.last; c.prev == nil {
		w.first = c
	} else {
		c.prev.next = c
	}
	w.last = c
	if !w.armed {
		w.armLocked(w.limit)
	}
}

func (w *slowWatch) end(c *slowCall) {
	w.mu.Lock()
	reported := c.reported
	if !reported {
		w.removeLocked(c)
	}
	w.mu.Unlock()
	if reported {
		w.report(c, true)
	}
}

// ring reports what has reached the limit.
func (w *slowWatch) ring() {
	var slow []*slowCall
	w.mu.Lock()
	w.armed = false
	for c := w.first; c != nil; c = w.first {
		if left := w.limit - time.Since(c.began); left > 0 {
			w.armLocked(left)
			break
		}
		w.removeLocked(c)
		c.reported = true
		slow = append(slow, c)
	}
	w.mu.Unlock()
	for _, c := range slow {
		w.report(c, false)
	}
}

func (w *slowWatch) report(c *slowCall, over bool) {
	lasts := time.Since(c.began)
	w.hook(SlowCallback{Name: nameOf(c.named), Alone: c.alone, For: lasts, Over: over})
}

func (w *slowWatch) armLocked(d time.Duration) {
	w.armed = true
	if w.alarm == nil {
		w.alarm = time.AfterFunc(d, w.ring)
	} else {
		w.alarm.Reset(d)
	}
}

func (w *slowWatch) removeLocked(c *slowCall) {
	if c.prev == nil {
		w.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		w.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.next, c.prev = nil, nil
}

// observer returns what the executor calls for WithSlowCallback and for package wheeldebug.
func (c *config) observer() (o observer) {
	around, slow := c.around, c.slow
	if around != nil {
		o.callback = func(named, f func()) { around(nameOf(named), f) }
	}
	if slow == nil {
		return o
	}
	if c.mode == goroutine { // with the others what counts is the driver's time
		o.callback = func(named, f func()) {
			call := f
			if around != nil {
				call = func() { around(nameOf(named), f) }
			}
			slow.watch(named, true, call)
		}
	}
	o.driver = func(named, f func()) { slow.watch(named, false, f) }
	o.waited = func(named func(), waiting time.Duration) {
		if waiting > slow.limit {
			slow.hook(SlowCallback{Name: nameOf(named), Waited: true, For: waiting, Over: true})
		}
	}
	return o
}
