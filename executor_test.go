package timingwheel

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// executors are the three kinds, each with its name.
var executors = []struct {
	name string
	opts func() []Option
}{
	{"goroutine", func() []Option { return nil }},
	{"inline", func() []Option { return []Option{WithInline()} }},
	{"custom, a goroutine each",
		func() []Option { return []Option{WithExecutor(func(f func()) { go f() })} }},
	{"custom, at once", func() []Option { return []Option{WithExecutor(func(f func()) { f() })} }},
}

// onStackOf reports whether a function is on the caller's stack.
func onStackOf(function string) bool {
	stack := make([]byte, 1<<16)
	return strings.Contains(string(stack[:runtime.Stack(stack, false)]), function)
}

// TestExecutorIsTheDriversAlone: no timer runs on the stack of the call that made it, even if it is
// due at once.
func TestExecutorIsTheDriversAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ran := 0
		tw := New(WithExecutor(func(f func()) {
			ran++
			require.True(t, onStackOf("(*driver).drive"))
			require.False(t, onStackOf("AfterFunc(") && !onStackOf("time.AfterFunc"))
			require.False(t, onStackOf("(*Timer).Reset"))
			f()
		}))
		x := tw.AfterFunc(0, func() {})
		pass(t, tw, 0)
		x.Reset(-1)
		pass(t, tw, 0)
		tw.AfterFunc(time.Second, func() { x.Reset(0) })
		tw.AtFunc(time.Now().Round(0), func() {})
		tw.ScheduleFunc(Every(time.Hour), func() {}).Reset(0)
		pass(t, tw, time.Minute)
		require.Equal(t, 6, ran)
	})
}

func TestDueAtOnceRunsOnAGoroutineOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		var mu sync.Mutex
		mu.Lock() // a callback on our stack would wait forever
		n := 0
		f := func() { mu.Lock(); n++; mu.Unlock() }
		x := tw.AfterFunc(0, f)
		tw.AfterFunc(-time.Hour, f)
		require.False(t, x.Pending(), "claimed already")
		require.False(t, x.Reset(-1))
		mu.Unlock()
		pass(t, tw, 0)
		require.Equal(t, 3, n)
		require.Zero(t, tw.Stats().Wakeups, "needs no driver")
	})
}

// TestDueAtOnceDoesNotWaitForALateDriver: with a goroutine for each callback, a timer that
// is due when it is armed comes before one of an earlier tick that the driver has not got
// to, as doc.go says. With the other executors the ticks keep their order.
func TestDueAtOnceDoesNotWaitForALateDriver(t *testing.T) {
	for _, x := range executors {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(append(x.opts(), withShards(1))...)
				var mu sync.Mutex
				var got []string
				note := func(s string) func() {
					return func() { mu.Lock(); got = append(got, s); mu.Unlock() }
				}
				tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
					if time.Since(tw.start) > 0 {
						time.Sleep(time.Second) // on the driver
						return time.Time{}
					}
					return at.Add(time.Millisecond)
				}), func() {})
				tw.AfterFunc(2*time.Millisecond, note("of an earlier tick"))
				time.Sleep(500 * time.Millisecond)
				tw.AfterFunc(0, note("due at once"))
				synctest.Wait()
				want := []string{"of an earlier tick", "due at once"}
				if tw.executor.mode == goroutine {
					mu.Lock()
					require.Equal(t, want[1:], got)
					mu.Unlock()
					want[0], want[1] = want[1], want[0]
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				// Goroutines of one moment have no order.
				if tw.executor.run == nil || x.name == "custom, at once" {
					require.Equal(t, want, got)
				}
			})
		})
	}
}

