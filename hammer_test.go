package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// outcomes counts what became of the armings of one timer.
type outcomes struct {
	armed, fired, stopped, rearmed atomic.Int64
}

func (o *outcomes) reset(wasPending bool) {
	o.armed.Add(1)
	if wasPending {
		o.rearmed.Add(1)
	}
}

func (o *outcomes) stop(wasPending bool) {
	if wasPending {
		o.stopped.Add(1)
	}
}

// pick returns a delay that keeps the timer near the clock, moves it between
// levels, or touches it as an idle timeout is touched.
func pickDelay() time.Duration {
	switch rand.IntN(8) {
	case 0:
		return 0
	case 1, 2:
		return time.Duration(rand.Int64N(int64(time.Millisecond)))
	case 3, 4, 5:
		return time.Duration(rand.Int64N(int64(20 * time.Millisecond)))
	case 6:
		return time.Hour
	}
	return -1
}

// TestHammer has many goroutines stop and reset the same timers while the clock
// runs, through all levels of a small wheel, and holds each timer's armings
// against its outcomes.
func TestHammer(t *testing.T) {
	const timers, callers = 64, 8
	length := 400 * time.Millisecond
	if testing.Short() {
		length = 100 * time.Millisecond
	}
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			tw := New(append(ex.opts(), WithTick(100*time.Microsecond), WithWheelSize(3))...)
			var xs [timers]struct {
				Timer
				outcomes
			}
			for i := range xs {
				tw.Init(&xs[i].Timer, func() { xs[i].fired.Add(1) })
			}
			var wg sync.WaitGroup
			end := time.Now().Add(length)
			for range callers {
				wg.Go(func() {
					for n := 0; ; n++ {
						if n%64 == 0 && time.Now().After(end) {
							return
						}
						x := &xs[rand.IntN(timers)]
						switch rand.IntN(4) {
						case 0:
							x.stop(x.Stop())
						case 1:
							x.reset(x.ResetAt(time.Now().Add(pickDelay())))
						default:
							x.reset(x.Reset(pickDelay()))
						}
					}
				})
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				for time.Now().Before(end) {
					if err := tw.verify(false); err != nil {
						t.Error(err)
						return
					}
					tw.Len()
					tw.Stats()
				}
			}()
			wg.Wait()
			for i := range xs {
				xs[i].stop(xs[i].Stop())
			}
			require.Zero(t, tw.Len())
			require.NoError(t, tw.Shutdown(t.Context()))
			var total int64
			for i := range xs {
				x := &xs[i]
				total += x.armed.Load()
				require.Equal(t, x.armed.Load(), x.fired.Load()+x.stopped.Load()+x.rearmed.Load(),
					"timer %d", i)
			}
			s := tw.Stats()
			require.Equal(t, s.Started, s.Fired+s.Stopped)
			t.Logf("%d armings, %+v", total, s)
		})
	}
}

// TestAddsRaceTheWheelsStop: what a wheel accepted it ran, or dropped or handed
// back; nothing is lost on the way, and nothing runs that was not accepted.
func TestAddsRaceTheWheelsStop(t *testing.T) {
	adds := 1_000_000
	if testing.Short() {
		adds = 50_000
	}
	for _, how := range []string{"Stop", "Drain", "Shutdown"} {
		for _, ex := range executors[:2] {
			t.Run(how+"/"+ex.name, func(t *testing.T) {
				tw := New(ex.opts()...)
				var ran, stopped atomic.Int64
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						for i := range adds / 4 {
							x := tw.AfterFunc(time.Duration(i%3000)*time.Microsecond,
								func() { ran.Add(1) })
							if i%16 == 0 && x.Stop() {
								stopped.Add(1)
							}
						}
					})
				}
				for tw.Stats().Started < int64(adds/4) {
					time.Sleep(time.Millisecond)
				}
				handedBack := 0
				switch how {
				case "Stop":
					tw.Stop()
				case "Drain":
					handedBack = len(tw.Drain())
				case "Shutdown":
					require.NoError(t, tw.Shutdown(context.Background()))
				}
				claimed := tw.Stats().Fired
				wg.Wait()
				require.NoError(t, tw.Shutdown(context.Background()))
				s := tw.Stats()
				require.Equal(t, claimed, s.Fired, "nothing is claimed after %s returned", how)
				require.Equal(t, s.Fired, ran.Load())
				require.Equal(t, s.Stopped, stopped.Load())
				require.Equal(t, s.Started, s.Fired+s.Stopped+s.Dropped)
				if how == "Drain" {
					require.Equal(t, s.Dropped, int64(handedBack))
				}
				require.Zero(t, s.Pending)
				require.NoError(t, tw.verify(true))
			})
		}
	}
}

