package timingwheel

import (
	"cmp"
	"runtime"
	"slices"
	"time"
)

// driver is what the goroutine that the alarm has started keeps for itself: one at
// a time is at work, so nothing here needs a lock.
//
// It works in rounds. A round takes everything that is due in all shards by a
// reading of the clock, the earlier ticks before the later ones. Timers that come
// due while a round is under way, such as one that an inline callback resets to
// zero, wait in due for the next round, so none can keep the others from their
// turn.
//
// What is not due yet is reinserted in the time that is left: the timers of a
// coarse bucket move to the finer wheel during the slot before it is due, after
// everything that is due. Done at once when it is due, 85,000 timers of one such
// bucket hold up what lies behind them by 10 ms.
type driver struct {
	// The callbacks that it starts a goroutine for once it has released the lock
	// under which it claimed them.
	claimed  [holdLimit]func()
	nclaimed int

	// Timers handled since it last looked whether to yield the processor, when it
	// last did, and for how long.
	handled          int
	resumed, yielded int64

	worked bool // since it took over it has handled a timer or opened a bucket
}

const (
	// holdLimit is how many timers are handled in one hold of the lock: a few
	// microseconds, which a caller then waits for, while the lock's own cost is
	// shared by enough timers to vanish.
	holdLimit = 64

	// longestYield is the longest that a yield of the processor is taken to have
	// lasted: some time slices of the scheduler. A suspend of the machine in it
	// is not to keep the driver from yielding for hours.
	longestYield = 100 * time.Millisecond
)

// drive is what the alarm calls.
func (tw *TimingWheel) drive() {
	_ = pause("rung")
	if tw.takeOver() {
		// Deferred, as user code may end the goroutine: what it had in hand stays
		// due, so the alarm rings at once, and another goroutine carries on.
		defer tw.leave()
		defer endRegion(region("driver"))
		tw.turn()
	}
}

// takeOver makes the caller the driver, unless there is one.
func (tw *TimingWheel) takeOver() bool {
	a := &tw.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ringing--
	a.wakeups++
	if a.driving {
		a.idleWakeups++
		return false
	}
	tw.driver.worked = false
	// What is published from here on this driver sees, or the alarm it sets.
	look := a.lookAt.Swap(unset)
	a.idle = look != unset && look <= tw.tickAt(tw.now())
	tw.traceWakeup(a.armed.Load())
	a.driving = true
	a.armed.Store(awake)
	return true
}

// leave ends a driver.
func (tw *TimingWheel) leave() {
	_ = pause("leaving")
	a := &tw.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	a.driving = false
	if !tw.driver.worked {
		a.idleWakeups++
	}
	tw.restLocked()
	tw.announceQuietLocked()
}

// turn works until nothing is left to do before the alarm rings again.
func (tw *TimingWheel) turn() {
	for !tw.stopped.Load() {
		tw.round(tw.now())
		if !tw.reinsertAhead() && tw.settle() > tw.tickAt(tw.now()) {
			return
		}
	}
}

// round does what is due at the instant now, tick by tick over all shards.
func (tw *TimingWheel) round(now int64) {
	defer endRegion(region("flush what is due"))
	tick := tw.tickAt(now)
	for i := range tw.shards {
		tw.shards[i].begin(now)
	}
	for !tw.stopped.Load() {
		s, limit := tw.earliest(tick)
		if s == nil {
			return
		}
		s.piece(now, limit, holdLimit)
		_ = pause("between pieces")
		tw.breathe()
	}
}

// earliest returns the shard that has the earliest tick left in the round of tick,
// nil if none has one, and the tick up to which it may go on before another has its
// turn.
func (tw *TimingWheel) earliest(tick int64) (s *shard, limit int64) {
	s, limit = &tw.shards[0], tick
	for i := range tw.shards[1:] {
		other := &tw.shards[i+1]
		if other.first < s.first {
			s, other = other, s
		}
		limit = min(limit, other.first)
	}
	if s.first > tick {
		s = nil
	}
	return s, limit
}

