package timingwheel

import (
	"runtime"
	"time"
)

// This file holds the driver: which shard has its turn, for how long, and when the driver rests.
// What it does in a shard is in flush.go. Only the alarm's state needs a lock here.

// A driver is the goroutine that the alarm has started, with the fields that only it uses. At most
// one is at work.
//
// It works in rounds. A round takes everything that is due in all shards by a reading of the clock,
// the earlier ticks before the later ones. Timers that come due while a round is under way, such as
// one that an inline callback resets to zero, wait in due for the next round. So none can keep the
// others from their turn.
//
// What is not due yet is reinserted in the time that is left: the timers of a coarse bucket move to
// the finer wheel during the slot before it is due, after everything that is due. If they moved
// when the bucket is due, the 85,000 timers of one such bucket would hold up what lies behind them
// by 10 ms.
type driver struct {
	engine *engine // fixed

	// The functions that get a goroutine once the driver has released the lock under which it
	// claimed their timers.
	starting  [holdLimit]func()
	nstarting int

	// Timers handled since the driver last looked whether to yield the processor, when it
	// last did, and for how long.
	handled          int
	resumed, yielded int64

	worked bool // since it took over it has handled a timer or opened a bucket
}

const (
	// holdLimit is how many timers are handled in one hold of the lock: a few microseconds, which a
	// caller then waits for, while the lock's own cost is shared by enough timers to vanish.
	holdLimit = 64

	// lookLimit is the same for what only looks at timers and slots, which is less work.
	lookLimit = 4 * holdLimit

	// longestYield is the longest that a yield of the processor is taken to have lasted: some time
	// slices of the scheduler. Without this bound the driver would not yield for hours after a
	// suspend of the machine.
	longestYield = 100 * time.Millisecond
)

// drive is what the alarm calls.
func (d *driver) drive() {
	_ = pause("rung")
	if d.takeOver() {
		// Deferred, as user code may end the goroutine. What it had in hand stays
		// due, so the alarm rings at once, and another goroutine carries on.
		defer d.leave()
		defer endRegion(region("driver"))
		d.turn()
	}
}

// takeOver makes the caller the driver, unless there is one.
func (d *driver) takeOver() bool {
	e := d.engine
	a := &e.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ringing--
	a.wakeups++
	if a.driving {
		a.idleWakeups++
		return false
	}
	d.worked = false
	// This driver sees what is published from here on, or the alarm that it sets does.
	look := a.lookAt.Swap(unset)
	a.idle = look != unset && look <= e.tickAt(e.now())
	e.traceWakeup(a.armed.Load())
	a.driving = true
	a.armed.Store(awake)
	return true
}

// leave ends a driver.
func (d *driver) leave() {
	_ = pause("leaving")
	a := &d.engine.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	a.driving = false
	if !d.worked {
		a.idleWakeups++
	}
	a.restLocked()
	a.announceQuietLocked()
}

// turn works until nothing is left to do before the alarm rings again.
func (d *driver) turn() {
	e := d.engine
	for !e.stopped.Load() {
		d.round(e.now())
		if !d.reinsertAhead() && d.settle() > e.tickAt(e.now()) {
			return
		}
	}
}

// round does what is due at the instant now, tick by tick over all shards.
func (d *driver) round(now int64) {
	defer endRegion(region("flush what is due"))
	e := d.engine
	tick := e.tickAt(now)
	for i := range e.shards {
		e.shards[i].begin(now)
	}
	for !e.stopped.Load() {
		s, limit := d.earliest(tick)
		if s == nil {
			return
		}
		s.piece(now, limit, holdLimit)
		_ = pause("between pieces")
		d.breathe()
	}
}

// earliest returns the shard that has the earliest tick left in the round of tick, nil if none has
// one, and the tick up to which that shard may go on before another has its turn.
func (d *driver) earliest(tick int64) (s *shard, limit int64) {
	shards := d.engine.shards
	s, limit = &shards[0], tick
	for i := range shards[1:] {
		other := &shards[i+1]
		if other.first < s.first {
			s, other = other, s
		}
		limit = min(limit, other.first)
	}
	if s.first > tick {
		s = nil
	}
	return s, limit
}

// reinsertAhead moves some timers of the buckets that are being drained down, and
// reports whether there are such buckets.
func (d *driver) reinsertAhead() (found bool) {
	for i := range d.engine.shards {
		if s := &d.engine.shards[i]; len(s.draining) > 0 {
			r := region("reinsert ahead")
			s.drainPiece(holdLimit)
			d.breathe()
			endRegion(r)
			found = true
		}
	}
	return found
}

// settle drops emptied buckets from the tops of the delay queues and returns the
// tick at which the driver must look again.
func (d *driver) settle() (next int64) {
	next = unset
	for i := range d.engine.shards {
		next = min(next, d.engine.shards[i].settle())
	}
	return next
}

// breathe yields the processor: to callers that wait for a lock, which the driver would otherwise
// take again before they have woken up, and to the callbacks that it has just started, which would
// otherwise pile up by the hundred thousand.
//
// On a busy machine a yield may last a whole time slice. So the driver yields again only after it
// has worked for as long as the last yield took, which leaves it half of the processor at least.
func (d *driver) breathe() {
	if d.handled < holdLimit {
		return
	}
	d.handled = 0
	if now := d.engine.now(); now-d.resumed >= d.yielded {
		runtime.Gosched()
		d.resumed = d.engine.now()
		d.yielded = min(d.resumed-now, int64(longestYield))
	}
}

// startAtUnlock makes the next unlock start a goroutine for f.
func (d *driver) startAtUnlock(f func()) {
	d.starting[d.nstarting] = f
	d.nstarting++
}
