package timingwheel

// A bucket holds the timers of one slot: a circular doubly linked list with a
// sentinel, so that insertion and removal have no special cases and removal
// needs nothing but the timer itself. That last point is what makes Stop and
// reinsertion safe against each other: nobody has to know which bucket a timer
// is in to take it out, so nobody can be wrong about it.
//
// Everything here is guarded by TimingWheel.mu. Nothing here calls user code,
// reads a clock or looks at a timer's state word.
type bucket struct {
	// root is the sentinel; only its links are used. root.next is the front.
	root Timer

	// expiration is the tick at which the bucket is due, the first tick of its
	// slot. It is written when the bucket enters the delay queue and is fixed
	// until it leaves: the wheel's clock does not pass a queued expiration, so
	// the slot cannot be wanted for a later lap before then.
	expiration int64

	// queued says that the bucket is in the delay queue. An emptied bucket
	// stays there until it comes to the top (see delayQueue), so queued and
	// empty may both be true; non-empty and not queued may not, except for the
	// lists the delay queue does not know (TimingWheel.due, batch and beyond).
	queued bool
}

// init makes the zero bucket an empty list. It must not be copied afterwards.
func (b *bucket) init() {
	b.root.next = &b.root
	b.root.prev = &b.root
}

// front returns the timer that has been in the bucket longest, nil if none.
func (b *bucket) front() *Timer {
	if t := b.root.next; t != &b.root {
		return t
	}
	return nil
}

func (b *bucket) empty() bool { return b.root.next == &b.root }

// add appends t, which must be in no bucket.
func (b *bucket) add(t *Timer) {
	last := b.root.prev
	t.prev, t.next = last, &b.root
	last.next, b.root.prev = t, t
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
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}
