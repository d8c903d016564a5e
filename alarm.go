package timingwheel

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"
)

// An alarm is one bell for the whole wheel, usually a time.AfterFunc. The goroutine that calls
// drive when it rings is the driver. Between two rings the wheel has no goroutine (with
// WithPreciseWakeup, one that is parked).
//
// # No wake-up is lost
//
// A caller files a timer in a shard that a leaving driver has already looked at. Each might rely on
// the other to set the alarm. It is set all the same:
//
//   - the caller first stores the tick in its shard's next and then loads armed;
//     it moves the alarm if armed is later;
//   - the driver, and Start, first store unset in armed, then load every shard's
//     next, and set the alarm for the earliest.
//
// So at least one of the two sees what the other has stored. If the driver looked at the shards
// first, both could see nothing. A caller that comes between the driver's two steps finds armed
// unset, waits for alarm.mu, and compares again.
//
// While a driver is at work armed is awake, which is earlier than every tick: callers leave the
// alarm alone, because the driver looks again before it leaves. The same holds before Start, which
// looks too, and after the wheel's Stop, for good.
//
// An alarm may ring for nothing, when its bucket was emptied or when it was moved while its
// goroutine was starting. Such a driver finds nothing due, or a driver at work, and leaves.
//
// # An idle wheel
//
// Cancelling the alarm whenever the last timer is stopped would double the cost of starting and
// stopping one. So the alarm stays set, but does not keep the wheel alive: the bell refers to the
// wheel by a waker, which keeps it alive only while a timer is pending.
//
// A bell that takes a goroutine and a descriptor (WithPreciseWakeup) is given back once the wheel
// has been idle for idleBell. A caller, or the driver, that finds nothing pending publishes in
// lookAt when the driver must look, just as a shard publishes its next.
type alarm struct {
	// armed is the tick that the alarm is set for. Written under mu; callers load
	// it with every timer they file.
	armed atomic.Int64

	engine  *engine // fixed
	precise bool    // WithPreciseWakeup; fixed

	// mu guards what follows. It is taken when the alarm is set and when a driver
	// comes or goes, with or without a shard's lock, and nothing is locked under it.
	mu      sync.Mutex
	waker   *waker   // with the bell; fixed
	anchors []anchor // of the shards; fixed
	ringing int      // alarms set that have not reached drive
	driving bool     // a driver is at work
	wakeups int64    // rings that reached drive

	idleWakeups int64 // of these, the ones that found nothing to do

	// quiet is closed once nothing of a stopped wheel runs any more. It is made
	// by the first Shutdown that must wait.
	quiet chan struct{}

	// lookAt is the tick at which the driver looks whether the wheel is still idle
	// and gives the bell back if it is; unset if it need not. It is stored under a
	// shard's lock or mu, and before armed is loaded, as a shard's next is; of two that store
	// at once either will do. idle, under mu, says that the driver at work was woken for that.
	lookAt atomic.Int64
	idle   bool
}

const (
	// unset, as an alarm's tick, is later than any bucket's; awake is earlier.
	unset int64 = math.MaxInt64
	awake int64 = -1

	// idleBell is how long a wheel with WithPreciseWakeup keeps its bell with nothing pending. A
	// new bell costs some 10 us, and a look at whether it can be given back costs a wake-up.
	idleBell = 100 * time.Millisecond
)

// wakeAt makes sure that a driver looks at the wheel when tick e has come: the one
// at work, or one that the alarm starts. Cost: usually one load.
func (a *alarm) wakeAt(e int64) {
	if e >= a.armed.Load() {
		return
	}
	_ = pause("waking")
	a.mu.Lock()
	defer a.mu.Unlock()
	if e < a.armed.Load() {
		a.setLocked(e)
	}
}

// setLocked sets the alarm for tick e. It reads the clock again: the reading of a caller that was
// held up on its way here would make the alarm, and every timer of the wheel, late by as much.
func (a *alarm) setLocked(e int64) {
	a.armed.Store(e)
	d := a.engine.untilTick(e)
	switch w := a.waker; {
	case w.bell == nil:
		w.bell, w.anchors = a.newBell(d), a.anchors
		a.ringing++
	case !w.bell.Reset(d):
		a.ringing++ // otherwise the ring that was to come has been moved
	}
}

// A bell wakes the driver once, on a goroutine of its own, when its time has come. A *time.Timer is
// a bell, and the methods mean the same for all bells.
type bell interface {
	Reset(d time.Duration) (moved bool)
	Stop() (prevented bool)
}