// begin begins a round: what waits in due waits no longer.
func (s *shard) begin(now int64) {
	s.first = unset
	if s.next.Load() <= s.tw.tickAt(now) {
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

// turnOf returns the tick at which t, the front of batch, has its turn in the round
// of the instant now. It was due when it was put there, though the tick of its
// deadline may not be over; but what a late driver finds in buckets may have been due
// before. One that ResetAt has extended meanwhile only has to leave, at once, as
// others wait behind it.
func (s *shard) turnOf(t *Timer, now int64) int64 {
	deadline := deadlineOf(t.word.Load())
	if deadline > now {
		return 0
	}
	return min(s.tw.tickOf(deadline), s.tw.tickAt(now))
}

// piece does a bounded part of a round: at most so many steps, as long as their
// tick is not after limit.
func (s *shard) piece(now, limit int64, most int) {
	s.lock()
	s.skip = beginsPiece
	s.preloaded = nil
	for n := 0; n < most && !s.tw.stopped.Load() && s.stepLocked(now, limit); n++ {
	}
	s.first = s.firstLocked(now)
	s.unlock()
}

// stepLocked handles one timer, or drops or opens one bucket. It reports whether there
// was anything to do up to the tick limit.
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
			s.tw.driver.worked = true
		} else {
			s.flushTimer(s.nextLocked(b), b, b.attention*s.tw.tick)
		}
	case until < limit:
		s.flushTimer(s.batch.front(), nil, now)
	default:
		return false
	}
	return true
}

// nextLocked returns a timer of b, which is not empty. The first of a piece it has preloaded
// with as many as a piece can handle.
func (s *shard) nextLocked(b *bucket) *Timer {
	if s.preloaded != b {
		s.preloaded = b
		b.preload(holdLimit)
	}
	return b.next()
}

// reinsertAhead moves some timers of the buckets that are being drained down, and
// reports whether there are such buckets.
func (tw *TimingWheel) reinsertAhead() (found bool) {
	for i := range tw.shards {
		if s := &tw.shards[i]; len(s.draining) > 0 {
			r := region("reinsert ahead")
			s.drainPiece(holdLimit)
			tw.breathe()
			endRegion(r)
			found = true
		}
	}
	return found
}

// drainPiece reinserts some timers of the opened bucket that expires first.
func (s *shard) drainPiece(most int) {
	s.lock()
	b := slices.MinFunc(s.draining, func(a, b *bucket) int { return cmp.Compare(a.attention, b.attention) })
	s.preloaded = nil
	// A round may have emptied the bucket meanwhile; it may even be in use again.
	for n := 0; b.opened && !b.empty() && n < most && !s.tw.stopped.Load(); n++ {
		s.flushTimer(s.nextLocked(b), b, s.wheel.now*s.tw.tick)
	}
	if !b.opened || b.empty() {
		s.draining = slices.DeleteFunc(s.draining, func(other *bucket) bool { return other == b })
	}
	s.unlock()
}

// settle drops emptied buckets from the tops of the delay queues and returns the
// tick at which the driver has to look again.
func (tw *TimingWheel) settle() (next int64) {
	next = unset
	for i := range tw.shards {
		next = min(next, tw.shards[i].settle())
	}
	return next
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
		s.anchor.wheel = nil
	}
	_ = pause("settling")
	s.next.Store(next)
	return next
}

// nextBusyLocked drops emptied buckets from the top of the delay queue and returns the
// first that still holds a timer, nil if none does. It releases the lock now and then.
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

