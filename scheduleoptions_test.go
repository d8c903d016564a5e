package timingwheel

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJitter: every one of ten thousand runs is within its bounds, which do not
// drift, and the delays look like random ones. All of them being outside a hundredth
// of the range at one end has a probability of 0.99^10000, which is 1e-44; a mean
// that is off by a twentieth of the range would be 17 standard deviations off.
func TestJitter(t *testing.T) {
	const runs, period, jitter = 10_000, time.Second, 300 * time.Millisecond
	for _, s := range []Scheduler{Every(period), everyWall(period), everyFull(period)} {
		for _, opts := range [][]ScheduleOption{nil, {RunMissed()},
			{SkipMissed(10 * time.Millisecond)}} {
			t.Run(fmt.Sprintf("%T/%d options", s, len(opts)), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(WithInline())
					r := newRecorder()
					tw.ScheduleFunc(s, r.hit, append(opts, Jitter(jitter))...)
					pass(t, tw, runs*period+jitter)
					require.Len(t, r.at, runs)
					first, last, sum := jitter, time.Duration(0), time.Duration(0)
					for i, at := range r.at {
						delay := at - time.Duration(i+1)*period
						require.GreaterOrEqual(t, delay, time.Duration(0), "run %d", i)
						require.LessOrEqual(t, delay, jitter, "run %d", i) // rounded up to the tick
						first, last, sum = min(first, delay), max(last, delay), sum+delay
					}
					require.Less(t, first, jitter/100)
					require.Greater(t, last, jitter-jitter/100)
					require.InDelta(t, 0.5, float64(sum)/runs/float64(jitter), 0.05)
				})
			})
		}
	}
}

func TestNoJitter(t *testing.T) {
	for _, d := range []time.Duration{0, 1} { // the only delay below a nanosecond is none
		for _, s := range []Scheduler{Every(time.Second), everyWall(time.Second)} {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				r := newRecorder()
				tw.ScheduleFunc(s, r.hit, Jitter(time.Hour), Jitter(d)) // the last counts
				pass(t, tw, 3*time.Second)
				require.Equal(t, []time.Duration{1e9, 2e9, 3e9}, r.at)
			})
		}
	}
	require.PanicsWithValue(t, "timingwheel: Jitter with the negative duration -1ns",
		func() { Jitter(-1) })
}

// TestJitterBeyondThePeriod: the delays alone would have runs overtake each other.
// None does, none is before its place or later than its jitter allows, and only
// with RunMissed does each take place.
func TestJitterBeyondThePeriod(t *testing.T) {
	const period, jitter, end = time.Second, 10 * time.Second, 10_000 * time.Second
	for _, tc := range []struct {
		name string
		opt  ScheduleOption
		all  bool
	}{
		{"join", func(*schedule) {}, false},
		{"run", RunMissed(), true},
		{"skip", SkipMissed(10 * time.Millisecond), true}, // none is late
	} {
		for _, monotonic := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/monotonic %t", tc.name, monotonic), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(WithInline())
					s, tick := Every(period), time.Millisecond
					if !monotonic {
						s = everyFull(period)
					}
					r := newRecorder()
					tw.ScheduleFunc(s, r.hit, tc.opt, Jitter(jitter))
					pass(t, tw, end)
					require.True(t, slices.IsSorted(r.at))
					if !tc.all {
						require.Len(t, slices.Compact(slices.Clone(r.at)), len(r.at),
							"what comes together is one")
						// The gap is longest if two runs in a row are delayed by ten seconds.
						require.Greater(t, len(r.at), int(end/(jitter+period)))
						require.Less(t, len(r.at), int(end/period))
						return
					}
					require.Greater(t, len(r.at), int((end-jitter)/period)-1)
					for i, at := range r.at {
						place := time.Duration(i+1) * period
						require.GreaterOrEqual(t, at, place, "run %d", i)
						require.LessOrEqual(t, at, place+jitter+tick, "run %d", i)
					}
				})
			})
		}
	}
}

