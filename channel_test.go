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
)

// received returns what can be received without waiting, as the time since start, or -1 if nothing
// can.
func received(start time.Time, c <-chan time.Time) time.Duration {
	select {
	case at := <-c:
		return at.Sub(start)
	default:
		return -1
	}
}

func TestChanTimerFires(t *testing.T) {
	cases := []struct {
		name string
		d    time.Duration
		at   time.Duration
	}{
		{"negative", -time.Second, 0},
		{"zero", 0, 0},
		{"below the tick", 1, time.Millisecond},
		{"a tick", time.Millisecond, time.Millisecond},
		{"rounded up", time.Second + 1, time.Second + time.Millisecond},
		{"by way of three wheels", 20 * time.Hour, 20 * time.Hour},
	}
	calls := map[string]func(tw *TimingWheel, d time.Duration) <-chan time.Time{
		"After": (*TimingWheel).After,
		"NewTimer": func(tw *TimingWheel, d time.Duration) <-chan time.Time {
			return tw.NewTimer(d).C
		},
	}
	for _, x := range executors {
		for what, call := range calls {
			for _, c := range cases {
				t.Run(x.name+"/"+what+"/"+c.name, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						tw := New(x.opts()...)
						start := time.Now()
						ch := call(tw, c.d)
						if c.at > 0 {
							require.Equal(t, 1, tw.Len())
							pass(t, tw, c.at-1)
							require.EqualValues(t, -1, received(start, ch))
							time.Sleep(time.Nanosecond)
						}
						verify(t, tw)
						require.Equal(t, c.at, received(start, ch))
						pass(t, tw, time.Hour)
						require.EqualValues(t, -1, received(start, ch), "sent once")
						require.Equal(t, int64(1), tw.Stats().Fired)
						require.Zero(t, tw.Len())
					})
				})
			}
		}
	}
}

// The value is that of the sending, not of the receiving.
func TestChanTimerSendsWhenItFires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		start := time.Now()
		timer := tw.NewTimer(time.Second)
		time.Sleep(time.Hour)
		require.Equal(t, time.Second, (<-timer.C).Sub(start))
	})
}

// What Stop and Reset return, and what can be received afterwards, in every state.
func TestChanTimerStopAndReset(t *testing.T) {
	states := []struct {
		name      string
		into      func(tw *TimingWheel, timer *ChanTimer)
		prevented bool
	}{
		{"pending", func(*TimingWheel, *ChanTimer) {}, true},
		{"fired, not received",
			func(*TimingWheel, *ChanTimer) { time.Sleep(time.Second); synctest.Wait() }, true},
		{"received", func(_ *TimingWheel, timer *ChanTimer) { <-timer.C }, false},
		{"stopped", func(_ *TimingWheel, timer *ChanTimer) { timer.Stop() }, false},
		{"reset to sooner",
			func(_ *TimingWheel, timer *ChanTimer) { timer.Reset(time.Millisecond) }, true},
		{"reset to later", func(_ *TimingWheel, timer *ChanTimer) { timer.Reset(time.Hour) }, true},
		{"fired again",
			func(_ *TimingWheel, timer *ChanTimer) {
				<-timer.C
				timer.Reset(0)
				synctest.Wait()
			}, true},
		{"the wheel stopped", func(tw *TimingWheel, _ *ChanTimer) { tw.Stop() }, true},
		{"the wheel stopped, fired",
			func(tw *TimingWheel, _ *ChanTimer) {
				tw.Stop()
				time.Sleep(time.Second)
				synctest.Wait()
			}, true},
		{"the wheel stopped, received",
			func(tw *TimingWheel, timer *ChanTimer) { tw.Stop(); <-timer.C }, false},
		{"the wheel stopped, stopped",
			func(tw *TimingWheel, timer *ChanTimer) { tw.Stop(); timer.Stop() }, false},
		{"the wheel stopped, reset",
			func(tw *TimingWheel, timer *ChanTimer) { tw.Stop(); timer.Reset(time.Minute) }, true},
		{"fired, the wheel stopped",
			func(tw *TimingWheel, _ *ChanTimer) {
				time.Sleep(time.Second)
				synctest.Wait()
				tw.Stop()
			}, true},
	}
	for _, s := range states {
		t.Run("Stop when "+s.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				timer := tw.NewTimer(time.Second)
				s.into(tw, timer)
				require.Equal(t, s.prevented, timer.Stop())
				require.False(t, timer.Stop())
				require.Zero(t, tw.Len())
				pass(t, tw, 2*time.Hour)
				require.Empty(t, timer.C)
			})
		})
		for _, d := range []time.Duration{0, time.Second / 2, time.Minute} {
			t.Run("Reset to "+d.String()+" when "+s.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New()
					timer := tw.NewTimer(time.Second)
					s.into(tw, timer)
					start := time.Now()
					require.Equal(t, s.prevented, timer.Reset(d))
					if d > 0 { // or else the new value may be there
						require.Empty(t, timer.C, "nothing stale")
					}
					pass(t, tw, 2*time.Hour)
					require.Equal(t, d, received(start, timer.C))
					require.False(t, timer.Reset(d), "fired and received")
				})
			})
		}
	}
}

