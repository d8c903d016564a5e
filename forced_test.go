//go:build timingwheel_pause

package timingwheel

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests of this file force the interleavings that the traps of the model stand for, on the
// real code, by way of its pause points:
//
//	go test -tags timingwheel_pause -run Forced .
//
// Each fails if the fault of its trap is built in, which internal/model/faults_test.go checks. Time
// is the fake clock's, so the instants are exact.

const (
	ms  = time.Millisecond
	day = 24 * time.Hour

	circles = "the driver runs in circles"
)

// A script is a wheel, what happens at its pause points, and what fired when.
type script struct {
	*TimingWheel
	t     *testing.T
	start time.Time

	mu     sync.Mutex
	acts   map[string]func()
	visits int
	fired  []string
}

// force runs f in a bubble with a script for a wheel of so many shards, and a wheel size of two, so
// that timers soon change level.
func force(t *testing.T, shards int, f func(t *testing.T, s *script), opts ...Option) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		s := &script{t: t, start: time.Now(), acts: map[string]func(){}}
		s.TimingWheel = New(append([]Option{WithWheelSize(2), withShards(shards)}, opts...)...)
		come := s.come
		paused.Store(&come)
		defer paused.Store(nil)
		f(t, s)
		require.Empty(t, s.acts, "no goroutine came to these points")
		s.Stop()
		synctest.Wait()
	})
}

// at makes the next goroutine that comes to the point call act there before it goes on.
func (s *script) at(point string, act func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acts[point] = act
}

func (s *script) come(point string) {
	s.mu.Lock()
	act := s.acts[point]
	delete(s.acts, point)
	s.visits++
	visits := s.visits
	s.mu.Unlock()
	if visits == 10_000 {
		panic(circles)
	}
	if act != nil {
		act()
	}
}

// note returns a callback that notes the name and when it was called.
func (s *script) note(name string) func() {
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fired = append(s.fired, fmt.Sprint(name, " ", time.Since(s.start)))
	}
}

// pass lets d go by, and the bubble come to rest.
func (s *script) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// requireFired lets a day go by and says what must have fired by then, in order.
func (s *script) requireFired(want ...string) {
	s.t.Helper()
	s.pass(day)
	require.Equal(s.t, want, s.fired)
}

// timer returns a Timer that notes its name. The first two of a wheel are dealt to different
// shards.
func (s *script) timer(name string) *Timer {
	x := new(Timer)
	s.Init(x, s.note(name))
	return x
}

// shutdown is Shutdown, which must not take a day.
func (s *script) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), day)
	defer cancel()
	return s.Shutdown(ctx)
}

// An aside is a call that another goroutine makes while one is at a pause point.
type aside struct{ returned chan struct{} }

func (a *aside) hasReturned() bool {
	select {
	case <-a.returned:
		return true
	default:
		return false
	}
}

// meanwhile has another goroutine call f, and returns when f has returned or cannot go on: it waits
// for a lock that the paused goroutine holds, or at a point of its own. So on the right code, too,
// which may exclude the interleaving by a lock, nothing waits for longer than needed.
func meanwhile(f func()) *aside {
	a := &aside{returned: make(chan struct{})}
	id := make(chan string)
	go func() {
		defer close(a.returned)
		id <- goroutineID()
		f()
	}()
	for g := <-id; !a.hasReturned() && !waits(g); {
		runtime.Gosched()
	}
	return a
}

// goroutineID returns "goroutine 7 [" for the caller.
func goroutineID() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	return string(stack[:bytes.IndexByte(stack, '[')+1])
}

// waits reports whether a goroutine can only go on when another lets it.
func waits(id string) bool {
	stacks := make([]byte, 1<<18)
	stacks = stacks[:runtime.Stack(stacks, true)]
	_, state, _ := bytes.Cut(stacks, []byte(id))
	reasons := []string{"sync.Mutex.Lock", "chan receive", "select", "sleep"}
	return slices.ContainsFunc(reasons, func(reason string) bool {
		return bytes.HasPrefix(state, []byte(reason))
	})
}

// A caller files a timer while the driver looks whether anyone wants an alarm.
func TestForcedLostWakeup(t *testing.T) {
	t.Run("driver", func(t *testing.T) {
		force(t, 2, func(t *testing.T, s *script) {
			x, y := s.timer("x"), s.timer("y")
			s.at("resting", func() { meanwhile(func() { y.Reset(ms) }) })
			x.Reset(ms)
			s.requireFired("x 1ms", "y 2ms")
		})
	})
	t.Run("Start", func(t *testing.T) {
		force(t, 1, func(t *testing.T, s *script) {
			s.started.Store(false) // as NewTimingWheel leaves it
			s.alarm.armed.Store(awake)
			s.at("resting", func() { meanwhile(func() { s.AfterFunc(ms, s.note("x")) }) })
			s.Start()
			s.requireFired("x 1ms")
		})
	})
}

