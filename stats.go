package timingwheel

// Stats are the counters of a wheel since it was made. They are taken in one
// hold of the lock, so they agree with each other:
//
//	Pending == Started - Fired - Stopped - Dropped
//
// A live schedule counts as one pending timer: each of its runs counts as one
// Fired and, as the next is armed in the same step, one Started.
type Stats struct {
	Pending int64 // armed and neither fired, stopped nor dropped
	Started int64 // armings of timers that were not pending
	Fired   int64 // handed to the executor
	Stopped int64 // Stop returned true
	Dropped int64 // pending when the wheel was stopped: dropped, or handed back by Drain

	Reinserted int64 // moves of a pending timer by the driver, to a finer wheel or as it was extended
	Wakeups    int64 // times the alarm woke the driver
	Levels     int   // wheels in use, the overflow wheels included

	// LongestHold is the most timers the driver has handled under one hold of
	// the lock, which is what a caller may have had to wait for.
	LongestHold int
}

// Stats returns the wheel's counters, ready to be published:
//
//	expvar.Publish("timers", expvar.Func(func() any { return tw.Stats() }))
//
// Cost: one mutex; nothing that grows with the number of timers.
func (tw *TimingWheel) Stats() Stats {
	tw.check("Stats")
	tw.mu.Lock()
	defer tw.mu.Unlock()
	s := tw.stats
	s.Pending = tw.lenLocked()
	for w := tw.wheel; w != nil; w = w.overflow {
		s.Levels++
	}
	return s
}

// Len returns how many timers are pending now; a live schedule counts as one.
// Cost: one mutex.
func (tw *TimingWheel) Len() int {
	tw.check("Len")
	tw.mu.Lock()
	defer tw.mu.Unlock()
	return int(tw.lenLocked())
}

func (tw *TimingWheel) lenLocked() int64 {
	return tw.stats.Started - tw.stats.Fired - tw.stats.Stopped - tw.stats.Dropped
}
