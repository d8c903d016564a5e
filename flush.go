package timingwheel

import (
	"cmp"
	"slices"
)

// This file holds what the driver does in one shard: it takes timers out of the buckets that are
// due, and fires them or places them anew. Only the driver calls these functions. The shard's lock
// guards what they change, and lock and unlock take and release it for them.

// begin begins a round: it takes up what waits in due.
func (s *shard) begin(now int64) {
	s.first = unset
	if s.next.Load() <= s.engine.tickAt(now) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.batch.takeAll(&s.due)
		s.first = s.firstLocked(now)
	}
}

// firstLocked returns the tick of the first thing to do in the round of now.
func (s *shard) firstLocked(now int64) int64 {
	first := unset
	if b := s.queue.head(); b != nil {
		first = b.attention
	}
	if !s.batch.empty() {
		first = min(first, s.turnOf(s.batch.front(), now))
	}
	return first
}

// turnOf returns the tick at which t, the front of batch, has its turn in the round of the instant
// now. It was due when it was put there, though the tick of its deadline may not be over. Timers
// that a late driver finds in buckets may have been due before it. If ResetAt has extended t
// meanwhile, t leaves batch at once, because others wait behind it.
func (s *shard) turnOf(t *Timer, now int64) int64 {
	deadline := deadlineOf(t.word.Load())
	if deadline > now {
		return 0
	}
	return min(s.engine.tickOf(deadline), s.engine.tickAt(now))
}

// piece does a bounded part of a round: at most so many steps, as long as their
// tick is not after limit.
func (s *shard) piece(now, limit int64, most int) {
	s.lock()
	s.skip = beginsPiece
	s.preloaded = nil
	for n := 0; n < most && !s.engine.stopped.Load() && s.stepLocked(now, limit); n++ {
	}
	s.first = s.firstLocked(now)
	s.unlock()
}

// stepLocked handles one timer, for which it may release the lock, or drops or opens one bucket. It
// reports whether there was anything to do up to the tick limit.
func (s *shard) stepLocked(now, limit int64) bool {
	b := s.queue.head()
	until := limit
	if !s.batch.empty() {
		until = min(limit, s.turnOf(s.batch.front(), now)-1)
	}
	switch {
	case b != nil && b.empty():
		s.queue.removeHead()
	case b != nil && b.attention <= until:
		// The clock stands on the bucket's tick until it is empty or opened, so
		// nothing can be filed into it, and it stays the head (see wheel).
		s.wheel.advance(b.attention)
		if b.wantsOpening() {
			s.queue.postpone(b, s.wheel.expiration(b))
			s.draining = append(s.draining, b)
			s.engine.driver.worked = true
		} else {
			s.flushTimer(s.nextLocked(b), b, b.attention*s.engine.tick)
		}
	case until < limit:
		s.flushTimer(s.batch.front(), nil, now)
	default:
		return false
	}
	return true
}

// nextLocked returns a timer of b, which is not empty. Before the first one of a piece, it preloads
// as many as a piece can handle.
func (s *shard) nextLocked(b *bucket) *Timer {
	if s.preloaded != b {
		s.preloaded = b
		b.preload(holdLimit)
	}
	return b.next()
}

// drainPiece reinserts some timers of the opened bucket that expires first.
func (s *shard) drainPiece(most int) {
	s.lock()
	b := slices.MinFunc(s.draining, func(a, b *bucket) int {
		return cmp.Compare(a.attention, b.attention)
	})
	s.preloaded = nil
	// A round may have emptied the bucket meanwhile; it may even be in use again.
	for n := 0; b.opened && !b.empty() && n < most && !s.engine.stopped.Load(); n++ {
		s.flushTimer(s.nextLocked(b), b, s.wheel.now*s.engine.tick)
	}
	if !b.opened || b.empty() {
		s.draining = slices.DeleteFunc(s.draining, func(other *bucket) bool { return other == b })
	}
	s.unlock()
}

func (s *shard) settle() (next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = unset
	if b := s.nextBusyLocked(); b != nil {
		next = b.attention
	}
	if !s.due.empty() {
		next = min(next, s.wheel.now)
	}
	if next == unset {
		s.anchor.engine = nil
	}
	_ = pause("settling")
	s.next.Store(next)
	return next
}