// A caller has stored next; the driver leaves before the caller looks at armed.
func TestForcedLookBeforeNext(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.AfterFunc(ms, s.note("x"))
		left := make(chan struct{})
		s.at("leaving", func() {
			s.at("filed", func() { <-left })
			meanwhile(func() { s.AfterFunc(ms, s.note("y")) })
		})
		s.pass(ms)
		close(left)
		s.requireFired("x 1ms", "y 2ms")
	})
}

// Of two callers that saw no alarm the one with the later tick is the last to set it.
func TestForcedLaterTickLast(t *testing.T) {
	force(t, 2, func(t *testing.T, s *script) {
		late, early := s.timer("late"), s.timer("early")
		require.NotSame(t, late.shard, early.shard)
		s.at("waking", func() { meanwhile(func() { early.Reset(5 * ms) }) })
		late.Reset(100 * ms)
		s.requireFired("early 5ms", "late 100ms")
	})
}

// forcePrecise is force with one shard and a bell that is given back when the wheel is idle. (In a
// bubble it is package time's all the same.)
func forcePrecise(t *testing.T, f func(t *testing.T, s *script)) {
	force(t, 1, f, WithPreciseWakeup())
}

// requireNoBell lets a day go by, and says when the bell must have been given back: with this ring.
func (s *script) requireNoBell(wakeups int) {
	s.t.Helper()
	s.pass(day)
	s.alarm.mu.Lock()
	defer s.alarm.mu.Unlock()
	require.Nil(s.t, s.alarm.waker.bell, "an idle wheel keeps its bell")
	require.EqualValues(s.t, wakeups, s.alarm.wakeups)
}

// The last timer is stopped while the driver looks whether anyone wants an alarm.
func TestForcedStopAsTheDriverRests(t *testing.T) {
	forcePrecise(t, func(t *testing.T, s *script) {
		x := s.AfterFunc(10*day, s.note("x"))
		s.AfterFunc(ms, s.note("y"))
		s.at("resting", func() { meanwhile(func() { x.Stop() }) })
		s.requireNoBell(2)
	})
}

// A caller has stopped the last timer and stored lookAt; the driver leaves before the caller looks
// at armed.
func TestForcedLookBeforeLookAt(t *testing.T) {
	forcePrecise(t, func(t *testing.T, s *script) {
		x := s.AfterFunc(10*day, s.note("x"))
		s.AfterFunc(ms, s.note("y"))
		left := make(chan struct{})
		s.at("leaving", func() {
			s.at("letting go", func() { <-left })
			meanwhile(func() { x.Stop() })
		})
		s.pass(ms)
		close(left)
		s.requireNoBell(2)
	})
}

// The last timer is stopped under a driver that was woken to look whether the wheel is idle, after
// it has settled the shard.
func TestForcedStopUnderALook(t *testing.T) {
	forcePrecise(t, func(t *testing.T, s *script) {
		x := s.AfterFunc(10*day, s.note("x"))
		x.Stop()
		x.Reset(10 * day)
		s.at("leaving", func() { x.Stop() })
		s.requireNoBell(2)
	})
}

// A driver that was woken to give the bell back finds a timer, or a caller files one meanwhile.
func TestForcedTimerAsTheBellIsGivenBack(t *testing.T) {
	for _, point := range []string{"rung", "settling", "leaving", "resting"} {
		t.Run(point, func(t *testing.T) {
			forcePrecise(t, func(t *testing.T, s *script) {
				x := s.AfterFunc(day, s.note("x"))
				x.Stop()
				s.at(point, func() { meanwhile(func() { x.Reset(ms) }) })
				s.requireFired("x 101ms")
				s.requireNoBell(3)
			})
		})
	}
}

// A caller files a timer while the driver works out what the shard wants next.
func TestForcedSettle(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.AfterFunc(ms, s.note("x"))
		s.at("settling", func() { meanwhile(func() { s.AfterFunc(ms, s.note("y")) }) })
		s.requireFired("x 1ms", "y 2ms")
	})
}

// The driver moves a timer to a finer wheel while its Stop is on its way to the lock.
func TestForcedStopOfAMovedTimer(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.AfterFunc(6*ms, s.note("x"))
		s.at("stopping", func() { s.pass(5 * ms) })
		require.True(t, x.Stop())
		require.EqualValues(t, 1, s.Stats().Reinserted)
		s.requireFired()
	})
}

