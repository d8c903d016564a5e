package timingwheel

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// nextFunc is a Scheduler made of its Next.
type nextFunc func(time.Time) time.Time

func (f nextFunc) Next(t time.Time) time.Time { return f(t) }

// everyWall is what a Scheduler of a user's own looks like: a rhythm on the wall
// clock.
type everyWall time.Duration

func (d everyWall) Next(t time.Time) time.Time { return t.Add(time.Duration(d)) }

// everyFull is one that keeps its phase whatever it is given, as cron's do.
type everyFull time.Duration

func (d everyFull) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(d)).Add(time.Duration(d))
}

func TestScheduleRuns(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name string
		s    Scheduler
		want []time.Duration // of the first runs
	}{
		{"every second", Every(time.Second), []time.Duration{1000 * ms, 2000 * ms, 3000 * ms}},
		{"no drift between ticks", Every(1500 * time.Microsecond),
			[]time.Duration{2 * ms, 3 * ms, 5 * ms, 6 * ms, 8 * ms}},
		{"below the tick: once a tick", Every(100 * time.Microsecond),
			[]time.Duration{1 * ms, 2 * ms, 3 * ms, 4 * ms}},
		{"one nanosecond", Every(1), []time.Duration{1 * ms, 2 * ms, 3 * ms, 4 * ms}},
		{"an hour", Every(time.Hour), []time.Duration{time.Hour, 2 * time.Hour}},
		{"never", Every(math.MaxInt64), nil},
		{"wall, every second", everyWall(time.Second),
			[]time.Duration{1000 * ms, 2000 * ms, 3000 * ms}},
		{"wall, between ticks", everyWall(1500 * time.Microsecond),
			[]time.Duration{2 * ms, 3 * ms, 5 * ms, 6 * ms}},
		{"wall, below the tick", everyWall(100 * time.Microsecond),
			[]time.Duration{1 * ms, 2 * ms, 3 * ms}},
		{"wall, 90 minutes", everyWall(90 * time.Minute),
			[]time.Duration{90 * time.Minute, 180 * time.Minute}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				r := newRecorder()
				x := tw.ScheduleFunc(tc.s, r.hit)
				for _, at := range tc.want {
					require.Equal(t, 1, tw.Len(), "a live schedule counts as one")
					pass(t, tw, at-time.Since(r.start))
				}
				require.True(t, x.Pending())
				require.True(t, x.Stop())
				require.False(t, x.Pending())
				pass(t, tw, 100*time.Hour)
				require.Equal(t, tc.want, r.at)
				require.Zero(t, tw.Len())
				require.False(t, x.Stop(), "ended")
				require.False(t, x.Reset(time.Second), "an ended schedule stays ended")
			})
		})
	}
}

func TestScheduleEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		s    func(first bool, at time.Time) time.Time
		runs int
	}{
		{"with the zero time", func(first bool, at time.Time) time.Time {
			if first {
				return at.Add(time.Second)
			}
			return time.Time{}
		}, 1},
		{"when Next stands still", func(first bool, at time.Time) time.Time {
			if first {
				return at.Add(time.Second)
			}
			return at
		}, 1},
		{"when Next goes back", func(first bool, at time.Time) time.Time {
			if first {
				return at.Add(time.Second)
			}
			return at.Add(-time.Hour)
		}, 1},
		{"when Next panics, with a handler", func(first bool, at time.Time) time.Time {
			if first {
				return at.Add(time.Second)
			}
			panic("handled")
		}, 1},
		{"when Next ends the driver", func(first bool, at time.Time) time.Time {
			if !first {
				runtime.Goexit()
			}
			return at.Add(time.Second)
		}, 1},
		{"before it began", func(bool, time.Time) time.Time { return time.Time{} }, 0},
		{"before it began, standing still", func(_ bool, at time.Time) time.Time { return at }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				handled := 0
				tw := New(WithInline(), WithPanicHandler(func(any, []byte) { handled++ }))
				first := true
				r := newRecorder()
				x := tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
					defer func() { first = false }()
					return tc.s(first, at)
				}), r.hit)
				require.NotNil(t, x)
				other := newRecorder()
				tw.AfterFunc(time.Second, other.hit)
				require.Equal(t, tc.runs > 0, x.Pending())
				pass(t, tw, time.Hour)
				require.Len(t, r.at, tc.runs)
				require.Len(t, other.at, 1, "its neighbour does not suffer")
				require.Zero(t, tw.Len())
				require.False(t, x.Stop())
				require.False(t, x.Reset(time.Second))
				require.False(t, x.Reset(0))
				pass(t, tw, time.Hour)
				require.Len(t, r.at, tc.runs)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

