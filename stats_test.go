package timingwheel

import (
	"context"
	"encoding/json"
	"expvar"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStatsCount: every way that a timer can go is counted once, on the wheel, on the
// shard and on the level where it happened.
func TestStatsCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithWheelSize(16), withShards(2))
		f := func() {}
		start := func(d time.Duration) *Timer {
			x := new(Timer)
			tw.Init(x, f) // deals the first two to different shards, AfterFunc might not
			x.Reset(d)
			return x
		}
		fires := start(10 * time.Millisecond)
		stops := start(20 * time.Millisecond)
		moves := start(100 * time.Millisecond) // from the second wheel to the first
		pushed := start(30 * time.Millisecond)
		start(time.Hour)
		require.True(t, stops.Stop())
		require.True(t, pushed.Reset(25*time.Millisecond)) // not later: moved, and no extension
		require.True(t, pushed.Reset(200*time.Millisecond))
		pass(t, tw, 150*time.Millisecond)
		s := tw.Stats()
		require.Equal(t, Counters{Pending: 2, Started: 5, Fired: 2, Stopped: 1, Reinserted: 1,
			Extended: 1}, s.Counters)
		require.False(t, fires.Pending() || moves.Pending())
		require.Equal(t, s.Pending, int64(tw.Len()))

		// Shards and levels add up to the whole.
		require.Len(t, s.Shards, 2)
		var sum Counters
		for _, shard := range s.Shards {
			sum.add(shard.Counters)
		}
		require.Equal(t, s.Counters, sum)
		require.GreaterOrEqual(t, len(s.Levels), 3)
		var placed, reinserted, extended int64
		busy := 0
		tick := time.Millisecond
		for _, level := range s.Levels {
			require.Equal(t, tick, level.Tick)
			tick *= 16
			placed += level.Placed
			reinserted += level.Reinserted
			extended += level.Extended
			busy += level.Busy
		}
		require.Equal(t, int64(5+1+2), placed, "5 armed, 1 moved by Reset, 2 moved by the driver")
		require.Equal(t, s.Reinserted, reinserted)
		require.Equal(t, s.Extended, extended)
		require.Equal(t, 2, busy)
		require.Equal(t, 2*32, s.Levels[0].Slots)
		require.Equal(t, s.LongestHold, max(s.Shards[0].LongestHold, s.Shards[1].LongestHold))
		require.Positive(t, s.LongestHold)
		start(time.Minute).Stop()
		for _, level := range tw.Stats().Levels {
			busy -= level.Busy
		}
		require.Zero(t, busy, "its slot is empty again")
		tw.Stop()
		require.Equal(t, int64(2), tw.Stats().Dropped)
	})
}

// TestStatsExtension: a touch is not counted, the driver's meeting it is.
func TestStatsExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		x := tw.AfterFunc(50*time.Millisecond, func() {})
		for i := range 1000 {
			x.Reset(50*time.Millisecond + time.Duration(i))
		}
		require.Zero(t, tw.Stats().Extended)
		pass(t, tw, 50*time.Millisecond)
		require.Equal(t, int64(1), tw.Stats().Extended)
		require.Equal(t, int64(1), tw.Stats().Levels[0].Extended)
		pass(t, tw, time.Second)
		require.Equal(t, Counters{Started: 1, Fired: 1, Extended: 1}, tw.Stats().Counters)
	})
}

// TestStatsExtensionOfTheDue: a timer is extended while it waits for the driver.
func TestStatsExtensionOfTheDue(t *testing.T) {
	tw := NewTimingWheel(time.Millisecond, 20)
	done := make(chan struct{})
	x := tw.AfterFunc(0, func() { close(done) })
	require.True(t, x.ResetAt(time.Now().Add(50*time.Millisecond)))
	tw.Start()
	<-done
	require.Equal(t, int64(1), tw.Stats().Extended)
	require.NoError(t, tw.Shutdown(t.Context()))
}

// TestStatsWakeups: wake-ups that find nothing are counted separately.
func TestStatsWakeups(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		tw.AfterFunc(time.Millisecond, func() {})
		pass(t, tw, time.Millisecond)
		tw.AfterFunc(time.Millisecond, func() {}).Stop() // its ring finds an empty bucket
		pass(t, tw, time.Second)
		s := tw.Stats()
		require.Equal(t, int64(2), s.Wakeups)
		require.Equal(t, int64(1), s.IdleWakeups)
	})
}

