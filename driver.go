package timingwheel

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// The driver is whoever runs drive: the goroutine that the alarm, one
// time.AfterFunc for the whole wheel, starts when the first bucket is due. It
// flushes what is due, sets the alarm for the next bucket and ends; between two
// alarms the wheel has no goroutine.
//
// # No wake-up is lost
//
// A caller that files a timer and a driver that leaves might each take the other
// for the one who will see to it. They cannot, because both act under mu:
//
//   - the driver sets the alarm for the earliest bucket and clears driving in
//     one hold of the lock, so whatever was filed before that is covered;
//   - a caller that files a timer looks at driving and armed in the hold in which
//     it filed. If a driver is at work it will look again before it leaves;
//     otherwise the caller moves the alarm if its bucket is earlier.
//
// So while no driver is at work, armed is at most the expiration of every
// queued bucket that holds a timer, and the clock's tick if due holds one. An
// alarm may ring for nothing, when its bucket was emptied or when it was moved
// while its goroutine was starting. Such a driver finds nothing due, or a driver
// at work, and leaves.

const (
	// unset, as an alarm's tick, is later than any bucket's.
	unset int64 = math.MaxInt64

	// holdLimit is how many timers are handled in one hold of the lock: a few
	// microseconds, which a caller then waits for, while the lock's own cost is
	// shared by enough timers to vanish.
	holdLimit = 64

	// longestYield is the longest that a yield of the processor is taken to have
	// lasted: some time slices of the scheduler. A suspend of the machine in it
	// is not to keep the driver from yielding for hours.
	longestYield = 100 * time.Millisecond
)

// wakeAtLocked makes sure that a driver looks at the wheel when tick e has come:
// the one at work, or one that the alarm starts.
func (tw *TimingWheel) wakeAtLocked(e int64) {
	if tw.started && !tw.driving && e < tw.armed {
		tw.setAlarmLocked(e)
	}
}

// setAlarmLocked reads the clock anew: the reading of a caller that was held up
// on its way here would make the alarm, and every timer of the wheel, late by as
// much.
func (tw *TimingWheel) setAlarmLocked(e int64) {
	tw.armed = e
	d := tw.untilTick(e)
	switch {
	case tw.alarm == nil:
		tw.alarm = time.AfterFunc(d, tw.drive)
		tw.ringing++
	case !tw.alarm.Reset(d):
		tw.ringing++ // otherwise the ring that was to come has been moved
	}
}

// drive is what the alarm calls.
func (tw *TimingWheel) drive() {
	tw.lockAnew()
	tw.ringing--
	tw.stats.Wakeups++
	if tw.driving {
		tw.mu.Unlock()
		return
	}
	tw.driving = true
	tw.armed = unset
	defer tw.leave() // deferred, as user code may end the goroutine
	tw.turn()
}

// leave ends a driver and releases the lock.
func (tw *TimingWheel) leave() {
	again := tw.calling
	if again {
		// A callback called runtime.Goexit, or panicked with nobody to recover;
		// the lock is not held. Another goroutine carries on with the rest.
		tw.endCall()
	}
	tw.driving = false
	if again && !tw.stopped.Load() {
		tw.wakeAtLocked(tw.wheel.now)
	}
	tw.announceQuietLocked()
	tw.mu.Unlock()
}

// turn flushes everything that is due and sets the alarm for what comes next.
// It is entered and left with the lock held, which is released in between:
// every holdLimit timers, and around user code.
//
// It works in rounds. Timers that come due while a round is under way, such as
// one that an inline callback resets to zero, wait in due for the next round, so
// none can keep the others from their turn.
func (tw *TimingWheel) turn() {
	for !tw.stopped.Load() {
		tw.flushUpTo(tw.now())
		if !tw.due.empty() || tw.stopped.Load() {
			continue // a stopped wheel gets no alarm, though its sweep may not be over
		}
		b := tw.queue.head()
		if b == nil {
			return
		}
		if b.expiration > tw.now()/tw.tick {
			tw.setAlarmLocked(b.expiration)
			return
		}
	}
}

// flushUpTo is one round: it flushes what waited in due and every bucket that
// has expired at the instant now. Afterwards the head of the delay queue, if any,
// holds timers and is not due, unless the wheel was stopped.
func (tw *TimingWheel) flushUpTo(now int64) {
	tw.batch.takeAll(&tw.due)
	emptied := 0
	for !tw.stopped.Load() {
		b, t := tw.queue.head(), tw.batch.front()
		switch {
		case b != nil && b.empty():
			tw.queue.removeHead()
			if emptied++; emptied%holdLimit == 0 {
				tw.pause()
			}
		case b != nil && b.expiration <= now/tw.tick && (t == nil || b.expiration < tw.tickOf(deadlineOf(t.word.Load()))):
			// The clock stands on the bucket's expiration until it is empty, so
			// nothing can be filed into it, and it stays the head (see wheel).
			tw.wheel.advance(b.expiration)
			tw.flush(b, b.expiration*tw.tick)
		case t != nil:
			// It waited in due, so it was due when it was put there; but what
			// a late driver finds in buckets may have been due before it.
			tw.flushTimer(t, now)
		case tw.nclaimed > 0:
			tw.pause()
		default:
			return
		}
	}
}