// TestNextIsGivenWallTimes in the time's own location, without a monotonic
// reading, even if it returned one with.
func TestNextIsGivenWallTimes(t *testing.T) {
	zone := time.FixedZone("elsewhere", 5*3600+1800)
	tw := New(WithInline(), WithTick(100*time.Microsecond))
	var given []time.Time
	done := make(chan struct{})
	tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
		given = append(given, at)
		if len(given) == 4 {
			close(done)
			return time.Time{}
		}
		return time.Now().Add(time.Millisecond).In(zone) // with a monotonic reading
	}), func() {})
	<-done
	require.NoError(t, tw.Shutdown(t.Context()))
	for i, at := range given {
		require.True(t, isWallOnly(at), "call %d", i)
		if i == 0 {
			require.Equal(t, time.Local, at.Location())
		} else {
			require.Equal(t, zone, at.Location())
		}
	}
}

func TestStopDuringARun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		r := newRecorder()
		x := tw.ScheduleFunc(Every(time.Second), func() { r.hit(); time.Sleep(time.Minute) },
			SkipWhileRunning())
		pass(t, tw, 1500*time.Millisecond)
		require.True(t, x.Stop(), "alive while a run is in progress")
		pass(t, tw, time.Hour)
		require.Len(t, r.at, 1)
	})
}

// TestRunHandedOverButNotBegun is skipped after Stop, and is not after the
// wheel's Stop.
func TestRunHandedOverButNotBegun(t *testing.T) {
	for _, tc := range []struct {
		name string
		stop func(tw *TimingWheel, x *Timer) bool
		runs int
	}{
		{"Timer.Stop", func(_ *TimingWheel, x *Timer) bool { return x.Stop() }, 0},
		{"TimingWheel.Stop", func(tw *TimingWheel, _ *Timer) bool { tw.Stop(); return true }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var waiting []func()
				tw := New(WithExecutor(func(f func()) { waiting = append(waiting, f) }))
				runs := 0
				x := tw.ScheduleFunc(Every(time.Second), func() { runs++ })
				pass(t, tw, time.Second)
				require.Len(t, waiting, 1)
				require.True(t, tc.stop(tw, x))
				for _, f := range waiting {
					f()
				}
				require.Equal(t, tc.runs, runs)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

// TestActsDuringNext stops, moves or drops the schedule while the driver is in
// its Next: that is then the arming's outcome, and there is no other.
func TestActsDuringNext(t *testing.T) {
	for _, tc := range []struct {
		name  string
		act   func(tw *TimingWheel, x *Timer) bool
		runs  []time.Duration
		stats Counters
	}{
		{"Stop", func(_ *TimingWheel, x *Timer) bool { return x.Stop() }, nil,
			Counters{Started: 1, Stopped: 1}},
		{"Reset", func(_ *TimingWheel, x *Timer) bool { return x.Reset(10 * time.Second) },
			[]time.Duration{11 * time.Second}, Counters{Started: 1, Fired: 1}},
		{"Reset to zero", func(_ *TimingWheel, x *Timer) bool { return x.Reset(0) },
			[]time.Duration{time.Second}, Counters{Started: 1, Fired: 1}},
		{"the wheel's Stop", func(tw *TimingWheel, _ *Timer) bool { tw.Stop(); return true }, nil,
			Counters{Started: 1, Dropped: 1}},
		{"Drain", func(tw *TimingWheel, _ *Timer) bool { return len(tw.Drain()) == 1 }, nil,
			Counters{Started: 1, Dropped: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				r := newRecorder()
				var x *Timer
				calls := 0
				x = tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
					switch calls++; calls {
					case 1:
						return at.Add(time.Second)
					case 2:
						require.True(t, tc.act(tw, x))
						return at.Add(time.Second)
					}
					return time.Time{}
				}), r.hit)
				pass(t, tw, time.Hour)
				require.Equal(t, tc.runs, r.at)
				s := tw.Stats()
				require.Equal(t, tc.stats, Counters{Started: s.Started, Fired: s.Fired,
					Stopped: s.Stopped, Dropped: s.Dropped})
			})
		})
	}
}

