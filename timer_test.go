package timingwheel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// roundUp is when a timer of d fires on a wheel whose tick began with the test.
func roundUp(d, tick time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return (d + tick - 1) / tick * tick
}

func TestFiresAtTheTickAfterTheDeadline(t *testing.T) {
	const year = 365 * 24 * time.Hour
	delays := []time.Duration{
		math.MinInt64, -5 * time.Millisecond, -1, 0, 1, 999 * time.Microsecond, time.Millisecond,
		time.Millisecond + 1, 254 * time.Millisecond, 255 * time.Millisecond,
		256 * time.Millisecond, 257 * time.Millisecond, 1023 * time.Millisecond,
		1024 * time.Millisecond, 1029 * time.Millisecond,
		time.Minute, time.Hour, 24 * time.Hour, 5 * year, 10 * year, 100 * year,
	}
	for _, tick := range []time.Duration{1, 7, 100 * time.Microsecond, time.Millisecond,
		time.Second, time.Hour, 100 * year} {
		for _, size := range []int{2, 3, 20, 256, 512} {
			t.Run(fmt.Sprintf("tick=%v/size=%d", tick, size), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(WithTick(tick), WithWheelSize(size), WithInline())
					for _, phase := range []time.Duration{0, 5, 3 * time.Millisecond / 2} {
						time.Sleep(phase)
						began := time.Since(tw.start)
						for _, d := range delays {
							tw.AfterFunc(d, func() {
								if d <= 0 {
									require.Equal(t, began, time.Since(tw.start), "%v", d)
								} else {
									require.Equal(t, roundUp(began+d, tick), time.Since(tw.start),
										"%v", d)
								}
							})
						}
						verify(t, tw)
					}
					pass(t, tw, 250*year-time.Since(tw.start))
					require.Zero(t, tw.Len())
					require.Equal(t, int64(3*len(delays)), tw.Stats().Fired)
				})
			})
		}
	}
}

func TestInOrderOfTheirTicks(t *testing.T) {
	for _, size := range []int{2, 3, 20, 512} {
		t.Run(fmt.Sprint("size=", size), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithWheelSize(size), WithInline())
				r := newRand(1)
				var got, want []time.Duration
				for range 600 {
					d := time.Duration(r.Int64N(int64(time.Millisecond) << r.IntN(25)))
					want = append(want, roundUp(d, time.Millisecond))
					tw.AfterFunc(d, func() { got = append(got, time.Since(tw.start)) })
				}
				slices.Sort(want)
				pass(t, tw, 24*time.Hour)
				require.Equal(t, want, got)
			})
		})
	}
}

// TestRingPositions is the table that hashed rings get wrong: every position of
// the hand, every delay up to three turns.
func TestRingPositions(t *testing.T) {
	for _, tick := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(fmt.Sprint("slot=", tick), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithTick(tick), WithWheelSize(60), WithInline())
				fired := 0
				for hand := range 60 {
					pass(t, tw, time.Duration(hand)*tick-time.Since(tw.start))
					for turns := 1; turns <= 180; turns++ {
						d := time.Duration(turns) * tick
						at := time.Since(tw.start) + d
						tw.AfterFunc(d, func() {
							fired++
							require.Equal(t, at, time.Since(tw.start), "hand at %d, delay %v", hand,
								d)
						})
					}
				}
				pass(t, tw, 300*tick)
				require.Equal(t, 60*180, fired)
			})
		})
	}
}

func TestSlowThenFast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		r := newRecorder()
		tw.AfterFunc(time.Hour, r.hit)
		tw.AfterFunc(time.Minute, r.hit)
		time.Sleep(time.Second)
		tw.AfterFunc(5*time.Millisecond, r.hit)
		pass(t, tw, 2*time.Hour)
		require.Equal(t, []time.Duration{time.Second + 5*time.Millisecond, time.Minute, time.Hour},
			r.at)
	})
}

// TestIdleWheelKeepsItsClock: a timer of a wheel that slept for hours goes to
// the lowest wheel at once and is exact, beside a far timer too.
func TestIdleWheelKeepsItsClock(t *testing.T) {
	for _, far := range []bool{false, true} {
		t.Run(fmt.Sprint("far=", far), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				if far {
					tw.AfterFunc(1000*time.Hour, func() {})
				}
				time.Sleep(5*time.Hour + 300*time.Microsecond)
				before := tw.Stats()
				r := newRecorder()
				tw.AfterFunc(5*time.Millisecond, r.hit)
				require.Equal(t, len(before.Levels), len(tw.Stats().Levels))
				pass(t, tw, time.Second)
				require.Equal(t, []time.Duration{5700 * time.Microsecond}, r.at)
				require.Equal(t, int64(1), tw.Stats().Wakeups-before.Wakeups,
					"one bucket, one wake-up")
			})
		})
	}
}