// flush empties a bucket. No timer of it can come back into it.
func (tw *TimingWheel) flush(b *bucket, upTo int64) {
	for t := b.front(); t != nil && !tw.stopped.Load(); t = b.front() {
		tw.flushTimer(t, upTo)
	}
}

// flushTimer takes t, the front of a list, out of it: a timer whose deadline is
// not after the instant upTo fires, another is reinserted, which is where an
// extended timer goes to its new place. If callers come in between it may be left
// for another try. At the end the lock may have been released.
func (tw *TimingWheel) flushTimer(t *Timer, upTo int64) {
	word := t.word.Load()
	switch deadline := deadlineOf(word); {
	case deadline > upTo:
		t.unlink()
		tw.stats.Reinserted++
		tw.placeLocked(t, deadline, upTo)
	case t.kind == plain:
		tw.fireLocked(t, word)
	default:
		tw.runLocked(t.schedule(), word, upTo)
	}
	tw.held++
	tw.stats.LongestHold = max(tw.stats.LongestHold, tw.held)
	// User code on the driver ends a hold early, but does not let others have
	// the processor: so many timers at a time, whatever the holds.
	if tw.handled++; tw.handled%holdLimit == 0 || tw.held >= holdLimit {
		tw.pause()
	}
}

// pause ends a hold of the lock and begins another, and in between lets others
// have the processor: callers that wait for the lock, which the driver would
// otherwise have again before they have woken up, and the callbacks that it has
// just started, which would otherwise pile up by the hundred thousand.
//
// On a busy machine a yield may last a whole time slice, so the driver yields
// again only after it has worked for as long as the last yield took: it has half
// of what there is at least.
func (tw *TimingWheel) pause() {
	tw.unlock()
	if now := tw.now(); now-tw.resumed >= tw.yielded {
		runtime.Gosched()
		tw.resumed = tw.now()
		tw.yielded = min(tw.resumed-now, int64(longestYield))
	}
	tw.lockAnew()
}

// unlock releases the driver's lock and starts the goroutines of the timers that
// it has claimed meanwhile.
//
// They are started here and not as they are claimed, as that takes ten times as
// long as all else: the lock is free most of the time, so that a caller gets it
// without having to be woken for it. A claimed timer has fired for all that
// anybody can tell: the scheduler might as well begin its goroutine later. None is
// forgotten if the wheel is stopped, as that takes the lock, and the driver never
// lets go of it but here.
func (tw *TimingWheel) unlock() {
	claimed := tw.claimed[:tw.nclaimed]
	tw.nclaimed = 0
	tw.mu.Unlock()
	tw.inflight.Add(int64(len(claimed))) // Shutdown waits for the driver until then
	for i, f := range claimed {
		claimed[i] = nil
		go tw.call(f)
	}
}

// fireLocked claims a plain timer that is due by this word, and hands over its
// callback. If it has been extended since, flush looks at it again.
func (tw *TimingWheel) fireLocked(t *Timer, word uint64) {
	f := t.f // read before the word says idle: from then on Init may change it
	if !t.word.CompareAndSwap(word, makeWord(idle, 0)) {
		return
	}
	t.unlink()
	tw.stats.Fired++
	tw.handOverLocked(f)
}

// handOverLocked hands f to the executor. It releases the lock while user code
// runs.
func (tw *TimingWheel) handOverLocked(f func()) {
	if tw.executor == goroutine {
		tw.claimed[tw.nclaimed] = f
		tw.nclaimed++
		return
	}
	tw.beginCall()
	if tw.executor == inline {
		tw.invoke(f)
	} else {
		tw.inflight.Add(1)
		tw.execute(&handover{tw: tw, f: f})
	}
	tw.endCall()
}

// beginCall and endCall enclose user code on the driver. If it never comes back
// (runtime.Goexit), calling stays true and leave knows that the lock is free.
func (tw *TimingWheel) beginCall() {
	tw.calling = true
	tw.unlock()
}

func (tw *TimingWheel) endCall() {
	tw.lockAnew()
	tw.calling = false
}

// lockAnew begins a new hold of the lock.
func (tw *TimingWheel) lockAnew() {
	tw.mu.Lock()
	tw.held = 0
}

// handover is a callback on its way through a custom executor.
type handover struct {
	tw   *TimingWheel
	f    func()
	done atomic.Bool // counted as returned, once even if the executor calls twice
}

func (h *handover) call() {
	defer h.over()
	h.tw.invoke(h.f)
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
			h.over()
		}
	}()
	tw.invoke(func() { tw.run(h.call); taken = true })
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
	if tw.inflight.Add(-1) == 0 && tw.stopped.Load() {
		tw.mu.Lock()
		tw.announceQuietLocked()
		tw.mu.Unlock()
	}
}