// TestStatsLateness: inline callbacks that take their time make the ones behind them
// late, by so much.
func TestStatsLateness(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(1))
		// The first of a piece of work and every eighth after it are samples: numbers 0
		// and 8, which wait for 0 and 8 others of 5 ms each, and a tick's rounding.
		for range 10 {
			tw.AfterFunc(10*time.Millisecond-100*time.Microsecond,
				func() { time.Sleep(5 * time.Millisecond) })
		}
		pass(t, tw, time.Second)
		l := tw.Stats().Lateness
		require.Equal(t, int64(2), l.Samples)
		require.Equal(t, l.Quantile(0.5), tw.Stats().Lateness.Quantile(0.5), "without a variable")
		require.Equal(t, 2*100*time.Microsecond+8*5*time.Millisecond, l.Sum)
		require.Equal(t, 131072*time.Nanosecond, l.Quantile(0.5), "the bound above 100 us")
		require.Equal(t, 67108864*time.Nanosecond, l.Quantile(1), "the bound above 40.1 ms")
		require.Equal(t, l.Quantile(1), l.Quantile(0.51))
	})
}

// TestCallbackLateness: the backlog of an executor is in it, as is what an inline callback
// waits for behind others.
func TestCallbackLateness(t *testing.T) {
	bubble(t, func(t *testing.T) {
		work := make(chan func(), 100)
		go func() {
			for f := range work {
				f()
			}
		}()
		tw := New(WithExecutor(func(f func()) { work <- f }), withShards(1))
		for range 41 { // numbers 0, 8, 16, 24, 32 and 40 are samples
			tw.AfterFunc(10*time.Millisecond-100*time.Microsecond,
				func() { time.Sleep(5 * time.Second) })
		}
		pass(t, tw, 100*time.Second)
		s := tw.Stats()
		require.Equal(t, int64(6), s.Lateness.Samples)
		require.Equal(t, 131072*time.Nanosecond, s.Lateness.Quantile(1), "the bound above 100 us")
		require.Equal(t, int64(3), s.CallbackLateness.Samples, "the others have not begun")
		require.Equal(t, int64(21), s.Waiting)
		require.NoError(t, tw.Shutdown(t.Context()))
		l := tw.Stats().CallbackLateness
		require.Equal(t, int64(6), l.Samples)
		require.Equal(t, 6*100*time.Microsecond+(8+16+24+32+40)*5*time.Second, l.Sum)
		require.Equal(t, LatenessBound(24), l.Quantile(1), "200 s")
		close(work)
	})
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(1))
		for range 9 {
			tw.AfterFunc(time.Millisecond, func() { time.Sleep(time.Second) })
		}
		pass(t, tw, time.Minute)
		require.Equal(t, 8*time.Second, tw.Stats().CallbackLateness.Sum)
	})
}

// TestLatenessBesideCallbacks: callbacks add to it while it is read, and each reading
// agrees with itself.
func TestLatenessBesideCallbacks(t *testing.T) {
	tw := New(WithTick(100 * time.Microsecond))
	for i := range 20_000 {
		tw.AfterFunc(time.Duration(i)*time.Microsecond, func() {})
	}
	for before := int64(0); tw.Len() > 0; {
		l := tw.Stats().CallbackLateness
		sum := int64(0)
		for _, n := range l.Counts {
			sum += n
		}
		require.Equal(t, l.Samples, sum)
		require.GreaterOrEqual(t, l.Samples, before)
		before = l.Samples
	}
	require.NoError(t, tw.Shutdown(t.Context()))
	s := tw.Stats()
	require.Positive(t, s.CallbackLateness.Samples)
	require.LessOrEqual(t, s.CallbackLateness.Samples, s.Lateness.Samples)
}

