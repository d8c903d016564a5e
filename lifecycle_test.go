package timingwheel

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/inside"
)

func TestTimersWaitForStart(t *testing.T) {
	for _, mode := range []executorMode{goroutine, inline} {
		bubble(t, func(t *testing.T) {
			tw := NewTimingWheel(time.Millisecond, 20)
			tw.executor.mode = mode
			var got [4]atomic.Int64 // when each fired, in ms
			at := func(i int) func() {
				return func() { got[i].Store(time.Since(tw.start).Milliseconds()) }
			}
			tw.AfterFunc(0, at(0))
			tw.AfterFunc(5*time.Millisecond, at(1))
			tw.AfterFunc(700*time.Millisecond, at(2))
			tw.AfterFunc(time.Minute, at(3))
			pass(t, tw, time.Second)
			require.Equal(t, 4, tw.Len())
			require.Zero(t, tw.Stats().Wakeups)
			tw.Start()
			tw.Start()
			pass(t, tw, 0)
			for i := range 3 {
				require.Equal(t, int64(1000), got[i].Load(), "overdue fires at Start")
			}
			pass(t, tw, time.Hour)
			require.Equal(t, int64(60_000), got[3].Load(), "the deadline counts from the call")
		})
	}
}

func TestStartAfterTimersWereStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		tw.AfterFunc(time.Millisecond, func() { t.Error("fired") }).Stop()
		r := newRecorder()
		tw.AfterFunc(time.Second, r.hit)
		tw.Start()
		pass(t, tw, time.Minute)
		require.Equal(t, []time.Duration{time.Second}, r.at)
	})
}

func TestWheelStop(t *testing.T) {
	for _, tc := range []struct {
		name string
		stop func(tw *TimingWheel)
	}{
		{"Stop", (*TimingWheel).Stop},
		{"Drain", func(tw *TimingWheel) { tw.Drain() }},
		{"Shutdown", func(tw *TimingWheel) { tw.Shutdown(context.Background()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				fail := func() { t.Error("fired after the wheel's Stop") }
				timers := []*Timer{
					tw.AfterFunc(time.Millisecond, fail),
					tw.AfterFunc(time.Hour, fail),
					tw.AfterFunc(math.MaxInt64, fail),
					tw.AtFunc(time.Now().Round(0).Add(time.Hour), fail),
					tw.ScheduleFunc(Every(time.Second), fail),
				}
				var never Timer
				tw.Init(&never, fail)
				tc.stop(tw)
				timers = append(timers, &never,
					tw.AfterFunc(0, fail),
					tw.AfterFunc(time.Second, fail),
					tw.AtFunc(time.Now().Round(0), fail),
					tw.ScheduleFunc(Every(time.Second), fail))
				for i, x := range timers {
					require.False(t, x.Pending(), "timer %d", i)
					require.False(t, x.Stop(), "timer %d", i)
					require.False(t, x.Reset(time.Second), "timer %d", i)
					require.False(t, x.Reset(0), "timer %d", i)
					require.False(t, x.ResetAt(time.Now()), "timer %d", i)
					require.Nil(t, x.next)
				}
				tc.stop(tw) // again
				tw.Stop()
				require.Empty(t, tw.Drain())
				tw.Start()
				pass(t, tw, 24*time.Hour)
				s := tw.Stats()
				require.Equal(t, Counters{Started: 5, Dropped: 5}, s.Counters)
				require.Zero(t, tw.Len())
			})
		})
	}
}

// Timers that outlive their wheel are neither dropped nor handed back.
func TestSurvivingTimer(t *testing.T) {
	for name, stop := range map[string]func(tw *TimingWheel, t *testing.T){
		"Stop":  func(tw *TimingWheel, _ *testing.T) { tw.Stop() },
		"Drain": func(tw *TimingWheel, t *testing.T) { require.Empty(t, tw.Drain()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				r := newRecorder()
				timers := make([]Timer, 3)
				var mu sync.Mutex // callbacks of package time have no lock in common
				for i := range timers {
					tw.Init(&timers[i], func() { mu.Lock(); defer mu.Unlock(); r.hit() })
					inside.Hooks.Outlive(&timers[i])
					timers[i].Reset(time.Duration(i) * time.Second)
				}
				require.True(t, timers[1].Reset(5*time.Second))
				pass(t, tw, time.Millisecond)
				stop(tw, t)
				require.Equal(t, int64(2), tw.Stats().Dropped)
				require.False(t, timers[1].Pending())
				require.True(t, timers[1].Reset(time.Second), "in the hands of package time")
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t,
					[]time.Duration{0, time.Second + time.Millisecond, 2 * time.Second}, r.at)
				require.False(t, timers[1].Stop(), "has fired")
				require.False(t, timers[1].Reset(time.Second))
				require.True(t, timers[1].Stop())
				require.False(t, timers[1].Stop())
				require.False(t, timers[1].Reset(time.Second), "and armed anew")
				time.Sleep(time.Second)
				synctest.Wait()
				require.Len(t, r.at, 4)
				require.Equal(t, int64(2), tw.Stats().Dropped)
			})
		})
	}
}

func TestStopBeforeStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		tw.AfterFunc(0, func() { t.Error("fired") })
		tw.Stop()
		tw.Start()
		pass(t, tw, time.Hour)
		require.Equal(t, int64(1), tw.Stats().Dropped)
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

// TestStopFromACallback stops the wheel from the first of a large batch.
func TestStopFromACallback(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []Option
	}{
		{"inline", []Option{WithInline()}},
		{"custom", []Option{WithExecutor(func(f func()) { f() })}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(tc.opts...)
				ran := 0
				for range 3 * holdLimit {
					tw.AfterFunc(time.Second, func() {
						if ran++; ran == 1 {
							tw.Stop()
							require.Zero(t, tw.Len())
						}
					})
				}
				pass(t, tw, time.Minute)
				require.Equal(t, 1, ran, "nothing more is claimed")
				require.Equal(t, int64(3*holdLimit-1), tw.Stats().Dropped)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		var ran []string
		f := func(name string) func() { return func() { ran = append(ran, name) } }
		hour := tw.AfterFunc(time.Hour, f("hour"))
		forever := tw.AfterFunc(math.MaxInt64, f("forever"))
		wall := tw.AtFunc(time.Now().Round(0).Add(30*time.Minute), f("wall"))
		tw.AfterFunc(time.Millisecond, func() {})
		every := tw.ScheduleFunc(Every(time.Minute), f("every"))
		second := tw.AfterFunc(time.Second, f("second"))
		tw.AfterFunc(time.Minute, f("stopped")).Stop()
		second.Reset(2 * time.Second)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()

		unfired := tw.Drain()
		var timers []*Timer
		var after []time.Duration
		for _, u := range unfired {
			timers = append(timers, u.Timer)
			after = append(after, u.Deadline.Sub(tw.start))
			u.F()
		}
		require.Equal(t, []*Timer{second, every, wall, hour, forever}, timers)
		require.Equal(t, []time.Duration{2 * time.Second, time.Minute, 30 * time.Minute, time.Hour,
			time.Duration(never)}, after)
		require.Equal(t, []string{"second", "every", "wall", "hour", "forever"}, ran)
		require.Equal(t, int64(5), tw.Stats().Dropped)
	})
}

func TestShutdown(t *testing.T) {
	t.Run("waits for callbacks", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New()
			ended := false
			tw.AfterFunc(0, func() { time.Sleep(time.Minute); ended = true })
			tw.AfterFunc(time.Hour, func() {})
			require.NoError(t, tw.Shutdown(t.Context()))
			require.True(t, ended)
			require.Equal(t, time.Minute, time.Since(tw.start))
			require.NoError(t, tw.Shutdown(t.Context()), "again")
		})
	})
	t.Run("is prompt with far timers", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New()
			for range 1000 {
				tw.AfterFunc(time.Hour, func() {})
			}
			require.NoError(t, tw.Shutdown(t.Context()))
			require.Zero(t, time.Since(tw.start))
		})
	})
	t.Run("gives up with its context", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New()
			hang := make(chan struct{})
			tw.AfterFunc(time.Millisecond, func() { <-hang })
			time.Sleep(time.Millisecond)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
			require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
			close(hang)
			require.NoError(t, tw.Shutdown(t.Context()), "and may be called again")
		})
	})
	t.Run("waits for the inline driver", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New(WithInline())
			tw.AfterFunc(0, func() { time.Sleep(time.Minute) })
			synctest.Wait()
			require.NoError(t, tw.Shutdown(t.Context()))
			require.Equal(t, time.Minute, time.Since(tw.start))
		})
	})
	t.Run("from a callback waits for itself", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			for _, opts := range [][]Option{nil, {WithInline()}} {
				tw := New(opts...)
				var err error
				tw.AfterFunc(0, func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					err = tw.Shutdown(ctx)
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NoError(t, tw.Shutdown(t.Context()))
			}
		})
	})
	t.Run("does not know of dropped callbacks", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New(WithExecutor(func(func()) {}))
			tw.AfterFunc(0, func() {})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		})
	})
	t.Run("is not confused by callbacks run twice", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New(WithExecutor(func(f func()) { f(); f() }))
			tw.AfterFunc(0, func() {})
			synctest.Wait()
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	})
	t.Run("by several at once", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New()
			tw.AfterFunc(0, func() { time.Sleep(time.Second) })
			var done atomic.Int32
			for range 10 {
				go func() {
					if tw.Shutdown(context.Background()) == nil {
						done.Add(1)
					}
				}()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, int32(10), done.Load())
		})
	})
}