// TestOversleep: the driver finds itself far behind the clock, with timers of
// every age. What is due fires, in order; what was made since is not early.
func TestOversleep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithWheelSize(8), WithInline())
		var got []int
		hit := func(i int) func() { return func() { got = append(got, i) } }
		tw.AfterFunc(10*time.Millisecond, hit(0))
		tw.AfterFunc(900*time.Millisecond, hit(1))
		tw.AfterFunc(70*time.Minute, hit(3))
		tw.AfterFunc(61*time.Second, hit(2))
		time.Sleep(5 * time.Millisecond)
		tw.suspend(time.Hour)
		fresh := newRecorder()
		tw.AfterFunc(20*time.Millisecond, fresh.hit)
		tw.AfterFunc(7*time.Millisecond, fresh.hit)
		time.Sleep(5 * time.Millisecond) // the alarm of the first
		verify(t, tw)
		require.Equal(t, []int{0, 1, 2}, got)
		pass(t, tw, time.Hour)
		require.Equal(t, []int{0, 1, 2, 3}, got)
		require.Equal(t, []time.Duration{7 * time.Millisecond, 20 * time.Millisecond}, fresh.at)
	})
}

// TestCatchingUpCostsWhatIsDue: a gap of years is crossed in as many wake-ups
// and moves as the timers need, not as many as ticks have passed.
func TestCatchingUpCostsWhatIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		tw.AfterFunc(time.Millisecond, func() {})
		tw.AfterFunc(3*365*24*time.Hour, func() {})
		tw.suspend(5 * 365 * 24 * time.Hour)
		pass(t, tw, time.Millisecond)
		s := tw.Stats()
		require.Equal(t, int64(2), s.Fired)
		require.Equal(t, int64(1), s.Wakeups)
		require.LessOrEqual(t, s.Reinserted, int64(6))
	})
}

// TestLateAddToADrainingSlot adds timers one lap, and a little less or more,
// behind the bucket that is being flushed, between its timers and between its
// pieces.
func TestLateAddToADrainingSlot(t *testing.T) {
	const size, n = 16, 3*holdLimit + 5
	for _, lap := range []int{size - 1, size, size + 1, size * size, size*size + size} {
		t.Run(fmt.Sprint("lap=", lap), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithWheelSize(size), WithInline())
				first, second := 0, 0
				for range n {
					tw.AfterFunc(5*time.Millisecond, func() {
						first++
						require.Equal(t, 5*time.Millisecond, time.Since(tw.start))
						tw.AfterFunc(time.Duration(lap)*time.Millisecond, func() {
							second++
							require.Equal(t, time.Duration(5+lap)*time.Millisecond,
								time.Since(tw.start))
						})
					})
				}
				pass(t, tw, time.Second)
				require.Equal(t, n, first)
				require.Equal(t, n, second)
			})
		})
	}
}

// TestStaleReading: a caller reads the clock, is held up while the wheel goes
// past its deadline, and then arms. The timer fires at once, not a lap later.
func TestStaleReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithWheelSize(4), WithInline(), withShards(1))
		now := tw.now()
		tw.AfterFunc(10*time.Millisecond, func() {})
		pass(t, tw, 10*time.Millisecond)
		require.Equal(t, int64(10), tw.shards[0].wheel.now)
		r := newRecorder()
		stale := &Timer{}
		tw.Init(stale, r.hit)
		stale.shard.rearm(stale, deadlineAfter(now, 3*time.Millisecond), now)
		synctest.Wait()
		require.Equal(t, []time.Duration{0}, r.at)
	})
}

