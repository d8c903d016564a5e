package timingwheel

import "container/heap"

// delayQueue is the heap of the buckets that want attention, by when they want it. The driver
// sleeps until its head wants attention. It is guarded by the shard's lock.
//
// A bucket enters when it gets its first timer and leaves only at the top. When Stop or Reset takes
// a bucket's last timer away, the bucket stays: taking it out of the middle would cost a sift on
// the hot path of Stop, only to be put back by the next timer of that slot. What remains is bounded
// by the number of slots, is refilled without touching the heap, and is dropped when it comes to
// the top, so an emptied bucket can ring the alarm once at most.
//
// The heap is container/heap's. It is used once per bucket, not once per timer, so the cost of its
// interface calls does not show.
type delayQueue struct {
	buckets bucketHeap
}

// add queues b, which must not be queued yet.
func (q *delayQueue) add(b *bucket, attention int64) {
	b.attention = attention
	b.queued = true
	heap.Push(&q.buckets, b)
}

// postpone puts the head, which has been opened, where its expiration belongs.
func (q *delayQueue) postpone(b *bucket, expiration int64) {
	b.attention = expiration
	b.opened = true
	heap.Fix(&q.buckets, 0)
}

// head returns the bucket that wants attention first, empty or not; nil if nothing is queued.
func (q *delayQueue) head() *bucket {
	if len(q.buckets) == 0 {
		return nil
	}
	return q.buckets[0]
}

// removeHead drops the head, which must be empty of timers.
func (q *delayQueue) removeHead() {
	b := heap.Pop(&q.buckets).(*bucket)
	b.queued, b.opened = false, false
}

type bucketHeap []*bucket

func (h bucketHeap) Len() int           { return len(h) }
func (h bucketHeap) Less(i, j int) bool { return h[i].attention < h[j].attention }
func (h bucketHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *bucketHeap) Push(b any)        { *h = append(*h, b.(*bucket)) }

func (h *bucketHeap) Pop() any {
	old := *h
	last := len(old) - 1
	b := old[last]
	old[last] = nil
	*h = old[:last]
	return b
}