// Stop and Reset come while the driver is claiming and sending. Either prevents a timer whose value
// was not received, nothing stale is left in the channel, and what Reset has moved to later is not
// sent before that.
func TestChanTimerMeetsTheDriver(t *testing.T) {
	const timers = 100
	rounds := 1500
	if testing.Short() {
		rounds = 500
	}
	var all sync.WaitGroup
	tw := New(WithTick(50 * time.Microsecond))
	defer tw.Stop()
	for worker := range uint64(2) {
		all.Go(func() {
			rnd := newRand(worker)
			batch := make([]*ChanTimer, timers)
			for i := range batch {
				batch[i] = tw.NewTimer(time.Hour)
			}
			for range rounds {
				for _, timer := range batch {
					timer.Reset(time.Microsecond)
				}
				// It goes through them by shard and in this order.
				first := batch[rnd.IntN(timers)]
				for len(first.C) == 0 {
					runtime.Gosched()
				}
				if rnd.IntN(2) == 0 {
					for _, timer := range batch {
						require.True(t, timer.Stop())
						require.Empty(t, timer.C)
					}
				} else {
					for _, timer := range batch {
						require.True(t, timer.Reset(time.Hour))
					}
				}
				for _, timer := range batch {
					require.Empty(t, timer.C, "stale or early")
				}
			}
			for _, timer := range batch {
				timer.Stop()
			}
		})
	}
	all.Wait()
	require.Zero(t, tw.Len())
}

// Timers are reset, stopped and received from in any order: every value is of the last
// arming and not early, and every arming has one outcome.
func TestChanTimerHammer(t *testing.T) {
	tw := New(WithTick(50 * time.Microsecond))
	defer tw.Stop()
	rounds := 5_000
	if testing.Short() {
		rounds = 1_000
	}
	var all sync.WaitGroup
	for worker := range uint64(4) {
		all.Go(func() {
			rnd := newRand(worker)
			timer := tw.NewTimer(0)
			open := true // an arming without an outcome
			for range rounds {
				armed := time.Now()
				d := time.Duration(rnd.IntN(200)) * time.Microsecond
				require.Equal(t, open, timer.Reset(d))
				open = true
				receive := func(got time.Time) {
					require.False(t, got.Before(armed.Add(d)), "stale or early")
					open = false
				}
				switch rnd.IntN(4) {
				case 0:
					receive(<-timer.C)
				case 1:
					spin(d)
					require.True(t, timer.Stop())
					open = false
				default:
					spin(d)
					select {
					case got := <-timer.C:
						receive(got)
					default:
					}
				}
			}
			timer.Stop()
		})
	}
	all.Wait()
	require.Zero(t, tw.Len())
}

// spin keeps the processor busy for about d, which no sleep is short enough for.
func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		runtime.Gosched()
	}
}

