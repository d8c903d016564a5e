package timingwheel

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// The way of a timer: AfterFunc -> arm -> wheel.place -> bucket -> delayQueue
// -> drive -> flush -> fire, or wheel.place again.
//
// # Locking
//
// Each shard has a lock, which guards its timers, the alarm has one, and so has each
// context and each shard of a Map's table. They are taken in this order: a context's (more in
// context.go) or a table's, a shard's, the alarm's; no goroutine holds two shards'. Each is
// held for a bounded number of timers at a time and never while user code runs:
// callbacks, executors, Schedulers and panic handlers are all called without any, so
// they may call anything of the wheel. The alarm is set under both, and a caller's
// own timer that is due at once gets its goroutine under its shard's; neither
// blocks. Timer.extend and keep alone change a timer without a lock. Callers never wait for
// the driver, only for a lock. Init of a timer from another wheel takes the lock
// of the shard that it leaves, and no other.

// A TimingWheel runs callbacks when their time has come. It is made by New or
// NewTimingWheel, and all its methods may be called from any goroutine,
// callbacks of the wheel included.
type TimingWheel struct {
	// Fixed from construction on.
	start     time.Time // instant 0
	tick      int64     // nanoseconds
	wheelSize int
	nshards   int
	precise   bool // WithPreciseWakeup
	executor  executor
	run       func(f func()) // of the custom executor
	onPanic   func(recovered any, stack []byte)
	missed    missedPolicy                // of schedules whose options do not say
	slow      *slowWatch                  // see WithSlowCallback, nil for none
	around    func(name string, f func()) // calls f for wheeldebug, nil for none
	wall      func() time.Time            // the wall clock: time.Now, but for tests that step it
	shards    []shard

	// open is never closed: what contexts have for a channel as long as they are not
	// done and their inner one asks (see source).
	open chan struct{}

	// started and stopped change once. An add looks at stopped under its shard's
	// lock, and halt sweeps the shards after it has set it: whatever slips in before
	// is swept.
	started, stopped atomic.Bool

	homes [1 << homeBits]atomic.Uint32 // see lockHome
	dealt atomic.Uint32                // see deal

	_ [64]byte // what is above is read all the time, what is below is written

	// inflight counts callbacks that were handed over and have not returned,
	// those of the inline executor aside.
	inflight atomic.Int64
	waiting  atomic.Int64 // of these, those that a custom executor has not begun

	_ [64]byte

	begun sharedLateness // of callbacks, as they began

	_ [64]byte

	alarm  alarm
	driver driver
}

// New returns a wheel that runs from its first timer; no Start is needed. The
// defaults are a tick of a millisecond and a goroutine for each callback.
// Options that make no sense panic.
//
// A wheel with nothing pending has no goroutine and is collected once it is
// unreachable, so it may simply be dropped. Pending timers keep their wheel until they have fired.
func New(opts ...Option) *TimingWheel {
	tw := &TimingWheel{
		start:     time.Now(),
		tick:      int64(defaultTick),
		wheelSize: defaultWheelSize,
		wall:      time.Now,
		open:      make(chan struct{}),
	}
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: New with a nil Option")
		}
		opt(tw)
	}
	tw.makeShards()
	tw.makeWaker()
	tw.alarm.armed.Store(unset)
	tw.alarm.lookAt.Store(unset)
	tw.started.Store(true)
	return tw
}

// NewTimingWheel returns a wheel whose timers wait for Start, with the
// signature of the well-known Go port of Kafka's wheel. As in that port, a
// schedule makes up for every run that it missed, which with New takes the
// option RunMissed; SkipMissed overrides it. NewTimingWheel panics if tick is
// not positive or wheelSize is not between 2 and 65,536.
func NewTimingWheel(tick time.Duration, wheelSize int64) *TimingWheel {
	mustBeTick("NewTimingWheel", tick)
	mustBeWheelSize("NewTimingWheel", wheelSize) // which also has it fit an int
	tw := New(WithTick(tick), WithWheelSize(int(wheelSize)))
	tw.missed = runMissed
	tw.started.Store(false)
	tw.alarm.armed.Store(awake)
	return tw
}

// check panics if tw cannot be used; what names the call.
func (tw *TimingWheel) check(what string) {
	if tw == nil {
		panic("timingwheel: " + what + " on a nil TimingWheel")
	}
	if tw.shards == nil {
		panic("timingwheel: " + what + " on a TimingWheel that New did not make")
	}
}

// Start lets a wheel made by NewTimingWheel run. Deadlines count from the calls
// that made the timers, so what is overdue fires now. Starting a running or
// stopped wheel does nothing.
func (tw *TimingWheel) Start() {
	tw.check("Start")
	tw.alarm.mu.Lock()
	defer tw.alarm.mu.Unlock()
	if !tw.started.Swap(true) {
		tw.restLocked()
	}
}