func TestResetMovesTheNextRun(t *testing.T) {
	for _, s := range []Scheduler{Every(time.Minute), everyWall(time.Minute)} {
		bubble(t, func(t *testing.T) {
			tw := New(WithInline())
			r := newRecorder()
			x := tw.ScheduleFunc(s, r.hit)
			require.True(t, x.Reset(10*time.Second), "earlier")
			pass(t, tw, 75*time.Second)
			require.True(t, x.Reset(2*time.Minute), "later")
			pass(t, tw, 180*time.Second)
			require.True(t, x.Reset(0))
			pass(t, tw, 0)
			require.Equal(t, []time.Duration{10 * time.Second, 70 * time.Second, 195 * time.Second,
				255 * time.Second, 255 * time.Second}, r.at)
		})
	}
}

func TestRunsOverlapUnlessToldOtherwise(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []ScheduleOption
		want []time.Duration // begins of runs of 2.5 s, a schedule of 1 s stopped after 6 s
	}{
		{"overlap", nil, []time.Duration{1e9, 2e9, 3e9, 4e9, 5e9, 6e9}},
		{"skip", []ScheduleOption{SkipWhileRunning()}, []time.Duration{1e9, 4e9}},
		{"queue", []ScheduleOption{QueueWhileRunning()}, []time.Duration{1e9, 3.5e9, 6e9}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				begins := make(chan time.Duration, 100)
				x := tw.ScheduleFunc(Every(time.Second), func() {
					begins <- time.Since(tw.start)
					time.Sleep(2500 * time.Millisecond)
				}, tc.opts...)
				pass(t, tw, 6*time.Second)
				require.True(t, x.Stop())
				require.NoError(t, tw.Shutdown(t.Context()))
				close(begins)
				var got []time.Duration
				for at := range begins {
					got = append(got, at)
				}
				require.Equal(t, tc.want, got, "runs that wait are skipped after Stop")
			})
		})
	}
}

func TestQueuedRunsAllTakePlace(t *testing.T) {
	for _, end := range []struct {
		name string
		f    func()
	}{{"return", func() {}}, {"panic", func() { panic("handled") }}, {"Goexit", runtime.Goexit}} {
		t.Run(end.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithPanicHandler(func(any, []byte) {}))
				running, runs := 0, 0
				tw.ScheduleFunc(Every(time.Second), func() {
					running++
					require.Equal(t, 1, running)
					runs++
					if runs == 1 {
						time.Sleep(10 * time.Second)
					}
					running--
					end.f()
				}, QueueWhileRunning())
				pass(t, tw, 20*time.Second+time.Millisecond)
				require.Equal(t, 20, runs)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

// TestMissedRuns: the process does not get to run from 1.5 s to an hour later.
func TestMissedRuns(t *testing.T) {
	const gap = time.Hour
	for _, tc := range []struct {
		name  string
		opts  []ScheduleOption
		runs  int // by the time the gap is over
		after time.Duration
	}{
		{"become one", nil, 2, time.Second},
		{"are all run", []ScheduleOption{RunMissed()}, 3601, time.Second},
		{"are skipped", []ScheduleOption{SkipMissed(50 * time.Millisecond)}, 1, time.Second},
		{"are skipped but for the last, within grace",
			[]ScheduleOption{SkipMissed(500 * time.Millisecond)}, 2, time.Second},
	} {
		for _, s := range []Scheduler{Every(time.Second), everyFull(time.Second)} {
			t.Run(fmt.Sprintf("%s/%T", tc.name, s), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					// One level: the alarm is set for the run itself.
					tw := New(WithInline(), WithWheelSize(4096))
					wall := tw.withWall()
					r := newRecorder()
					tw.ScheduleFunc(s, r.hit, tc.opts...)
					pass(t, tw, 1500*time.Millisecond)
					require.Len(t, r.at, 1)
					tw.suspend(gap - 800*time.Millisecond) // 0.2 s past a run when the driver wakes
					wall.offset += gap - 800*time.Millisecond
					pass(t, tw, 500*time.Millisecond) // the alarm of the second run
					require.Len(t, r.at, tc.runs)
					pass(t, tw, 800*time.Millisecond)
					require.Len(t, r.at, tc.runs+1, "and the rhythm goes on")
					require.Equal(t, 2800*time.Millisecond, r.at[tc.runs])
				})
			})
		}
	}
}

func TestSkippedLastRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		wall := tw.withWall()
		begin := time.Now().Round(0)
		r := newRecorder()
		tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
			if at.After(begin) {
				return time.Time{}
			}
			return begin.Add(time.Minute)
		}), r.hit, SkipMissed(time.Second))
		tw.suspend(time.Hour)
		wall.offset = time.Hour
		pass(t, tw, time.Minute)
		require.Empty(t, r.at)
		require.Equal(t, int64(1), tw.Stats().Dropped)
	})
}