// Many goroutines call Stop at once: one of them prevents the timer, or its value is received.
func TestChanTimerStoppedByMany(t *testing.T) {
	tw := New(WithTick(20 * time.Microsecond))
	defer tw.Stop()
	for i := range 3000 {
		timer := tw.NewTimer(time.Duration(i%100) * time.Microsecond)
		var outcomes atomic.Int32
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				spin(time.Duration(i%90) * time.Microsecond)
				if timer.Stop() {
					outcomes.Add(1)
				}
			})
		}
		all.Go(func() {
			spin(time.Duration(i%110) * time.Microsecond)
			select {
			case <-timer.C:
				outcomes.Add(1)
			default:
			}
		})
		all.Wait()
		require.EqualValues(t, 1, outcomes.Load())
		require.Empty(t, timer.C)
	}
}

func TestChanTimerExtendsWithoutALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		timer := tw.NewTimer(time.Second)
		s := timer.channel.timer.shard
		s.mu.Lock()
		require.True(t, timer.Reset(time.Minute))
		s.mu.Unlock()
		start := time.Now()
		require.Equal(t, time.Minute, (<-timer.C).Sub(start))
	})
}

// The driver has looked at a timer when Reset moves it to later: it is not sent. This takes a Reset
// that read the clock before the deadline, which is too rare to happen by chance.
func TestChanTimerExtendedAsItIsSent(t *testing.T) {
	tw := New()
	defer tw.Stop()
	timer := tw.NewTimer(time.Minute)
	c := &timer.channel
	s := c.timer.shard
	s.mu.Lock()
	word := c.timer.word.Load()
	require.True(t, timer.Reset(time.Hour))
	s.sendLocked(&c.timer, word, 0)
	s.mu.Unlock()
	require.Empty(t, timer.C)
	require.True(t, timer.Stop())
}

func TestTicker(t *testing.T) {
	for _, x := range executors {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(x.opts()...)
				start := time.Now()
				ticker := tw.NewTicker(1500 * time.Microsecond)
				for i := 1; i <= 10_000; i++ {
					deadline := time.Duration(i) * 1500 * time.Microsecond
					onTick := (deadline + time.Millisecond - 1).Truncate(time.Millisecond)
					require.Equal(t, onTick, (<-ticker.C).Sub(start), "without drift")
					require.Equal(t, 1, tw.Len())
				}
				ticker.Stop()
				ticker.Stop()
				require.Zero(t, tw.Len())
				pass(t, tw, time.Hour)
				require.Empty(t, ticker.C)
			})
		})
	}
}

// The driver is always a little late. A tick that was due within the present tick of the
// wheel is not missed for that.
func TestTickerLosesNothingToALateDriver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(1))
		for i := range 200 { // filed first, so they come before the ticker
			tw.AfterFunc(time.Duration(i)*time.Millisecond,
				func() { time.Sleep(350 * time.Microsecond) })
		}
		time.Sleep(300 * time.Microsecond)
		ticker := tw.NewTicker(time.Millisecond)
		start := time.Now()
		for range 100 {
			<-ticker.C
		}
		require.Less(t, time.Since(start), 102*time.Millisecond)
		ticker.Stop()
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

// A tick whose own tick of the wheel has come is missed, and leaves one for both.
func TestTickerJoinsWhatIsDueAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(1))
		tw.AfterFunc(5*time.Millisecond, func() { time.Sleep(time.Millisecond) })
		ticker := tw.NewTicker(time.Millisecond)
		start := time.Now()
		for i := range 10 {
			at := time.Duration(i + 1)
			if at >= 5 {
				at++ // at 5 the driver is held up until 6, which is missed
			}
			require.Equal(t, at*time.Millisecond, (<-ticker.C).Sub(start))
		}
		require.EqualValues(t, 11, tw.Stats().Fired)
		ticker.Stop()
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

func TestTickerBelowTheTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithTick(10 * time.Millisecond))
		start := time.Now()
		ticker := tw.NewTicker(time.Microsecond)
		for i := 1; i <= 100; i++ {
			require.Equal(t, time.Duration(i)*10*time.Millisecond, (<-ticker.C).Sub(start))
		}
		ticker.Stop()
		verify(t, tw)
	})
}

