package timingwheel

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// This file holds the table of a Map: for each shard a hash table with chains. It grows and shrinks
// by one bucket at a time (linear hashing, Litwin 1980), so that no call, and no goroutine that
// waits for its lock, pays for a whole table, and so that memory is given back. Go's own map does
// not shrink, moves in steps of a thousand, and would have to hold each key a second time.
//
// Writers hold the shard's lock. Readers hold nothing. What a reader finds is right as it stands,
// as hash and key never change, and an entry's word says whether it lives. What a reader does not
// find may have been moved past it, so a miss counts only if
//
//	nothing was moved meanwhile     moves is even, and the same before and after
//	the chain was not cut off       the last entry of it is pending
//
// and else the reader looks again under the lock. The second is for an entry that is taken out
// while a reader stands on it: its next is cleared, for an entry that a callback keeps for hours
// would keep all that ever came after it. It has ended before that, and so the reader sees it. A
// new entry goes to the end of its chain, or to the place of an ended one with its key: a reader
// that passes just before has read the chain as it was.

// A chain is what leads to an entry: a bucket, or the next of the entry before.
type chain[K comparable, V any] = atomic.Pointer[entry[K, V]]

type mapShard[K comparable, V any] struct {
	// Read without the lock, written under it.
	buckets  atomic.Uint32 // in use
	moves    atomic.Uint32 // odd while entries move from one bucket to another
	segments [maxSegments]atomic.Pointer[[]chain[K, V]]

	_ [64]byte

	mu      sync.Mutex
	n       int  // entries in the table
	growing bool // another segment is being made

	_ [64]byte
}

const (
	// The buckets lie in segments, the first of this many buckets, each further one as large as
	// all before it.
	firstSegment = 8
	maxSegments  = 26 // 268 million buckets a shard

	maxMapShards = 32
)

// mapShardsFor returns how many shards a Map has on so many processors. Only writers meet there.
func mapShardsFor(procs int) int { return min(2<<bits.Len(uint(procs-1)), maxMapShards) }

func (s *mapShard[K, V]) init() {
	s.segments[0].Store(newSegment[K, V](0))
	s.buckets.Store(firstSegment)
}

func newSegment[K comparable, V any](i int) *[]chain[K, V] {
	c := make([]chain[K, V], max(firstSegment<<i/2, firstSegment))
	return &c
}

// segmentOf returns the segment of a bucket.
func segmentOf(bucket uint32) int { return bits.Len32(bucket / firstSegment) }

// lower returns the bucket that a bucket was split off from.
func lower(bucket uint32) uint32 { return bucket &^ (1 << (bits.Len32(bucket) - 1)) }

// bucketOf returns the bucket of a hash, of so many in use.
func bucketOf(hash uint64, buckets uint32) uint32 {
	mask := uint32(1)<<bits.Len32(buckets-1) - 1
	b := uint32(hash) & mask
	if b >= buckets { // not split off yet
		b &= mask >> 1
	}
	return b
}

// bucket returns the chain of a bucket, nil if its segment does not exist.
func (s *mapShard[K, V]) bucket(b uint32) *chain[K, V] {
	segment := s.segments[segmentOf(b)].Load()
	if segment == nil {
		return nil
	}
	if b >= firstSegment {
		b = lower(b)
	}
	return &(*segment)[b]
}

// find returns the entry of a key, which may have ended, without the lock. If it returns nil, sure
// says that there was none.
func (s *mapShard[K, V]) find(hash uint64, key K) (e *entry[K, V], sure bool) {
	moves := s.moves.Load()
	c := s.bucket(bucketOf(hash, s.buckets.Load()))
	if c == nil {
		return nil, false
	}
	var last *entry[K, V]
	for e = c.Load(); e != nil; e = e.next.Load() {
		if e.hash == hash && e.key == key {
			return e, true
		}
		last = e
	}
	return nil, s.sure(moves, last)
}

// sure reports whether a reader that loaded moves before, and found nothing up to the last entry of
// the chain, has missed nothing.
func (s *mapShard[K, V]) sure(moves uint32, last *entry[K, V]) bool {
	return (last == nil || isPending(last.timer.word.Load())) &&
		moves%2 == 0 && s.moves.Load() == moves
}