// TestWallClock steps the wall clock under timers that follow it and timers that
// do not.
func TestWallClock(t *testing.T) {
	for _, tc := range []struct {
		name string
		step time.Duration // at second 30
		want time.Duration // when the wall timers of ten minutes fire, monotonic
	}{
		{"steady", 0, 10 * time.Minute},
		{"stepped forward", 4 * time.Minute, 6 * time.Minute},
		{"stepped back", -3 * time.Minute, 13 * time.Minute},
		{"stepped far past it", 24 * time.Hour, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				wall := tw.withWall()
				at := time.Now().Round(0).Add(10 * time.Minute)
				mono, walls, schedule := newRecorder(), newRecorder(), newRecorder()
				tw.AfterFunc(10*time.Minute, mono.hit)
				tw.ScheduleFunc(Every(10*time.Minute), mono.hit)
				tw.AtFunc(at, walls.hit)
				tw.ScheduleFunc(everyWall(10*time.Minute), schedule.hit)
				pass(t, tw, 30*time.Second)
				wall.offset = tc.step
				pass(t, tw, 14*time.Minute)
				require.Equal(t, []time.Duration{10 * time.Minute, 10 * time.Minute}, mono.at,
					"durations are monotonic")
				require.Equal(t, []time.Duration{tc.want}, walls.at)
				require.Equal(t, tc.want, schedule.at[0])
				require.LessOrEqual(t, tc.want, max(10*time.Minute-tc.step, time.Minute),
					"noticed within a minute")
			})
		})
	}
}

func TestAtFunc(t *testing.T) {
	t.Run("with a monotonic reading", func(t *testing.T) {
		tw := New()
		wall := tw.withWall()
		wall.offset = -time.Hour // must not matter
		done := make(chan time.Time)
		at := time.Now().Add(20 * time.Millisecond)
		x := tw.AtFunc(at, func() { done <- time.Now() })
		require.Equal(t, plain, x.kind)
		require.False(t, (<-done).Before(at), "never early")
		at = time.Now().Add(20 * time.Millisecond)
		require.False(t, x.ResetAt(at))
		require.False(t, (<-done).Before(at), "never early")
		require.NoError(t, tw.Shutdown(t.Context()))
	})
	t.Run("gone by", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			for _, opts := range [][]Option{nil, {WithInline()}} {
				tw := New(opts...)
				ran := make(chan time.Time, 2)
				tw.AtFunc(time.Time{}, func() { ran <- time.Now() })
				tw.AtFunc(time.Now().Add(-1), func() { ran <- time.Now() })
				now := time.Now()
				require.Equal(t, now, <-ran)
				require.Equal(t, now, <-ran)
			}
		})
	})
	t.Run("stop and reset", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			tw := New(WithInline())
			wall := tw.withWall()
			r := newRecorder()
			x := tw.AtFunc(time.Now().Round(0).Add(time.Hour), r.hit)
			pass(t, tw, 90*time.Second)
			require.True(t, x.Stop())
			pass(t, tw, time.Hour)
			require.Empty(t, r.at)
			require.False(t, x.Reset(time.Hour), "monotonic from now on")
			wall.offset = 24 * time.Hour
			pass(t, tw, 2*time.Hour)
			require.Equal(t, []time.Duration{2*time.Hour + 90*time.Second}, r.at)
			require.False(t, x.Stop())

			y := tw.AtFunc(wall.now().Add(time.Hour), r.hit)
			require.True(t, y.Reset(3*time.Hour))
			wall.offset += 24 * time.Hour
			pass(t, tw, 4*time.Hour)
			require.Equal(t, 3*time.Hour, r.at[1]-(3*time.Hour+90*time.Second))
		})
	})
}

// TestRetryUntilItSucceeds: every 300 s until it succeeds, and the success
// cancels the rest from inside the run.
func TestRetryUntilItSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		r := newRecorder()
		var retry *Timer
		retry = tw.ScheduleFunc(Every(300*time.Second), func() {
			if r.hit(); len(r.at) == 4 {
				require.True(t, retry.Stop())
			}
		})
		pass(t, tw, 24*time.Hour)
		require.Equal(t, []time.Duration{300e9, 600e9, 900e9, 1200e9}, r.at)
		require.Zero(t, tw.Len())
	})
}

func TestEveryAsPartOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		left := 3
		every := Every(time.Second)
		r := newRecorder()
		tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
			if left--; left < 0 {
				return time.Time{}
			}
			return every.Next(at)
		}), r.hit)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []time.Duration{1e9, 2e9, 3e9}, r.at)
	})
}

