package timingwheel

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// executor says where callbacks run.
type executor uint8

const (
	goroutine executor = iota // a goroutine each
	inline                    // the driver's
	custom                    // wherever TimingWheel.run takes them
)

// handOverLocked hands f to the executor, on behalf of the callback named: f is that
// callback, perhaps with something around it, or a schedule's run; timed is as sampleLocked
// returned it. handOverLocked releases the lock while user code runs.
func (s *shard) handOverLocked(f, named func(), timed int64) {
	tw := s.tw
	if tw.executor == goroutine {
		if timed != untimed {
			call := f
			f = func() { tw.noteBegin(timed); call() }
		}
		tw.driver.claim(f)
		return
	}
	s.unlock()
	switch {
	case tw.executor == custom:
		tw.inflight.Add(1)
		tw.waiting.Add(1)
		tw.execute(tw.newHandover(f, named, timed))
	case tw.slow == nil:
		tw.noteBegin(timed)
		tw.invoke(f)
	default:
		tw.noteBegin(timed)
		tw.slow.watch(named, false, func() { tw.invoke(f) })
	}
	s.lock()
}

// handover is a callback on its way through a custom executor.
type handover struct {
	tw    *TimingWheel
	f     func()
	begun atomic.Bool // counted as no longer waiting, once even if the executor calls twice
	done  atomic.Bool // counted as returned, likewise

	named func()    // the callback that f is for
	at    time.Time // when it was handed over, for WithSlowCallback
	timed int64     // see sampleLocked
}

func (tw *TimingWheel) newHandover(f, named func(), timed int64) *handover {
	h := &handover{tw: tw, f: f, named: named, timed: timed}
	if tw.slow != nil {
		h.at = time.Now()
	}
	return h
}

func (h *handover) call() {
	defer h.over() // also if the hook panics and the executor recovers
	if h.begin() {
		h.tw.noteBegin(h.timed)
		if slow := h.tw.slow; slow != nil {
			if waited := time.Since(h.at); waited > slow.limit {
				slow.hook(SlowCallback{Name: nameOf(h.named), Waited: true, For: waited, Over: true})
			}
		}
	}
	h.tw.invoke(h.f)
}

func (h *handover) begin() (first bool) {
	first = !h.begun.Swap(true)
	if first {
		h.tw.waiting.Add(-1)
	}
	return first
}

func (h *handover) over() {
	if !h.done.Swap(true) {
		h.tw.returned()
	}
}

// execute gives h to the custom executor. One that panics has not taken it, for
// all one can know.
func (tw *TimingWheel) execute(h *handover) {
	taken := false
	defer func() {
		if !taken {
			h.begin()
			h.over()
		}
	}()
	take := func() { tw.run(h.call); taken = true } // before the hook, which may panic
	tw.invoke(func() {
		if tw.slow == nil {
			take()
		} else {
			tw.slow.watch(h.named, false, take)
		}
	})
}

// call runs f on a goroutine of its own.
func (tw *TimingWheel) call(f func()) {
	defer tw.returned()
	tw.invoke(f)
}

// invoke calls f, and the panic handler if f panics.
func (tw *TimingWheel) invoke(f func()) {
	if tw.onPanic != nil {
		defer tw.recovered()
	}
	f()
}

// recovered is deferred around user code if there is a panic handler.
func (tw *TimingWheel) recovered() {
	if r := recover(); r != nil {
		tw.onPanic(r, debug.Stack())
	}
}

// returned counts a handed-over callback as done.
//
// The last one of a stopped wheel has to tell Shutdown. It cannot slip by: it
// counts down and then looks at stopped, while Shutdown sets stopped and then
// looks at the count, so at least one of them sees the other.
func (tw *TimingWheel) returned() {
	last := tw.inflight.Add(-1) == 0
	_ = pause("returning")
	if last && tw.stopped.Load() {
		tw.alarm.mu.Lock()
		tw.announceQuietLocked()
		tw.alarm.mu.Unlock()
	}
}