// nextBusyLocked drops emptied buckets from the top of the delay queue, releasing the lock now and
// then, and returns the first that still holds a timer, or nil.
func (s *shard) nextBusyLocked() *bucket {
	for n := 1; ; n++ {
		b := s.queue.head()
		if b == nil || !b.empty() {
			return b
		}
		s.queue.removeHead()
		if n%holdLimit == 0 {
			s.mu.Unlock()
			s.mu.Lock()
		}
	}
}

// flushTimer handles t, under the lock, which it may release on the way. t is in the bucket from,
// or the front of batch if from is nil. It fires if its deadline is not after the instant upTo.
// Otherwise it is placed anew: reinserted in a finer wheel, or, if it was extended, where it
// belongs now. If a caller extends it meanwhile it may stay for another try.
func (s *shard) flushTimer(t *Timer, from *bucket, upTo int64) {
	word := t.word.Load()
	switch deadline := deadlineOf(word); {
	case deadline > upTo:
		t.unlink()
		s.countMoveLocked(from, deadline)
		s.placeLocked(t, deadline, upTo)
	case t.kind.alone():
		s.fireLocked(t, word)
	default:
		t.kind.behaviour().due(s, t, word, upTo)
	}
	s.held++
	s.count.longestHold = max(s.count.longestHold, s.held)
	s.engine.driver.handled++
	s.engine.driver.worked = true
}

// countMoveLocked counts a timer with this deadline that is being moved from a bucket
// that is due or opened.
func (s *shard) countMoveLocked(from *bucket, deadline int64) {
	if from == nil { // it was due, and is no longer
		s.count.extended++
		return
	}
	w := s.wheel
	for w.level < from.level {
		w = w.overflow
	}
	if s.engine.tickOf(deadline)-from.attention >= w.tick { // beyond the slot
		s.count.extended++
		w.extended++
	} else {
		s.count.reinserted++
		w.reinserted++
	}
}

// takeLocked takes t, which is due by this word, out of its list and gives it another word. It
// returns false, and leaves t where it is, if t has been extended since: the driver looks at it
// again.
func (s *shard) takeLocked(t *Timer, word, to uint64) bool {
	_ = pause("claiming")
	if !t.word.CompareAndSwap(word, to) {
		return false
	}
	_ = pause("claimed")
	t.unlink()
	return true
}

// claimLocked is takeLocked for a timer that fires, which is idle afterwards, or armed for the next
// time. It also returns timed for handOverLocked.
func (s *shard) claimLocked(t *Timer, word, to uint64) (timed int64, ok bool) {
	if !s.takeLocked(t, word, to) {
		return untimed, false
	}
	s.count.fired++
	if isPending(to) {
		s.count.started++
	}
	return s.sampleLocked(deadlineOf(word)), true
}

// fireLocked claims a timer that is due by this word and hands over its callback, for which it may
// release the lock.
func (s *shard) fireLocked(t *Timer, word uint64) {
	f := t.f // read before the word says idle: from then on Init may change it
	if timed, ok := s.claimLocked(t, word, makeWord(idle, 0)); ok {
		s.handOverLocked(s.engine.executor.observed(f), f, timed)
	}
}

// lock takes the lock for the driver and begins a hold.
func (s *shard) lock() {
	s.mu.Lock()
	s.held = 0
}

// unlock releases the lock and starts the goroutines of the timers that the driver has claimed
// during the hold.
//
// They are started here, and not as the timers are claimed, because starting them takes ten times
// as long as everything else. So the lock is free most of the time, and a caller gets it without
// having to wait for a wake-up. A claimed timer has fired: a caller cannot tell it from one whose
// goroutine the scheduler begins a little later. None is forgotten if the wheel is stopped: the
// driver releases the lock only here, and Shutdown waits for the driver.
func (s *shard) unlock() {
	s.mu.Unlock()
	d := &s.engine.driver
	starting := d.starting[:d.nstarting]
	d.nstarting = 0
	s.engine.executor.start(starting)
}