func TestStop(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, tw *TimingWheel, hit func())
	}{
		{"before it is due", func(t *testing.T, tw *TimingWheel, hit func()) {
			x := tw.AfterFunc(time.Second, hit)
			require.True(t, x.Pending())
			require.True(t, x.Stop())
			require.False(t, x.Pending())
			require.False(t, x.Stop(), "twice")
		}},
		{"in the instant before", func(t *testing.T, tw *TimingWheel, hit func()) {
			x := tw.AfterFunc(time.Second, hit)
			time.Sleep(time.Second - 1)
			require.True(t, x.Stop())
		}},
		{"between two wheels", func(t *testing.T, tw *TimingWheel, hit func()) {
			x := tw.AfterFunc(time.Hour, hit)
			pass(t, tw, time.Hour-3*time.Millisecond)
			require.Positive(t, tw.Stats().Reinserted)
			require.True(t, x.Stop())
		}},
		{"all of a bucket, in the middle first", func(t *testing.T, tw *TimingWheel, hit func()) {
			var xs []*Timer
			for range 9 {
				xs = append(xs, tw.AfterFunc(time.Second, hit))
			}
			for _, i := range []int{4, 0, 8, 1, 7, 2, 6, 3, 5} {
				require.True(t, xs[i].Stop())
				require.Nil(t, xs[i].next, "keeps no neighbour")
				require.Nil(t, xs[i].prev, "keeps no neighbour")
			}
		}},
		{"never due", func(t *testing.T, tw *TimingWheel, hit func()) {
			x := tw.AfterFunc(math.MaxInt64, hit)
			time.Sleep(250 * 365 * 24 * time.Hour)
			require.True(t, x.Stop())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				tc.do(t, tw, func() { t.Error("fired after Stop") })
				verify(t, tw)
				pass(t, tw, 2*time.Hour)
				require.Zero(t, tw.Len())
			})
		})
	}
}

func TestStopAfterFire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		x := tw.AfterFunc(time.Millisecond, func() {})
		pass(t, tw, time.Millisecond)
		require.False(t, x.Pending())
		require.False(t, x.Stop())
		s := tw.Stats()
		require.Equal(t, Counters{Started: 1, Fired: 1}, s.Counters)
		require.Equal(t, int64(1), s.Wakeups)
		require.Equal(t, 1, s.LongestHold)
	})
}

// TestCallbacksActOnTheirOwnBatch: from an inline callback the head, a middle
// and the last timer of the bucket under way are stopped, and timers elsewhere.
func TestCallbacksActOnTheirOwnBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(1)) // in order
		const n = 2*holdLimit + 3
		var batch [n]*Timer
		fired := map[int]int{}
		stopped := []int{1, n / 2, n - 1}
		later := tw.AfterFunc(2*time.Second, func() { t.Error("stopped from a callback") })
		for i := range n {
			batch[i] = tw.AfterFunc(time.Second, func() {
				fired[i]++
				switch {
				case i == 0:
					require.False(t, batch[0].Stop(), "its own: handed over already")
					for _, j := range stopped {
						require.True(t, batch[j].Stop())
					}
					require.True(t, later.Stop())
				case i == 2 && fired[i] == 1:
					require.False(t, batch[i].Reset(time.Second), "re-arms itself")
				case i == 3:
					require.True(t, batch[4].Reset(3*time.Second), "moves its neighbour")
				}
			})
		}
		pass(t, tw, time.Second)
		require.Len(t, fired, n-len(stopped)-1)
		require.Zero(t, fired[4])
		pass(t, tw, time.Minute)
		require.Equal(t, 2, fired[2])
		require.Equal(t, 1, fired[4])
	})
}

func TestReset(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, x *Timer) // x is pending for 100 ms
		want []time.Duration
	}{
		{"later", func(t *testing.T, x *Timer) { require.True(t, x.Reset(time.Minute)) },
			[]time.Duration{time.Minute}},
		{"later, much", func(t *testing.T, x *Timer) { require.True(t, x.Reset(100*time.Hour)) },
			[]time.Duration{100 * time.Hour}},
		{"the same", func(t *testing.T, x *Timer) { require.True(t, x.Reset(100*ms)) },
			[]time.Duration{100 * ms}},
		{"earlier", func(t *testing.T, x *Timer) { require.True(t, x.Reset(3*ms)) },
			[]time.Duration{3 * ms}},
		{"later, then earlier", func(t *testing.T, x *Timer) {
			require.True(t, x.Reset(time.Hour))
			require.True(t, x.Reset(7*ms))
		}, []time.Duration{7 * ms}},
		{"to the past", func(t *testing.T, x *Timer) { require.True(t, x.Reset(-time.Hour)) },
			[]time.Duration{0}},
		{"to never, and back", func(t *testing.T, x *Timer) {
			require.True(t, x.Reset(math.MaxInt64))
			time.Sleep(time.Hour)
			require.True(t, x.Reset(ms))
		}, []time.Duration{time.Hour + ms}},
		{"after stop", func(t *testing.T, x *Timer) {
			require.True(t, x.Stop())
			require.False(t, x.Reset(5*ms))
			require.True(t, x.Pending())
		}, []time.Duration{5 * ms}},
		{"after fire", func(t *testing.T, x *Timer) {
			time.Sleep(200 * ms)
			synctest.Wait()
			require.False(t, x.Reset(5*ms))
		}, []time.Duration{100 * ms, 205 * ms}},
		{"on and on, as idle timeouts are", func(t *testing.T, x *Timer) {
			for range 1000 {
				time.Sleep(99 * ms)
				require.True(t, x.Reset(100*ms))
			}
		}, []time.Duration{99*1000*ms + 100*ms}},
		{"100,000 times into the same slot", func(t *testing.T, x *Timer) {
			for range 100_000 {
				require.True(t, x.Reset(50*ms))
			}
		}, []time.Duration{50 * ms}},
		{"to an instant",
			func(t *testing.T, x *Timer) {
				require.True(t, x.ResetAt(time.Now().Add(30*ms)))
			}, []time.Duration{30 * ms}},
		{"to an instant gone by",
			func(t *testing.T, x *Timer) {
				require.True(t, x.ResetAt(time.Time{}))
			}, []time.Duration{0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(WithInline())
				r := newRecorder()
				x := tw.AfterFunc(100*ms, r.hit)
				tc.do(t, x)
				verify(t, tw)
				pass(t, tw, 200*time.Hour)
				require.Equal(t, tc.want, r.at)
				require.Zero(t, tw.Len())
			})
		})
	}
}