// TestLateWakeUpsMissNothing: the driver comes a little late every time, as it
// does on a real machine, and periods are between one tick and two. A run whose
// tick has not come yet has not been missed.
func TestLateWakeUpsMissNothing(t *testing.T) {
	const tick, period = 10 * time.Millisecond, 10*time.Millisecond + time.Microsecond
	for _, s := range []Scheduler{Every(period), everyWall(period)} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithTick(tick), WithWheelSize(4096), WithInline())
				wall := tw.withWall()
				runs := 0
				tw.ScheduleFunc(s, func() { runs++ })
				for time.Since(tw.start) < 2*time.Second {
					tw.suspend(100 * time.Microsecond)
					wall.offset += 100 * time.Microsecond
					pass(t, tw, tick)
				}
				require.InDelta(t, 2*time.Second/period, runs, 3)
			})
		})
	}
}

// TestResetToZeroKeepsTheRhythm: the run that Reset moved to now counts as one of
// now, not as one of the tick that began before, or of a wheel's clock that stood.
func TestResetToZeroKeepsTheRhythm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithTick(time.Second), WithInline())
		r := newRecorder()
		x := tw.ScheduleFunc(Every(time.Second), r.hit)
		pass(t, tw, 900*time.Millisecond)
		require.True(t, x.Reset(0))
		pass(t, tw, 2500*time.Millisecond)
		require.Equal(t, []time.Duration{900e6, 2e9, 3e9}, r.at)
	})
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		r := newRecorder()
		x := tw.ScheduleFunc(Every(time.Hour), r.hit)
		tw.AfterFunc(time.Minute, func() {})
		pass(t, tw, 30*time.Minute)
		require.True(t, x.Reset(0))
		tw.Start()
		pass(t, tw, 2*time.Hour)
		require.Equal(t, []time.Duration{30 * time.Minute, 90 * time.Minute, 150 * time.Minute},
			r.at)
	})
}

// TestBacklogInOrder: sixty thousand missed runs are made up for at once, each in
// its turn among the other timers that were missed.
func TestBacklogInOrder(t *testing.T) {
	for _, s := range []Scheduler{Every(time.Millisecond), everyWall(time.Millisecond)} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				wall := tw.withWall()
				runs, seen := 0, 0
				tw.AfterFunc(30*time.Second, func() { seen = runs })
				tw.ScheduleFunc(s, func() { runs++ }, RunMissed())
				tw.suspend(time.Minute)
				wall.offset = time.Minute
				pass(t, tw, time.Millisecond)
				require.Equal(t, 60_001, runs)
				require.InDelta(t, 30_000, seen, 1)
			})
		})
	}
}

// TestNextIsCalledOncePerRun: a Scheduler that counts, as one with growing gaps
// does, loses none of its entries to runs that were missed.
func TestNextIsCalledOncePerRun(t *testing.T) {
	for _, tc := range []struct {
		opts []ScheduleOption
		want []int // entries that ran
	}{
		{nil, []int{3, 4}},
		{[]ScheduleOption{RunMissed()}, []int{1, 2, 3, 4}},
		{[]ScheduleOption{SkipMissed(time.Second)}, []int{3, 4}},
	} {
		bubble(t, func(t *testing.T) {
			tw := New(WithInline(), WithWheelSize(4096))
			wall := tw.withWall()
			entry := 0
			begin := time.Now().Round(0)
			var ran []int
			tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
				require.Equal(t, begin.Add([]time.Duration{0, 1e9, 2e9, 4e9, 8e9}[entry]), at)
				if entry++; entry > 4 {
					return time.Time{}
				}
				return begin.Add([]time.Duration{0, 1e9, 2e9, 4e9, 8e9}[entry])
			}), func() { ran = append(ran, entry-1) }, tc.opts...)
			tw.suspend(3500 * time.Millisecond)
			wall.offset = 3500 * time.Millisecond
			pass(t, tw, time.Second) // the alarm of the first: 4.5 s in truth
			pass(t, tw, time.Hour)
			if tc.opts == nil {
				// The first of those missed is made up for, in place of all.
				require.Len(t, ran, 2)
				return
			}
			require.Equal(t, tc.want, ran)
		})
	}
}

