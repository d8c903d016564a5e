package timingwheel

import (
	"time"
	"unsafe"
)

// This file holds what becomes of pending timers when their wheel is stopped: they are dropped, or
// handed back, or package time takes them over. A dropped callback does no harm, but a goroutine
// that waits for a channel or a context would wait forever, and a connection would have no limits.
// So the kinds that have a ring outlive their wheel: a relay takes the place of the timer. The lock
// of each shard guards what is here.

// Unfired is a timer that was pending when its wheel was stopped.
type Unfired struct {
	Timer    *Timer    // as AfterFunc returned it or Init was given it; inert now
	Deadline time.Time // when it would have fired
	F        func()    // what it would have called
}

// halt stops the wheel and sweeps out what is pending, into unfired if that is not nil.
func (e *engine) halt(unfired *[]Unfired) {
	e.stopped.Store(true)
	_ = pause("halting")
	e.alarm.silence() // again, if another Stop has not come to it yet: Shutdown waits for the ring
	for i := range e.shards {
		e.shards[i].sweep(unfired)
	}
}

// sweep takes out what is pending in a shard of a stopped wheel, into unfired if
// that is not nil. Several may sweep at once; each returns when nothing is left.
func (s *shard) sweep(unfired *[]Unfired) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 1; ; n++ {
		t := s.anyPendingLocked()
		if t == nil {
			s.anchor.engine = nil
			return
		}
		f := t.f // read before the word says idle: from then on Init may change it
		word, _ := t.disarm(idle)
		_ = pause("swept")
		t.unlink()
		s.count.dropped++
		k := t.kind.behaviour()
		if k.ring != nil {
			f = s.relayLocked(t, deadlineOf(word), s.engine.now()).ring
		}
		if unfired != nil && !k.unlisted {
			u := Unfired{Timer: t, Deadline: s.engine.instant(deadlineOf(word)), F: f}
			if k.unfired != nil {
				k.unfired(t, word, &u)
			}
			*unfired = append(*unfired, u)
		}
		if k.dropped != nil {
			s.mu.Unlock()
			k.dropped(t)
			s.mu.Lock()
		}
		if n%holdLimit == 0 {
			s.mu.Unlock()
			s.mu.Lock()
		}
	}
}

// anyPendingLocked returns a pending timer, or nil, and releases the lock now and then.
func (s *shard) anyPendingLocked() *Timer {
	if b := s.nextBusyLocked(); b != nil {
		return b.next()
	}
	for _, l := range []*list{&s.due, &s.batch, &s.beyond} {
		if !l.empty() {
			return l.front()
		}
	}
	return nil
}

// A relay is one arming of a Timer whose wheel has been stopped, due by package time. The shard's
// lock guards it as it guards armings: Stop and Reset end it under that lock, and a relay that
// rings checks under it whether it still belongs to the Timer. The Timer itself is idle meanwhile,
// so its links are free, and one of them refers to the relay. A map in the shard would keep the
// relay and its Timer alive.
type relay struct {
	link     // what the Timer's refers to; otherwise not in use. The first field: see Timer.relay
	timer    *Timer
	deadline int64
	alarm    *time.Timer // nil if the deadline is never
}

var _ = [1]struct{}{}[unsafe.Offsetof(relay{}.link)] // out of range if it is not the first

// relay returns the relay of t, which must not be pending, or nil. The caller holds the lock.
func (t *Timer) relay() *relay { return (*relay)(unsafe.Pointer(t.prev)) }

// mayHaveRelay reports whether Timer.Stop must look for a relay.
func (t *Timer) mayHaveRelay() bool {
	if t.kind == plain || !t.shard.engine.stopped.Load() {
		return false
	}
	k := t.kind.behaviour()
	return k.ring != nil && !k.inert
}

// rearmOutlivingLocked arms t, whose wheel has been stopped, if t outlives the wheel. It reports
// whether t was armed before.
func (s *shard) rearmOutlivingLocked(t *Timer, deadline, now int64) (wasArmed bool) {
	if t.kind.behaviour().ring == nil {
		return false
	}
	if _, wasArmed = t.disarm(idle); wasArmed {
		// The sweep of halt has not come to it, and must not take it with the old deadline.
		t.unlink()
		s.count.dropped++
	} else {
		wasArmed = s.stopRelayLocked(t)
	}
	s.relayLocked(t, deadline, now)
	return wasArmed
}

// relayLocked arms t, which is idle and has no relay, with a relay. Like the wheel, it rounds a
// deadline up to the tick, unless that is not after the instant now. For the next tick of a Ticker
// that is the instant at which the present tick began, so a period below the tick does not keep the
// processor busy.
func (s *shard) relayLocked(t *Timer, deadline, now int64) *relay {
	r := &relay{timer: t, deadline: deadline}
	t.prev = &r.link
	e := s.engine
	switch {
	case deadline == never:
	case deadline <= now:
		r.alarm = time.AfterFunc(0, r.ring)
	default:
		r.alarm = time.AfterFunc(e.untilTick(e.tickOf(deadline)), r.ring)
	}
	return r
}

// stopRelayLocked ends the relay of t, which is not pending, and reports whether there was one.
func (s *shard) stopRelayLocked(t *Timer) bool {
	r := t.relay()
	if r == nil {
		return false
	}
	if r.alarm != nil {
		r.alarm.Stop() // ring may be on its way all the same, and looks at t
	}
	t.prev = nil
	return true
}

// ring is called by package time when r is due, and is what Drain hands back. It does nothing if r
// has been stopped, replaced or rung meanwhile, so only one of the two has an effect.
func (r *relay) ring() {
	t := r.timer
	s := t.shard
	s.mu.Lock()
	if t.relay() != r {
		s.mu.Unlock()
		return
	}
	s.stopRelayLocked(t)
	call := t.kind.behaviour().ring(s, t, r.deadline)
	s.mu.Unlock()
	if call != nil {
		call()
	}
}
