package timingwheel

import (
	"runtime/debug"
	"runtime/trace"
	"sync/atomic"
	"time"
)

// This file holds the last step of a timer: its callback is handed over to where callbacks run, and
// called there. No lock is held while user code runs. The counters are atomic.

// An executor runs the callbacks of a wheel.
type executor struct {
	engine *engine // fixed
	execution

	_ [64]byte // what is above is read all the time, what is below is written

	// inflight counts callbacks that were handed over and have not returned, except those of the
	// inline executor.
	inflight atomic.Int64
	waiting  atomic.Int64 // of these, those that a custom executor has not begun

	_ [64]byte

	begun sharedLateness // of callbacks, as they began

	_ [64]byte
}

// An execution is how callbacks run. It is fixed.
type execution struct {
	mode    executorMode
	run     func(f func()) // of the custom executor
	onPanic func(recovered any, stack []byte)
	observer
}

// executorMode says where callbacks run.
type executorMode uint8

const (
	goroutine executorMode = iota // a goroutine each
	inline                        // the driver's
	custom                        // wherever execution.run takes them
)

// An observer is what a feature does around the caller's callbacks; a nil function is not called.
// named is the callback, for its name alone: the function to call is f.
type observer struct {
	callback func(named, f func())                     // calls f, where callbacks run
	driver   func(named, f func())                     // calls f, which holds up the driver
	waited   func(named func(), waiting time.Duration) // a custom executor has begun the callback
}

// observed returns the function to hand over for f, a callback of the caller's. It is f itself
// unless there is an observer or a trace is being taken.
func (x *executor) observed(f func()) func() {
	if !x.observes() {
		return f
	}
	return func() { x.observe(f, f) }
}

func (x *executor) observes() bool { return x.callback != nil || trace.IsEnabled() }

// observe calls f, which is the callback named or calls it.
func (x *executor) observe(named, f func()) {
	if trace.IsEnabled() {
		defer endRegion(region("callback " + nameOf(named)))
	}
	if x.callback != nil {
		x.callback(named, f)
	} else {
		f()
	}
}

// handOverLocked hands f to the executor, and releases the lock while user code runs. f is the
// callback named, or calls it. timed is what claimLocked returned.
func (s *shard) handOverLocked(f, named func(), timed int64) {
	x := &s.engine.executor
	if x.mode == goroutine {
		if timed != untimed {
			call := f
			f = func() { x.noteBegin(timed); call() }
		}
		s.engine.driver.startAtUnlock(f)
		return
	}
	s.unlock()
	switch {
	case x.mode == custom:
		x.inflight.Add(1)
		x.waiting.Add(1)
		x.execute(x.newHandover(f, named, timed))
	case x.driver == nil:
		x.noteBegin(timed)
		x.invoke(f)
	default:
		x.noteBegin(timed)
		x.driver(named, func() { x.invoke(f) })
	}
	s.lock()
}

// start starts a goroutine for each callback of fs, and forgets them.
func (x *executor) start(fs []func()) {
	if len(fs) == 0 {
		return
	}
	x.inflight.Add(int64(len(fs)))
	for i, f := range fs {
		fs[i] = nil
		go x.call(f)
		_ = pause("started")
	}
}

// handover is a callback on its way through a custom executor.
type handover struct {
	executor *executor
	f        func()
	begun    atomic.Bool // counted as no longer waiting, once even if the executor calls twice
	done     atomic.Bool // counted as returned, likewise

	named func()    // the callback that f is for
	at    time.Time // when it was handed over, for observer.waited
	timed int64     // see sampleLocked
}

func (x *executor) newHandover(f, named func(), timed int64) *handover {
	h := &handover{executor: x, f: f, named: named, timed: timed}
	if x.waited != nil {
		h.at = time.Now()
	}
	return h
}

func (h *handover) call() {
	x := h.executor
	defer h.over() // also if the observer panics and the executor recovers
	if h.begin() {
		x.noteBegin(h.timed)
		if x.waited != nil {
			x.waited(h.named, time.Since(h.at))
		}
	}
	x.invoke(h.f)
}

func (h *handover) begin() (first bool) {
	first = !h.begun.Swap(true)
	if first {
		h.executor.waiting.Add(-1)
	}
	return first
}

func (h *handover) over() {
	if !h.done.Swap(true) {
		h.executor.returned()
	}
}

// execute gives h to the custom executor. If the executor panics, execute assumes that it has not
// kept h.
func (x *executor) execute(h *handover) {
	taken := false
	defer func() {
		if !taken {
			h.begin()
			h.over()
		}
	}()
	take := func() { x.run(h.call); taken = true } // before the observer, which may panic
	x.invoke(func() {
		if x.driver == nil {
			take()
		} else {
			x.driver(h.named, take)
		}
	})
}

// call runs f on a goroutine of its own.
func (x *executor) call(f func()) {
	defer x.returned()
	x.invoke(f)
}

// invoke calls f, and the panic handler if f panics.
func (x *executor) invoke(f func()) {
	if x.onPanic != nil {
		defer x.recovered()
	}
	f()
}

// recovered is deferred around user code if there is a panic handler.
func (x *executor) recovered() {
	if r := recover(); r != nil {
		x.onPanic(r, debug.Stack())
	}
}

// returned counts a handed-over callback as done.
//
// The last one of a stopped wheel must tell Shutdown. It counts down and then looks at stopped,
// while Shutdown sets stopped and then looks at the count. So at least one of them sees the other.
func (x *executor) returned() {
	last := x.inflight.Add(-1) == 0
	_ = pause("returning")
	if last && x.engine.stopped.Load() {
		a := &x.engine.alarm
		a.mu.Lock()
		a.announceQuietLocked()
		a.mu.Unlock()
	}
}

// noteBegin notes how late the callback of a timer with this deadline begins.
func (x *executor) noteBegin(timed int64) {
	if timed != untimed {
		x.begun.add(time.Duration(max(x.engine.now()-timed, 0)))
	}
}
