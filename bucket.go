package timingwheel

import "unsafe"

// A bucket holds the timers of one slot: a circular doubly linked list with a
// sentinel, so that insertion and removal have no special cases and removal
// needs nothing but the timer itself. That last point is what makes Stop and
// reinsertion safe against each other: nobody has to know which bucket a timer
// is in to take it out, so nobody can be wrong about it.
//
// Everything here is guarded by the shard's lock. Nothing here calls user code,
// reads a clock or looks at a timer's state word.
type bucket struct {
	// root is the sentinel: root.next is the front of the list. In a bucket that was
	// never used it is zero, so that the garbage collector has nothing to look at.
	root link

	// attention is the tick at which the bucket wants the driver: the first tick
	// of its slot, its expiration; of a coarse bucket that has not been opened yet,
	// one slot before. It is written when the bucket enters the delay queue, and when
	// it is opened.
	attention int64

	level  uint8 // of its wheel; fixed
	opened bool  // it takes no more timers and is being drained

	// queued says that the bucket is in the delay queue. An emptied bucket
	// stays there until it comes to the top (see delayQueue), so queued and
	// empty may both be true; non-empty and not queued may not, except for the
	// lists the delay queue does not know (shard.due, batch and beyond).
	queued bool
}

// A link is the place of a timer in a list, or the list's sentinel.
type link struct{ next, prev *link }

// timer returns the Timer of a link that is not a sentinel: it is its first field.
func (l *link) timer() *Timer { return (*Timer)(unsafe.Pointer(l)) }

var _ = [1]struct{}{}[unsafe.Offsetof(Timer{}.link)] // out of range if it is not

// init makes b an empty list that can be added to. It must not be copied afterwards.
func (b *bucket) init() {
	b.root.next = &b.root
	b.root.prev = &b.root
}

// front returns the timer that has been in the bucket longest, nil if none.
func (b *bucket) front() *Timer {
	if b.empty() {
		return nil
	}
	return b.root.next.timer()
}

func (b *bucket) empty() bool { return b.root.next == &b.root || b.root.next == nil }

// add appends t, which must be in no bucket.
func (b *bucket) add(t *Timer) {
	if b.root.next == nil {
		b.init()
	}
	l, last := &t.link, b.root.prev
	l.prev, l.next = last, &b.root
	last.next, b.root.prev = l, l
}

// takeAll moves every timer of from to the end of b, in order and in constant
// time.
func (b *bucket) takeAll(from *bucket) {
	if from.empty() {
		return
	}
	first, last := from.root.next, from.root.prev
	from.init()
	first.prev, last.next = b.root.prev, &b.root
	b.root.prev.next, b.root.prev = first, last
}

// unlink takes t out of whichever bucket it is in. Its links are cleared, so
// that a timer somebody keeps does not keep its former neighbours alive.
func (t *Timer) unlink() {
	l := &t.link
	l.prev.next, l.next.prev = l.next, l.prev
	l.next, l.prev = nil, nil
}

// wantsOpening reports that a queued bucket's attention is one slot before its
// expiration.
func (b *bucket) wantsOpening() bool { return b.level > 0 && !b.opened }