// TestSchedulesUnderFire stops, moves and drops schedules while their runs come
// every tick.
func TestSchedulesUnderFire(t *testing.T) {
	length := 300 * time.Millisecond
	if testing.Short() {
		length = 100 * time.Millisecond
	}
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			tw := New(append(ex.opts(), WithTick(100*time.Microsecond), WithWheelSize(3))...)
			end := time.Now().Add(length)
			var wg sync.WaitGroup
			var running atomic.Int64
			for i := range 8 {
				wg.Go(func() {
					for time.Now().Before(end) {
						var s Scheduler = Every(50 * time.Microsecond)
						if i%2 == 0 {
							s = everyWall(70 * time.Microsecond)
						}
						var dead atomic.Bool
						x := tw.ScheduleFunc(s, func() {
							running.Add(1)
							if dead.Load() && ex.name == "inline" {
								t.Error("a run began after Stop")
							}
							running.Add(-1)
						}, []ScheduleOption{SkipWhileRunning(), QueueWhileRunning(), RunMissed(),
							SkipMissed(0)}[i%4])
						for range rand.IntN(20) {
							time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
							x.Reset(pickDelay())
						}
						if !x.Stop() {
							t.Error("a live schedule was not there to be stopped")
						}
						dead.Store(ex.name != "inline")
					}
				})
			}
			wg.Wait()
			require.Zero(t, tw.Len())
			require.NoError(t, tw.verify(true))
			require.NoError(t, tw.Shutdown(t.Context()))
			require.Zero(t, running.Load())
		})
	}
}

// TestNeverEarly holds callbacks on the real clock against the instant read before the call that
// armed them: exactly on the early side, and not on the late side, which depends on the machine.
func TestNeverEarly(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2000
	}
	for _, tick := range []time.Duration{7 * time.Microsecond, 100 * time.Microsecond,
		time.Millisecond, 3 * time.Millisecond} {
		for _, size := range []int{2, 64} {
			t.Run(fmt.Sprintf("tick=%v/size=%d", tick, size), func(t *testing.T) {
				tw := New(WithTick(tick), WithWheelSize(size))
				var wg sync.WaitGroup
				for i := range n {
					wg.Add(1)
					d := time.Duration(rand.Int64N(int64(50 * time.Millisecond)))
					var called time.Time
					f := func() {
						if late := time.Since(called) - d; late < 0 {
							t.Errorf("%v after %v: early by %v", time.Since(called), d, -late)
						}
						wg.Done()
					}
					switch i % 3 {
					case 0:
						called = time.Now()
						tw.AfterFunc(d, f)
					case 1:
						called = time.Now()
						tw.AtFunc(called.Add(d), f)
					case 2:
						x := tw.AfterFunc(time.Hour, f)
						called = time.Now()
						x.Reset(d)
					}
				}
				wg.Wait()
				require.NoError(t, tw.Shutdown(t.Context()))
				require.Zero(t, tw.Len())
			})
		}
	}
}

