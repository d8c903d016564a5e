package timingwheel

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// This file holds the shards: which one a new timer gets, and how a timer is armed, stopped and
// filed. Callers run this code. What the driver does in a shard is in flush.go.

// A shard is a part of an engine with a lock of its own: wheels, delay queue
// and lists for the timers that belong to it. A timer belongs to one shard for
// life, so the lock to take for it never changes.
//
// There are about as many shards as processors. Callers on different processors then work on
// different locks and lists. All shards share one driver and one alarm.
type shard struct {
	engine *engine // fixed

	// next is the tick at which the shard wants the driver, unset if it does not.
	// It is at most the attention of the delay queue's head, and the clock's tick if
	// due holds a timer. Written under mu, and read without it to set the alarm.
	next atomic.Int64

	// mu guards what follows, every bucket, and the links of every timer of the shard. It is held
	// for a bounded number of timers at a time and never while user code runs.
	mu    sync.Mutex
	wheel *wheel // the lowest
	queue delayQueue
	count counters
	late  Lateness

	anchor *anchor // fixed

	full int64 // see crowdedLocked

	due    list // armed for a time that had come already; waits for the driver
	batch  list // what the driver took from due for its present round
	beyond list // deadline never

	// The driver's alone.
	first     int64     // tick of the first thing left to do in its round
	draining  []*bucket // that are being drained
	preloaded *bucket   // whose next timers the present piece has preloaded
	held      int       // timers handled in the present hold of the lock
	skip      int       // timers that fire before the next sample of lateness

	_ [64]byte // the next shard's lock is in another cache line
}

// maxShards bounds the work of the driver, which looks at every shard when it wakes up.
const maxShards = 16

// shardsFor returns how many shards a wheel has: procs rounded up to a power of two, but at most
// maxShards, and so few that they have no more slots together than the largest wheel.
func shardsFor(procs, wheelSize int) int {
	return min(1<<bits.Len(uint(procs-1)), maxShards, maxWheelSize/wheelSize)
}

func (e *engine) makeShards(n, wheelSize int) {
	if n == 0 {
		n = shardsFor(runtime.GOMAXPROCS(0), wheelSize)
	}
	e.shards = make([]shard, n)
	for i := range e.shards {
		s := &e.shards[i]
		s.engine = e
		s.wheel = newWheel(0, 1, wheelSize, 0)
		s.next.Store(unset)
		s.full = bulk
		s.due.init()
		s.batch.init()
		s.beyond.init()
	}
	for i := range e.homes {
		e.homes[i].Store(uint32(i % n))
	}
}

// A call that makes a timer may choose its shard. It takes the one that its goroutine used last, by
// a small table that is indexed by the address of the goroutine's stack. Finding the shard of the
// present processor costs as much in Go as the lock (measured with Get and Put of a sync.Pool), and
// goroutines that keep busy stay on their processor. If the lock is taken the goroutine moves on to
// the next shard for good, so a few busy goroutines soon have one each. It also moves on when
// timers pile up in the shard. Otherwise all timers that one goroutine starts in a loop would be in
// one shard, where the goroutines that stop them later would wait for each other.
const homeBits = 7

// bulk is how many timers more than before make a shard crowded. A busy goroutine seldom has that
// many pending at a time, but the thousands of a large program are spread.
const bulk = 1024

// lockHome locks the shard for a timer that the caller is about to make.
func (e *engine) lockHome() *shard {
	home := &e.homes[stackHash()]
	i := home.Load()
	s := &e.shards[i]
	if !s.mu.TryLock() {
		i = (i + 1) % uint32(len(e.shards))
		home.Store(i)
		s = &e.shards[i]
		s.mu.Lock()
	}
	if s.crowdedLocked() {
		home.Store((i + 1) % uint32(len(e.shards)))
	}
	return s
}

// crowdedLocked reports whether bulk more timers are pending than when it last returned true. If
// many have gone since then, it counts from the lower number. A goroutine that stops as many timers
// as it starts does not crowd its shard.
func (s *shard) crowdedLocked() bool {
	pending := s.count.pending()
	switch {
	case pending >= s.full:
		s.full = pending + bulk
		return true
	case pending < s.full-2*bulk:
		s.full = pending + bulk
	}
	return false
}

// stackHash returns a number that few goroutines share. A goroutine keeps its number while it calls
// from about the same depth and its stack does not grow.
func stackHash() uint32 {
	var here byte
	const smallestStack, golden = 11, 0x9E3779B9
	return uint32(uintptr(unsafe.Pointer(&here))>>smallestStack) * golden >> (32 - homeBits)
}