// A slow receiver finds one value, the oldest, and the next in the old rhythm.
func TestTickerLeavesOutWhatNobodyReceives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		start := time.Now()
		ticker := tw.NewTicker(time.Second)
		time.Sleep(10*time.Second + time.Millisecond)
		require.Equal(t, time.Second, (<-ticker.C).Sub(start))
		require.Equal(t, 11*time.Second, (<-ticker.C).Sub(start))
		ticker.Stop()
	})
}

// After a suspend one tick makes up for all, and the rhythm is the old one.
func TestTickerAfterASuspend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		start := time.Now()
		ticker := tw.NewTicker(time.Second)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		tw.suspend(time.Hour + 200*time.Millisecond)
		// It is found when the alarm rings for the coarse bucket. What is left of the
		// 200 ms and the sleep is 800 ms after the start, by the clock that did not jump.
		require.Less(t, (<-ticker.C).Sub(start), 800*time.Millisecond)
		require.Equal(t, 800*time.Millisecond, (<-ticker.C).Sub(start))
		require.Equal(t, int64(2), tw.Stats().Fired)
		ticker.Stop()
		verify(t, tw)
	})
}

func TestTickerReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		ticker := tw.NewTicker(time.Second)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		start := time.Now()
		ticker.Reset(time.Minute)
		require.Empty(t, ticker.C, "nothing stale")
		require.Equal(t, time.Minute, (<-ticker.C).Sub(start))
		require.Equal(t, 2*time.Minute, (<-ticker.C).Sub(start))

		time.Sleep(time.Minute)
		synctest.Wait()
		ticker.Stop()
		require.Empty(t, ticker.C, "nothing stale")
		pass(t, tw, time.Hour)
		require.Empty(t, ticker.C)

		start = time.Now()
		ticker.Reset(3 * time.Second)
		require.Equal(t, 3*time.Second, (<-ticker.C).Sub(start))
		require.Equal(t, 6*time.Second, (<-ticker.C).Sub(start))
		ticker.Stop()
		require.Zero(t, tw.Len())
	})
}

func TestTickerHammer(t *testing.T) {
	tw := New(WithTick(50 * time.Microsecond))
	ticker := tw.NewTicker(100 * time.Microsecond)
	var all sync.WaitGroup
	for worker := range uint64(3) {
		all.Go(func() {
			rnd := newRand(worker)
			for range 3000 {
				switch rnd.IntN(3) {
				case 0:
					ticker.Stop()
				case 1:
					ticker.Reset(time.Duration(1+rnd.IntN(200)) * time.Microsecond)
				default:
					select {
					case <-ticker.C:
					default:
					}
				}
			}
		})
	}
	all.Wait()
	// Alone again, its promises are exact.
	ticker.Stop()
	require.Empty(t, ticker.C)
	armed := time.Now()
	ticker.Reset(time.Millisecond)
	require.False(t, (<-ticker.C).Before(armed.Add(time.Millisecond)))
	ticker.Stop()
	require.Zero(t, tw.Len())
	require.NoError(t, tw.Shutdown(t.Context()))
	require.NoError(t, tw.verify(true))
}

func TestTickerResetByTwo(t *testing.T) {
	tw := New()
	defer tw.Stop()
	ticker := tw.NewTicker(time.Hour)
	c := &ticker.channel
	for range 20_000 {
		var all sync.WaitGroup
		all.Go(func() { ticker.Reset(time.Minute) })
		all.Go(func() { ticker.Reset(time.Hour) })
		all.Wait()
		left := deadlineOf(c.timer.word.Load()) - tw.now()
		require.Equal(t, c.period == time.Hour, left > int64(time.Minute),
			"period and next tick of two different calls")
	}
	ticker.Stop()
}

