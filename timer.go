package timingwheel

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// This file holds the Timer: its states, and the calls that change one. A Timer is its own list
// element. It belongs to one shard for life, whose lock guards its links.
//
// # States
//
// The state word holds the state and the deadline together, so one load of it sees one arming and
// not halves of two:
//
//	from     to       by                        meaning
//	idle     pending  AfterFunc, Reset, others  armed
//	pending  pending  extend, without the lock  deadline later; returns true
//	pending  pending  keep, without the lock    deadline later, or as it was; returns true
//	pending  pending  Reset, ResetAt            moved; returns true
//	pending  pending  driver                    fired and armed for the next time, or due later by
//	                                            the wall clock
//	pending  idle     driver                    fired
//	pending  idle     Stop                      stopped; returns true
//	pending  ended    Stop, of some kinds       stopped for good; what was handed over and
//	                                            has not begun does not begin
//	pending  idle     TimingWheel.Stop, Drain   dropped, handed back, or taken over by package
//	                                            time (see halt.go)
//
// Every transition but two is made under the lock of the Timer's shard. extend and keep move the
// deadline of a pending Timer later by a compare-and-swap alone. So every transition is one atomic
// exchange, under the lock too: a load and a store could undo an extension that came in between. It
// is a compare-and-swap that tries again, or a swap where the old deadline does not matter. A
// transition depends on nothing but the word that it swaps, because the Timer may be stopped, moved
// and armed again at any moment in between.
//
// Pending has two forms. onWall says that the deadline is the next look at the wall clock and not
// the time that the caller asked for. Exactly the pending Timers are linked in a bucket, which is
// due no later than their deadlines. A move from bucket to bucket is not a transition, so Stop and
// Reset never find a Timer between two wheels.

// A Timer calls a function when its time has come. AfterFunc, AtFunc and ScheduleFunc make one, and
// Init initialises one inside the caller's own struct. A Timer must not be copied after that. Its
// methods may be called from any goroutine, also from its own callback. They panic if the Timer was
// never initialised or is a copy.
//
// It takes 48 bytes on 64-bit machines, and arming it allocates nothing.
type Timer struct {
	link         // in the list of the bucket; guarded by shard.mu
	shard *shard // fixed from Init on
	f     func() // fixed from Init on
	word  atomic.Uint64
	kind  kind   // fixed from Init on
	self  uint32 // selfOf the Timer, fixed from Init on: a copy has another address
}

type state uint64

const (
	idle    state = iota // not armed: new, fired, stopped, dropped or run out
	pending              // linked in a bucket, due at the deadline
	onWall               // the same, due when the wall clock says so
	ended                // stopped for good: see behaviour.stopped
)

const stateBits = 2

// makeWord packs a state and a deadline between 0 and never.
func makeWord(s state, deadline int64) uint64 { return uint64(deadline)<<stateBits | uint64(s) }

func stateOf(word uint64) state    { return state(word & (1<<stateBits - 1)) }
func deadlineOf(word uint64) int64 { return int64(word >> stateBits) }

// isPending reports whether a timer with this word is linked in a bucket.
func isPending(word uint64) bool {
	s := stateOf(word)
	return s == pending || s == onWall
}

// init prepares a new Timer for its shard. The caller holds the shard's lock, or no other goroutine
// can arm t yet.
func (t *Timer) init(s *shard, k kind) { t.shard, t.kind, t.self = s, k, selfOf(t) }

// selfOf returns what distinguishes t from a copy of it: 32 bits of its address, for which a Timer
// has room. It leaves out the low bits, which are the same for all Timers, and the high bits, which
// are the same for most.
func selfOf(t *Timer) uint32 { return uint32(uintptr(unsafe.Pointer(t)) >> 3) }

// home returns the shard of an initialised Timer; what names the caller.
func (t *Timer) home(what string) *shard {
	if t == nil || t.shard == nil || t.self != selfOf(t) {
		t.misused(what)
	}
	return t.shard
}

// misused panics. It is a function of its own so that the compiler inlines home.
func (t *Timer) misused(what string) {
	if t == nil || t.shard == nil {
		panic("timingwheel: " + what + " of a Timer that was never initialised")
	}
	// The driver, and Stop, would take the original out of its list instead of the copy.
	panic("timingwheel: " + what + " of a copied Timer")
}

