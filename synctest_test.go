package timingwheel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// TestExactInABubble is what README says about tests of programs that use a wheel: with a tick of a
// nanosecond timers are exact on the fake clock, with the default tick they are rounded up.
func TestExactInABubble(t *testing.T) {
	for _, tick := range []time.Duration{time.Nanosecond, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			tw := timingwheel.New(timingwheel.WithTick(tick))
			defer tw.Stop()
			time.Sleep(123_456 * time.Nanosecond) // the test is under way
			for _, d := range []time.Duration{1, 5*time.Millisecond + 1, time.Minute,
				30 * 24 * time.Hour} {
				start := time.Now()
				<-tw.After(d)
				late := time.Since(start) - d
				if tick == time.Nanosecond {
					require.Zero(t, late, d)
				} else {
					require.GreaterOrEqual(t, late, time.Duration(0), d)
					require.Less(t, late, tick, d)
				}
			}
			start, runs := time.Now(), make(chan time.Duration, 100)
			job := tw.ScheduleFunc(timingwheel.Every(90*time.Second),
				func() { runs <- time.Since(start) })
			for n := range 3 {
				at := <-runs
				if tick == time.Nanosecond {
					require.Equal(t, time.Duration(n+1)*90*time.Second, at)
				}
			}
			job.Stop()
		})
	}
}
