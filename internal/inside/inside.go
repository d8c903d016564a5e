// Package inside lets packages of this module do with a wheel what the exported API does not offer.
package inside

import "time"

// Hooks are the functions of package timingwheel that only this module may call. That package sets
// them when it is initialised.
var Hooks struct {
	// Picture takes the picture of a *timingwheel.TimingWheel.
	Picture func(wheel any, c Count) Picture

	// Outlive makes a *timingwheel.Timer that Init has prepared, and that no one uses yet, outlive
	// its wheel: once the wheel is stopped, package time carries out what is pending and what
	// Reset arms. Drain does not hand such a Timer back.
	Outlive func(timer any)

	// Wall has a *timingwheel.TimingWheel that no one uses yet read the wall clock by now, for
	// tests that step it.
	Wall func(wheel any, now func() time.Time)

	// Around returns a timingwheel.Option. A wheel made with it passes each callback to call, with
	// its name, and call must call it.
	Around func(call func(name string, f func())) (option any)
}

// A Picture shows a wheel at about one moment: the locks are taken one after the other,
// and released every so often. Instants are durations since the wheel was made.
type Picture struct {
	At       time.Duration
	Executor string // goroutine, inline or custom
	Started  bool
	Stopped  bool

	Driving bool          // a driver is at work
	Alarm   time.Duration // what the alarm is set for; Unset if it is not

	Levels []Level  // the lowest first
	Queue  []Bucket // the delay queues' heads, the earliest first
	Queued int      // buckets in the delay queues that hold timers

	Due    int // armed for a time that had come already, waiting for the driver
	Beyond int // with deadlines that never come; both counted up to the limit

	Deep int // timers that were counted in the buckets of Count.Turn
}

// A Count says how many timers of a bucket are counted, so that looking stays cheap whatever the
// wheel holds: up to Limit, but up to DeepLimit in one part of the slots, those whose index modulo
// Parts is Turn. With zero Parts there is no such part.
type Count struct{ Limit, DeepLimit, Parts, Turn int }

// Of returns the limit for the slot of an index.
func (c Count) Of(index int) (limit int, deep bool) {
	if c.Parts > 0 && index%c.Parts == c.Turn {
		return c.DeepLimit, true
	}
	return c.Limit, false
}

// Unset is the Alarm of a wheel whose alarm is not set.
const Unset time.Duration = 1<<63 - 1

// A Level is one wheel of the hierarchy, the shards laid over each other.
type Level struct {
	Tick  time.Duration // duration of a slot
	Now   time.Duration // the wheel's current time
	Size  int           // slots
	Slots []Slot        // those that hold timers, by expiration
}

// A Slot is the bucket of one slot, in all shards together.
type Slot struct {
	Index      int
	Expiration time.Duration
	Timers     int  // counted up to the limit in each shard
	Full       bool // the limit was reached: there may be more
	Deep       bool // it is one of Count.Turn
}

// A Bucket is an entry of the delay queue.
type Bucket struct {
	Level     int
	Shard     int
	Attention time.Duration // when it wants the driver
}

// QueueHead is how many entries of the delay queue a Picture has at most.
const QueueHead = 16