// deal returns the shard for a timer that will be armed again and again, by any goroutine.
// Multiples of the golden ratio spread every second, third or n-th timer of a program as evenly as
// all of them.
func (e *engine) deal() *shard {
	const golden = 0x9E3779B9
	return &e.shards[uint64(e.dealt.Add(golden))*uint64(len(e.shards))>>32]
}

// armNew arms a new Timer of kind k in the shard that lockHome chooses. If as is idle, the Timer
// only gets its shard. now is the caller's reading of the clock; the wheel may have gone past it
// since.
func (e *engine) armNew(t *Timer, k kind, as state, deadline, now int64) {
	s := e.lockHome()
	t.init(s, k)
	if as != idle {
		s.armLocked(t, as, deadline, now)
	}
	s.mu.Unlock()
}

// rearm makes t pending for Reset, and reports whether it was pending before.
func (s *shard) rearm(t *Timer, deadline, now int64) (wasPending bool) {
	_ = pause("rearming")
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.kind != plain && t.kind.behaviour().inert && !isPending(t.word.Load()) {
		return false
	}
	return s.armLocked(t, pending, deadline, now)
}

func (s *shard) armLocked(t *Timer, as state, deadline, now int64) (wasPending bool) {
	x := &s.engine.executor
	if s.engine.stopped.Load() {
		// Looked at under the lock. Otherwise the timer could slip in behind the sweep of halt.
		// What is still pending is left to that sweep.
		return t.kind != plain && s.rearmOutlivingLocked(t, deadline, now)
	}
	s.catchUpLocked(now)
	// A deadline in the past means now. So due is in the order of its deadlines, and a run that
	// Reset moves there does not count as missed.
	deadline = max(deadline, deadlineAfter(now, 0))
	// A goroutine needs no driver to start it: what is due fires here.
	fires := deadline <= now && x.mode == goroutine && t.kind.alone() && s.engine.started.Load()
	f, to := t.f, makeWord(as, deadline)
	if fires {
		to = makeWord(idle, 0)
	}
	wasPending = isPending(t.word.Swap(to))
	if wasPending {
		t.unlink()
	} else {
		s.count.started++
	}
	if fires {
		s.count.fired++
		if wasPending && s.count.pending() == 0 {
			s.letGoLocked()
		}
		x.inflight.Add(1)
		go x.call(x.observed(f))
		return wasPending
	}
	e := s.placeLocked(t, deadline, now)
	_ = pause("filed")
	s.engine.alarm.wakeAt(e)
	return wasPending
}

// stopLocked ends the arming of t for Stop and similar calls. It returns the word that the timer
// had, and whether it was armed.
func (s *shard) stopLocked(t *Timer) (word uint64, was bool) {
	after := idle
	if t.kind != plain {
		after = t.kind.behaviour().stopped
	}
	word, was = t.disarm(after)
	if !was {
		return word, s.stopRelayLocked(t)
	}
	t.unlink()
	s.count.stopped++
	if s.count.pending() == 0 {
		s.letGoLocked()
	}
	return word, true
}

// placeLocked puts t, which is in no bucket, where its deadline belongs, and returns the tick at
// which the driver must look there: the clock's own if the deadline is not after now, unset if it
// never comes. The caller sets the alarm, or is the driver, under the same hold of the lock.
func (s *shard) placeLocked(t *Timer, deadline, now int64) (attention int64) {
	if deadline == never {
		s.beyond.add(t)
		return unset
	}
	if s.anchor.engine == nil {
		s.anchor.engine = s.engine
	}
	// A deadline that has come is due at once, not when the tick that has begun is over. For later
	// ones the wheel's own clock decides. The caller's reading may be older, and a timer filed by
	// it could be one lap late.
	e := s.engine.tickOf(deadline)
	if deadline <= now || e <= s.wheel.now {
		s.due.add(t)
		attention = s.wheel.now
	} else {
		var b *bucket
		b, attention = s.wheel.place(e)
		b.add(t)
		if !b.queued {
			s.queue.add(b, attention)
		}
	}
	if attention < s.next.Load() {
		s.next.Store(attention)
	}
	return attention
}

// catchUpLocked moves the clock of a shard that had nothing to do up to now, so that new timers are
// not filed too coarsely. It stops short of the first queued bucket: only the driver goes past that
// one, as it flushes it.
func (s *shard) catchUpLocked(now int64) {
	to := s.engine.tickAt(now)
	if head := s.queue.head(); head != nil {
		to = min(to, head.attention-1)
	}
	s.wheel.advance(to)
}