// flushTimer takes t, of the bucket from or, if that is nil, the front of batch, out of
// it: a timer whose deadline is not after the instant upTo fires, another is
// reinserted, which is where an extended timer goes to its new place. If callers come
// in between it may be left for another try. At the end the lock may have been released.
func (s *shard) flushTimer(t *Timer, from *bucket, upTo int64) {
	word := t.word.Load()
	switch deadline := deadlineOf(word); {
	case deadline > upTo:
		t.unlink()
		s.countMoveLocked(from, deadline)
		s.placeLocked(t, deadline, upTo)
	case t.kind.alone(), t.kind == expiring, t.kind == keyed:
		s.fireLocked(t, word)
	case t.kind == sending:
		s.sendLocked(t.channel(), word)
	default:
		s.runLocked(t.schedule(), word, upTo)
	}
	s.held++
	s.count.longestHold = max(s.count.longestHold, s.held)
	s.tw.driver.handled++
	s.tw.driver.worked = true
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
	if s.tw.tickOf(deadline)-from.attention >= w.tick { // beyond the slot
		s.count.extended++
		w.extended++
	} else {
		s.count.reinserted++
		w.reinserted++
	}
}

// sampleLocked notes how late a timer with this deadline fires, now and then. It returns
// the deadline if the callback is a sample too, and else untimed.
func (s *shard) sampleLocked(deadline int64) (timed int64) {
	if s.skip > 0 {
		s.skip--
		return untimed
	}
	timed = deadline
	if s.tw.executor == goroutine && s.skip != beginsPiece {
		timed = untimed
	}
	s.skip = sampleEvery - 1
	s.late.add(time.Duration(max(s.tw.now()-deadline, 0)))
	return timed
}

// fireLocked claims a timer that is due by this word, and hands over its callback, or
// ends its context. If it has been extended since, piece looks at it again.
func (s *shard) fireLocked(t *Timer, word uint64) {
	f := t.f // read before the word says idle: from then on Init may change it
	_ = pause("claiming")
	if !t.word.CompareAndSwap(word, makeWord(idle, 0)) {
		return
	}
	_ = pause("claimed")
	t.unlink()
	s.count.fired++
	timed := s.sampleLocked(deadlineOf(word))
	switch t.kind {
	case expiring:
		s.tw.driver.claim(t.context().expire)
	case keyed:
		s.expireLocked(t.keyed(), timed)
	default:
		s.handOverLocked(s.tw.observed(f), f, timed)
	}
}

// claim has unlock start a goroutine for f.
func (d *driver) claim(f func()) {
	d.claimed[d.nclaimed] = f
	d.nclaimed++
}

// lock begins a hold of the driver's.
func (s *shard) lock() {
	s.mu.Lock()
	s.held = 0
}

// unlock ends a hold of the driver's and starts the goroutines of the timers that
// it has claimed meanwhile.
//
// They are started here and not as they are claimed, as that takes ten times as
// long as all else: the lock is free most of the time, so that a caller gets it
// without having to be woken for it. A claimed timer has fired for all that
// anybody can tell: the scheduler might as well begin its goroutine later. None is
// forgotten if the wheel is stopped: the driver never lets go of a lock but here,
// and Shutdown waits for the driver.
func (s *shard) unlock() {
	s.mu.Unlock()
	tw := s.tw
	claimed := tw.driver.claimed[:tw.driver.nclaimed]
	tw.driver.nclaimed = 0
	if len(claimed) == 0 {
		return
	}
	tw.inflight.Add(int64(len(claimed)))
	for i, f := range claimed {
		claimed[i] = nil
		go tw.call(f)
		_ = pause("started")
	}
}

// breathe lets others have the processor: callers that wait for a lock, which the
// driver would otherwise have again before they have woken up, and the callbacks
// that it has just started, which would otherwise pile up by the hundred thousand.
//
// On a busy machine a yield may last a whole time slice, so the driver yields
// again only after it has worked for as long as the last yield took: it has half
// of what there is at least.
func (tw *TimingWheel) breathe() {
	d := &tw.driver
	if d.handled < holdLimit {
		return
	}
	d.handled = 0
	if now := tw.now(); now-d.resumed >= d.yielded {
		runtime.Gosched()
		d.resumed = tw.now()
		d.yielded = min(d.resumed-now, int64(longestYield))
	}
}