// TestJitterBeyondAnyPeriod: so much jitter over so fine a rhythm that the
// candidates for the next run are without number.
func TestJitterBeyondAnyPeriod(t *testing.T) {
	for _, s := range []Scheduler{Every(1), everyWall(1)} {
		for _, opt := range []ScheduleOption{func(*schedule) {}, SkipMissed(0)} {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				wall := tw.withWall()
				r := newRecorder()
				x := tw.ScheduleFunc(s, r.hit, opt, Jitter(time.Hour))
				for range 10 {
					tw.suspend(time.Hour)
					wall.offset += time.Hour
					pass(t, tw, time.Hour)
				}
				require.True(t, slices.IsSorted(r.at))
				require.True(t, x.Stop())
			})
		}
	}
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		runs := 0
		x := tw.ScheduleFunc(Every(math.MaxInt64), func() { runs++ }, Jitter(math.MaxInt64))
		pass(t, tw, 100*time.Hour)
		require.True(t, x.Reset(time.Hour))
		pass(t, tw, 100*time.Hour)
		require.Equal(t, 1, runs)
		require.True(t, x.Pending())
	})
}

// TestJitterOfTheRunAfterAGap: of the places in the rhythm every one counts whose
// run has not been missed, and no other; here the one at 10 with a fifth of its
// delays, that at 20 with most of them, and that at 30.
func TestJitterOfTheRunAfterAGap(t *testing.T) {
	const now, d, jitter = 25, 10, 20
	at := func(ns int64) time.Time { return time.Unix(0, ns).UTC() }
	for _, tc := range []struct {
		name string
		opt  ScheduleOption
		past int64 // the latest that was missed
	}{
		{"join", func(*schedule) {}, now},
		{"skip", SkipMissed(1), now - 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &schedule{}
			tc.opt(s)
			Jitter(jitter)(s)
			mono, walls := map[int64]int{}, map[int64]int{}
			for range 10_000 { // none of them at a place has a chance below 0.95^10000
				p := s.nextEvery(2, 0, d, now)
				require.Greater(t, p.deadline, tc.past)
				mono[p.deadline-int64(p.shift)]++
				p = s.nextWall(everyWall(d), at(2), at(0), at(now))
				require.True(t, p.at.After(at(tc.past)))
				walls[p.at.Add(-p.shift).UnixNano()]++
			}
			for _, got := range []map[int64]int{mono, walls} {
				require.Len(t, got, 3)
				for _, place := range []int64{10, 20, 30} {
					require.NotZero(t, got[place])
				}
				require.Greater(t, got[20], got[10])
			}
		})
	}
}

// TestResetOfAJitteredSchedule moves a run to exactly where it says, and the rhythm
// with it.
func TestResetOfAJitteredSchedule(t *testing.T) {
	const period, jitter = time.Minute, 20 * time.Second
	for _, s := range []Scheduler{Every(period), everyWall(period)} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for range 50 {
					tw := New(WithInline())
					r := newRecorder()
					x := tw.ScheduleFunc(s, r.hit, StartNow(), Jitter(jitter))
					require.True(t, x.Reset(10*time.Second))
					pass(t, tw, 110*time.Second)
					require.True(t, x.Reset(2*time.Minute), "later")
					pass(t, tw, 210*time.Second)
					require.Len(t, r.at, 4)
					require.Equal(t, 10*time.Second, r.at[0])
					require.GreaterOrEqual(t, r.at[1], 70*time.Second)
					require.LessOrEqual(t, r.at[1], 90*time.Second)
					require.Equal(t, 230*time.Second, r.at[2])
					require.GreaterOrEqual(t, r.at[3], 290*time.Second)
					require.LessOrEqual(t, r.at[3], 310*time.Second)
					tw.Stop()
				}
			})
		})
	}
}

// TestResetFromARunThatStartedNow: the fake clock stands and the tick is the finest,
// so Reset(0) gives the word the very deadline that the first run had. The delay of
// that one is not the delay of this one.
func TestResetFromARunThatStartedNow(t *testing.T) {
	for _, s := range []Scheduler{Every(time.Minute), everyWall(time.Minute)} {
		bubble(t, func(t *testing.T) {
			for range 20 {
				tw := NewTimingWheel(1, 256)
				tw.executor.mode = inline
				r := newRecorder()
				var x *Timer
				x = tw.ScheduleFunc(s, func() {
					if r.hit(); len(r.at) == 1 {
						require.True(t, x.Reset(0))
					}
				}, StartNow(), Jitter(30*time.Second))
				tw.Start()
				pass(t, tw, 2*time.Minute)
				require.GreaterOrEqual(t, len(r.at), 3)
				require.Equal(t, r.at[0], r.at[1])
				require.GreaterOrEqual(t, r.at[2], r.at[1]+time.Minute)
				tw.Stop()
			}
		})
	}
}

