package timingwheel

// Stats are the counters of a wheel since it was made. They agree with each other:
//
//	Pending == Started - Fired - Stopped - Dropped
//
// but calls that are made meanwhile may be counted or not: the locks are taken one
// after the other. A live schedule counts as one pending timer: each of its runs
// counts as one Fired and, as the next is armed in the same step, one Started.
type Stats struct {
	Pending int64 // armed and neither fired, stopped nor dropped
	Started int64 // armings of timers that were not pending
	Fired   int64 // handed to the executor
	Stopped int64 // Stop returned true
	Dropped int64 // pending when the wheel was stopped: dropped, or handed back by Drain

	Reinserted int64 // moves of a pending timer by the driver, to a finer wheel or as it was extended
	Wakeups    int64 // times the alarm rang
	Levels     int   // wheels in use, the overflow wheels included

	// LongestHold is the most timers the driver has handled under one hold of
	// the lock, which is what a caller may have had to wait for.
	LongestHold int
}

// Stats returns the wheel's counters, ready to be published:
//
//	expvar.Publish("timers", expvar.Func(func() any { return tw.Stats() }))
//
// Cost: a mutex for each shard, of which there are about as many as processors;
// nothing that grows with the number of timers.
func (tw *TimingWheel) Stats() Stats {
	tw.check("Stats")
	var sum Stats
	for i := range tw.shards {
		tw.shards[i].addTo(&sum)
	}
	tw.alarm.mu.Lock()
	defer tw.alarm.mu.Unlock()
	sum.Wakeups = tw.alarm.wakeups
	return sum
}

func (s *shard) addTo(sum *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.count
	sum.Pending += c.pending()
	sum.Started += c.started
	sum.Fired += c.fired
	sum.Stopped += c.stopped
	sum.Dropped += c.dropped
	sum.Reinserted += c.reinserted
	sum.LongestHold = max(sum.LongestHold, c.longestHold)
	levels := 0
	for w := s.wheel; w != nil; w = w.overflow {
		levels++
	}
	sum.Levels = max(sum.Levels, levels)
}

// Len returns how many timers are pending now; a live schedule counts as one. It is
// exact when nobody else uses the wheel at the moment. Cost: that of Stats.
func (tw *TimingWheel) Len() int {
	tw.check("Len")
	return int(tw.Stats().Pending)
}
