package main

import (
	"container/heap"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// This file has what programs write themselves before they look for a library: a map that is
// scanned, and a heap under a lock.

// scannedMap is a map of deadlines that is scanned under a lock every 10 ms.
var scannedMap = workload.Impl{Name: "map", Open: func() workload.Instance {
	m := &mapTimers{due: map[*mapTimer]time.Time{}, quit: make(chan struct{})}
	go m.run(10 * time.Millisecond)
	return workload.Instance{
		Start: func(d time.Duration, f func()) workload.Timer {
			t := &mapTimer{m, f}
			t.Reset(d)
			return t
		},
		New:   func(f func()) workload.Timer { return &mapTimer{m, f} },
		Close: func() { close(m.quit) },
	}
}}

type mapTimers struct {
	mu   sync.Mutex
	due  map[*mapTimer]time.Time // guarded by mu
	quit chan struct{}
}

type mapTimer struct {
	m *mapTimers
	f func()
}

func (m *mapTimers) run(tick time.Duration) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-ticker.C:
		}
		m.mu.Lock()
		now := time.Now()
		for t, due := range m.due {
			if !due.After(now) {
				delete(m.due, t)
				go t.f()
			}
		}
		m.mu.Unlock()
	}
}

func (t *mapTimer) Stop() bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	_, pending := t.m.due[t]
	delete(t.m.due, t)
	return pending
}

func (t *mapTimer) Reset(d time.Duration) bool { return t.ResetAt(time.Now().Add(d)) }

func (t *mapTimer) ResetAt(at time.Time) bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	_, pending := t.m.due[t]
	t.m.due[t] = at
	return pending
}

// lockedHeap is a container/heap under one lock, with one alarm for its top.
var lockedHeap = workload.Impl{Name: "heap", Open: func() workload.Instance {
	h := &heapTimers{}
	h.alarm = time.AfterFunc(time.Hour, h.fire)
	h.alarm.Stop()
	return workload.Instance{
		Start: func(d time.Duration, f func()) workload.Timer {
			t := &heapTimer{h: h, f: f, index: -1}
			t.Reset(d)
			return t
		},
		New:   func(f func()) workload.Timer { return &heapTimer{h: h, f: f, index: -1} },
		Close: h.close,
	}
}}

type heapTimers struct {
	mu     sync.Mutex
	list   heapList    // guarded by mu
	set    time.Time   // guarded by mu: the alarm's time, or zero if it is not set
	alarm  *time.Timer // guarded by mu
	closed bool        // guarded by mu
}

type heapTimer struct {
	h     *heapTimers
	f     func()
	due   time.Time // guarded by h.mu
	index int       // guarded by h.mu: place in the heap, or -1
}

// fire runs on the alarm.
func (h *heapTimers) fire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set = time.Time{}
	now := time.Now()
	for len(h.list) > 0 && !h.list[0].due.After(now) {
		go heap.Pop(&h.list).(*heapTimer).f()
	}
	h.setAlarmLocked()
}

// setAlarmLocked sets the alarm for the top of the heap. An early alarm does no harm, so it stays
// as it is when its timer is stopped.
func (h *heapTimers) setAlarmLocked() {
	if h.closed || len(h.list) == 0 {
		return
	}
	if top := h.list[0].due; h.set.IsZero() || top.Before(h.set) {
		h.set = top
		h.alarm.Reset(time.Until(top))
	}
}

func (h *heapTimers) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.alarm.Stop()
}

func (t *heapTimer) Stop() bool {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.h.list, t.index)
	return true
}

func (t *heapTimer) Reset(d time.Duration) bool { return t.ResetAt(time.Now().Add(d)) }

func (t *heapTimer) ResetAt(at time.Time) bool {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	pending := t.index >= 0
	t.due = at
	if pending {
		heap.Fix(&t.h.list, t.index)
	} else {
		heap.Push(&t.h.list, t)
	}
	t.h.setAlarmLocked()
	return pending
}

// heapList is a heap.Interface, earliest first.
type heapList []*heapTimer

func (l heapList) Len() int           { return len(l) }
func (l heapList) Less(i, j int) bool { return l[i].due.Before(l[j].due) }
func (l heapList) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}

func (l *heapList) Push(x any) {
	t := x.(*heapTimer)
	t.index = len(*l)
	*l = append(*l, t)
}

func (l *heapList) Pop() any {
	old := *l
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*l = old[:len(old)-1]
	t.index = -1
	return t
}