// TestDrainTellsJitter: Unfired says when the run would have come, not its place. (A
// delay is one of six hundred thousand million, so twenty are not all the same.)
func TestDrainTellsJitter(t *testing.T) {
	const period, jitter = time.Hour, 10 * time.Minute
	for _, s := range []Scheduler{Every(period), everyWall(period)} {
		for _, startNow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%T/%t", s, startNow), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					opts, first := []ScheduleOption{Jitter(jitter)}, period
					if startNow {
						opts, first = append(opts, StartNow()), 0
					}
					delays := map[time.Duration]bool{}
					for range 20 {
						tw := New(WithInline())
						tw.ScheduleFunc(s, func() { t.Error("ran") }, opts...)
						unfired := tw.Drain()
						require.Len(t, unfired, 1)
						delay := unfired[0].Deadline.Sub(tw.start) - first
						require.GreaterOrEqual(t, delay, time.Duration(0))
						require.Less(t, delay, jitter)
						delays[delay] = true
					}
					require.Greater(t, len(delays), 1)
				})
			})
		}
	}
}

func TestStartNow(t *testing.T) {
	const ms = time.Millisecond
	for _, e := range executors {
		for _, s := range []Scheduler{Every(1500 * time.Microsecond),
			everyWall(1500 * time.Microsecond)} {
			t.Run(fmt.Sprintf("%s/%T", e.name, s), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(e.opts()...)
					time.Sleep(333 * time.Microsecond) // not on a tick
					runs := make(chan time.Duration, 100)
					x := tw.ScheduleFunc(s, func() {
						require.False(t, onStackOf("ScheduleFunc("))
						runs <- time.Since(tw.start)
					}, StartNow())
					require.True(t, x.Pending())
					pass(t, tw, 0)
					require.Equal(t, 333*time.Microsecond, <-runs)
					require.True(t, x.Pending())
					pass(t, tw, 10*ms)
					require.True(t, x.Stop())
					for _, at := range []time.Duration{2 * ms, 4 * ms, 5 * ms, 7 * ms, 8 * ms,
						10 * ms} {
						require.Equal(t, at, <-runs)
					}
					require.Empty(t, runs)
				})
			})
		}
	}
}

// TestStartNowOnAWheelThatWaits: the first run is overdue at Start, and like any
// other it may be skipped then.
func TestStartNowOnAWheelThatWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []ScheduleOption
		want []time.Duration
	}{
		{"join", nil, []time.Duration{150e9, 180e9, 240e9}},
		{"run", []ScheduleOption{RunMissed()}, []time.Duration{150e9, 150e9, 150e9, 180e9, 240e9}},
		{"skip", []ScheduleOption{SkipMissed(time.Second)}, []time.Duration{180e9, 240e9}},
	} {
		for _, s := range []Scheduler{Every(time.Minute), everyWall(time.Minute)} {
			t.Run(fmt.Sprintf("%s/%T", tc.name, s), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := NewTimingWheel(time.Millisecond, 20)
					tw.executor.mode = inline
					tw.missed = joinMissed // as with New
					r := newRecorder()
					tw.ScheduleFunc(s, r.hit, append(tc.opts, StartNow())...)
					pass(t, tw, 150*time.Second)
					require.Empty(t, r.at)
					tw.Start()
					pass(t, tw, 90*time.Second)
					require.Equal(t, tc.want, r.at)
				})
			})
		}
	}
}

// TestStartNowStopped before its run is handed over, and on a stopped wheel.
func TestStartNowStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		x := tw.ScheduleFunc(Every(time.Second), func() { t.Error("ran") }, StartNow())
		require.True(t, x.Stop())
		require.False(t, x.Reset(0))
		tw.Start()
		pass(t, tw, time.Minute)
		tw.Stop()
		y := tw.ScheduleFunc(Every(time.Second), func() { t.Error("ran") }, StartNow())
		require.False(t, y.Pending())
		require.False(t, y.Stop())
		pass(t, tw, time.Minute)
	})
}

// TestStartNowKeepsTheRhythm: jitter puts off the first run too, and those after it
// are counted from the call all the same.
func TestStartNowKeepsTheRhythm(t *testing.T) {
	const period, jitter, runs = time.Minute, 30 * time.Second, 200
	for _, s := range []Scheduler{Every(period), everyWall(period)} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				r := newRecorder()
				tw.ScheduleFunc(s, r.hit, StartNow(), Jitter(jitter),
					SkipMissed(10*time.Millisecond))
				pass(t, tw, (runs-1)*period+jitter)
				require.Len(t, r.at, runs)
				for i, at := range r.at {
					require.GreaterOrEqual(t, at, time.Duration(i)*period)
					require.LessOrEqual(t, at, time.Duration(i)*period+jitter)
				}
			})
		})
	}
}

