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
	p.tw.ScheduleFunc(&timesScheduler{intervals: []time.Duration{time.Second, 2 * time.Second}}, func() { p.runs.Add(1000) })
	return stopped, late
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
