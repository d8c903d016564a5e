package timingwheel

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A TimingWheel runs callbacks when their time has come. It is made by New or
// NewTimingWheel, and all its methods may be called from any goroutine,
// callbacks of the wheel included.
//
// The way of a timer: AfterFunc -> arm -> wheel.place -> bucket -> delayQueue
// -> drive -> flush -> fire, or wheel.place again.
//
// # Locking
//
// There is one lock, mu. It is held for a bounded number of timers at a time
// and never while user code runs: callbacks, executors, Schedulers and panic
// handlers are all called without it, so they may call anything of the wheel.
// The alarm is set under it, and a caller's own timer that is due at once gets its
// goroutine under it; neither blocks. Timer.extend alone changes a timer without
// it. Callers never wait for the driver, only for the lock. Init of a
// timer from another wheel takes that wheel's lock, and no other.
type TimingWheel struct {
	// Fixed from construction on.
	start     time.Time // instant 0
	tick      int64     // nanoseconds
	wheelSize int
	executor  executor
	run       func(f func()) // of the custom executor
	onPanic   func(recovered any, stack []byte)
	wall      func() time.Time // the wall clock: time.Now, but for tests that step it

	// inflight counts callbacks that were handed over and have not returned,
	// those of the inline executor aside. stopped is written under mu, so it does
	// not change while the lock is held; both are atomic for the end of a callback
	// and for a run that waits in a queue, which look at them without the lock.
	inflight atomic.Int64
	stopped  atomic.Bool

	// mu guards what follows, every bucket, and the links of every timer.
	mu      sync.Mutex
	wheel   *wheel // the lowest
	queue   delayQueue
	started bool
	stats   Stats // the counters; Pending and Levels are filled in by Stats

	due    bucket // armed for a time that had come already; waits for the driver
	batch  bucket // what the driver took from due for its present round
	beyond bucket // deadline never

	// The driver and its alarm; see driver.go.
	alarm   *time.Timer
	armed   int64 // the tick the alarm is set for, unset if it is not
	ringing int   // alarms set that have not reached drive
	driving bool  // a driver is at work: it looks again before it leaves
	calling bool  // the driver is in user code, without the lock
	held    int   // timers handled in the present hold of the lock

	// The driver's alone, with or without the lock, as there is one at a time:
	// timers it has handled, when it last yielded the processor, and for how long;
	handled          uint
	resumed, yielded int64

	// and the callbacks that it starts a goroutine for once it has released the
	// lock.
	claimed  [holdLimit]func()
	nclaimed int

	// quiet is closed once nothing of a stopped wheel runs any more. It is made
	// by the first Shutdown that has to wait.
	quiet chan struct{}
}

// New returns a wheel that runs from its first timer; no Start is needed. The
// defaults are a tick of a millisecond and a goroutine for each callback.
// Options that make no sense panic.
//
// A wheel with nothing pending has no goroutine and no alarm, so it may simply
// be dropped.
func New(opts ...Option) *TimingWheel {
	tw := &TimingWheel{
		start:     time.Now(),
		tick:      int64(defaultTick),
		wheelSize: defaultWheelSize,
		wall:      time.Now,
		started:   true,
		armed:     unset,
	}
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: nil Option")
		}
		opt(tw)
	}
	tw.wheel = newWheel(1, tw.wheelSize, 0)
	tw.due.init()
	tw.batch.init()
	tw.beyond.init()
	return tw
}

// NewTimingWheel returns a wheel whose timers wait for Start, with the
// signature of the well-known Go port of Kafka's wheel. It panics if tick is
// not positive or wheelSize is below 2.
func NewTimingWheel(tick time.Duration, wheelSize int64) *TimingWheel {
	if int64(int(wheelSize)) != wheelSize { // on 32-bit machines
		panic(wheelSizeMessage(wheelSize))
	}
	tw := New(WithTick(tick), WithWheelSize(int(wheelSize)))
	tw.started = false
	return tw
}

// check panics if tw cannot be used; what names the call.
func (tw *TimingWheel) check(what string) {
	if tw == nil {
		panic("timingwheel: " + what + " on a nil TimingWheel")
	}
	if tw.wheel == nil {
		panic("timingwheel: " + what + " on a TimingWheel that New did not make")
	}
}