// lookUp returns the entry of a key if act returns true for it, and else nil. act must return false
// for an entry that has ended.
func (s *mapShard[K, V]) lookUp(hash uint64, key K, act func(*Timer) bool) *entry[K, V] {
	e, sure := s.find(hash, key)
	if e != nil && act(&e.timer) {
		return e
	}
	if e == nil && sure {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.atLocked(hash, key).Load(); e != nil && act(&e.timer) {
		return e
	}
	return nil
}

// atLocked returns what leads to the entry of a key: the end of its chain if there is none.
func (s *mapShard[K, V]) atLocked(hash uint64, key K) *chain[K, V] {
	at := s.bucket(bucketOf(hash, s.buckets.Load()))
	for e := at.Load(); e != nil && (e.hash != hash || e.key != key); e = at.Load() {
		at = &e.next
	}
	return at
}

// putLocked puts e where at leads, and splits buckets if there are more entries than buckets. It
// reports whether that takes another segment, which the caller then makes by addSegment.
func (s *mapShard[K, V]) putLocked(at *chain[K, V], e *entry[K, V]) (full bool) {
	was := at.Load()
	if was == nil {
		at.Store(e)
		s.n++
		// Twice, because others may have come while a segment was made, so there may be more to
		// split.
		for range 2 {
			if s.splitLocked() {
				return true
			}
		}
		return false
	}
	e.next.Store(was.next.Load())
	at.Store(e)
	was.next.Store(nil)
	return false
}

// unlinkLocked takes out the entry that at leads to, which has ended.
func (s *mapShard[K, V]) unlinkLocked(at *chain[K, V]) {
	e := at.Load()
	at.Store(e.next.Load())
	e.next.Store(nil)
	s.n--
	// By two, so that a table that empties ends with as few buckets as it has entries, and not
	// at the same number at which it grows.
	for range 2 {
		s.mergeLocked()
	}
}

// dropLocked takes e out, which has ended, if it is there still.
func (s *mapShard[K, V]) dropLocked(e *entry[K, V]) {
	at := s.bucket(bucketOf(e.hash, s.buckets.Load()))
	for x := at.Load(); x != nil; x = at.Load() {
		if x == e {
			s.unlinkLocked(at)
			return
		}
		at = &x.next
	}
}

// splitLocked moves half of the entries of a bucket to a new one, if there are more entries than
// buckets. It reports whether that takes another segment, but to one caller only, as each would
// make one as large as the whole table; to all once that caller is so late that chains get long.
func (s *mapShard[K, V]) splitLocked() (full bool) {
	n := s.buckets.Load()
	if s.n <= int(n) || segmentOf(n) >= maxSegments {
		return false
	}
	to := s.bucket(n)
	if to == nil {
		full, s.growing = !s.growing || s.n > 2*int(n), true
		return full
	}
	s.moves.Add(1)
	at, bit := s.bucket(lower(n)), n-lower(n)
	for e := at.Load(); e != nil; e = at.Load() {
		if uint32(e.hash)&bit == 0 {
			at = &e.next
			continue
		}
		at.Store(e.next.Load())
		e.next.Store(to.Load())
		to.Store(e)
	}
	s.buckets.Store(n + 1)
	s.moves.Add(1)
	return false
}

// mergeLocked moves the entries of the last bucket back to where they came from, if there are
// less than half as many entries as buckets.
func (s *mapShard[K, V]) mergeLocked() {
	n := s.buckets.Load() - 1
	if n < firstSegment || s.n > int(n)/2 {
		return
	}
	s.moves.Add(1)
	last := s.bucket(n)
	if first := last.Load(); first != nil {
		at := s.bucket(lower(n))
		for e := at.Load(); e != nil; e = at.Load() {
			at = &e.next
		}
		at.Store(first)
		last.Store(nil)
	}
	s.buckets.Store(n)
	if lower(n) == 0 { // the first of its segment
		s.segments[segmentOf(n)].Store(nil)
	}
	s.moves.Add(1)
}

// addSegment makes room for another split. The segment is made without the lock, as it may be
// large; by then the table may have another size.
func (s *mapShard[K, V]) addSegment() {
	i := segmentOf(s.buckets.Load())
	s.putSegment(i, newSegment[K, V](i))
}

func (s *mapShard[K, V]) putSegment(i int, segment *[]chain[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.growing = false
	if n := s.buckets.Load(); i == segmentOf(n) && s.bucket(n) == nil && s.n > int(n) {
		s.segments[i].Store(segment)
		s.splitLocked()
	}
}

// A walk goes over all entries of a shard, some at a time, while others come and go. It goes by
// classes: those entries whose hashes agree in as many low bits as the buckets have in common. All
// of a class are met in one hold of the lock, in whichever buckets they are by then; so none is met
// twice or missed because a bucket was split or merged.
//
// The classes are in the order of their bits reversed. So the rest of the walk is also a walk of
// classes with more bits or with fewer, and no hold takes longer because the table has grown.
type walk[K comparable, V any] struct {
	s     *mapShard[K, V]
	class uint32
	done  bool
}

func (s *mapShard[K, V]) walk() *walk[K, V] { return &walk[K, V]{s: s} }

// next appends the entries of the next few classes.
func (w *walk[K, V]) next(some []*entry[K, V]) []*entry[K, V] {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.buckets.Load()
	for steps := 0; steps < lookLimit && len(some) < holdLimit && !w.done; steps++ {
		// If the table has shrunk, the half of a larger class may be left.
		low := max(bits.Len32(n)-1, bits.Len32(w.class))
		for b := bucketOf(uint64(w.class), n); b < n; b += 1 << low {
			for e := s.bucket(b).Load(); e != nil; e = e.next.Load() {
				if uint32(e.hash)&(1<<low-1) == w.class {
					some = append(some, e)
				}
			}
		}
		w.class = bits.Reverse32(bits.Reverse32(w.class) + 1<<(32-low))
		w.done = w.class == 0
	}
	return some
}