// stops are the ways to end a wheel.
var stops = map[string]func(t *testing.T, tw *TimingWheel){
	"Stop":  func(_ *testing.T, tw *TimingWheel) { tw.Stop() },
	"Drain": func(_ *testing.T, tw *TimingWheel) { tw.Drain() },
	"Shutdown": func(t *testing.T, tw *TimingWheel) {
		require.NoError(t, tw.Shutdown(t.Context()))
	},
}

// A goroutine that waits on a channel gets its value at its time, whether the channel was
// made before the end of the wheel or after.
func TestChannelsOutliveTheWheel(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				start := time.Now()
				after, timer := tw.After(time.Minute), tw.NewTimer(time.Hour)
				ticker := tw.NewTicker(time.Second)
				extended, forever := tw.NewTimer(time.Minute), tw.NewTimer(math.MaxInt64)
				require.True(t, extended.Reset(2*time.Minute)) // without the lock
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
				require.Equal(t, time.Second, received(start, ticker.C))
				stop(t, tw)
				verify(t, tw)
				require.Equal(t, int64(5), tw.Stats().Dropped)
				late, lateTicker := tw.After(time.Minute), tw.NewTicker(10*time.Second)
				for i := 2; i <= 60; i++ {
					require.Equal(t, time.Duration(i)*time.Second, (<-ticker.C).Sub(start),
						"the old rhythm")
				}
				ticker.Stop()
				require.Equal(t, time.Minute, (<-after).Sub(start))
				require.Equal(t, 61500*time.Millisecond, (<-late).Sub(start))
				require.Equal(t, 2*time.Minute, (<-extended.C).Sub(start))
				require.Equal(t, time.Hour, (<-timer.C).Sub(start))

				// A slow receiver finds one value, the oldest, and the next in the rhythm.
				require.Equal(t, 11500*time.Millisecond, (<-lateTicker.C).Sub(start))
				require.Equal(t, time.Hour+1500*time.Millisecond, (<-lateTicker.C).Sub(start))
				lateTicker.Reset(time.Minute)
				require.Equal(t, time.Hour+61500*time.Millisecond, (<-lateTicker.C).Sub(start))
				lateTicker.Stop()
				time.Sleep(150 * 365 * 24 * time.Hour) // more than a deadline holds
				for _, c := range []<-chan time.Time{after, late, timer.C, extended.C, forever.C,
					ticker.C, lateTicker.C} {
					require.Empty(t, c)
				}
				require.True(t, forever.Stop())
				require.Zero(t, tw.Len())
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

// A Ticker that package time has taken over does not keep the processor busy either.
func TestTickerBelowTheTickOutlivesTheWheel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithTick(10 * time.Millisecond))
		start := time.Now()
		ticker := tw.NewTicker(time.Microsecond)
		tw.Stop()
		for i := 1; i <= 100; i++ {
			require.Equal(t, time.Duration(i)*10*time.Millisecond, (<-ticker.C).Sub(start))
		}
		ticker.Stop()
	})
}

// TestTickerBelowTheTickSentLate: package time is late as well, so a relay may send in the middle
// of a tick. What comes due in the rest of it waits for the next.
func TestTickerBelowTheTickSentLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithTick(10 * time.Millisecond))
		tk := tw.NewTicker(time.Millisecond)
		defer tk.Stop()
		unfired := tw.Drain()
		time.Sleep(8 * time.Millisecond)
		unfired[0].F()
		<-tk.C
		synctest.Wait()
		require.Empty(t, tk.C, "sent twice in a tick")
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, 10*time.Millisecond, (<-tk.C).Sub(tw.start))
	})
}

// On a stopped wheel every duration works as well.
func TestStoppedChannelsAtExtremes(t *testing.T) {
	for _, tick := range []time.Duration{1, time.Millisecond, time.Hour, 1<<62 - 1, math.MaxInt64} {
		for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Hour, 1<<62 - 1, 1 << 62,
			math.MaxInt64} {
			bubble(t, func(t *testing.T) {
				tw := New(WithTick(tick))
				time.Sleep(time.Second)
				before := tw.NewTimer(d)
				if d <= 0 {
					synctest.Wait()
				}
				tw.Stop()
				after := tw.NewTimer(d)
				synctest.Wait()
				for _, timer := range []*ChanTimer{before, after} {
					require.Equal(t, d <= 0, len(timer.C) == 1, "%v %v", tick, d)
					require.True(t, timer.Stop())
					require.Empty(t, timer.C)
				}
				if d == time.Hour && tick <= time.Hour {
					start := time.Now()
					after.Reset(d)
					require.GreaterOrEqual(t, (<-after.C).Sub(start), d)
					require.Less(t, time.Since(start), d+tick)
				}
			})
		}
	}
}