// TestNoLockWhileUserCodeRuns calls everything from everywhere that is user code.
func TestNoLockWhileUserCodeRuns(t *testing.T) {
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var tw *TimingWheel
				calls := map[string]int{}
				var mu sync.Mutex
				all := func(from string) {
					mu.Lock()
					calls[from]++
					mu.Unlock()
					tw.AfterFunc(time.Hour, func() {}).Stop()
					tw.AfterFunc(0, func() {}).Reset(time.Hour)
					tw.AtFunc(time.Now(), func() {})
					tw.ScheduleFunc(Every(time.Hour), func() {}).Stop()
					tw.Start()
					tw.Len()
					tw.Stats()
				}
				opts := append(ex.opts(), WithPanicHandler(func(any, []byte) { all("handler") }))
				tw = New(opts...)
				if run := tw.executor.run; run != nil {
					handed := 0
					tw.executor.run = func(f func()) {
						if handed++; handed == 1 { // it arms a timer that is due at once
							all("executor")
						}
						run(f)
					}
				}
				tw.AfterFunc(time.Second, func() { all("callback"); panic("handled") })
				n := 0
				tw.ScheduleFunc(nextFunc(func(at time.Time) time.Time {
					if n++; n < 3 {
						if n > 1 {
							all("scheduler")
						}
						return at.Add(time.Second)
					}
					return time.Time{}
				}), func() { all("run") })
				time.Sleep(time.Minute)
				synctest.Wait()
				tw.Stop()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, 1, calls["callback"])
				require.Equal(t, 1, calls["handler"])
				require.Equal(t, 1, calls["scheduler"])
				require.Equal(t, 2, calls["run"])
			})
		})
	}
}

// TestPanicsAndGoexit: a callback that panics, with a handler, or ends its
// goroutine takes no other timer of its batch with it.
func TestPanicsAndGoexit(t *testing.T) {
	for _, ex := range executors {
		for _, end := range []struct {
			name string
			f    func()
		}{
			{"panic", func() { panic("boom") }},
			{"panic(nil)", func() { panic(nil) }},
			{"Goexit", runtime.Goexit},
		} {
			t.Run(ex.name+"/"+end.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var mu sync.Mutex
					ran, handled := 0, 0
					tw := New(append(ex.opts(), WithPanicHandler(func(recovered any, stack []byte) {
						mu.Lock()
						defer mu.Unlock()
						handled++
						require.Contains(t, string(stack), "TestPanicsAndGoexit",
							"the stack of the panic")
						if end.name == "panic" {
							require.Equal(t, "boom", recovered)
						} else {
							require.IsType(t, &runtime.PanicNilError{}, recovered)
						}
					}))...)
					const n = 2*holdLimit + 1
					for i := range n {
						for range 3 {
							tw.AfterFunc(time.Duration(i%3)*time.Second, func() {
								mu.Lock()
								ran++
								bad := ran%3 == 0
								mu.Unlock()
								if bad {
									end.f()
								}
							})
						}
					}
					pass(t, tw, time.Minute)
					require.Equal(t, 3*n, ran)
					if end.name != "Goexit" {
						require.Equal(t, n, handled)
					}
					require.NoError(t, tw.Shutdown(t.Context()),
						"the count of callbacks in flight is right")
				})
			})
		}
	}
}

func TestPanicInTheExecutor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ran, handled := 0, 0
		tw := New(
			WithExecutor(func(f func()) {
				if f(); ran == 2 {
					panic("full")
				}
			}),
			WithPanicHandler(func(recovered any, _ []byte) { handled++ }))
		for range 4 {
			tw.AfterFunc(time.Second, func() { ran++ })
		}
		pass(t, tw, time.Minute)
		require.Equal(t, 4, ran)
		require.Equal(t, 1, handled)
		require.NoError(t, tw.Shutdown(t.Context()))
	})
	bubble(t, func(t *testing.T) {
		tw := New(WithExecutor(func(f func()) { panic("closed") }),
			WithPanicHandler(func(any, []byte) {}))
		tw.AfterFunc(time.Second, func() { t.Error("ran") })
		pass(t, tw, time.Minute)
		require.NoError(t, tw.Shutdown(t.Context()), "what it did not take is not waited for")
	})
}

// TestBlockedExecutorHoldsUpTheDriverOnly: callers go on while the executor
// blocks, and nothing is lost when it comes back.
func TestBlockedExecutorHoldsUpTheDriverOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := make(chan struct{})
		ran := 0
		tw := New(WithExecutor(func(f func()) { <-gate; f() }))
		x := tw.AfterFunc(time.Second, func() { ran++ })
		y := tw.AfterFunc(2*time.Second, func() { ran++ })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.False(t, x.Stop(), "handed over")
		require.True(t, y.Stop(), "not claimed yet")
		z := tw.AfterFunc(time.Second, func() { ran++ })
		require.Equal(t, 1, tw.Len())
		time.Sleep(time.Minute)
		close(gate)
		pass(t, tw, 0)
		require.Equal(t, 2, ran)
		require.False(t, z.Pending())
	})
}