// TestStartNowAsksNextLater: the first run is no business of the Scheduler's. The
// driver asks for the second, and gives the time of the call in its location.
func TestStartNowAsksNextLater(t *testing.T) {
	for _, tc := range []struct {
		name string
		next func(time.Time) time.Time
	}{
		{"no run at all", func(time.Time) time.Time { return time.Time{} }},
		{"stands still", func(at time.Time) time.Time { return at }},
		{"panics", func(time.Time) time.Time { panic("handled") }},
		{"Goexit", func(at time.Time) time.Time { runtime.Goexit(); return at }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline(), WithPanicHandler(func(any, []byte) {}))
				began := time.Now().Round(0)
				var given []time.Time
				r := newRecorder()
				x := tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
					given = append(given, at)
					return tc.next(at)
				}), r.hit, StartNow(), Jitter(time.Minute))
				require.Empty(t, given)
				require.True(t, x.Pending(), "for its only run")
				pass(t, tw, time.Hour)
				require.Equal(t, []time.Time{began}, given)
				require.Equal(t, time.Local, given[0].Location())
				require.Len(t, r.at, 1)
				require.LessOrEqual(t, r.at[0], time.Minute)
				require.False(t, x.Pending())
				require.False(t, x.Stop())
				require.False(t, x.Reset(0))
				require.Zero(t, tw.Len())
			})
		})
	}
}

// TestSuspendUnderJitter: how late a run is counts from when it was to come.
func TestSuspendUnderJitter(t *testing.T) {
	const jitter = 500 * time.Millisecond
	for _, tc := range []struct {
		name     string
		opt      ScheduleOption
		min, max int // runs until a second after a gap of an hour
	}{
		{"join", func(*schedule) {}, 2, 3},
		{"run", RunMissed(), 3601, 3602},
		{"skip", SkipMissed(10 * time.Millisecond), 1, 2},
		{"skip but for the last minute", SkipMissed(time.Minute), 60, 63},
	} {
		for _, s := range []Scheduler{Every(time.Second), everyFull(time.Second)} {
			for _, startNow := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%T/%t", tc.name, s, startNow), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						tw := New(WithInline(), WithWheelSize(4096))
						wall := tw.withWall()
						r := newRecorder()
						opts := []ScheduleOption{tc.opt, Jitter(jitter)}
						if startNow {
							opts = append(opts, StartNow())
							// As many runs before the gap as without.
							pass(t, tw, time.Second)
						}
						tw.ScheduleFunc(s, r.hit, opts...)
						if !startNow {
							pass(t, tw, time.Second)
						}
						pass(t, tw, 600*time.Millisecond)
						require.Len(t, r.at, 1)
						tw.suspend(time.Hour)
						wall.offset += time.Hour
						pass(t, tw, time.Second) // 0.4 s to the place of the next, and its jitter
						require.GreaterOrEqual(t, len(r.at), tc.min)
						require.LessOrEqual(t, len(r.at), tc.max)
						require.True(t, slices.IsSorted(r.at))
						n := len(r.at)
						pass(t, tw, 100*time.Second)
						require.InDelta(t, n+100, len(r.at), 1, "and the rhythm goes on")
					})
				})
			}
		}
	}
}

// TestOverlapUnderJitterAndStartNow: the policies see runs, whatever made their time.
func TestOverlapUnderJitterAndStartNow(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  ScheduleOption
		want int // runs of a minute, of 40 that come once a second
	}{
		{"skip", SkipWhileRunning(), 1},
		{"queue", QueueWhileRunning(), 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				running, runs := 0, 0
				x := tw.ScheduleFunc(Every(time.Second), func() {
					running++
					require.Equal(t, 1, running)
					runs++
					time.Sleep(time.Minute)
					running--
				}, StartNow(), Jitter(100*time.Millisecond), tc.opt)
				pass(t, tw, 39100*time.Millisecond)
				require.Equal(t, 1, runs)
				require.True(t, x.Reset(100*time.Hour), "no other run comes")
				pass(t, tw, 99*time.Hour)
				require.Equal(t, tc.want, runs)
				require.True(t, x.Stop())
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}