// A timer is stopped while its Reset is on its way to the lock.
func TestForcedResetOfAStoppedTimer(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.AfterFunc(10*ms, s.note("x"))
		s.at("rearming", func() { require.True(t, x.Stop()) })
		require.False(t, x.Reset(5*ms)) // to earlier, so it is no extension
		s.requireFired("x 5ms")
	})
}

// A caller with an old reading of the clock extends a timer that the driver is about to claim.
func TestForcedExtensionDuringTheClaim(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.AfterFunc(ms, s.note("x"))
		due, extended := make(chan struct{}), false
		s.at("touching", func() { <-due })
		touch := meanwhile(func() { extended = x.Reset(5 * ms) })
		s.at("claiming", func() {
			close(due)
			<-touch.returned
		})
		s.requireFired("x 5ms")
		require.True(t, extended)
	})
}

// A timer is stopped and armed again, for later, between two looks that a Reset takes at it.
func TestForcedExtensionOfAnotherArming(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.AfterFunc(10*ms, s.note("x"))
		s.at("extending", func() {
			require.True(t, x.Stop())
			require.False(t, x.Reset(time.Hour))
		})
		require.True(t, x.Reset(20*ms))
		s.requireFired("x 20ms")
	})
}

// A caller with an old reading of the clock extends a timer that follows the wall clock while the
// driver reads that. It needs no pause point in the driver.
func TestForcedExtensionDuringALookAtTheWallClock(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		looks := make(chan func(), 1)
		s.wall = func() time.Time {
			select {
			case look := <-looks:
				look()
			default:
			}
			return time.Now()
		}
		x := s.AtFunc(s.start.Add(time.Hour), s.note("x"))
		looked, extended := make(chan struct{}), false
		s.at("touching", func() { <-looked })
		touch := meanwhile(func() { extended = x.Reset(2 * time.Minute) })
		looks <- func() {
			close(looked)
			<-touch.returned
		}
		s.requireFired("x 2m0s")
		require.True(t, extended)
	})
}

// A timer is stopped between the look and the swap of an extension.
func TestForcedExtensionOfAStoppedTimer(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.AfterFunc(10*ms, s.note("x"))
		s.at("extending", func() { require.True(t, x.Stop()) })
		require.False(t, x.Reset(20*ms))
		s.requireFired("x 20ms")
	})
}

// The wheel is stopped while a Reset is on its way to the lock.
func TestForcedResetMeetsTheWheelsStop(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.timer("x")
		s.at("rearming", s.Stop)
		require.False(t, x.Reset(ms))
		require.False(t, x.Pending())
		s.requireFired()
	})
}

// The driver passes the deadline of a caller that has read the clock and is held up. In the slot
// of that deadline lies a timer of the next lap.
func TestForcedStaleReading(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.timer("x")
		s.AfterFunc(3*ms, s.note("y"))
		s.at("touching", func() {
			s.pass(3*ms + ms/2)
			s.AfterFunc(2*ms+ms/2, s.note("z")) // for tick 6, in the slot of tick 2
		})
		x.Reset(2 * ms)
		s.requireFired("y 3ms", "x 3.5ms", "z 6ms")
	})
}

// The alarm comes late, and a caller before it.
func TestForcedLateDriver(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.AfterFunc(ms, s.note("x"))
		s.at("rung", func() {
			time.Sleep(2*ms + ms/2)
			// For tick 5, in the slot of tick 1 if the clock is past that.
			s.AfterFunc(ms+ms/2, s.note("y"))
		})
		s.requireFired("x 3.5ms", "y 5ms")
	}, WithInline())
}

// A caller files a timer one lap ahead while the driver, between two pieces, flushes that slot.
func TestForcedNextLap(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		for range holdLimit + 1 {
			s.AfterFunc(ms, func() {})
		}
		s.at("between pieces", func() { s.AfterFunc(4*ms, s.note("x")) })
		s.requireFired("x 5ms")
	})
}

// An alarm that was moved while its goroutine started rings twice, the second ring overtakes.
func TestForcedTwoRings(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		var first, busy, overlap atomic.Bool
		begun, release := make(chan struct{}), make(chan struct{})
		f := func() {
			if busy.Swap(true) {
				overlap.Store(true)
			}
			if !first.Swap(true) {
				close(begun)
				<-release
			}
			busy.Store(false)
		}
		s.AfterFunc(ms, f)
		s.at("rung", func() {
			s.AfterFunc(0, f) // sets the alarm anew
			s.AfterFunc(0, f)
			<-begun
		})
		s.pass(ms)
		close(release)
		s.requireFired()
		require.False(t, overlap.Load(), "two drivers")
		require.EqualValues(t, 2, s.Stats().Wakeups)
		require.Zero(t, s.Len())
	}, WithInline())
}

