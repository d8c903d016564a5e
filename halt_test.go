package timingwheel

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// outlivingTimer returns a Timer that is marked as those of netidle are.
func outlivingTimer(tw *TimingWheel, f func()) *Timer {
	x := new(Timer)
	tw.Init(x, f)
	inside.Hooks.Outlive(x)
	return x
}

// TestStoppedOnAStoppedWheelIsNotKept: what package time has taken over and is stopped then is
// collected at once, and not at its deadline. So a connection that is closed is not kept.
func TestStoppedOnAStoppedWheelIsNotKept(t *testing.T) {
	cleared := func(gone *atomic.Bool) { gone.Store(true) }
	makers := map[string]func(tw *TimingWheel, gone *atomic.Bool) (stop func() bool){
		"outliving": func(tw *TimingWheel, gone *atomic.Bool) func() bool {
			witness := new([64]byte)
			runtime.AddCleanup(witness, cleared, gone)
			x := outlivingTimer(tw, func() { witness[0]++ })
			x.Reset(time.Hour)
			return x.Stop
		},
		"never": func(tw *TimingWheel, gone *atomic.Bool) func() bool {
			witness := new([64]byte)
			runtime.AddCleanup(witness, cleared, gone)
			x := outlivingTimer(tw, func() { witness[0]++ })
			x.Reset(math.MaxInt64)
			return x.Pending // it need not even be stopped
		},
		"context": func(tw *TimingWheel, gone *atomic.Bool) func() bool {
			ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
			runtime.AddCleanup(ctx.(*deadlineContext), cleared, gone)
			return func() bool { cancel(); return true }
		},
		"channel": func(tw *TimingWheel, gone *atomic.Bool) func() bool {
			x := tw.NewTimer(time.Hour)
			runtime.AddCleanup(x, cleared, gone)
			return x.Stop
		},
	}
	for name, make := range makers {
		for _, before := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				tw := New()
				if !before {
					tw.Stop()
				}
				var gone atomic.Bool
				func() {
					stop := make(tw, &gone)
					tw.Stop()
					runtime.GC()
					require.False(t, gone.Load())
					require.Equal(t, name != "never", stop())
				}()
				collected := func() bool { runtime.GC(); return gone.Load() }
				require.Eventually(t, collected, 10*time.Second, time.Millisecond)
				runtime.KeepAlive(tw)
			})
		}
	}
}

// TestOutlivingHammer: also while the wheel is being stopped, and afterwards, each arming of a
// timer that outlives its wheel has one outcome: it is replaced, stopped, or fires.
func TestOutlivingHammer(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	for range rounds {
		tw := New(WithTick(100 * time.Microsecond))
		var armed, replaced, stopped, fired atomic.Int64
		var busy sync.WaitGroup
		timers := make([]*Timer, 8)
		for i := range timers {
			timers[i] = outlivingTimer(tw, func() { fired.Add(1) })
		}
		for range 2 * len(timers) { // two at each
			x := timers[rand.IntN(len(timers))]
			busy.Go(func() {
				for range 50 {
					armed.Add(1)
					if x.Reset(time.Duration(rand.IntN(400)) * time.Microsecond) {
						replaced.Add(1)
					}
					if rand.IntN(4) == 0 && x.Stop() {
						stopped.Add(1)
					}
					if rand.IntN(8) == 0 {
						time.Sleep(50 * time.Microsecond)
					}
				}
			})
		}
		busy.Go(func() {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			tw.Stop()
		})
		busy.Wait()
		for _, x := range timers {
			if x.Stop() {
				stopped.Add(1)
			}
		}
		outcomes := func() int64 { return replaced.Load() + stopped.Load() + fired.Load() }
		all := func() bool { return outcomes() == armed.Load() }
		require.Eventually(t, all, 10*time.Second, time.Millisecond)
		require.Zero(t, tw.Len())
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Equal(t, armed.Load(), outcomes())
	}
}
