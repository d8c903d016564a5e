package timingwheel

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// collected reports whether what sets the flag happens within a few collections.
func collected(flag <-chan struct{}) bool {
	for range 200 {
		runtime.GC()
		select {
		case <-flag:
			return true
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// watch returns a channel that is closed when p is collected.
func watch[T any](p *T) <-chan struct{} {
	gone := make(chan struct{})
	runtime.AddCleanup(p, func(c chan struct{}) { close(c) }, gone)
	return gone
}

// TestNothingIsKeptAlive: once a timer has fired or was stopped and its maker
// has dropped it, it and its closure are garbage, though the wheel goes on and
// its neighbours of the same bucket stay.
func TestNothingIsKeptAlive(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(tw *TimingWheel, x *Timer)
	}{
		{"stopped", func(_ *TimingWheel, x *Timer) { x.Stop() }},
		{"fired", func(_ *TimingWheel, x *Timer) {
			x.Reset(time.Millisecond)
			for x.Pending() {
				time.Sleep(time.Millisecond)
			}
		}},
		{"dropped with the wheel", func(tw *TimingWheel, _ *Timer) { tw.Stop() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tw := New()
			defer tw.Stop()
			var neighbours []*Timer
			add := func() { neighbours = append(neighbours, tw.AfterFunc(time.Hour, func() {})) }
			add()
			timer, closure := func() (a, b <-chan struct{}) {
				big := new([1 << 16]byte)
				x := tw.AfterFunc(time.Hour, func() { big[0]++ })
				a, b = watch(x), watch(big)
				add()
				tc.end(tw, x)
				return a, b
			}()
			require.True(t, collected(timer), "the timer")
			require.True(t, collected(closure), "its closure")
			runtime.KeepAlive(neighbours)
		})
	}
}

// TestAKeptTimerKeepsNoOther: a stopped timer that the program keeps does not keep its former
// neighbours alive, and can be used again.
func TestAKeptTimerKeepsNoOther(t *testing.T) {
	tw := New()
	defer tw.Stop()
	fired := make(chan struct{})
	kept := tw.AfterFunc(time.Hour, func() { close(fired) })
	gone := func() <-chan struct{} {
		x := tw.AfterFunc(time.Hour, func() {})
		defer x.Stop()
		kept.Stop()
		return watch(x)
	}()
	require.True(t, collected(gone))
	require.False(t, kept.Reset(time.Millisecond))
	<-fired
}

// TestIdleWheelIsCollected: a wheel that has nothing to do need not be stopped, though its
// alarm is set for a timer that has gone.
func TestIdleWheelIsCollected(t *testing.T) {
	f := func() {}
	for _, tc := range []struct {
		name string
		use  func(tw *TimingWheel)
	}{
		{"never used", func(*TimingWheel) {}},
		{"stopped", func(tw *TimingWheel) { tw.AfterFunc(time.Hour, f).Stop() }},
		{"many stopped", func(tw *TimingWheel) {
			var xs []*Timer
			for i := range 1000 {
				xs = append(xs, tw.AfterFunc(time.Hour-time.Duration(i)*time.Second, f))
			}
			for _, x := range xs {
				x.Stop()
			}
		}},
		{"armed again and stopped", func(tw *TimingWheel) {
			x := tw.AfterFunc(time.Hour, f)
			x.Reset(time.Minute)
			x.Stop()
			x.Reset(2 * time.Hour)
			x.Stop()
		}},
		{"stopped and fired at once", func(tw *TimingWheel) {
			tw.AfterFunc(time.Hour, f).Stop()
			tw.AfterFunc(0, f)
		}},
		{"never due", func(tw *TimingWheel) { tw.AfterFunc(math.MaxInt64, f) }},
		{"schedule", func(tw *TimingWheel) { tw.ScheduleFunc(Every(time.Hour), f).Stop() }},
		{"channel",
			func(tw *TimingWheel) {
				tw.NewTimer(time.Hour).Stop()
				tw.NewTicker(time.Hour).Stop()
			}},
		{"context", func(tw *TimingWheel) {
			_, cancel := tw.WithTimeout(t.Context(), time.Hour)
			cancel()
		}},
		{"fired beside", func(tw *TimingWheel) {
			x := tw.AfterFunc(time.Hour, f)
			fired := make(chan struct{})
			tw.AfterFunc(time.Millisecond, func() { close(fired) })
			<-fired
			x.Stop()
		}},
		{"stopped before Start", func(tw *TimingWheel) {
			tw.alarm.armed.Store(awake)
			tw.started.Store(false)
			x := tw.AfterFunc(time.Hour, f)
			tw.Start()
			x.Stop()
		}},
		{"stopped altogether", func(tw *TimingWheel) { tw.AfterFunc(time.Hour, f); tw.Stop() }},
		{"never started", func(tw *TimingWheel) {
			tw.alarm.armed.Store(awake)
			tw.started.Store(false)
			tw.AfterFunc(time.Hour, f)
		}},
	} {
		for _, opts := range [][]Option{nil, {WithInline(), WithPreciseWakeup()}} {
			t.Run(fmt.Sprintf("%s/options=%d", tc.name, len(opts)), func(t *testing.T) {
				gone := func() <-chan struct{} {
					tw := New(opts...)
					tc.use(tw)
					return watch(tw)
				}()
				require.True(t, collected(gone))
			})
		}
	}
}

// TestPendingTimersKeepTheirWheel: a wheel to which nothing refers any more lives until its
// last timer has fired.
func TestPendingTimersKeepTheirWheel(t *testing.T) {
	for _, opts := range [][]Option{nil, {WithInline()}, {WithPreciseWakeup()}} {
		const d = 600 * time.Millisecond // not on the lowest level
		var fired sync.WaitGroup
		ways := []func(tw *TimingWheel, f func()){
			func(tw *TimingWheel, f func()) { tw.AfterFunc(d, f) },
			func(tw *TimingWheel, f func()) {
				tw.AfterFunc(d, f)
				tw.AfterFunc(time.Minute, f).Stop()
			},
			func(tw *TimingWheel, f func()) {
				tw.AfterFunc(time.Minute, f).Stop()
				tw.AfterFunc(d, f)
			},
			func(tw *TimingWheel, f func()) {
				x := tw.AfterFunc(time.Minute, f)
				x.Stop()
				x.Reset(d)
			},
			func(tw *TimingWheel, f func()) { tw.AfterFunc(d/100, func() { tw.AfterFunc(d, f) }) },
			func(tw *TimingWheel, f func()) {
				tw.AfterFunc(d/2, func() {}).Reset(d)
				tw.AfterFunc(d, f)
			},
			func(tw *TimingWheel, f func()) {
				ended := make(chan *Timer, 1)
				runs := 0
				ended <- tw.ScheduleFunc(Every(d/3), func() {
					if runs++; runs == 3 {
						(<-ended).Stop()
						f()
					}
				}, QueueWhileRunning())
			},
		}
		for _, way := range ways {
			fired.Add(1)
			way(New(opts...), fired.Done)
		}
		done := make(chan struct{})
		go func() { fired.Wait(); close(done) }()
		require.True(t, collected(done))
	}
}

// TestTimersOfEveryKindKeepTheirWheel: timers of schedules, channels, contexts and Maps keep it
// too, and so do timers that are moved, through collections all along their way.
func TestTimersOfEveryKindKeepTheirWheel(t *testing.T) {
	const d = 3 * time.Minute // two levels up, with two looks at the wall clock on the way
	ways := map[string]func(tw *TimingWheel, f func()){
		"extended": func(tw *TimingWheel, f func()) {
			tw.AfterFunc(time.Millisecond, f).Reset(d)
		},
		"nearer":     func(tw *TimingWheel, f func()) { tw.AfterFunc(time.Hour, f).Reset(d) },
		"from never": func(tw *TimingWheel, f func()) { tw.AfterFunc(math.MaxInt64, f).Reset(d) },
		"beside never": func(tw *TimingWheel, f func()) {
			tw.AfterFunc(math.MaxInt64, f)
			tw.AfterFunc(d, f)
		},
		"after Goexit": func(tw *TimingWheel, f func()) {
			tw.AfterFunc(d, runtime.Goexit)
			tw.AfterFunc(d, f)
		},
		"due at once": func(tw *TimingWheel, f func()) {
			tw.AfterFunc(d, func() { tw.AfterFunc(0, f); runtime.Goexit() })
		},
		"wall clock": func(tw *TimingWheel, f func()) { tw.AtFunc(time.Now().Add(d), f) },
		"schedule": func(tw *TimingWheel, f func()) {
			runs := 0
			tw.ScheduleFunc(struct{ Scheduler }{Every(d / 3)}, func() {
				if runs++; runs == 3 {
					f()
				}
			}, QueueWhileRunning())
		},
		"channel": func(tw *TimingWheel, f func()) {
			c := tw.After(d)
			go func() { <-c; f() }()
		},
		"ticker": func(tw *TimingWheel, f func()) {
			c := tw.NewTicker(d / 3).C
			go func() { <-c; <-c; <-c; f() }()
		},
		"context": func(tw *TimingWheel, f func()) {
			ctx, cancel := tw.WithTimeout(context.Background(), d)
			context.AfterFunc(ctx, func() { f(); cancel() })
		},
		"Map": func(tw *TimingWheel, f func()) {
			m := NewMap(tw, func(int, int) { f() })
			m.Set(1, 1, time.Millisecond)
			m.Touch(1, d)
		},
	}
	for _, opts := range [][]Option{nil, {WithInline()}, {WithPreciseWakeup(), withShards(1)}} {
		bubble(t, func(t *testing.T) {
			var mu sync.Mutex
			fired := map[string]bool{}
			for name, way := range ways {
				way(New(opts...), func() {
					mu.Lock()
					defer mu.Unlock()
					fired[name] = true
				})
			}
			for range 25 {
				time.Sleep(d / 24)
				synctest.Wait()
				runtime.GC()
			}
			for name := range ways {
				require.True(t, fired[name], name)
			}
		})
	}
}

// TestMemoryAfterABurst: what a burst of timers took is given back.
func TestMemoryAfterABurst(t *testing.T) {
	tw := New()
	defer tw.Stop()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	tw.AfterFunc(50*time.Minute, func() {}).Stop() // makes the levels
	before := heap()
	func() {
		timers := make([]*Timer, 200_000)
		for i := range timers {
			timers[i] = tw.AfterFunc(time.Minute+time.Duration(i)*time.Millisecond, func() {})
		}
		require.Greater(t, heap(), before+200_000*uint64(unsafe.Sizeof(Timer{})))
		for _, x := range timers {
			x.Stop()
		}
	}()
	require.Less(t, heap(), before+1<<20)
}

// TestEmptyWheelIsSmall: slots take memory once a timer needs their level.
func TestEmptyWheelIsSmall(t *testing.T) {
	var before, empty, used runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tw := New(withShards(2))
	runtime.ReadMemStats(&empty)
	x := tw.AfterFunc(time.Minute, func() {})
	runtime.ReadMemStats(&used)
	require.Less(t, empty.TotalAlloc-before.TotalAlloc, uint64(16<<10))
	require.Less(t, used.TotalAlloc-before.TotalAlloc, uint64(64<<10))
	x.Stop()
}