// TestResetWhileItsSlotDrains extends and moves timers of the bucket under way.
func TestResetWhileItsSlotDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithWheelSize(8), WithInline(), withShards(1)) // in order
		r := newRecorder()
		var a, b, c *Timer
		tw.AfterFunc(70*time.Millisecond, func() {
			require.True(t, a.Reset(8*time.Millisecond), "one lap later")
			require.True(t, b.Reset(time.Hour), "coarser")
			require.True(t, c.Reset(0), "at once, in the next round")
		})
		a = tw.AfterFunc(70*time.Millisecond, r.hit)
		b = tw.AfterFunc(70*time.Millisecond, r.hit)
		c = tw.AfterFunc(70*time.Millisecond, r.hit)
		verify(t, tw)
		pass(t, tw, 70*time.Millisecond)
		pass(t, tw, 2*time.Hour)
		require.Equal(t, []time.Duration{70 * time.Millisecond, 78 * time.Millisecond,
			time.Hour + 70*time.Millisecond}, r.at)
	})
}

// TestResetToZeroDoesNotStarve: a callback that always resets itself to zero keeps the driver busy
// forever, yet others get their turn.
func TestResetToZeroDoesNotStarve(t *testing.T) {
	tw := New(WithInline())
	var x Timer
	spins := 0
	tw.Init(&x, func() {
		if spins++; !tw.stopped.Load() {
			x.Reset(0)
		}
	})
	x.Reset(0)
	done := make(chan struct{})
	tw.AfterFunc(5*time.Millisecond, func() { tw.AfterFunc(0, func() { close(done) }) })
	<-done
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Positive(t, spins)
}

// TestReusedStruct: an earlier arming's Stop or fire does not touch the arming
// of the struct's next use.
func TestReusedStruct(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type conn struct {
			idle Timer
			user string
		}
		tw := New()
		c := &conn{user: "first"}
		var got []string
		use := func(user string) {
			c.user = user
			tw.Init(&c.idle, func() { got = append(got, c.user) })
			require.False(t, c.idle.Reset(time.Second))
		}
		use("first")
		require.True(t, c.idle.Stop())
		use("second")
		pass(t, tw, time.Second)
		require.Equal(t, []string{"second"}, got)
		use("third")
		pass(t, tw, time.Second)
		require.Equal(t, []string{"second", "third"}, got)
	})
}

// TestExtremes: the clock's far end. A wheel older than a deadline can say still
// fires what is due at once, and never what is not.
func TestExtremes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		r := newRecorder()
		early := func() { t.Error("fired early") }
		tw.AfterFunc(math.MaxInt64, early)
		tw.AfterFunc(math.MaxInt64-time.Millisecond, early)
		tw.AfterFunc(1<<62, early)
		require.Len(t, tw.Stats().Levels, 1, "they cost no levels")
		time.Sleep(200 * 365 * 24 * time.Hour)
		tw.AfterFunc(time.Second, early) // beyond what the wheel can say: never
		tw.AfterFunc(0, r.hit)
		tw.AfterFunc(math.MinInt64, r.hit)
		verify(t, tw)
		require.Len(t, r.at, 2)
		require.Equal(t, 4, tw.Len())
		require.Len(t, tw.Drain(), 4)
	})
}

func TestTimerIsSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) == 8 {
		require.LessOrEqual(t, unsafe.Sizeof(Timer{}), uintptr(48))
		require.LessOrEqual(t, unsafe.Sizeof(bucket{}), uintptr(48))
	} else {
		require.LessOrEqual(t, unsafe.Sizeof(Timer{}), uintptr(32))
	}
}

func TestAllocations(t *testing.T) {
	tw := New()
	defer tw.Stop()
	f := func() {}
	tw.AfterFunc(time.Hour, f) // makes the levels
	require.Equal(t, 1.0,
		testing.AllocsPerRun(1000, func() { tw.AfterFunc(time.Minute, f).Stop() }))
	var x Timer
	tw.Init(&x, f)
	later := time.Minute
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		x.Reset(later)
		later += time.Second
		x.Reset(time.Second)
		x.ResetAt(tw.start.Add(later))
		x.Stop()
	}))
	require.Equal(t, 3.0, testing.AllocsPerRun(1000, func() { tw.NewTimer(time.Minute).Stop() }))
	for _, parent := range []context.Context{context.Background(), t.Context()} {
		require.Equal(t, 2.0, testing.AllocsPerRun(1000, func() {
			ctx, cancel := tw.WithTimeout(parent, time.Minute)
			require.NoError(t, ctx.Err())
			cancel()
		}))
	}
}

// TestResetOfAnOverdueTimer: the driver has not come to a timer whose time is
// over, and Reset(0) moves its deadline later, to now. It is due at once all the
// same, not at the end of the tick that has begun.
func TestResetOfAnOverdueTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Second, 20)
		r := newRecorder()
		x := tw.AfterFunc(time.Millisecond, r.hit)
		pass(t, tw, 1500*time.Millisecond)
		require.True(t, x.Reset(0))
		tw.Start()
		pass(t, tw, time.Minute)
		require.Equal(t, []time.Duration{1500 * time.Millisecond}, r.at)
	})
}

// TestExtendTakesNoLock: a touch succeeds while another goroutine holds the lock.
func TestExtendTakesNoLock(t *testing.T) {
	tw := New()
	defer tw.Stop()
	x := tw.AfterFunc(time.Minute, func() {})
	every := tw.ScheduleFunc(Every(time.Minute), func() {})
	wall := tw.AtFunc(time.Now().Round(0).Add(time.Second), func() {})
	for i := range tw.shards {
		tw.shards[i].mu.Lock()
	}
	tw.alarm.mu.Lock()
	require.True(t, x.Reset(time.Minute))
	require.True(t, x.ResetAt(time.Now().Add(time.Hour)))
	require.True(t, every.Reset(time.Hour))
	require.True(t, wall.Reset(time.Hour))
	tw.alarm.mu.Unlock()
	for i := range tw.shards {
		tw.shards[i].mu.Unlock()
	}
	require.NoError(t, tw.verify(true))
}

// TestReinsertionAheadOfTime: a crowd of one coarse bucket has moved down before the
// bucket is due, and each of its timers fires at its own tick.
func TestReinsertionAheadOfTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(2))
		r := newRecorder()
		var want []time.Duration
		for ms := range 256 { // in the coarse buckets of 59.904 s and 60.160 s
			for range 40 {
				d := time.Minute + time.Duration(ms)*time.Millisecond
				tw.AfterFunc(d, r.hit)
				want = append(want, d)
			}
		}
		pass(t, tw, 59_647*time.Millisecond)
		require.Zero(t, tw.Stats().Reinserted)
		pass(t, tw, time.Millisecond) // a slot before the first of them
		require.Equal(t, int64(160*40), tw.Stats().Reinserted)
		pass(t, tw, time.Second)
		require.Equal(t, int64(256*40), tw.Stats().Reinserted, "each once")
		require.Equal(t, want, r.at)
	})
}

// TestLoneTimerWakesOnce: a timer that is alone is filed where it needs no move, up to
// the end of the next slot of the overflow wheel.
func TestLoneTimerWakesOnce(t *testing.T) {
	for _, size := range []int{2, 20, 256} {
		bubble(t, func(t *testing.T) {
			tw := New(WithWheelSize(size), WithInline())
			for range 10 {
				tw.AfterFunc(time.Duration(size)*time.Millisecond, func() {})
				pass(t, tw, time.Minute)
			}
			s := tw.Stats()
			require.Equal(t, int64(10), s.Fired)
			require.Equal(t, int64(10), s.Wakeups)
			require.Zero(t, s.Reinserted)
		})
	}
}
