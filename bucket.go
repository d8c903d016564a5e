package timingwheel

import "unsafe"

// A bucket holds the timers of one slot, in no order, spread over a few lists.
//
// Emptying a bucket means waiting for memory: with a million timers each one is a cache miss, and a
// list shows where its next timer lies only once the one before has been loaded. So the driver
// walks all lists of a bucket at once, each from both ends, and the processor overlaps the misses
// (see preload).
//
// Everything here is guarded by the shard's lock. Nothing here calls user code or reads a clock.
type bucket struct {
	lists [listsPerBucket]list // zero until the first timer is added

	// attention is the tick at which the bucket wants the driver. That is its expiration, the first
	// tick of its slot; for a coarse bucket that has not been opened yet, it is one slot before. It
	// is written when the bucket enters the delay queue, and when it is opened.
	attention int64

	level  uint8 // of its wheel; fixed
	opened bool  // it takes no more timers and is being drained

	// queued says that the bucket is in the delay queue. An emptied bucket
	// stays there until it comes to the top (see delayQueue), so queued and
	// empty may both be true; non-empty and not queued may not.
	queued bool

	turn uint8 // the end that was used last, of 2*listsPerBucket
}

// listsPerBucket is a power of two. More lists overlap more misses, and each takes 16 bytes
// a slot: docs/design.md has the figures.
const listsPerBucket = 2

// add puts t, which must be in no list, into the bucket.
func (b *bucket) add(t *Timer) {
	if b.lists[0].root.next == nil {
		for i := range b.lists {
			b.lists[i].init()
		}
	}
	b.turn++
	b.lists[b.turn%listsPerBucket].add(t)
}

// next returns a timer of the bucket, nil if it has none. Successive calls go round
// the ends of the lists.
func (b *bucket) next() *Timer {
	for range b.lists {
		b.turn++
		l := &b.lists[b.turn%listsPerBucket]
		if l.empty() {
			continue
		}
		if b.turn/listsPerBucket%2 == 0 {
			return l.front()
		}
		return l.back()
	}
	return nil
}

func (b *bucket) empty() bool {
	for i := range b.lists {
		if !b.lists[i].empty() {
			return false
		}
	}
	return true
}

// preload loads into the cache the timers that the next calls of next will return, as many as
// timers says. It only loads. The atomic operations that take out a timer keep the processor from
// running ahead, so it would wait for each miss in turn. A walk that has come to the end of its
// list begins anew, which costs less than a check.
func (b *bucket) preload(timers int) {
	if b.lists[0].root.next == nil {
		return
	}
	var up, down [listsPerBucket]*link
	for i := range b.lists {
		up[i], down[i] = &b.lists[i].root, &b.lists[i].root
	}
	for range timers / (2 * listsPerBucket) {
		for i := range b.lists {
			root := &b.lists[i].root
			up[i], down[i] = up[i].next, down[i].prev
			if up[i] != root {
				up[i].timer().word.Load() // the word is at the other end of a Timer
			}
			if down[i] != root {
				down[i].timer().word.Load()
			}
		}
	}
}

// wantsOpening reports whether a queued bucket's attention is one slot before its expiration.
func (b *bucket) wantsOpening() bool { return b.level > 0 && !b.opened }

// A list is a circular doubly linked list of timers with a sentinel, so that insertion and removal
// have no special cases and removal needs nothing but the timer itself. That last point is what
// makes Stop and reinsertion safe against each other: neither needs to know which list a timer is
// in to take it out, so neither can be wrong about it. It is guarded by the shard's lock.
type list struct {
	// root is the sentinel: root.next is the front of the list. In one that was
	// never used it is zero, so that the garbage collector has nothing to look at.
	root link
}

// A link is the place of a timer in a list, or the list's sentinel.
type link struct{ next, prev *link }

// timer returns the Timer of a link that is not a sentinel: the link is its first field.
func (l *link) timer() *Timer { return (*Timer)(unsafe.Pointer(l)) }

var _ = [1]struct{}{}[unsafe.Offsetof(Timer{}.link)] // out of range if it is not

// init makes l an empty list that can be added to. It must not be copied afterwards.
func (l *list) init() {
	l.root.next = &l.root
	l.root.prev = &l.root
}

func (l *list) empty() bool { return l.root.next == &l.root || l.root.next == nil }

// front returns the timer that came first of those in the list, and back the one that came last.
// The list must not be empty.
func (l *list) front() *Timer { return l.root.next.timer() }
func (l *list) back() *Timer  { return l.root.prev.timer() }

// add appends t, which must be in no list.
func (l *list) add(t *Timer) {
	last := l.root.prev
	t.prev, t.link.next = last, &l.root
	last.next, l.root.prev = &t.link, &t.link
}

// takeAll moves every timer of from to the end of l, in order and in constant time.
func (l *list) takeAll(from *list) {
	if from.empty() {
		return
	}
	first, last := from.root.next, from.root.prev
	from.init()
	first.prev, last.next = l.root.prev, &l.root
	l.root.prev.next, l.root.prev = first, last
}

// unlink takes t out of whichever list it is in. Its links are cleared, so that a
// timer that is kept does not keep its former neighbours alive.
func (t *Timer) unlink() {
	l := &t.link
	l.prev.next, l.next.prev = l.next, l.prev
	l.next, l.prev = nil, nil
}
