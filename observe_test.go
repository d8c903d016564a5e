package timingwheel

import (
	"bytes"
	"context"
	"io"
	"runtime/trace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	exptrace "golang.org/x/exp/trace"
)

// slowLog keeps what the hook is told.
type slowLog struct {
	mu  sync.Mutex
	all []SlowCallback
}

func (l *slowLog) add(c SlowCallback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, c)
}

func (l *slowLog) told() []SlowCallback {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

func dawdle()  { time.Sleep(3 * time.Second) }
func exactly() { time.Sleep(time.Second - 1) }

const inThisPackage = "github.com/go-timingwheel/timingwheel."

func TestSlowInlineCallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log slowLog
		tw := New(WithInline(), WithSlowCallback(time.Second, log.add))
		tw.AfterFunc(time.Second, exactly)
		tw.AfterFunc(time.Minute, dawdle)
		tw.ScheduleFunc(Every(time.Hour), dawdle)
		pass(t, tw, time.Minute+2*time.Second)
		require.Equal(t, []SlowCallback{{Name: inThisPackage + "dawdle", For: time.Second}},
			log.told(), "while it is at it")
		pass(t, tw, time.Hour+time.Minute)
		want := []SlowCallback{{Name: inThisPackage + "dawdle", For: time.Second},
			{Name: inThisPackage + "dawdle", For: 3 * time.Second, Over: true}}
		require.Equal(t, append(want, want...), log.told(),
			"a schedule's by the name of what the caller gave")
	})
}

func TestStuckInlineCallback(t *testing.T) {
	var log slowLog
	tw := New(WithInline(), WithSlowCallback(time.Millisecond, log.add))
	release := make(chan struct{})
	tw.AfterFunc(0, func() { <-release })
	require.Eventually(t, func() bool { return len(log.told()) == 1 }, time.Minute,
		time.Millisecond)
	require.False(t, log.told()[0].Over)
	require.Contains(t, log.told()[0].Name, "TestStuckInlineCallback.func")
	close(release)
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Eventually(t, func() bool { return len(log.told()) == 2 }, time.Minute,
		time.Millisecond)
	require.True(t, log.told()[1].Over)
}

// An executor of one goroutine falls behind; one that blocks holds up the driver.
func TestSlowExecutor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log slowLog
		work := make(chan func(), 1)
		go func() {
			for f := range work {
				f()
			}
		}()
		tw := New(WithExecutor(func(f func()) { work <- f }),
			WithSlowCallback(time.Second, log.add), withShards(1))
		tw.AfterFunc(time.Millisecond, dawdle)    // begins at once
		tw.AfterFunc(2*time.Millisecond, exactly) // waits in the channel, for 2.999 s
		// The executor waits for the channel for 2.998 s.
		tw.AfterFunc(3*time.Millisecond, exactly)
		pass(t, tw, time.Minute)
		name := inThisPackage + "exactly"
		require.Equal(t, []SlowCallback{
			{Name: name, For: time.Second},
			{Name: name, For: 2999 * time.Millisecond, Waited: true, Over: true},
			{Name: name, For: 2998 * time.Millisecond, Over: true},
			{Name: name, For: 3998*time.Millisecond - 1, Waited: true, Over: true},
		}, log.told())
		require.NoError(t, tw.Shutdown(t.Context()))
		close(work)
	})
}

// A callback on a goroutine of its own is reported too, as one that holds up no other: also
// when the wheel has been stopped and Shutdown waits for it.
func TestSlowGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log slowLog
		tw := New(WithSlowCallback(time.Second, log.add))
		name := inThisPackage + "dawdle"
		slow := []SlowCallback{{Name: name, Alone: true, For: time.Second},
			{Name: name, Alone: true, For: 3 * time.Second, Over: true}}
		tw.AfterFunc(0, dawdle)
		tw.AfterFunc(500*time.Millisecond, exactly)
		pass(t, tw, 2*time.Second)
		require.Equal(t, slow[:1], log.told(), "while it is at it")
		pass(t, tw, time.Minute)
		require.Equal(t, slow, log.told())

		// Each run of a schedule by itself, though they are on one goroutine.
		n := 0
		x := tw.ScheduleFunc(Every(time.Second), func() {
			if n++; n == 2 {
				dawdle()
			}
			exactly()
		}, QueueWhileRunning(), StartNow())
		pass(t, tw, 10*time.Second)
		x.Stop()
		require.Len(t, log.told(), 4)
		require.Contains(t, log.told()[2].Name, "TestSlowGoroutine.func")
		require.Equal(t, time.Second, log.told()[2].For)
		require.Equal(t, 4*time.Second-1, log.told()[3].For)

		tw.AfterFunc(0, dawdle)
		synctest.Wait()
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Equal(t, slow, log.told()[4:])
	})
}

