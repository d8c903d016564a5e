package timingwheel_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// portProgram is a program as people have written it for the well-known port of
// Kafka's wheel. It must go on compiling and behaving with nothing but the import
// path changed, so no line of it may use what only this package has.
type portProgram struct {
	tw    *timingwheel.TimingWheel
	fired atomic.Int32
	runs  atomic.Int32
}

type everyScheduler struct{ Interval time.Duration }

func (s *everyScheduler) Next(prev time.Time) time.Time { return prev.Add(s.Interval) }

type timesScheduler struct {
	intervals []time.Duration
	current   int
}

func (s *timesScheduler) Next(prev time.Time) time.Time {
	if s.current >= len(s.intervals) {
		return time.Time{}
	}
	next := prev.Add(s.intervals[s.current])
	s.current++
	return next
}

func (p *portProgram) run() (stopped, late *timingwheel.Timer) {
	p.tw = timingwheel.NewTimingWheel(time.Millisecond, 20)
	p.tw.Start()
	p.tw.AfterFunc(15*time.Second, func() { p.fired.Add(1) })
	stopped = p.tw.AfterFunc(time.Second, func() { p.fired.Add(100) })
	if !stopped.Stop() {
		panic("it was pending")
	}
	var s timingwheel.Scheduler = &everyScheduler{time.Second}
	late = p.tw.ScheduleFunc(s, func() { p.runs.Add(1) })
	p.tw.ScheduleFunc(&timesScheduler{intervals: []time.Duration{time.Second, 2 * time.Second}},
		func() { p.runs.Add(1000) })
	return stopped, late
}

// TestSchedulesOfThePortRunAll is what the port's own test of ScheduleFunc does: it waits for each
// run, so it waits forever if runs that a late driver has missed become one. Here the wheel starts
// late.
func TestSchedulesOfThePortRunAll(t *testing.T) {
	ms := time.Millisecond
	intervals := []time.Duration{ms, 5 * ms, 10 * ms, 50 * ms, 100 * ms, 500 * ms, time.Second}
	for _, late := range []time.Duration{0, 80 * ms, time.Hour} {
		for name, s := range map[string]timingwheel.Scheduler{
			"a Scheduler": &timesScheduler{intervals: intervals},
			"Every":       timingwheel.Every(100 * ms),
		} {
			synctest.Test(t, func(t *testing.T) {
				tw := timingwheel.NewTimingWheel(ms, 20)
				defer tw.Stop()
				runs := make(chan time.Time, 1<<16)
				start := time.Now()
				defer tw.ScheduleFunc(s, func() { runs <- time.Now() }).Stop()
				time.Sleep(late)
				tw.Start()
				want := start
				for _, d := range intervals {
					if name == "Every" {
						d = 100 * ms
					}
					want = want.Add(d)
					got := <-runs
					require.False(t, got.Before(want), "%s, %v late", name, late)
					require.LessOrEqual(t, got.Sub(want), late)
				}
			})
		}
	}
}

// TestSkipMissedOverridesThePort: a schedule's option overrides the wheel's default.
func TestSkipMissedOverridesThePort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.NewTimingWheel(time.Millisecond, 20)
		defer tw.Stop()
		var runs atomic.Int32
		tw.ScheduleFunc(timingwheel.Every(time.Second), func() { runs.Add(1) },
			timingwheel.SkipMissed(0))
		time.Sleep(9500 * time.Millisecond)
		tw.Start()
		synctest.Wait()
		require.Zero(t, runs.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, int32(1), runs.Load())
	})
}

func TestProgramOfThePort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p portProgram
		stopped, schedule := p.run()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, int32(1), p.fired.Load())
		require.Equal(t, int32(2020), p.runs.Load())
		require.False(t, stopped.Stop())
		require.True(t, schedule.Stop())
		p.tw.Stop()
		p.tw.Stop() // theirs panics
	})
}