// AfterFunc calls f once d has passed, by default in a goroutine of its own.
// The call never comes early, and late by at most one tick plus what the
// platform takes to wake up. A zero or negative d is due at once; one beyond
// 146 years never comes. On a stopped wheel the Timer is inert.
//
// Cost: one clock reading, one mutex, constant time, one allocation.
func (tw *TimingWheel) AfterFunc(d time.Duration, f func()) *Timer {
	tw.check("AfterFunc")
	if f == nil {
		panic("timingwheel: AfterFunc with a nil callback")
	}
	now := tw.now()
	return tw.newTimer(f, deadlineAfter(now, d), now)
}

// AtFunc calls f at the time at. If at has a monotonic reading, as times
// derived from time.Now have, AtFunc is AfterFunc to that instant. A time
// without one, such as a parsed or stored one, is meant by the wall clock: it
// is read again before f is called, and at least once a minute while the timer
// is pending, so that a step of the clock or a suspend of the machine is
// noticed within a minute. Reset and ResetAt make it a monotonic timer.
func (tw *TimingWheel) AtFunc(at time.Time, f func()) *Timer {
	tw.check("AtFunc")
	if f == nil {
		panic("timingwheel: AtFunc with a nil callback")
	}
	if isWallOnly(at) {
		return tw.atWall(at, f)
	}
	return tw.newTimer(f, tw.deadlineAt(at), tw.now())
}

func (tw *TimingWheel) newTimer(f func(), deadline, now int64) *Timer {
	t := &Timer{f: f}
	t.mark(plain)
	s := tw.lockHome()
	t.shard = s
	s.armLocked(t, pending, deadline, now)
	s.mu.Unlock()
	return t
}

// Stop stops the wheel for good and drops what is pending: those timers, and
// those made afterwards, are inert. When it returns, nothing pending is retained
// and nothing more is claimed. It does not wait for the driver, which may just be
// handing over what it claimed before, or for callbacks; Shutdown does. Stop may
// be called again, before Start, and from a callback.
//
// Package time takes over what would leave someone waiting for ever: contexts, the
// channels of After, NewTimer and NewTicker, and the limits of netidle's connections.
// They keep their deadlines, and those made on a stopped wheel work in the same way. A
// Ticker goes on until its own Stop.
//
// Cost: proportional to the number of pending timers, with the lock released
// every so often.
func (tw *TimingWheel) Stop() {
	tw.check("Stop")
	tw.halt(nil)
}

// Unfired is a timer that was pending when its wheel was stopped.
type Unfired struct {
	Timer    *Timer    // as AfterFunc returned it or Init was given it; inert now
	Deadline time.Time // when it would have fired
	F        func()    // what it would have called
}

// Drain is Stop, and hands back what had not fired, by deadline. A live
// schedule appears once, with its next run. A channel appears too, though package time
// sends on it at the deadline: F sends at once instead, and does nothing if the timer
// has been sent, stopped or reset meanwhile.
func (tw *TimingWheel) Drain() []Unfired {
	tw.check("Drain")
	unfired := make([]Unfired, 0, tw.Len()) // before halt, which holds the lock
	tw.halt(&unfired)
	slices.SortStableFunc(unfired, func(a, b Unfired) int { return a.Deadline.Compare(b.Deadline) })
	return unfired
}

// halt stops the wheel and sweeps out what is pending, into unfired if that is
// not nil.
func (tw *TimingWheel) halt(unfired *[]Unfired) {
	tw.stopped.Store(true)
	_ = pause("halting")
	tw.silence() // again, if another Stop has not come to it yet: Shutdown waits for the ring
	for i := range tw.shards {
		tw.shards[i].sweep(unfired)
	}
}

func (t *Timer) unfired(word uint64, f func()) Unfired {
	u := Unfired{Timer: t, Deadline: t.shard.tw.instant(deadlineOf(word)), F: f}
	switch t.kind {
	case plain, sending, keyed:
		return u
	}
	r := t.schedule()
	u.F = r.f
	if stateOf(word) == onWall {
		u.Deadline = r.at
	}
	return u
}

// Shutdown is Stop, and waits until every callback that was handed over has
// returned and the driver has left. It returns nil once no goroutine of the
// wheel is left, and ctx.Err() if the context ends first; it may then be called
// again. It does not wait for what package time has taken over, which has no goroutine
// while it waits. A callback must not call Shutdown with a context that does not end, as
// it would wait for itself.
func (tw *TimingWheel) Shutdown(ctx context.Context) error {
	tw.check("Shutdown")
	if ctx == nil {
		panic("timingwheel: Shutdown with a nil context")
	}
	tw.Stop()
	quiet := tw.quietChan()
	select {
	case <-quiet:
		return nil
	default:
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