// Callbacks that begin and end in any order: each that reaches the limit is reported at
// that moment, and no other.
func TestSlowWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		reached, over := map[time.Duration]int{}, map[time.Duration]int{}
		start := time.Now()
		var watch *slowWatch
		tw := New(WithSlowCallback(time.Second, func(c SlowCallback) {
			mu.Lock()
			defer mu.Unlock()
			if at := time.Since(start); c.Over {
				over[at]++
			} else {
				require.Equal(t, time.Second, c.For)
				reached[at]++
			}
		}), func(c *config) { watch = c.slow })
		wantReached, wantOver := map[time.Duration]int{}, map[time.Duration]int{}
		rnd := newRand(1)
		for range 2000 {
			begin := time.Duration(rnd.IntN(5000)) * time.Millisecond
			lasts := time.Duration(rnd.IntN(2000))*time.Millisecond + 1
			tw.AfterFunc(begin, func() { time.Sleep(lasts) })
			if lasts >= time.Second {
				wantReached[begin+time.Second]++
				wantOver[begin+lasts]++
			}
		}
		pass(t, tw, time.Minute)
		require.Equal(t, wantReached, reached)
		require.Equal(t, wantOver, over)
		require.Nil(t, watch.first)
		require.Nil(t, watch.last)
		require.False(t, watch.armed, "nothing recurs")

	})
}

// On the real clock, with callbacks that end about when they reach the limit: told of both
// or of neither.
func TestSlowWatchHammer(t *testing.T) {
	const limit = 200 * time.Microsecond
	var reached, over atomic.Int64
	var watch *slowWatch
	tw := New(WithSlowCallback(limit, func(c SlowCallback) {
		if c.For < limit {
			t.Error("early")
		}
		if c.Over {
			over.Add(1)
		} else {
			reached.Add(1)
		}
	}), func(c *config) { watch = c.slow })
	for i := range 5000 {
		tw.AfterFunc(time.Duration(i)*5*time.Microsecond,
			func() { time.Sleep(time.Duration(i%400) * time.Microsecond) })
	}
	require.Eventually(t, func() bool { return tw.Len() == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Eventually(t, func() bool { return reached.Load() == over.Load() }, time.Minute,
		time.Millisecond)
	require.Positive(t, over.Load())
	require.Nil(t, watch.first)

}

// An executor that was slow to take a callback has taken it, although the hook then panics:
// Shutdown waits for the callback.
func TestHookPanicsAboutATakenCallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		recovered := 0
		tw := New(
			WithExecutor(func(f func()) {
				time.Sleep(2 * time.Second)
				time.AfterFunc(time.Minute, f)
			}),
			WithPanicHandler(func(any, []byte) { recovered++ }),
			WithSlowCallback(time.Second, func(c SlowCallback) {
				if c.Over && !c.Waited {
					panic("hook")
				}
			}))
		done := false
		tw.AfterFunc(time.Millisecond, func() { done = true })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, recovered)
		require.EqualValues(t, 1, tw.Stats().Waiting)
		require.NoError(t, tw.Shutdown(t.Context()))
		require.True(t, done)
		require.Zero(t, tw.Stats().Running)
	})
}

// An executor that recovers from panics gets one from the hook: the callback is counted as returned
// all the same, and Shutdown does not wait for it forever.
func TestSlowHookPanicsInARecoveringExecutor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		work, recovered := make(chan func(), 10), 0
		go func() {
			for f := range work {
				func() {
					defer func() {
						if recover() != nil {
							recovered++
						}
					}()
					f()
				}()
			}
		}()
		tw := New(WithExecutor(func(f func()) { work <- f }),
			WithSlowCallback(time.Second, func(SlowCallback) { panic("hook") }))
		tw.AfterFunc(time.Millisecond, dawdle)
		tw.AfterFunc(time.Millisecond, func() { t.Error("the hook has panicked before") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NoError(t, tw.Shutdown(ctx))
		require.Equal(t, 1, recovered)
		s := tw.Stats()
		require.Equal(t, [2]int64{0, 0}, [2]int64{s.Running, s.Waiting})
		close(work)
	})
}