// TestIdleWheelIsFree: no wake-ups and no goroutine while nothing is pending; one
// wake-up at most after everything was stopped, one a bucket with far timers.
func TestIdleWheelIsFree(t *testing.T) {
	const year = 365 * 24 * time.Hour
	bubble(t, func(t *testing.T) {
		tw := New()
		pass(t, tw, year)
		require.Zero(t, tw.Stats().Wakeups)

		var xs []*Timer
		for i := range 1000 {
			xs = append(xs, tw.AfterFunc(time.Duration(i+1)*time.Minute, func() {}))
		}
		for _, x := range xs {
			x.Stop()
		}
		pass(t, tw, year)
		require.LessOrEqual(t, tw.Stats().Wakeups, int64(1))
		for i := range tw.shards {
			require.Empty(t, tw.shards[i].queue.buckets)
		}

		wakeups := tw.Stats().Wakeups
		tw.AfterFunc(year, func() {})
		pass(t, tw, year)
		s := tw.Stats()
		require.LessOrEqual(t, s.Wakeups-wakeups, int64(len(s.Levels)),
			"a far timer wakes the driver once a level")
		pass(t, tw, year)
		require.Equal(t, s, tw.Stats())
	})
}

func TestNoGoroutineWhileOnlyWaiting(t *testing.T) {
	before := runtime.NumGoroutine()
	tw := New()
	defer tw.Stop()
	for range 10_000 {
		tw.AfterFunc(time.Hour, func() {})
	}
	tw.ScheduleFunc(Every(time.Hour), func() {})
	goroutinesFallTo(t, before)
}

// goroutinesFallTo waits for those that are about to end. It is patient because
// the runtime counts dead ones, by the thousand after other tests, while a
// collection frees their stacks; one that is parked for an hour it does not miss.
func goroutinesFallTo(t *testing.T, want int) {
	t.Helper()
	for start := time.Now(); runtime.NumGoroutine() > want; time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(start), 20*time.Second, "%d goroutines", runtime.NumGoroutine())
	}
}

// TestDrainBesideInit: a timer may be initialised anew as soon as it is not pending;
// Drain hands back what it was.
func TestDrainBesideInit(t *testing.T) {
	for range 200 {
		tw := New()
		var x Timer
		first, second := false, false
		tw.Init(&x, func() { first = true })
		x.Reset(time.Hour)
		var done sync.WaitGroup
		done.Go(func() {
			for x.Pending() {
				runtime.Gosched()
			}
			tw.Init(&x, func() { second = true })
		})
		unfired := tw.Drain()
		done.Wait()
		require.Len(t, unfired, 1)
		unfired[0].F()
		require.Equal(t, []bool{true, false}, []bool{first, second})
	}
}

// TestNoAlarmAfterStop: the driver comes back from a callback in the middle of the
// wheel's Stop, which has not swept out the far timer yet. An alarm for it would
// keep Shutdown waiting for an hour.
func TestNoAlarmAfterStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		tw.AfterFunc(time.Hour, func() {})
		tw.AfterFunc(0, func() {
			tw.stopped.Store(true) // as far as halt gets before it silences the alarm
		})
		pass(t, tw, time.Second)
		require.Equal(t, 1, tw.Len())
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Equal(t, time.Second, time.Since(tw.start))
	})
}

// TestDrainTellsTheTruth: a timer that was due at once, on a wheel whose clock
// stands before its first bucket, is not handed back as due long before.
func TestDrainTellsTheTruth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		tw.AfterFunc(time.Minute, func() {})
		pass(t, tw, time.Hour)
		tw.AfterFunc(0, func() {})
		unfired := tw.Drain()
		require.Len(t, unfired, 2)
		require.Equal(t, time.Minute, unfired[0].Deadline.Sub(tw.start))
		require.Equal(t, time.Hour, unfired[1].Deadline.Sub(tw.start))
	})
}

// TestWheelFromOutsideABubble would fire everything at once if it worked.
func TestWheelFromOutsideABubble(t *testing.T) {
	tw := New()
	bubble(t, func(t *testing.T) {
		require.PanicsWithValue(t, "timingwheel: used in a synctest bubble that it was not made in",
			func() {
				tw.AfterFunc(time.Hour, func() {})
			})
	})
}

// TestShutdownWaitsForTheRing: the alarm has rung, and its goroutine has not come to
// drive yet.
func TestShutdownWaitsForTheRing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		tw.alarm.ringing++ // as if
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		go func() {
			time.Sleep(time.Minute)
			tw.driver.drive()
		}()
		start := time.Now()
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Equal(t, time.Minute, time.Since(start))
	})
}