// An inline callback ends the driver's goroutine. It needs no pause point.
func TestForcedGoexit(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.AfterFunc(ms, runtime.Goexit)
		s.AfterFunc(2*ms, s.note("x"))
		s.requireFired("x 2ms")
	}, WithInline())
}

// A wheel is stopped after its driver's last look at that.
func TestForcedStopAsTheDriverLeaves(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.AfterFunc(time.Hour, s.note("x"))
		s.AfterFunc(ms, s.note("y"))
		s.at("leaving", s.Stop)
		s.requireFired("y 1ms")
		require.EqualValues(t, 1, s.Stats().Wakeups, "the alarm of a stopped wheel rings")
	})
}

// A driver leaves while the wheel is being stopped.
func TestForcedDriverLeavesDuringStop(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.AfterFunc(time.Hour, s.note("x"))
		s.AfterFunc(ms, s.note("y"))
		left := make(chan struct{})
		s.at("leaving", func() {
			s.at("halting", func() { <-left })
			meanwhile(s.Stop)
		})
		s.pass(ms)
		close(left)
		s.requireFired("y 1ms")
		require.EqualValues(t, 1, s.Stats().Wakeups, "the alarm of a stopped wheel rings")
	})
}

// A wheel is stopped after a caller that files a timer has looked at that.
func TestForcedStopAsATimerIsFiled(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.at("filed", func() { meanwhile(s.Stop) })
		s.AfterFunc(ms, s.note("x"))
		s.requireFired()
		require.Zero(t, s.Stats().Wakeups, "the alarm of a stopped wheel rings")
	})
}

// Shutdown overtakes a Stop that has not come to the alarm.
func TestForcedShutdownOvertakesStop(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		var err error
		s.AfterFunc(2*day, s.note("x"))
		s.at("halting", func() { meanwhile(func() { err = s.shutdown() }) })
		s.Stop()
		s.requireFired()
		require.NoError(t, err, "Shutdown hangs")
	})
}

// A Stop overtakes another that has swept nothing.
func TestForcedStopOvertakesStop(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		left := -1
		s.AfterFunc(ms, s.note("x"))
		s.at("halting", func() {
			s.Stop()
			left = s.Len()
		})
		s.Stop()
		require.Zero(t, left, "timers after Stop")
		s.requireFired()
	})
}

// A wheel is shut down when its alarm has rung and not come to the driver.
func TestForcedShutdownMeetsARing(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		var err error
		var shutdown *aside
		early := false
		s.AfterFunc(ms, s.note("x"))
		s.at("rung", func() {
			shutdown = meanwhile(func() { err = s.shutdown() })
			early = shutdown.hasReturned()
		})
		s.requireFired()
		require.False(t, early, "Shutdown returned before the ring had gone")
		require.True(t, shutdown.hasReturned())
		require.NoError(t, err, "Shutdown hangs")
	})
}

// A wheel is shut down when its alarm has been moved. It needs no pause point.
func TestForcedShutdownAfterAMovedAlarm(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		s.AfterFunc(time.Hour, s.note("x"))
		s.AfterFunc(time.Minute, s.note("y"))
		require.NoError(t, s.shutdown(), "Shutdown hangs")
	})
}

// A wheel is shut down while its last callback returns.
func TestForcedShutdownMeetsTheLastCallback(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		var err error
		var shutdown *aside
		s.AfterFunc(ms, s.note("x"))
		s.at("returning", func() {
			synctest.Wait() // until the driver has left, which would tell Shutdown as well
			shutdown = meanwhile(func() { err = s.shutdown() })
		})
		s.requireFired("x 1ms")
		s.pass(day)
		require.True(t, shutdown.hasReturned())
		require.NoError(t, err, "Shutdown hangs")
	})
}

// A callback asks how many are running, itself included, before the driver goes on.
func TestForcedCallbackIsCounted(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		running, asked := int64(-1), make(chan struct{})
		s.AfterFunc(ms, func() {
			running = s.Stats().Running
			close(asked)
		})
		s.at("started", func() { <-asked })
		s.pass(ms)
		require.EqualValues(t, 1, running)
	})
}

// A timer gets another callback as soon as it is idle, which Init allows.
func TestForcedInitAfterTheClaim(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.timer("old")
		x.Reset(ms)
		s.at("claimed", func() { s.Init(x, s.note("new")) })
		s.requireFired("old 1ms")
	})
}

// The same, as the wheel's Drain hands the timer back.
func TestForcedInitDuringDrain(t *testing.T) {
	force(t, 1, func(t *testing.T, s *script) {
		x := s.timer("old")
		x.Reset(ms)
		s.at("swept", func() { s.Init(x, s.note("new")) })
		s.Drain()[0].F()
		s.requireFired("old 0s")
	})
}
