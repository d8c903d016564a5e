package workload

import (
	"sync"
	"sync/atomic"
	"time"
)

// Floor is the least that a thread-safe timer in memory must do for a call, measured on this
// machine in this run. It is not a timer, because nothing ever fires. It is what a wheel would cost
// that did no work beyond this:
//
//	Start   a clock reading, an allocation of 48 B, a mutex pair, a list insertion
//	Stop    a mutex pair, a list removal
//	Reset   a clock reading, a mutex pair, a list removal and insertion
//	touch   a clock reading and a compare-and-swap on the timer, no lock
//
// Each goroutine has a list and a lock of its own, so no mutex is contended and no list leaves its
// processor's cache.
var Floor = Impl{Name: "floor", Open: func() Instance { return newFloorList().instance() }}

// A floorList is the list of all timers of a worker, with its lock.
type floorList struct {
	mu    sync.Mutex
	start time.Time
	head  floorTimer // sentinel

	_ [128]byte // keeps the lists of two workers out of one cache line
}

func newFloorList() *floorList {
	l := &floorList{start: time.Now()}
	l.head.next, l.head.prev = &l.head, &l.head
	return l
}

func (l *floorList) instance() Instance {
	return Instance{
		Start:    func(d time.Duration, f func()) Timer { return l.afterFunc(d, f) },
		New:      func(f func()) Timer { return &floorTimer{list: l, f: f} },
		NewTouch: func(f func()) Timer { return &floorTouch{list: l, f: f} },
		Close:    func() {},
		Worker:   func(int) Instance { return newFloorList().instance() },
		Silent:   true,
	}
}

// A floorTimer has the fields that every timer needs, and is as large as the library's, 48 bytes.
type floorTimer struct {
	next, prev *floorTimer // guarded by list.mu; nil if not in the list
	list       *floorList
	f          func()
	deadline   int64 // guarded by list.mu
	_          int64
}

func (l *floorList) afterFunc(d time.Duration, f func()) *floorTimer {
	t := &floorTimer{list: l, f: f, deadline: int64(time.Since(l.start) + d)}
	l.mu.Lock()
	t.insertLocked()
	l.mu.Unlock()
	return t
}

// Stop takes the timer off the list.
func (t *floorTimer) Stop() bool {
	t.list.mu.Lock()
	was := t.next != nil
	if was {
		t.removeLocked()
	}
	t.list.mu.Unlock()
	return was
}

// Reset takes the timer off the list and puts it back.
func (t *floorTimer) Reset(d time.Duration) bool {
	deadline := int64(time.Since(t.list.start) + d)
	t.list.mu.Lock()
	was := t.next != nil
	if was {
		t.removeLocked()
	}
	t.deadline = deadline
	t.insertLocked()
	t.list.mu.Unlock()
	return was
}

func (t *floorTimer) insertLocked() {
	head := &t.list.head
	t.prev, t.next = head, head.next
	t.prev.next, t.next.prev = t, t
}

func (t *floorTimer) removeLocked() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

// A floorTouch is a pending timer that is only extended: the new deadline goes into the timer, and
// that is all. It is as large as the others, so that a million of them miss the cache as often.
type floorTouch struct {
	list     *floorList
	f        func()
	deadline atomic.Int64
	_        [3]int64
}

func (t *floorTouch) Stop() bool { return true }

func (t *floorTouch) Reset(d time.Duration) bool {
	return t.touch(int64(time.Since(t.list.start) + d))
}

func (t *floorTouch) ResetAt(at time.Time) bool {
	return t.touch(int64(at.Sub(t.list.start)))
}

func (t *floorTouch) touch(deadline int64) bool {
	return t.deadline.CompareAndSwap(t.deadline.Load(), deadline)
}