// Drain hands channels back too: F sends at once what would come at the deadline. Only the first of
// the two has an effect.
func TestDrainHandsChannelsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		start := time.Now()
		timer, other := tw.NewTimer(time.Minute), tw.NewTimer(time.Hour)
		ticker := tw.NewTicker(time.Second)
		unfired := tw.Drain()
		require.Len(t, unfired, 3)
		for i, deadline := range []time.Duration{time.Second, time.Minute, time.Hour} {
			require.Equal(t, deadline, unfired[i].Deadline.Sub(start))
			require.False(t, unfired[i].Timer.Stop(), "inert")
			require.False(t, unfired[i].Timer.Reset(0), "inert")
		}
		time.Sleep(500 * time.Millisecond)
		for range 2 { // the second call does nothing
			for _, u := range unfired {
				u.F()
			}
		}
		for _, c := range []<-chan time.Time{timer.C, other.C, ticker.C} {
			require.Equal(t, 500*time.Millisecond, received(start, c))
		}
		require.Equal(t, 2*time.Second, (<-ticker.C).Sub(start),
			"the first tick has been sent; the rhythm goes on")
		unfired[0].F()
		require.Empty(t, ticker.C, "its tick has come by itself")
		require.False(t, timer.Reset(time.Hour))
		unfired[1].F()
		require.Empty(t, timer.C, "this is another arming")
		require.True(t, timer.Stop())
		ticker.Stop()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Empty(t, ticker.C)
		require.Empty(t, timer.C)
		require.Empty(t, other.C)
	})
}

// What Drain hands back may go on in another wheel; what is stopped there is sent once.
func TestDrainedChannelInAnotherWheel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw, other := New(), New()
		timers := make([]*ChanTimer, 3)
		for i := range timers {
			timers[i] = tw.NewTimer(time.Duration(i+1) * time.Second)
		}
		for _, u := range tw.Drain() {
			other.AfterFunc(time.Until(u.Deadline), u.F)
		}
		require.True(t, timers[0].Stop())
		require.True(t, timers[1].Reset(time.Minute))
		start := time.Now()
		require.Equal(t, 3*time.Second, (<-timers[2].C).Sub(start))
		require.Empty(t, timers[0].C)
		require.Equal(t, time.Minute, (<-timers[1].C).Sub(start))
		time.Sleep(time.Hour)
		for _, timer := range timers {
			require.Empty(t, timer.C)
		}
	})
}

// The wheel is stopped while timers are reset, stopped and received from: what is received is never
// stale or early, and every receiver gets its value.
func TestChannelsWhileTheWheelStops(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 100
	}
	for round := range rounds {
		tw := New(WithTick(20*time.Microsecond), withShards(2))
		var all sync.WaitGroup
		for worker := range uint64(3) {
			all.Go(func() {
				rnd := newRand(uint64(round)<<8 | worker)
				timer := tw.NewTimer(0)
				open := true // an arming without an outcome
				for range 40 {
					armed := time.Now()
					d := time.Duration(rnd.IntN(100)) * time.Microsecond
					if rnd.IntN(3) == 0 {
						require.Equal(t, open, timer.Reset(time.Hour))
						open = true
					}
					require.Equal(t, open, timer.Reset(d))
					open = true
					switch rnd.IntN(3) {
					case 0:
						require.False(t, (<-timer.C).Before(armed.Add(d)), "stale or early")
						open = false
					case 1:
						require.True(t, timer.Stop())
						open = false
						require.Empty(t, timer.C)
					}
				}
				timer.Stop()
				require.Empty(t, timer.C)
			})
		}
		ticker := tw.NewTicker(50 * time.Microsecond)
		spin(time.Duration(round%30) * 10 * time.Microsecond)
		all.Go(func() { tw.Drain() })
		tw.Stop()
		for range 5 {
			<-ticker.C
		}
		ticker.Stop()
		require.Empty(t, ticker.C)
		all.Wait()
		require.Zero(t, tw.Len())
		require.NoError(t, tw.Shutdown(t.Context()))
	}
}