// TestLongestHold: however many timers are due in one tick, the lock is released
// every holdLimit of them, and for each callback that runs on the driver.
func TestLongestHold(t *testing.T) {
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(ex.opts()...)
				for range 10_000 {
					tw.AfterFunc(time.Hour, func() {})
				}
				pass(t, tw, 2*time.Hour)
				s := tw.Stats()
				require.Equal(t, int64(10_000), s.Fired)
				require.LessOrEqual(t, s.LongestHold, holdLimit)
				require.Positive(t, s.LongestHold)
			})
		})
	}
}

// TestOneDriver: an alarm that rings while a driver is at work, in a callback without the lock,
// starts no second driver.
func TestOneDriver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		running, ran := 0, 0
		for range 5 {
			tw.AfterFunc(time.Second, func() {
				running++
				require.Equal(t, 1, running)
				ran++
				time.Sleep(time.Second)
				running--
			})
		}
		time.Sleep(1500 * time.Millisecond) // in the first callback
		synctest.Wait()
		tw.alarm.mu.Lock()
		tw.alarm.ringing++
		tw.alarm.mu.Unlock()
		tw.driver.drive()
		require.Equal(t, 1, ran)
		time.Sleep(time.Minute)
		verify(t, tw)
		require.Equal(t, 5, ran)
	})
}

// TestOrderOfALateDriver: what has been waiting in buckets while a callback held
// up the driver comes before what became due at once meanwhile.
func TestOrderOfALateDriver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(1)) // in order also within a tick
		var got []string
		note := func(s string) func() { return func() { got = append(got, s) } }
		tw.AfterFunc(time.Millisecond, func() {
			time.Sleep(5 * time.Millisecond)
			tw.AfterFunc(0, note("at once, at 6"))
			tw.AfterFunc(-time.Hour, note("at once too"))
		})
		tw.AfterFunc(3*time.Millisecond, note("of 3"))
		tw.AfterFunc(6*time.Millisecond+1, note("of 7"))
		pass(t, tw, time.Second)
		require.Equal(t, []string{"of 3", "at once, at 6", "at once too", "of 7"}, got)
	})
}

// TestOrderBehindAnExtendedTimer: a timer that waits in due and is extended without
// the lock does not keep those behind it from their turn.
func TestOrderBehindAnExtendedTimer(t *testing.T) {
	tw := New(WithInline(), withShards(1))
	var got []string
	note := func(s string) func() { return func() { got = append(got, s) } }
	var f, g, h Timer
	tw.Init(&f, note("f"))
	tw.Init(&g, note("g"))
	tw.Init(&h, note("of 8 ms"))
	busy, free := make(chan struct{}), make(chan struct{})
	tw.AfterFunc(0, func() { close(busy); <-free })
	<-busy
	h.Reset(8 * time.Millisecond)
	f.Reset(0)
	g.Reset(0)
	require.True(t, f.ResetAt(time.Now().Add(time.Hour)))
	time.Sleep(20 * time.Millisecond)
	done := make(chan struct{})
	tw.AfterFunc(0, func() { close(done) })
	close(free)
	<-done
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Equal(t, []string{"g", "of 8 ms"}, got)
}

// TestPastDatesAreDueNow: timers armed for the past fire in the order in which they were armed,
// after those that were due before.
func TestPastDatesAreDueNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		tw.executor.mode = inline
		var got []int
		xs := map[int]*Timer{}
		for _, at := range []int{6, 9, 3} {
			xs[at] = &Timer{}
			tw.Init(xs[at], func() { got = append(got, at) })
		}
		ms := func(n int) int64 { return int64(n) * int64(time.Millisecond) }
		xs[6].shard.rearm(xs[6], ms(6), 0)
		time.Sleep(10 * time.Millisecond)
		for _, at := range []int{9, 3} {
			xs[at].shard.rearm(xs[at], ms(at), tw.now())
		}
		tw.Start()
		pass(t, tw, 0)
		require.Equal(t, 6, got[0])
		require.Len(t, got, 3)
	})
}