// TestOnlyTheCallersCallbacksAreObserved: not what of ours leads to them, such as a
// schedule's run, its call of Next, and the call of the executor. And each run once.
func TestOnlyTheCallersCallbacksAreObserved(t *testing.T) {
	for _, x := range executors {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				seen, ran := map[string]int{}, 0
				tw := New(append(x.opts(), func(c *config) {
					c.around = func(name string, f func()) {
						mu.Lock()
						seen[name]++
						mu.Unlock()
						f()
					}
				})...)
				f := func() {
					mu.Lock()
					ran++
					mu.Unlock()
					time.Sleep(1500 * time.Microsecond)
				}
				cron := nextFunc(func(at time.Time) time.Time { return at.Add(time.Millisecond) })
				tw.AfterFunc(0, f)
				tw.AfterFunc(time.Millisecond, f)
				tw.AtFunc(time.Now().Round(0).Add(time.Millisecond), f)
				for _, opts := range [][]ScheduleOption{nil, {SkipWhileRunning()},
					{QueueWhileRunning(), StartNow()}} {
					tw.ScheduleFunc(Every(time.Millisecond), f, opts...)
					tw.ScheduleFunc(cron, f, opts...)
				}
				ctx, cancel := tw.WithTimeout(context.Background(), time.Millisecond)
				defer cancel()
				tw.NewTimer(time.Millisecond)
				pass(t, tw, 20*time.Millisecond)
				require.Error(t, ctx.Err())
				require.NoError(t, tw.Shutdown(t.Context()))
				mu.Lock()
				defer mu.Unlock()
				require.Greater(t, ran, 10)
				require.Equal(t, map[string]int{nameOf(f): ran}, seen)
			})
		})
	}
}

// TestTraceOfRuns: a run that waits for another has one region, with the caller's name.
func TestTraceOfRuns(t *testing.T) {
	tw := New(WithExecutor(func(f func()) { go f() }))
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skip("another trace is being taken: ", err)
	}
	var ran atomic.Int64
	x := tw.ScheduleFunc(Every(time.Millisecond),
		func() { ran.Add(1); time.Sleep(2 * time.Millisecond) }, QueueWhileRunning())
	require.Eventually(t, func() bool { return ran.Load() >= 3 }, time.Minute, time.Millisecond)
	x.Stop()
	require.NoError(t, tw.Shutdown(t.Context()))
	trace.Stop()
	names := regions(t, &out, "timingwheel: callback ")
	require.Len(t, names, 1, "%v", names)
	for name, n := range names {
		require.Contains(t, name, "TestTraceOfRuns.func")
		require.EqualValues(t, ran.Load(), n)
	}
}

// regions returns how many regions of each name begin in an execution trace, of those
// whose names begin so.
func regions(t *testing.T, in io.Reader, prefix string) map[string]int {
	names := map[string]int{}
	r, err := exptrace.NewReader(in)
	require.NoError(t, err)
	for {
		e, err := r.ReadEvent()
		if err == io.EOF {
			return names
		}
		require.NoError(t, err)
		if e.Kind() == exptrace.EventRegionBegin && strings.HasPrefix(e.Region().Type, prefix) {
			names[e.Region().Type]++
		}
	}
}

// TestTrace reads an execution trace back: the driver's regions, callbacks by name, and how late
// the alarm was. Without a trace nothing is allocated.
func TestTrace(t *testing.T) {
	tw := New(WithInline(), WithWheelSize(2))
	tw.AfterFunc(0, func() {})
	require.Zero(t, testing.AllocsPerRun(100, func() { endRegion(region("none")) }))

	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skip("another trace is being taken: ", err)
	}
	done := make(chan struct{})
	tw.AfterFunc(20*time.Millisecond, func() { close(done) }) // by way of several wheels
	<-done
	ran := make(chan struct{})
	once := sync.OnceFunc(func() { close(ran) }) // on a late machine it runs again before Stop
	x := tw.ScheduleFunc(Every(time.Millisecond), func() { once() })
	<-ran
	x.Stop()
	require.NoError(t, tw.Shutdown(t.Context()))
	trace.Stop()

	regions, logs := map[string]int{}, ""
	r, err := exptrace.NewReader(&out)
	require.NoError(t, err)
	for {
		e, err := r.ReadEvent()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		switch e.Kind() {
		case exptrace.EventRegionBegin:
			regions[e.Region().Type]++
		case exptrace.EventLog:
			logs += e.Log().Message + "\n"
		}
	}
	for _, name := range []string{"timingwheel: driver", "timingwheel: flush what is due",
		"timingwheel: reinsert ahead"} {
		require.Positive(t, regions[name], "%v", regions)
	}
	callbacks := 0
	for name, n := range regions {
		if strings.HasPrefix(name, "timingwheel: callback "+inThisPackage+"TestTrace.func") {
			callbacks += n
		}
	}
	require.GreaterOrEqual(t, callbacks, 2, "%v", regions)
	require.Regexp(t, `the alarm rang .*s after its tick`, logs)
}