// TestResetMeetsTheWheelsStop: the wheel has been stopped and its sweep has not come yet.
// The last Reset decides, not the arming that the sweep would find.
func TestResetMeetsTheWheelsStop(t *testing.T) {
	for _, d := range []time.Duration{0, time.Second, 2 * time.Hour} {
		bubble(t, func(t *testing.T) {
			tw := New()
			start := time.Now()
			timer, ticker := tw.NewTimer(time.Hour), tw.NewTicker(time.Hour)
			tw.stopped.Store(true) // as far as halt gets before it sweeps
			require.True(t, timer.Reset(d))
			ticker.Reset(time.Minute)
			fresh := tw.NewTimer(d)
			tw.Stop()
			verify(t, tw)
			require.Equal(t, d, (<-timer.C).Sub(start))
			require.Equal(t, d, (<-fresh.C).Sub(start))
			if d == 0 {
				require.Equal(t, time.Minute, (<-ticker.C).Sub(start))
			}
			ticker.Stop()
			time.Sleep(10 * time.Hour)
			require.Empty(t, timer.C)
			require.Empty(t, ticker.C)
		})
	}
}

func TestChannelsWaitForStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		ch, ticker := tw.After(time.Second), tw.NewTicker(time.Second)
		time.Sleep(3500 * time.Millisecond)
		start := time.Now()
		tw.Start()
		require.Zero(t, (<-ch).Sub(start))
		require.Zero(t, (<-ticker.C).Sub(start))
		require.Equal(t, 500*time.Millisecond, (<-ticker.C).Sub(start),
			"the rhythm counts from the call")
		ticker.Stop()
	})
}

// A timer that has fired or was stopped is collected with its channel.
func TestChanTimerIsCollected(t *testing.T) {
	running, stopped := New(), New()
	defer running.Stop()
	stopped.Stop()
	var collected atomic.Int32
	for i := range 10 {
		func() {
			tw := running
			if i >= 5 {
				tw = stopped // package time keeps no relay that has ended either
			}
			timer := tw.NewTimer(time.Hour)
			runtime.SetFinalizer(timer, func(*ChanTimer) { collected.Add(1) })
			if i%2 == 0 {
				timer.Stop()
				return
			}
			timer.Reset(0)
			<-timer.C
		}()
	}
	require.Eventually(t, func() bool { runtime.GC(); return collected.Load() == 10 },
		30*time.Second, time.Millisecond)
}

// Every duration on every tick: never early, and nothing overflows.
func TestChannelsAndContextsAtExtremes(t *testing.T) {
	for _, tick := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Hour,
		1<<62 - 1, math.MaxInt64} {
		for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Hour,
			100 * 365 * 24 * time.Hour, 1<<62 - 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64} {
			t.Run(tick.String()+" "+d.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(WithTick(tick))
					defer tw.Stop()
					start := time.Now()
					ctx, cancel := tw.WithTimeout(context.Background(), d)
					std, cancelStd := context.WithTimeout(context.Background(), d)
					defer cancel()
					defer cancelStd()
					a, _ := ctx.Deadline()
					b, _ := std.Deadline()
					require.True(t, a.Equal(b))
					ch, timer := tw.After(d), tw.NewTimer(d)
					timer.Reset(d)
					var tk *Ticker
					if d > 0 {
						tk = tw.NewTicker(d)
						tk.Reset(d)
						defer tk.Stop()
					}
					synctest.Wait()
					if d > 0 {
						require.Empty(t, ch)
						requireAlive(t, ctx)
						if d == 1 {
							time.Sleep(2 * time.Nanosecond)
						} else {
							time.Sleep(d - 1) // not always reachable
							synctest.Wait()
							require.Empty(t, ch)
							require.Empty(t, timer.C)
							require.Empty(t, tk.C)
							requireAlive(t, ctx)
							if d < 1<<61 && tick <= time.Hour {
								time.Sleep(tick + 1)
								synctest.Wait()
								require.NotEmpty(t, ch)
								require.NotEmpty(t, tk.C)
								require.False(t, (<-timer.C).Before(start.Add(d)))
								requireEnded(t, ctx, context.DeadlineExceeded,
									context.DeadlineExceeded)
							}
						}
					} else {
						require.NotEmpty(t, ch)
						require.NotEmpty(t, timer.C)
						requireEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
					}
				})
			})
		}
	}
}

