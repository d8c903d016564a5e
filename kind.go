package timingwheel

import "strconv"

// This file is the seam between the engine and the features. A Timer may be part of something: of a
// schedule, a channel, a context, an entry of a Map. Its kind says of what, and the behaviour of
// the kind says what the engine does with it where that differs from a plain Timer. Each feature
// defines its kinds in its own file by newKind, and the engine names none of them but plain. A new
// file gets a line in the table of internal/floors, which checks this.
//
// A Timer is always the first field of what it is part of, so the address of the one is the address
// of the other. Only functions of a kind's behaviour may convert it, as they see no other Timers.

// A kind says what a Timer is part of. A pointer to a behaviour would take the room of Timer.self
// too, by which a copy of a Timer is found.
type kind uint8

// plain is the kind of a Timer by itself. What the engine does with it has no indirect call.
const plain kind = 0

// kinds has the behaviour of each kind. It does not change once the package is initialised.
var kinds = []behaviour{plain: {name: "nothing", alone: true}}

// A behaviour is what the engine does with the Timers of a kind. What it leaves out is done as with
// a plain Timer.
type behaviour struct {
	name string // of what the Timer is part of, with its article: required

	// due is called by the driver, under the lock of s, when the deadline of t has come by word,
	// which was read in the same hold. It claims t (see claimLocked) and does what is to be done;
	// or it gives t a later deadline (see takeLocked). It may release the lock on the way, by
	// s.unlock and s.lock, and must hold none while user code runs. now is the instant that the
	// driver has got to. If due is nil the callback of t, which must not be nil, is handed to the
	// executor.
	due func(s *shard, t *Timer, word uint64, now int64)

	// stopped is the state that a pending Timer has after its Stop: idle, or ended for good.
	stopped state

	// inert says that Timer.Stop and Timer.Reset do nothing to a Timer that is not pending: what it
	// is part of has ended, or has a Stop and a Reset of its own.
	inert bool

	// The rest is about a stopped wheel.

	// ring is what package time calls at the deadline of t, under the lock of s, once the wheel has
	// been stopped, whether t was armed before or after that (see relay). It returns what is to be
	// called after the lock has been released, or nil. A kind without a ring ends with its wheel.
	ring func(s *shard, t *Timer, deadline int64) (call func())

	// unfired changes what Drain hands back for t, which was pending with this word. It is called
	// under the lock. It is given the Timer's own deadline and callback, or if the kind has a ring,
	// a callback that rings now.
	unfired func(t *Timer, word uint64, u *Unfired)

	// unlisted says that Drain does not hand the Timers back. The kind must then have a ring, or
	// its Timers would be lost.
	unlisted bool

	// dropped is called without a lock once t, which was pending, has been dropped or handed back.
	dropped func(t *Timer)

	alone bool // due is nil: the callback is all there is. Set by newKind
}

// newKind returns a kind of its own. It is called as the package is initialised.
func newKind(b behaviour) kind {
	switch {
	case b.name == "":
		panic("timingwheel: a kind of timer without a name")
	case b.unlisted && b.ring == nil:
		panic("timingwheel: a stopped wheel would lose what is part of " + b.name)
	case len(kinds) > int(^kind(0)):
		panic("timingwheel: too many kinds of timer: " + b.name)
	}
	b.alone = b.due == nil
	kinds = append(kinds, b)
	return kind(len(kinds) - 1)
}

// behaviour panics if newKind did not make k: a Timer must not be taken for part of something else.
func (k kind) behaviour() *behaviour {
	if int(k) >= len(kinds) {
		panic("timingwheel: newKind did not make the kind of timer " + strconv.Itoa(int(k)))
	}
	return &kinds[k]
}

// alone reports whether firing a Timer of this kind means only handing over its callback.
func (k kind) alone() bool { return k == plain || k.behaviour().alone }
