package timingwheel

import "time"

// This file holds the statistics of a wheel, as programs see them. counters.go says what is counted
// and where. wheelprom/metrics.go has the name and help of each as a metric.

// Stats are the counters of a wheel since it was made, ready for expvar.Func and encoding/json.
// Those of Counters agree with each other. Calls that run at the same time may be counted or not,
// because the locks are taken one after the other.
type Stats struct {
	Counters

	Wakeups     int64 // times the alarm rang
	IdleWakeups int64 // of these, the ones that found nothing to fire, move or open

	// LongestHold is the largest number of timers that the driver has handled under one hold of a
	// lock. A caller may have waited for that many.
	LongestHold int

	// Running is how many callbacks were handed over and have not returned. Waiting is how many of
	// these have not begun: the backlog of the executor of WithExecutor. A callback that this
	// executor has dropped stays in both. Inline callbacks are in neither, and with a goroutine for
	// each callback Waiting is 0.
	Running, Waiting int64

	// Lateness is how long after their deadlines the driver claimed timers, and CallbackLateness
	// how long after their deadlines callbacks began. The second is what a user notices: it
	// includes the wait for a goroutine, for an executor or for other inline callbacks. A callback
	// that has not begun is in Waiting and not yet here. Timers that fire without a callback, as
	// those of channels and contexts do, are in Lateness alone.
	Lateness, CallbackLateness Lateness

	Levels []LevelStats // the wheels, the lowest first
	Shards []ShardStats // the locks, of which there are about as many as processors
}

// Counters count timers. They agree with each other:
//
//	Pending == Started - Fired - Stopped - Dropped
//
// A live schedule or Ticker counts as one pending timer. Each of its runs counts as one Fired and,
// because the next is armed in the same step, one Started.
type Counters struct {
	Pending int64 // armed and neither fired, stopped nor dropped
	Started int64 // armings of timers that were not pending
	Fired   int64 // handed to the executor, sent, or ended
	Stopped int64 // Stop returned true
	Dropped int64 // pending when the wheel was stopped, whatever became of them

	Reinserted int64 // moved by the driver to a finer wheel
	Extended   int64 // found by the driver to be due later, because of Reset, and placed anew
}

// ShardStats are the counters of one shard, whose timers one lock guards.
type ShardStats struct {
	Counters
	LongestHold int
}

// LevelStats are the counters of one wheel, all shards taken together.
type LevelStats struct {
	Tick       time.Duration // of one slot
	Slots      int           // of all shards together; 0 before the first timer
	Busy       int           // slots that hold timers now
	Placed     int64         // timers filed here, by callers and by the driver
	Reinserted int64         // moved from here to a finer wheel
	Extended   int64         // found here to be due later
}

// usualLevels are as many as timers of months need with the default tick and size.
const usualLevels = 4

// Stats returns the wheel's counters. To publish them:
//
//	expvar.Publish("timers", expvar.Func(func() any { return tw.Stats() }))
//
// Cost: a mutex for each shard, and a look at each slot in use; nothing that grows
// with the number of timers. Two allocations.
func (tw *TimingWheel) Stats() Stats {
	tw.check("Stats")
	sum := Stats{Running: tw.executor.inflight.Load(), Waiting: tw.executor.waiting.Load()}
	sum.CallbackLateness = tw.executor.begun.load()
	sum.Shards = make([]ShardStats, len(tw.shards))
	sum.Levels = make([]LevelStats, 0, usualLevels)
	for i := range tw.shards {
		tw.shards[i].addTo(&sum, &sum.Shards[i])
	}
	tw.alarm.mu.Lock()
	defer tw.alarm.mu.Unlock()
	sum.Wakeups = tw.alarm.wakeups
	sum.IdleWakeups = tw.alarm.idleWakeups
	return sum
}

func (s *shard) addTo(sum *Stats, own *ShardStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own.Counters = s.count.exported()
	own.LongestHold = s.count.longestHold
	sum.Counters.add(own.Counters)
	sum.LongestHold = max(sum.LongestHold, own.LongestHold)
	sum.Lateness.Samples += s.late.Samples
	sum.Lateness.Sum += s.late.Sum
	for i, n := range s.late.Counts {
		sum.Lateness.Counts[i] += n
	}
	for w := s.wheel; w != nil; w = w.overflow {
		if int(w.level) == len(sum.Levels) {
			sum.Levels = append(sum.Levels, LevelStats{Tick: s.engine.duration(w.tick)})
		}
		l := &sum.Levels[w.level]
		l.Slots += len(w.buckets)
		l.Placed += w.placed
		l.Reinserted += w.reinserted
		l.Extended += w.extended
	}
	for _, b := range s.queue.buckets {
		if !b.empty() {
			sum.Levels[b.level].Busy++
		}
	}
}

func (c *counters) exported() Counters {
	return Counters{
		Pending: c.pending(),
		Started: c.started, Fired: c.fired, Stopped: c.stopped, Dropped: c.dropped,
		Reinserted: c.reinserted, Extended: c.extended,
	}
}

func (c *Counters) add(other Counters) {
	c.Pending += other.Pending
	c.Started += other.Started
	c.Fired += other.Fired
	c.Stopped += other.Stopped
	c.Dropped += other.Dropped
	c.Reinserted += other.Reinserted
	c.Extended += other.Extended
}

// Len returns how many timers are pending now; a live schedule counts as one. It is exact if no
// other goroutine uses the wheel at the moment. Cost: a mutex for each shard.
func (tw *TimingWheel) Len() int {
	tw.check("Len")
	n := int64(0)
	for i := range tw.shards {
		s := &tw.shards[i]
		s.mu.Lock()
		n += s.count.pending()
		s.mu.Unlock()
	}
	return int(n)
}
