package timingwheel

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// The alarm is one bell for the whole wheel, usually a time.AfterFunc. The goroutine
// that calls drive when it rings is the driver; between two rings the wheel has none
// (with WithPreciseWakeup one that is parked).
//
// # No wake-up is lost
//
// A caller that files a timer in one shard and a driver that leaves after it has
// looked at that shard might each take the other for the one who will see to it.
// They cannot:
//
//   - the caller first stores the tick in its shard's next and then loads armed;
//     it moves the alarm if armed is later;
//   - the driver, and Start, first store unset in armed, then load every shard's
//     next, and set the alarm for the earliest.
//
// So at least one of the two sees what the other has stored. The other way round,
// with the shards looked at first, both could see nothing. A caller that meets the
// driver halfway finds armed unset, waits for alarm.mu, and compares again.
//
// While a driver is at work armed is awake, which is earlier than every tick:
// callers leave it alone, as it looks again before it leaves. The same holds before
// Start, which looks too, and after the wheel's Stop, for good.
//
// An alarm may ring for nothing, when its bucket was emptied or when it was moved
// while its goroutine was starting. Such a driver finds nothing due, or a driver at
// work, and leaves.
type alarm struct {
	// armed is the tick that the alarm is set for. Written under mu; callers load
	// it with every timer they file.
	armed atomic.Int64

	// mu guards what follows. It is taken when the alarm is set and when a driver
	// comes or goes, with or without a shard's lock, and nothing is locked under it.
	mu      sync.Mutex
	bell    bell  // made when first set
	ringing int   // alarms set that have not reached drive
	driving bool  // a driver is at work
	wakeups int64 // rings that reached drive

	idleWakeups int64 // of these, the ones that found nothing to do

	// quiet is closed once nothing of a stopped wheel runs any more. It is made
	// by the first Shutdown that has to wait.
	quiet chan struct{}
}

const (
	// unset, as an alarm's tick, is later than any bucket's; awake is earlier.
	unset int64 = math.MaxInt64
	awake int64 = -1
)

// wakeAt makes sure that a driver looks at the wheel when tick e has come: the one
// at work, or one that the alarm starts. Cost: usually one load.
func (tw *TimingWheel) wakeAt(e int64) {
	a := &tw.alarm
	if e >= a.armed.Load() {
		return
	}
	_ = pause("waking")
	a.mu.Lock()
	defer a.mu.Unlock()
	if e < a.armed.Load() {
		tw.setAlarmLocked(e)
	}
}

// setAlarmLocked reads the clock anew: the reading of a caller that was held up
// on its way here would make the alarm, and every timer of the wheel, late by as
// much.
func (tw *TimingWheel) setAlarmLocked(e int64) {
	a := &tw.alarm
	a.armed.Store(e)
	d := tw.untilTick(e)
	switch {
	case a.bell == nil:
		a.bell = tw.newBell(d)
		a.ringing++
	case !a.bell.Reset(d):
		a.ringing++ // otherwise the ring that was to come has been moved
	}
}

// A bell calls drive once, on a goroutine of its own, when its time has come. The
// methods mean what those of *time.Timer do, which is one.
type bell interface {
	Reset(d time.Duration) (moved bool)
	Stop() (prevented bool)
}

func (tw *TimingWheel) newBell(d time.Duration) bell {
	if tw.precise {
		if b := newPreciseBell(d, tw.drive); b != nil {
			return b
		}
	}
	return time.AfterFunc(d, tw.drive)
}

// restLocked leaves the wheel to the alarm, in the order that the top of this
// file explains.
func (tw *TimingWheel) restLocked() {
	if tw.stopped.Load() {
		// Looked at under the lock that halt takes next, so either this sees it
		// or halt sees the alarm. There may still be timers; the sweep gets them.
		return
	}
	tw.alarm.armed.Store(unset)
	first := unset
	for i := range tw.shards {
		first = min(first, tw.shards[i].next.Load())
	}
	_ = pause("resting")
	if first != unset {
		tw.setAlarmLocked(first)
	}
}

// silence ends the alarm of a stopped wheel.
func (tw *TimingWheel) silence() {
	a := &tw.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed.Store(awake)
	if a.bell != nil && a.bell.Stop() {
		a.ringing--
	}
}

// quietChan returns a channel that is closed once the stopped wheel is quiet.
func (tw *TimingWheel) quietChan() <-chan struct{} {
	a := &tw.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quiet == nil {
		a.quiet = make(chan struct{})
	}
	quiet := a.quiet
	tw.announceQuietLocked()
	return quiet
}

// announceQuietLocked tells Shutdown if nothing of the stopped wheel runs any
// more: no callback, no driver, and no alarm that has rung and not reached drive.
func (tw *TimingWheel) announceQuietLocked() {
	a := &tw.alarm
	if a.quiet == nil || tw.inflight.Load() > 0 || a.driving || a.ringing > 0 {
		return
	}
	select {
	case <-a.quiet: // closed before
	default:
		close(a.quiet)
	}
}
