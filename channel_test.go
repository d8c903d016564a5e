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

// received is what can be received without waiting, as the time since start; -1 if
// nothing can.
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
		"After":    (*TimingWheel).After,
		"NewTimer": func(tw *TimingWheel, d time.Duration) <-chan time.Time { return tw.NewTimer(d).C },
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
		{"fired, not received", func(*TimingWheel, *ChanTimer) { time.Sleep(time.Second); synctest.Wait() }, true},
		{"received", func(_ *TimingWheel, timer *ChanTimer) { <-timer.C }, false},
		{"stopped", func(_ *TimingWheel, timer *ChanTimer) { timer.Stop() }, false},
		{"reset to sooner", func(_ *TimingWheel, timer *ChanTimer) { timer.Reset(time.Millisecond) }, true},
		{"reset to later", func(_ *TimingWheel, timer *ChanTimer) { timer.Reset(time.Hour) }, true},
		{"fired again", func(_ *TimingWheel, timer *ChanTimer) { <-timer.C; timer.Reset(0); synctest.Wait() }, true},
		{"the wheel stopped", func(tw *TimingWheel, _ *ChanTimer) { tw.Stop() }, false},
		{"fired, the wheel stopped", func(tw *TimingWheel, _ *ChanTimer) { time.Sleep(time.Second); synctest.Wait(); tw.Stop() }, true},
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
					dead := tw.stopped.Load()
					start := time.Now()
					require.Equal(t, s.prevented, timer.Reset(d))
					require.Empty(t, timer.C, "nothing stale")
					pass(t, tw, 2*time.Hour)
					if dead {
						require.Empty(t, timer.C)
						return
					}
					require.Equal(t, d, received(start, timer.C))
					require.False(t, timer.Reset(d), "fired and received")
				})
			})
		}
	}
}

// The driver is in the middle of claiming and sending when Stop and Reset come: a timer
// that nobody received from is prevented by either, nothing stale is left in its
// channel, and what Reset has moved to later is not sent before.
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

// Stop by many at once: one of them prevents, or somebody receives.
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

// The driver has looked at a timer when Reset moves it to later: it is not sent. Which
// takes a Reset that read the clock before the deadline, and is too rare to be met by
// chance.
func TestChanTimerExtendedAsItIsSent(t *testing.T) {
	tw := New()
	defer tw.Stop()
	timer := tw.NewTimer(time.Minute)
	c := &timer.channel
	s := c.timer.shard
	s.mu.Lock()
	word := c.timer.word.Load()
	require.True(t, timer.Reset(time.Hour))
	s.sendLocked(c, word)
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
			tw.AfterFunc(time.Duration(i)*time.Millisecond, func() { time.Sleep(350 * time.Microsecond) })
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
		require.Equal(t, c.period == time.Hour, left > int64(time.Minute), "period and next tick of two different calls")
	}
	ticker.Stop()
}

// Who drains a wheel gets what would have been sent.
func TestDrainHandsChannelsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		start := time.Now()
		timer, ticker := tw.NewTimer(time.Minute), tw.NewTicker(time.Second)
		unfired := tw.Drain()
		require.Len(t, unfired, 2)
		require.Equal(t, time.Second, unfired[0].Deadline.Sub(start))
		require.Equal(t, time.Minute, unfired[1].Deadline.Sub(start))
		time.Sleep(time.Hour)
		require.Empty(t, ticker.C)
		unfired[0].F()
		unfired[1].F()
		unfired[1].F()
		require.Equal(t, time.Hour, received(start, ticker.C))
		require.Equal(t, time.Hour, received(start, timer.C))
		require.Empty(t, timer.C)
		ticker.Reset(time.Second)
		require.False(t, timer.Reset(time.Second))
		time.Sleep(time.Hour)
		require.Empty(t, ticker.C)
		require.Empty(t, timer.C)
	})
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
		require.Equal(t, 500*time.Millisecond, (<-ticker.C).Sub(start), "the rhythm counts from the call")
		ticker.Stop()
	})
}

// A timer that has fired or was stopped is collected with its channel.
func TestChanTimerIsCollected(t *testing.T) {
	tw := New()
	defer tw.Stop()
	var collected atomic.Int32
	for i := range 10 {
		func() {
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
	require.Eventually(t, func() bool { runtime.GC(); return collected.Load() == 10 }, 30*time.Second, time.Millisecond)
}

// Every duration on every tick: never early, and nothing overflows.
func TestChannelsAndContextsAtExtremes(t *testing.T) {
	for _, tick := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Hour, 1<<62 - 1, math.MaxInt64} {
		for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Hour, 100 * 365 * 24 * time.Hour, 1<<62 - 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64} {
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
								requireEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
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

// Tickers that are always due keep nobody from his turn.
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
		back := map[*Timer]bool{}
		for _, u := range unfired {
			back[u.Timer] = true
		}
		for i, x := range timers {
			got := x.Stop()
			if i >= 50 {
				require.NotEqual(t, back[&x.channel.timer], got, "handed back, or sent")
			}
			require.Empty(t, x.C)
		}
		s := tw.Stats()
		require.Zero(t, s.Pending)
		require.EqualValues(t, len(unfired), s.Dropped)
		require.NoError(t, tw.Shutdown(t.Context()))
	}
}

func TestChannelMisuse(t *testing.T) {
	tw := New()
	defer tw.Stop()
	ticker := tw.NewTicker(time.Hour)
	require.PanicsWithValue(t, "timingwheel: NewTicker of a Ticker with the non-positive interval 0s", func() { tw.NewTicker(0) })
	require.PanicsWithValue(t, "timingwheel: Reset of a Ticker with the non-positive interval -1ns", func() { ticker.Reset(-1) })
	require.PanicsWithValue(t, "timingwheel: Stop of a Timer that was never initialised", func() { new(ChanTimer).Stop() })
	require.PanicsWithValue(t, "timingwheel: Reset of a Timer that was never initialised", func() { new(ChanTimer).Reset(1) })
	require.PanicsWithValue(t, "timingwheel: Stop of a Timer that was never initialised", func() { new(Ticker).Stop() })
	require.PanicsWithValue(t, "timingwheel: Reset of a Timer that was never initialised", func() { new(Ticker).Reset(1) })
	require.PanicsWithValue(t, "timingwheel: After on a nil TimingWheel", func() { (*TimingWheel)(nil).After(1) })
	require.PanicsWithValue(t, "timingwheel: NewTimer on a TimingWheel that New did not make", func() { new(TimingWheel).NewTimer(1) })
	ticker.Stop()
}