// TestSchedulerWithoutEnd: a gap with more missed runs than one cares to pass
// over one by one.
func TestSchedulerWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		wall := tw.withWall()
		runs, calls := 0, 0
		tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
			calls++
			return at.Add(1)
		}), func() { runs++ })
		tw.suspend(time.Hour)
		wall.offset = time.Hour
		pass(t, tw, time.Millisecond)
		require.Equal(t, 1, runs)
		require.LessOrEqual(t, calls, maxMissedSteps+2)
	})
}

func TestSkipMissedSaturates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		runs := 0
		x := tw.ScheduleFunc(Every(math.MaxInt64), func() { runs++ }, SkipMissed(0))
		require.True(t, x.Reset(1))
		pass(t, tw, time.Hour)
		require.True(t, x.Pending())
		require.Zero(t, runs, "it was a tick late, and no grace was given")
	})
}

func TestFirstNextPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := nextFunc(func(time.Time) time.Time { panic("bad schedule") })
		handled := 0
		tw := New(WithPanicHandler(func(any, []byte) { handled++ }))
		x := tw.ScheduleFunc(bad, func() { t.Error("ran") })
		require.Equal(t, 1, handled)
		require.False(t, x.Pending())
		require.False(t, x.Reset(0))
		require.Panics(t, func() { New().ScheduleFunc(bad, func() {}) })
	})
}

func TestWaitingRunsEndWithTheWheel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		runs := 0
		tw.ScheduleFunc(Every(time.Second), func() { runs++; time.Sleep(time.Hour) },
			QueueWhileRunning())
		pass(t, tw, 30*time.Minute)
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Equal(t, 1, runs)
		require.Equal(t, time.Hour+time.Second, time.Since(tw.start))
	})
}

// TestOnceATick: a period below the tick does not spin the driver, whatever
// Reset or a late arming does to its phase. There are no more runs than ticks.
func TestOnceATick(t *testing.T) {
	for _, s := range []Scheduler{Every(1), everyWall(time.Microsecond)} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) {
			tw := New(WithTick(5*time.Millisecond), WithInline())
			runs := 0
			x := tw.ScheduleFunc(s, func() { runs++ })
			resets := 0
			for time.Since(tw.start) < 100*time.Millisecond {
				x.Reset(0)
				resets++
				time.Sleep(30 * time.Millisecond)
			}
			require.NoError(t, tw.Shutdown(t.Context()))
			require.LessOrEqual(t, runs, int(time.Since(tw.start)/(5*time.Millisecond))+resets)
		})
	}
}

// TestResetInTheTickOfADueRun: a run of second 3 waits for the tick's end at 3.5
// when Reset moves it to 3.1. The next is that of second 4, not second 3 again.
func TestResetInTheTickOfADueRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		time.Sleep(500 * time.Millisecond)
		tw := New(WithTick(time.Second), WithInline())
		r := newRecorder() // began at second 0.5
		x := tw.ScheduleFunc(everyFull(time.Second), r.hit)
		pass(t, tw, 2600*time.Millisecond)
		require.True(t, x.Reset(0))
		pass(t, tw, 1400*time.Millisecond)
		require.Equal(t, []time.Duration{1e9, 2e9, 2.6e9, 4e9}, r.at)
	})
}

// TestResetAtThePast is Reset(0), not a run that was missed an hour ago.
func TestResetAtThePast(t *testing.T) {
	for _, opt := range []ScheduleOption{SkipMissed(time.Second), RunMissed()} {
		tw := New(WithInline())
		tw.suspend(2 * time.Hour)
		runs := make(chan struct{}, 10)
		x := tw.ScheduleFunc(Every(time.Minute), func() { runs <- struct{}{} }, opt)
		require.True(t, x.ResetAt(time.Now().Add(-time.Hour)))
		<-runs
		require.Equal(t, 1, tw.Len())
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Empty(t, runs)
	}
}

// TestWaitingRunsAfterGoexit: the goroutine that takes over from one that ended
// does not begin runs either once the wheel is stopped.
func TestWaitingRunsAfterGoexit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		runs := 0
		tw.ScheduleFunc(Every(time.Second), func() {
			runs++
			time.Sleep(10500 * time.Millisecond)
			runtime.Goexit()
		}, QueueWhileRunning())
		pass(t, tw, 5*time.Second)
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Equal(t, 1, runs)
	})
}

func TestScheduleIsOfItsSizeClass(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(schedule{}), uintptr(128), "README and doc.go say so")
	require.LessOrEqual(t, unsafe.Sizeof(offset{}), uintptr(32), "README and doc.go say so")
}