// Start lets a wheel made by NewTimingWheel run. Deadlines count from the calls
// that made the timers, so what is overdue fires now. Starting a running or
// stopped wheel does nothing.
func (tw *TimingWheel) Start() {
	tw.check("Start")
	tw.mu.Lock()
	defer tw.mu.Unlock()
	if tw.started || tw.stopped.Load() {
		return
	}
	tw.started = true
	if b := tw.queue.nextBusy(); b != nil {
		tw.wakeAtLocked(b.expiration)
	}
	if !tw.due.empty() {
		tw.wakeAtLocked(tw.wheel.now)
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
	t := &Timer{tw: tw, f: f}
	tw.arm(t, pending, deadlineAfter(now, d), now)
	return t
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
	now := tw.now()
	t := &Timer{tw: tw, f: f}
	tw.arm(t, pending, tw.deadlineAt(at), now)
	return t
}

// arm makes t pending until the deadline and reports whether it was pending
// before. now is the caller's reading of the clock; the wheel may have gone past
// it since.
func (tw *TimingWheel) arm(t *Timer, s state, deadline, now int64) (wasPending bool) {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	return tw.armLocked(t, s, deadline, now)
}

// rearm is arm for Reset.
func (tw *TimingWheel) rearm(t *Timer, deadline, now int64) (wasPending bool) {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	if t.kind == recurring {
		if !isPending(t.word.Load()) {
			return false // the schedule has ended
		}
		deadline = max(deadline, now) // a run that Reset moves here is not one that was missed
	}
	return tw.armLocked(t, pending, deadline, now)
}

func (tw *TimingWheel) armLocked(t *Timer, s state, deadline, now int64) (wasPending bool) {
	if tw.stopped.Load() {
		// Looked at under the lock, or the timer could slip in behind the sweep
		// of halt. What is still pending is left to that sweep.
		return false
	}
	tw.catchUpLocked(now)
	// A goroutine needs no driver to start it: what is due fires here.
	fires := deadline <= now && tw.executor == goroutine && tw.started && t.kind == plain
	f, to := t.f, makeWord(s, deadline)
	if fires {
		to = makeWord(idle, 0)
	}
	for {
		word := t.word.Load()
		wasPending = isPending(word)
		if t.word.CompareAndSwap(word, to) {
			break
		}
	}
	if wasPending {
		t.unlink()
	} else {
		tw.stats.Started++
	}
	if fires {
		tw.stats.Fired++
		tw.inflight.Add(1)
		go tw.call(f)
		return wasPending
	}
	tw.wakeAtLocked(tw.placeLocked(t, deadline, now))
	return wasPending
}

// placeLocked puts t, which is in no bucket, where its deadline belongs, and
// returns the tick at which the driver has to look there: the clock's own if
// the deadline is not after now, unset if it never comes. The caller sees to the
// alarm under the same hold of the lock.
func (tw *TimingWheel) placeLocked(t *Timer, deadline, now int64) (attention int64) {
	if deadline == never {
		tw.beyond.add(t)
		return unset
	}
	// A deadline that has come is due at once, not when the tick that has begun
	// is over. For the rest the wheel's own clock decides, not the caller's
	// reading, which may be older: filed by that one, the timer could land one
	// lap late.
	e := tw.tickOf(deadline)
	if deadline <= now || e <= tw.wheel.now {
		tw.due.add(t)
		return tw.wheel.now
	}
	b, expiration := tw.wheel.place(e)
	b.add(t)
	if !b.queued {
		tw.queue.add(b, expiration)
	}
	return expiration
}

// catchUpLocked moves the clock of a wheel that had nothing to do up to now, so
// that new timers are not filed coarser than need be. It stops short of the
// first queued bucket: going past that one is for the driver, which flushes it.
func (tw *TimingWheel) catchUpLocked(now int64) {
	to := now / tw.tick
	if head := tw.queue.head(); head != nil {
		to = min(to, head.expiration-1)
	}
	tw.wheel.advance(to)
}

// Stop stops the wheel for good and drops what is pending: those timers, and
// those made afterwards, are inert. When it returns, nothing pending is retained
// and nothing more will be handed to the executor. It does not wait for the
// driver or for callbacks that were handed over before; Shutdown does. Stop may
// be called again, before Start, and from a callback.
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
// schedule appears once, with its next run.
func (tw *TimingWheel) Drain() []Unfired {
	tw.check("Drain")
	unfired := make([]Unfired, 0, tw.Len()) // before halt, which holds the lock
	tw.halt(&unfired)
	slices.SortStableFunc(unfired, func(a, b Unfired) int { return a.Deadline.Compare(b.Deadline) })
	return unfired
}

// halt stops the wheel and sweeps out what is pending, into unfired if that is
// not nil. Several may sweep at once; each returns when nothing is left.
func (tw *TimingWheel) halt(unfired *[]Unfired) {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	if !tw.stopped.Swap(true) && tw.alarm != nil && tw.alarm.Stop() {
		tw.ringing--
	}
	for n := 1; ; n++ {
		t := tw.anyPendingLocked()
		if t == nil {
			return
		}
		word, _ := t.disarm(idle)
		t.unlink()
		tw.stats.Dropped++
		if unfired != nil {
			*unfired = append(*unfired, tw.unfired(t, word))
		}
		if n%holdLimit == 0 {
			tw.mu.Unlock()
			tw.mu.Lock()
		}
	}
}

// anyPendingLocked returns a pending timer, nil if there is none.
func (tw *TimingWheel) anyPendingLocked() *Timer {
	for _, b := range []*bucket{&tw.due, &tw.batch, &tw.beyond, tw.queue.nextBusy()} {
		if b != nil && !b.empty() {
			return b.front()
		}
	}
	return nil
}

func (tw *TimingWheel) unfired(t *Timer, word uint64) Unfired {
	u := Unfired{Timer: t, Deadline: tw.instant(deadlineOf(word)), F: t.f}
	if t.kind == plain {
		return u
	}
	s := t.schedule()
	u.F = s.f
	if stateOf(word) == onWall {
		u.Deadline = s.at
	}
	return u
}

// Shutdown is Stop, and waits until every callback that was handed over has
// returned and the driver has left. It returns nil once no goroutine of the
// wheel is left, and ctx.Err() if the context ends first; it may then be called
// again. A callback must not call it with a context that does not end, as it
// would wait for itself.
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

// quietChan returns a channel that is closed once the stopped wheel is quiet.
func (tw *TimingWheel) quietChan() <-chan struct{} {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	if tw.quiet == nil {
		tw.quiet = make(chan struct{})
	}
	quiet := tw.quiet
	tw.announceQuietLocked()
	return quiet
}

// announceQuietLocked tells Shutdown if nothing of the stopped wheel runs any
// more: no callback, no driver, and no alarm that has rung and not reached drive.
func (tw *TimingWheel) announceQuietLocked() {
	if tw.quiet == nil || tw.inflight.Load() > 0 || tw.driving || tw.ringing > 0 {
		return
	}
	select {
	case <-tw.quiet: // closed before
	default:
		close(tw.quiet)
	}
}