func (a *alarm) newBell(d time.Duration) bell {
	if a.precise {
		if b := newPreciseBell(d, a.waker.wake); b != nil {
			return b
		}
	}
	return time.AfterFunc(d, a.waker.wake)
}

// A waker is what the bell knows of its wheel. It keeps the wheel alive while a timer is
// pending, and no longer: the anchor of each shard that has one refers to the wheel.
type waker struct {
	engine weak.Pointer[engine]

	// Guarded by alarm.mu, and set together. Without a bell the anchors must not hold: a wheel
	// that is never started has none, and its cleanup refers to the waker.
	bell    bell
	anchors []anchor
}

// An anchor is written under its shard's lock. In a shard with one timer at a time it is written
// for each timer, so every anchor has a cache line of its own.
type anchor struct {
	engine *engine // not nil while the shard wants the driver
	_      [64 - unsafe.Sizeof(uintptr(0))]byte
}

// init prepares the alarm of e, whose shards exist.
func (a *alarm) init(e *engine, precise bool) {
	w := &waker{engine: weak.Make(e)}
	a.engine, a.precise, a.waker = e, precise, w
	a.armed.Store(unset)
	a.lookAt.Store(unset)
	a.anchors = make([]anchor, len(e.shards))
	for i := range e.shards {
		e.shards[i].anchor = &a.anchors[i]
	}
	// A synctest bubble does not let others stop its timers: the bell of a wheel that is
	// collected there stays set.
	if !isWallOnly(e.start) {
		runtime.AddCleanup(e, (*waker).dismiss, w)
	}
}

func (w *waker) wake() {
	if e := w.engine.Value(); e != nil {
		e.driver.drive()
	}
}

// dismiss stops the bell of a wheel that has been collected. It needs no lock: alarm.mu is gone
// with the wheel, and so is all that could set the bell.
func (w *waker) dismiss() {
	if w.bell != nil {
		w.bell.Stop()
	}
}

// letGoLocked is called when a caller has taken out the last timer of the shard. (When the
// driver has, settle and restLocked do the same.)
func (s *shard) letGoLocked() {
	if s.anchor.engine == nil {
		return // that timer would never have come: there may be no bell
	}
	s.anchor.engine = nil
	if a := &s.engine.alarm; a.precise && a.lookAt.Load() == unset {
		look := a.nextLook()
		a.lookAt.Store(look)
		_ = pause("letting go")
		a.wakeAt(look)
	}
}

// nextLook returns the tick at which a wheel that is idle now gives its bell back.
func (a *alarm) nextLook() int64 {
	return a.engine.tickOf(deadlineAfter(a.engine.now(), idleBell))
}

// start lets a wheel run that waits for Start.
func (a *alarm) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.engine.started.Swap(true) {
		a.restLocked()
	}
}

// restLocked leaves the wheel to the alarm, in the order that the top of this file explains.
func (a *alarm) restLocked() {
	if a.engine.stopped.Load() {
		// Looked at under the lock that halt takes next, so either this sees it
		// or halt sees the alarm. There may still be timers; the sweep gets them.
		return
	}
	a.armed.Store(unset)
	first := a.lookAt.Load()
	for i := range a.engine.shards {
		first = min(first, a.engine.shards[i].next.Load())
	}
	_ = pause("resting")
	if first == unset && a.precise && a.waker.bell != nil {
		if a.idle {
			a.stopBellLocked()
			a.waker.bell = nil
			return
		}
		first = a.nextLook()
		a.lookAt.Store(first)
	}
	if first != unset {
		a.setLocked(first)
	}
}

// silence ends the alarm of a stopped wheel.
func (a *alarm) silence() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed.Store(awake)
	a.stopBellLocked()
}

func (a *alarm) stopBellLocked() {
	if a.waker.bell != nil && a.waker.bell.Stop() {
		a.ringing--
	}
}

// quietChan returns a channel that is closed once the stopped wheel is quiet.
func (a *alarm) quietChan() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quiet == nil {
		a.quiet = make(chan struct{})
	}
	quiet := a.quiet
	a.announceQuietLocked()
	return quiet
}

// announceQuietLocked tells Shutdown if nothing of the stopped wheel runs any
// more: no callback, no driver, and no alarm that has rung and not reached drive.
func (a *alarm) announceQuietLocked() {
	if a.quiet == nil || a.engine.executor.inflight.Load() > 0 || a.driving || a.ringing > 0 {
		return
	}
	select {
	case <-a.quiet: // closed before
	default:
		close(a.quiet)
	}
}
