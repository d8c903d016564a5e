package timingwheel

import (
	"context"
	"slices"
	"time"
)

// This file holds the calls that make, start and stop a wheel, and its plain timers. They check
// their arguments and leave the rest to the engine. The locks, and the path of a timer, are in
// engine.go.

// A TimingWheel runs callbacks when their time has come. New and NewTimingWheel make one. All its
// methods may be called from any goroutine, callbacks of the wheel included.
type TimingWheel struct {
	engine
	missed missedPolicy  // of schedules whose options do not say
	open   chan struct{} // never closed: see source.Done
}

// New returns a wheel that runs from its first timer; no Start is needed. The defaults are a tick
// of a millisecond and a goroutine for each callback. New panics if an option is nil or if two
// options contradict each other.
//
// A wheel with nothing pending has no goroutine and is garbage collected once it is unreachable, so
// the program may simply drop it. Pending timers keep their wheel alive until they have fired.
func New(opts ...Option) *TimingWheel {
	c := config{settings: settings{tick: defaultTick, wheelSize: defaultWheelSize}}
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: New with a nil Option")
		}
		opt(&c)
	}
	c.settings.observer = c.observer()
	tw := &TimingWheel{open: make(chan struct{})}
	tw.engine.init(c.settings)
	tw.started.Store(true)
	return tw
}

// NewTimingWheel returns a wheel whose timers wait for Start, with the signature of the well-known
// Go port of Kafka's wheel. As in that port, a schedule makes up for every run that it missed:
// RunMissed is the default here. SkipMissed overrides it. NewTimingWheel panics if tick is not
// positive or wheelSize is not between 2 and 65,536.
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

// Start lets a wheel made by NewTimingWheel run. Deadlines count from the calls that made the
// timers, so what is overdue fires now. Starting a running or stopped wheel does nothing.
func (tw *TimingWheel) Start() {
	tw.check("Start")
	tw.alarm.start()
}

// AfterFunc calls f once d has passed, by default in a goroutine of its own. The call is never
// early, and late by at most one tick plus what the platform takes to wake up. A zero or negative d
// is due at once; one beyond 146 years never comes. On a stopped wheel the Timer is inert.
//
// Cost: one clock reading, one mutex, constant time, one allocation.
func (tw *TimingWheel) AfterFunc(d time.Duration, f func()) *Timer {
	tw.check("AfterFunc")
	if f == nil {
		panic("timingwheel: AfterFunc with a nil callback")
	}
	now := tw.now()
	t := &Timer{f: f}
	tw.armNew(t, plain, pending, deadlineAfter(now, d), now)
	return t
}

// AtFunc calls f at the time at. If at has a monotonic reading, as times derived from time.Now
// have, AtFunc is AfterFunc to that instant. A time without one, such as a parsed or stored one, is
// a time of the wall clock. That clock is read again before f is called, and at least once a minute
// while the timer is pending. So a step of the clock or a suspend of the machine is noticed within
// a minute. Reset and ResetAt make it a monotonic timer.
func (tw *TimingWheel) AtFunc(at time.Time, f func()) *Timer {
	tw.check("AtFunc")
	if f == nil {
		panic("timingwheel: AtFunc with a nil callback")
	}
	if isWallOnly(at) {
		return tw.atWall(at, f)
	}
	t := &Timer{f: f}
	tw.armNew(t, plain, pending, tw.deadlineAt(at), tw.now())
	return t
}

// Init prepares t, typically a field of the caller's own struct, to call f. It
// arms nothing; Reset and ResetAt do, again and again, without allocating. Init
// panics if t is pending, follows the wall clock, or belongs to a schedule, a channel or a Map.
// Unlike the other calls it must not run while any other goroutine uses t.
//
// A Reset that comes after the timer has fired arms it again, as with time.Timer. So a program that
// extends an idle timeout and sees Reset return false should Stop the timer again if the connection
// is being closed.
func (tw *TimingWheel) Init(t *Timer, f func()) {
	tw.check("Init")
	switch {
	case t == nil:
		panic("timingwheel: Init of a nil Timer")
	case f == nil:
		panic("timingwheel: Init with a nil callback")
	case isPending(t.word.Load()):
		panic("timingwheel: Init of a pending Timer")
	case t.kind != plain:
		// A run of a schedule that was handed over still looks at the word.
		panic("timingwheel: Init of a Timer that is part of " + t.kind.behaviour().name)
	}
	switch s := t.shard; {
	case s == nil:
		t.shard = tw.deal()
	case s.engine != &tw.engine:
		// The goroutine that made t idle may be about to unlink it, under that lock. The
		// new shard has another.
		s.mu.Lock()
		defer s.mu.Unlock()
		t.shard = tw.deal()
	}
	if t.shard == nil {
		// Never. But what may be passed to panic is on the heap, where it keeps its
		// address. A stack moves as it grows.
		panic(t)
	}
	t.self = selfOf(t)
	t.f = f // and nothing else that the goroutine that made t idle may still look at
	t.word.Store(makeWord(idle, 0))
}

// Stop stops the wheel for good and drops what is pending. Those timers, and those made afterwards,
// are inert: their Stop and Reset return false. When Stop returns, nothing pending is retained and
// nothing more is claimed. It does not wait for callbacks, nor for the driver, which may still hand
// over what it claimed before. Shutdown waits for both. Stop may be called again, before Start, and
// from a callback.
//
// Package time takes over contexts, the channels of After, NewTimer and NewTicker, and the limits
// of netidle's connections. Otherwise a goroutine might wait forever. They keep their deadlines,
// and those made on a stopped wheel work in the same way. A Ticker goes on until its own Stop.
//
// Cost: proportional to the number of pending timers, with the lock released every so often.
func (tw *TimingWheel) Stop() {
	tw.check("Stop")
	tw.halt(nil)
}

// Drain stops the wheel as Stop does, and returns what had not fired, in the order of the
// deadlines. A live schedule appears once, with its next run. A channel appears too, although
// package time sends on it at the deadline. Its F sends at once instead, and does nothing if the
// timer has sent or was stopped or reset meanwhile.
func (tw *TimingWheel) Drain() []Unfired {
	tw.check("Drain")
	unfired := make([]Unfired, 0, tw.Len()) // before halt, which holds the lock
	tw.halt(&unfired)
	slices.SortStableFunc(unfired, func(a, b Unfired) int { return a.Deadline.Compare(b.Deadline) })
	return unfired
}

// Shutdown stops the wheel as Stop does, and waits until every callback that was handed over has
// returned and the driver has left. It returns nil once no goroutine of the wheel is left, or
// ctx.Err() if the context ends first; it may then be called again. It does not wait for what
// package time has taken over, which has no goroutine while it is pending. A callback must not call
// Shutdown with a context that does not end, because it would wait for itself.
func (tw *TimingWheel) Shutdown(ctx context.Context) error {
	tw.check("Shutdown")
	if ctx == nil {
		panic("timingwheel: Shutdown with a nil context")
	}
	tw.Stop()
	quiet := tw.alarm.quietChan()
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