// Stop prevents the Timer from firing. It returns true if it does: f will not be called for this
// arming. It returns false if f has been handed to the executor already, if the Timer was not
// pending, or if the wheel has been stopped. Stop does not wait for f to return.
//
// For a schedule, Stop ends it for good and returns true if it was alive, also while a run is in
// progress. A run that was handed over but has not begun does not begin.
//
// Cost: one mutex, constant time, no allocation.
func (t *Timer) Stop() bool {
	s := t.home("Stop")
	if !isPending(t.word.Load()) && !t.mayHaveRelay() {
		return false
	}
	_ = pause("stopping")
	s.mu.Lock()
	_, was := s.stopLocked(t) // else the driver or another caller came first
	s.mu.Unlock()
	return was
}

// disarm ends the arming of a pending timer, whatever its deadline, and returns
// the word that it had. The caller holds the lock and unlinks the timer. stopLocked does both.
func (t *Timer) disarm(after state) (word uint64, wasPending bool) {
	for {
		word = t.word.Load()
		if !isPending(word) {
			return word, false
		}
		if t.word.CompareAndSwap(word, makeWord(after, 0)) {
			return word, true
		}
	}
}

// extend moves the deadline of a pending timer later, without the lock, and reports whether it did.
// The timer keeps its place: the flush of its bucket finds the later deadline in the word and
// places the timer anew. A timer whose deadline is not after now must be moved: it may wait in due,
// among others that fire in the order in which they came.
//
// The pause point shares a line because a statement of its own would exceed the inliner's budget.
func (t *Timer) extend(deadline, now int64) bool {
	word := t.word.Load()
	old, _ := deadlineOf(word), pause("extending")
	return isPending(word) && deadline >= old && old > now &&
		t.word.CompareAndSwap(word, makeWord(pending, deadline))
}

// keep makes a pending timer fire at the deadline or later, and reports whether it is pending. If
// several goroutines call keep at once the latest deadline holds. An overdue timer may then still
// wait in due, as after ResetAt: the driver takes it out when its turn comes.
func (t *Timer) keep(deadline int64) bool {
	for {
		word := t.word.Load()
		if !isPending(word) {
			return false
		}
		if deadlineOf(word) >= deadline ||
			t.word.CompareAndSwap(word, makeWord(pending, deadline)) {
			return true
		}
	}
}

// Reset arms the Timer to fire d from now, whether it is pending, has fired or was stopped. It
// returns true if it was pending; the earlier arming then does not fire. A zero or negative d fires
// at once. For a live schedule, Reset moves the next run. Reset returns false and arms nothing if
// the schedule has ended or the wheel has been stopped.
//
// Cost: one clock reading and, if a pending Timer's deadline is moved later or left as it is, one
// compare-and-swap without any lock; else one mutex. Constant time, no allocation.
func (t *Timer) Reset(d time.Duration) bool {
	s := t.home("Reset")
	now := s.engine.now()
	deadline := deadlineAfter(now, d)
	_ = pause("touching")
	return t.extend(deadline, now) || s.rearm(t, deadline, now)
}

// ResetAt is Reset to an instant, for callers that have read the clock already: moving a pending
// Timer's deadline later then reads no clock and takes no lock. It uses the monotonic reading of
// at. If at has none, it is Reset(time.Until(at)).
func (t *Timer) ResetAt(at time.Time) bool {
	s := t.home("ResetAt")
	if isWallOnly(at) {
		return t.Reset(time.Until(at))
	}
	deadline := s.engine.deadlineAt(at)
	// Without a clock reading extend cannot tell that a timer is overdue. If it waits in due and
	// its new deadline has come too, it fires where it waits.
	return t.kind.alone() && t.extend(deadline, -1) || s.rearm(t, deadline, s.engine.now())
}

// Pending reports whether the Timer is armed and has not fired; for a schedule, whether it is
// alive. The answer may be out of date by the time the caller has it. Cost: one atomic load.
func (t *Timer) Pending() bool {
	t.home("Pending")
	return isPending(t.word.Load())
}
