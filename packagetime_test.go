package timingwheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClocks: a library cannot tell one Clock from the other.
func TestClocks(t *testing.T) {
	for _, name := range []string{"package time", "a wheel"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := PackageTime()
				if name == "a wheel" {
					tw := New()
					defer tw.Stop()
					clock = tw.Clock()
				}
				start := time.Now()
				var fired []time.Duration
				timer := clock.AfterFunc(time.Second,
					func() { fired = append(fired, time.Since(start)) })
				require.True(t, timer.Reset(2*time.Second))
				require.True(t, timer.Stop())
				require.False(t, timer.Stop())
				time.Sleep(3 * time.Second)
				require.Empty(t, fired)
				require.False(t, timer.Reset(time.Second))
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, []time.Duration{4 * time.Second}, fired)
				require.False(t, timer.Stop())
				require.False(t, timer.Reset(0))
				synctest.Wait()
				require.Len(t, fired, 2)
			})
		})
	}
}

// TestClockCostsNothing: a timer made by way of a Clock takes no more than one made directly.
func TestClockCostsNothing(t *testing.T) {
	tw := New()
	defer tw.Stop()
	f := func() {}
	for name, calls := range map[string][2]func(){
		"a wheel": {func() { tw.AfterFunc(time.Hour, f).Stop() },
			func() { tw.Clock().AfterFunc(time.Hour, f).Stop() }},
		"package time": {func() { time.AfterFunc(time.Hour, f).Stop() },
			func() { PackageTime().AfterFunc(time.Hour, f).Stop() }},
	} {
		require.Equal(t, testing.AllocsPerRun(100, calls[0]), testing.AllocsPerRun(100, calls[1]),
			name)
	}
}