// TestLatenessOfEveryKind: whatever fires is sampled.
func TestLatenessOfEveryKind(t *testing.T) {
	for name, start := range map[string]func(tw *TimingWheel){
		"AfterFunc": func(tw *TimingWheel) { tw.AfterFunc(time.Second, func() {}) },
		"AtFunc": func(tw *TimingWheel) {
			tw.AtFunc(time.Now().Add(time.Second), func() {})
		},
		"at a wall time": func(tw *TimingWheel) {
			tw.AtFunc(time.Now().Round(0).Add(time.Second), func() {})
		},
		"Every":     func(tw *TimingWheel) { tw.ScheduleFunc(Every(time.Second), func() {}) },
		"NewTimer":  func(tw *TimingWheel) { tw.NewTimer(time.Second) },
		"NewTicker": func(tw *TimingWheel) { tw.NewTicker(time.Second) },
		"WithTimeout": func(tw *TimingWheel) {
			tw.WithTimeout(context.Background(), time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				start(tw)
				pass(t, tw, 1500*time.Millisecond)
				s := tw.Stats()
				require.Equal(t, int64(1), s.Lateness.Samples)
				callbacks := map[string]int64{"AfterFunc": 1, "AtFunc": 1, "at a wall time": 1,
					"Every": 1}
				require.Equal(t, callbacks[name], s.CallbackLateness.Samples)
				tw.Stop()
			})
		})
	}
}

func TestLatenessBounds(t *testing.T) {
	var l Lateness
	require.Zero(t, l.Quantile(0.5), "nothing to tell")
	for _, late := range []time.Duration{0, 1, 16383, 16384, 32767, 32768, time.Second, 1<<38 - 1,
		1 << 38, 1<<63 - 1} {
		before := l
		l.add(late)
		for i := range l.Counts {
			if l.Counts[i] == before.Counts[i] {
				continue
			}
			require.True(t, late < LatenessBound(i) || i == len(l.Counts)-1, "%d in %d", late, i)
			require.True(t, i == 0 || late >= LatenessBound(i-1), "%d in %d", late, i)
		}
	}
	require.Equal(t, int64(10), l.Samples)
	require.Equal(t, int64(2), l.Counts[len(l.Counts)-1])
	for i := range len(l.Counts) - 2 {
		require.Equal(t, 2*LatenessBound(i), LatenessBound(i+1))
	}
	require.Equal(t, time.Duration(1<<63-1), LatenessBound(len(l.Counts)-1))
	require.Equal(t, LatenessBound(0), LatenessBound(-1))
}

// TestStatsBacklog: an executor that has not come to its callbacks, one that drops
// them, one that calls twice and one that panics.
func TestStatsBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var queue []func()
		tw := New(WithExecutor(func(f func()) { queue = append(queue, f) }))
		for range 3 {
			tw.AfterFunc(time.Millisecond, func() { time.Sleep(time.Second) })
		}
		pass(t, tw, time.Millisecond)
		s := tw.Stats()
		require.Equal(t, [2]int64{3, 3}, [2]int64{s.Running, s.Waiting})
		var all sync.WaitGroup
		all.Go(queue[0])
		synctest.Wait()
		s = tw.Stats()
		require.Equal(t, [2]int64{3, 2}, [2]int64{s.Running, s.Waiting})
		all.Wait()
		queue[0]() // twice
		s = tw.Stats()
		require.Equal(t, [2]int64{2, 2}, [2]int64{s.Running, s.Waiting})
		queue[1]()
		queue[2]()
		require.NoError(t, tw.Shutdown(t.Context()))
		s = tw.Stats()
		require.Equal(t, [2]int64{0, 0}, [2]int64{s.Running, s.Waiting})

		tw = New(WithExecutor(func(func()) { panic("no") }), WithPanicHandler(func(any, []byte) {}))
		tw.AfterFunc(0, func() {})
		synctest.Wait()
		s = tw.Stats()
		require.Equal(t, [2]int64{0, 0}, [2]int64{s.Running, s.Waiting})

		tw = New()
		tw.AfterFunc(0, func() { time.Sleep(time.Second) })
		synctest.Wait()
		s = tw.Stats()
		require.Equal(t, [2]int64{1, 0}, [2]int64{s.Running, s.Waiting})
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

// TestStatsForExpvar is the one line that people write.
func TestStatsForExpvar(t *testing.T) {
	tw := New()
	defer tw.Stop()
	tw.AfterFunc(time.Hour, func() {})
	v := expvar.Func(func() any { return tw.Stats() })
	var got Stats
	require.NoError(t, json.Unmarshal([]byte(v.String()), &got))
	require.Equal(t, tw.Stats(), got)
	require.Contains(t, v.String(), `"Pending":1`)
}