// TestScheduleThatNeverComes is inert from the beginning and known by it.
func TestScheduleThatNeverComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, opts := range [][]ScheduleOption{nil, {Jitter(time.Hour)},
			{RunMissed(), QueueWhileRunning()}} {
			tw := New()
			calls := 0
			x := tw.ScheduleFunc(nextFunc(func(time.Time) time.Time {
				calls++
				return time.Time{}
			}), func() { t.Error("ran") }, opts...)
			require.False(t, x.Pending())
			require.False(t, x.Reset(time.Second))
			require.False(t, x.ResetAt(time.Now()))
			require.False(t, x.Stop())
			require.Zero(t, tw.Stats().Counters)
			pass(t, tw, 24*time.Hour)
			require.Equal(t, 1, calls)
			require.Zero(t, tw.Stats().Counters)
		}
	})
}

// TestWallClockStepsOverRuns: a schedule of every full ten minutes, and one of every
// ten on the monotonic clock beside it.
func TestWallClockStepsOverRuns(t *testing.T) {
	type step struct{ at, by time.Duration }
	const m = time.Minute
	forward, back := []step{{5*m + time.Second, 38 * m}}, []step{{25 * m, -15 * m}}
	for _, tc := range []struct {
		name  string
		steps []step
		opts  []ScheduleOption
		want  []time.Duration // runs of the first hour, monotonic
	}{
		{"back: no run takes place twice", back, nil,
			[]time.Duration{10 * m, 20 * m, 45 * m, 55 * m}},
		{"back, skip", back, []ScheduleOption{SkipMissed(0)},
			[]time.Duration{10 * m, 20 * m, 45 * m, 55 * m}},
		{"back, run", back, []ScheduleOption{RunMissed()},
			[]time.Duration{10 * m, 20 * m, 45 * m, 55 * m}},
		{"back, started now", back, []ScheduleOption{StartNow()},
			[]time.Duration{0, 10 * m, 20 * m, 45 * m, 55 * m}},
		// The wall clock says 0:43:01 at 5:01; the next look is at 6:00.
		{"forward: four runs become one", forward, nil,
			[]time.Duration{6 * m, 12 * m, 22 * m, 32 * m, 42 * m, 52 * m}},
		{"forward, run", forward, []ScheduleOption{RunMissed()},
			[]time.Duration{6 * m, 6 * m, 6 * m, 6 * m, 12 * m, 22 * m, 32 * m, 42 * m, 52 * m}},
		{"forward, skip", forward, []ScheduleOption{SkipMissed(m)},
			[]time.Duration{12 * m, 22 * m, 32 * m, 42 * m, 52 * m}},
		{"forward, skip but for the last", forward, []ScheduleOption{SkipMissed(5 * m)},
			[]time.Duration{6 * m, 12 * m, 22 * m, 32 * m, 42 * m, 52 * m}},
		{"forward, started now", forward, []ScheduleOption{StartNow()},
			[]time.Duration{0, 6 * m, 12 * m, 22 * m, 32 * m, 42 * m, 52 * m}},
		{"forward and back between two looks",
			[]step{{5*m + 1, 24 * time.Hour}, {6*m - 1, -24 * time.Hour}}, nil,
			[]time.Duration{10 * m, 20 * m, 30 * m, 40 * m, 50 * m, 60 * m}},
		{"forward and back: silence until the time of the next",
			[]step{{5*m + 1, 24 * time.Hour}, {7 * m, -24 * time.Hour}}, nil,
			[]time.Duration{6 * m}},
		{"back and forward again",
			[]step{{5*m + 1, -24 * time.Hour}, {7 * m, 24 * time.Hour}}, nil,
			[]time.Duration{10 * m, 20 * m, 30 * m, 40 * m, 50 * m, 60 * m}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				wall := tw.withWall()
				mono, walls, at := newRecorder(), newRecorder(), newRecorder()
				tw.ScheduleFunc(Every(10*m), mono.hit)
				tw.ScheduleFunc(everyFull(10*m), walls.hit, tc.opts...)
				tw.AtFunc(time.Now().Round(0).Add(10*m), at.hit)
				for _, step := range tc.steps {
					pass(t, tw, step.at-time.Since(mono.start))
					wall.offset += step.by
				}
				pass(t, tw, 60*m-time.Since(mono.start))
				require.Equal(t, tc.want, walls.at)
				require.Equal(t, []time.Duration{10 * m, 20 * m, 30 * m, 40 * m, 50 * m, 60 * m},
					mono.at)
				require.Len(t, at.at, 1)
				i := slices.IndexFunc(tc.want, func(d time.Duration) bool { return d > 0 })
				if tc.name != "forward, skip" {
					require.Equal(t, tc.want[i], at.at[0], "as the first that is not StartNow's")
				}
			})
		})
	}
}