// Tickers that are always due do not keep other timers from their turn.
func TestTickerAlwaysDue(t *testing.T) {
	for _, opt := range []Option{WithTick(1), WithTick(time.Microsecond)} {
		tw := New(opt)
		tickers := make([]*Ticker, 500)
		for i := range tickers {
			tickers[i] = tw.NewTicker(1)
		}
		fired := make(chan struct{})
		tw.AfterFunc(time.Millisecond, func() { close(fired) })
		ctx, cancel := tw.WithTimeout(context.Background(), time.Millisecond)
		<-fired
		<-ctx.Done()
		cancel()
		for _, tk := range tickers {
			<-tk.C
			tk.Stop()
			require.Empty(t, tk.C)
		}
		require.Zero(t, tw.Len())
		tickers[0].Reset(1)
		require.NoError(t, tw.Shutdown(t.Context()))
		tickers[0].Stop()
		require.Empty(t, tickers[0].C)
	}
}

// Drain comes while timers fire and are reset: each is sent or handed back.
func TestDrainWhileChannelsFire(t *testing.T) {
	for range 100 {
		tw := New(WithTick(20 * time.Microsecond))
		var timers []*ChanTimer
		for i := range 200 {
			timers = append(timers, tw.NewTimer(time.Duration(i)*5*time.Microsecond))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, x := range timers[:50] {
				x.Reset(time.Millisecond)
			}
		})
		spin(300 * time.Microsecond)
		unfired := tw.Drain()
		wg.Wait()
		for _, x := range timers {
			require.True(t, x.Stop(), "handed back, or sent")
			require.Empty(t, x.C)
		}
		for _, u := range unfired {
			u.F()
		}
		for _, x := range timers {
			require.Empty(t, x.C, "it was stopped")
		}
		s := tw.Stats()
		require.Zero(t, s.Pending)
		// A Reset that comes before the sweep arms anew, and nothing is left to hand back.
		require.GreaterOrEqual(t, s.Dropped, int64(len(unfired)))
		require.LessOrEqual(t, s.Dropped, int64(len(unfired))+50)
		require.NoError(t, tw.Shutdown(t.Context()))
	}
}

func TestChannelMisuse(t *testing.T) {
	tw := New()
	defer tw.Stop()
	require.PanicsWithValue(t, "timingwheel: Stop of a Timer that was never initialised",
		func() { new(ChanTimer).Stop() })
	require.PanicsWithValue(t, "timingwheel: Reset of a Timer that was never initialised",
		func() { new(ChanTimer).Reset(1) })
	require.PanicsWithValue(t, "timingwheel: Stop of a Timer that was never initialised",
		func() { new(Ticker).Stop() })
	require.PanicsWithValue(t, "timingwheel: Reset of a Timer that was never initialised",
		func() { new(Ticker).Reset(1) })
	require.PanicsWithValue(t, "timingwheel: After on a nil TimingWheel",
		func() { (*TimingWheel)(nil).After(1) })
	require.PanicsWithValue(t, "timingwheel: NewTimer on a TimingWheel that New did not make",
		func() { new(TimingWheel).NewTimer(1) })
}