// TestShortTimerBesideManyFar: one timer re-armed all the time beside a hundred
// thousand far ones; the driver's work is the short one's alone.
func TestShortTimerBesideManyFar(t *testing.T) {
	tw := New(WithInline())
	for i := range 100_000 {
		tw.AfterFunc(time.Hour+time.Duration(i)*time.Millisecond, func() {})
	}
	done := make(chan struct{})
	runs := 0
	var x Timer
	tw.Init(&x, func() {
		if runs++; runs == 50 {
			close(done)
			return
		}
		x.Reset(time.Millisecond)
	})
	x.Reset(time.Millisecond)
	<-done
	s := tw.Stats()
	require.Zero(t, s.Reinserted)
	require.Equal(t, 1, s.LongestHold)
	require.NoError(t, tw.Shutdown(t.Context()))
}

// TestMillionInOneTick: callers come through while a million timers of one tick
// drain, and each of the million has its one outcome.
func TestMillionInOneTick(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	for _, ex := range executors[:2] {
		t.Run(ex.name, func(t *testing.T) {
			tw := New(ex.opts()...)
			var ran atomic.Int64
			at := time.Now().Add(2 * time.Second)
			f := func() { ran.Add(1) }
			for range n {
				tw.AtFunc(at, f)
			}
			time.Sleep(time.Until(at))
			calls := 0
			for tw.Stats().Fired < int64(n) {
				x := tw.AfterFunc(time.Hour, f)
				x.Reset(2 * time.Hour)
				if !x.Stop() {
					t.Fatal("stopped twice")
				}
				calls++
			}
			require.NoError(t, tw.Shutdown(t.Context()))
			s := tw.Stats()
			require.Equal(t, int64(n), ran.Load())
			require.LessOrEqual(t, s.LongestHold, holdLimit)
			t.Logf("%d rounds of calls meanwhile", calls)
		})
	}
}

// TestTouchesRaceTheDriver extends a timer at the very instant at which it is about to fire, beside
// a driver that never sleeps. If a touch returned true, the timer stays pending until the new
// deadline.
func TestTouchesRaceTheDriver(t *testing.T) {
	length := 500 * time.Millisecond
	if testing.Short() {
		length = 200 * time.Millisecond
	}
	const tick = 10 * time.Microsecond
	tw := New(WithInline(), WithTick(tick), WithWheelSize(16))
	var busy, x Timer
	tw.Init(&busy, func() {
		if !tw.stopped.Load() {
			busy.Reset(0)
		}
	})
	busy.Reset(0)
	tw.Init(&x, func() {})
	granted, lost := 0, 0
	deadline := int64(0)
	for end := tw.now() + int64(length); tw.now() < end; {
		if !x.Pending() {
			deadline = (tw.now()/int64(tick) + 2) * int64(tick)
			x.ResetAt(tw.instant(deadline))
		}
		for about := deadline + rand.Int64N(1000) - 500; tw.now() < about; {
		}
		later := deadline + 2*int64(tick)
		if !x.ResetAt(tw.instant(later)) {
			lost++ // and armed again
		} else if granted++; !x.Pending() {
			if now := tw.now(); now < later {
				t.Fatalf("fired %v before the deadline that the touch was granted",
					time.Duration(later-now))
			}
		}
		deadline = later
	}
	require.NoError(t, tw.Shutdown(t.Context()))
	t.Logf("%d touches granted, %d lost", granted, lost)
}

// TestInitOnAnotherWheel: a timer that has fired on one wheel goes to another the
// moment it says that it is not pending.
func TestInitOnAnotherWheel(t *testing.T) {
	wheels := []*TimingWheel{New(), New()}
	var x Timer
	var fired atomic.Int64
	for i := range 1000 {
		wheels[i%2].Init(&x, func() { fired.Add(1) })
		x.Reset(50 * time.Microsecond)
		for x.Pending() {
		}
	}
	for _, tw := range wheels {
		require.NoError(t, tw.Shutdown(t.Context()))
		require.NoError(t, tw.verify(true))
	}
	require.Equal(t, int64(1000), fired.Load())
}