// TestWallClockStepsUnderJitter: each place of the rhythm has at most one run, put
// off as much by the wall clock as without the step. The first run of StartNow comes
// at once by any clock, and the second follows the stepped one.
func TestWallClockStepsUnderJitter(t *testing.T) {
	const m, jitter = time.Minute, 3 * time.Minute
	for _, by := range []time.Duration{-24 * time.Hour, -15 * m, -m, 2 * m, 45 * m,
		24 * time.Hour} {
		for _, startNow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%t", by, startNow), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					for range 5 {
						// On a minute, as the looks are then, and between the places.
						time.Sleep(time.Until(time.Now().Truncate(10 * m).Add(15 * m)))
						tw := New(WithInline())
						wall := tw.withWall()
						opts := []ScheduleOption{Jitter(jitter)}
						if startNow {
							opts = append(opts, StartNow())
						}
						var walls []time.Time
						r := newRecorder()
						tw.ScheduleFunc(everyFull(10*m), func() {
							r.hit()
							walls = append(walls, wall.now())
						}, opts...)
						pass(t, tw, time.Nanosecond)
						wall.offset = by
						stepped := wall.now()
						pass(t, tw, 3*time.Hour+max(-by, 0))
						tw.Stop()
						switch {
						case startNow:
							require.LessOrEqual(t, r.at[0], jitter)
							require.LessOrEqual(t, r.at[1], 15*m+jitter, "whatever was lost or won")
							walls = walls[1:]
						case by > 0:
							require.False(t, walls[0].After(stepped.Add(max(m, 5*m+jitter-by))),
								"noticed within a minute")
							walls = walls[1:] // at whatever place it was noticed
						}
						require.GreaterOrEqual(t, len(walls), 17)
						places := map[time.Time]bool{}
						for _, at := range walls {
							place := at.Truncate(10 * m)
							require.LessOrEqual(t, at.Sub(place), jitter)
							require.False(t, places[place], "%v twice", place)
							places[place] = true
						}
					}
				})
			})
		}
	}
}

// TestSuspend for 35 minutes, noticed within one: where the monotonic clock stands meanwhile, as on
// Linux, Every does not notice it; where it goes on, as in a process that was stopped, it follows
// its policy like the others.
func TestSuspend(t *testing.T) {
	const m, gap = time.Minute, 35 * time.Minute
	for _, tc := range []struct {
		name   string
		opts   []ScheduleOption
		missed int // of the runs at 10, 20, 30 and 40, made up for at 40 or 41
	}{
		{"join", nil, 1},
		{"run", []ScheduleOption{RunMissed()}, 4},
		{"skip", []ScheduleOption{SkipMissed(10 * time.Millisecond)}, 0},
		{"skip but for the last", []ScheduleOption{SkipMissed(5 * m)}, 1},
	} {
		for _, stands := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stands %t", tc.name, stands), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(WithInline())
					wall := tw.withWall()
					at, walls := newRecorder(), newRecorder()
					started, mono := newRecorder(), newRecorder()
					tw.AtFunc(time.Now().Round(0).Add(10*m), at.hit)
					tw.ScheduleFunc(everyFull(10*m), walls.hit, tc.opts...)
					tw.ScheduleFunc(everyFull(10*m), started.hit, append(tc.opts, StartNow())...)
					tw.ScheduleFunc(Every(10*m), mono.hit, tc.opts...)
					pass(t, tw, 5*m+time.Second)
					wall.offset = gap
					if !stands {
						tw.suspend(gap)
					}
					pass(t, tw, m)
					followers := []*recorder{walls, started}
					if !stands {
						followers = append(followers, mono)
					}
					require.Len(t, at.at, 1)
					require.Len(t, started.at, 1+tc.missed)
					require.Zero(t, started.at[0])
					started.at = started.at[1:]
					for _, r := range followers {
						require.Len(t, r.at, tc.missed)
					}
					pass(t, tw, 30*m)
					want := []time.Duration{15 * m, 25 * m, 35 * m} // 50, 60 and 70 on the wall
					for _, r := range followers {
						require.Equal(t, want, r.at[tc.missed:])
					}
					if stands {
						require.Equal(t, []time.Duration{10 * m, 20 * m, 30 * m}, mono.at)
					}
					require.Len(t, at.at, 1)
				})
			})
		}
	}
}
