package timingwheel

import (
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func isPrecise(tw *TimingWheel) bool {
	tw.alarm.mu.Lock()
	defer tw.alarm.mu.Unlock()
	_, ok := tw.alarm.waker.bell.(*timerfd)
	return ok
}

// TestPreciseWakeup: never early, and each once.
func TestPreciseWakeup(t *testing.T) {
	tw := New(WithPreciseWakeup(), WithTick(50*time.Microsecond))
	defer tw.Stop()
	var fired sync.WaitGroup
	r := newRand(1)
	for range 2000 {
		d := time.Duration(r.Int64N(int64(200 * time.Millisecond)))
		fired.Add(1)
		start := time.Now()
		tw.AfterFunc(d, func() {
			if early := d - time.Since(start); early > 0 {
				t.Errorf("%v early", early)
			}
			fired.Done()
		})
	}
	require.True(t, isPrecise(tw))
	fired.Wait()
	require.NoError(t, tw.Shutdown(t.Context()))
	require.NoError(t, tw.verify(true))
}

// TestPreciseWakeupGoroutines: one is parked while something is pending, however
// often the alarm is moved.
func TestPreciseWakeupGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	tw := New(WithPreciseWakeup())
	goroutinesFallTo(t, before)
	for i := range 100 {
		tw.AfterFunc(time.Hour-time.Duration(i)*time.Minute/2, func() {})
	}
	goroutinesFallTo(t, before+1)
	require.Greater(t, runtime.NumGoroutine(), before)
	require.NoError(t, tw.Shutdown(t.Context()))
}

// timerFiles returns how many descriptors of timer files the process has.
func timerFiles(t *testing.T) (n int) {
	t.Helper()
	const folder = "/proc/self/fd/"
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, file := range files {
		if what, _ := os.Readlink(folder + file.Name()); what == "anon_inode:[timerfd]" {
			n++
		}
	}
	return n
}

// TestPreciseWakeupOfIdleWheels: wheels that are kept, but have nothing pending, give the
// goroutine and the descriptor back, and work again afterwards.
func TestPreciseWakeupOfIdleWheels(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), timerFiles(t)
	var wheels []*TimingWheel
	for range 20 {
		tw := New(WithPreciseWakeup())
		wheels = append(wheels, tw)
		tw.AfterFunc(time.Hour, func() {}).Stop()
		require.True(t, isPrecise(tw))
	}
	fires := func(tw *TimingWheel, d time.Duration) {
		fired := make(chan struct{})
		tw.AfterFunc(d, func() { close(fired) })
		require.True(t, isPrecise(tw))
		<-fired
	}
	rests := func() {
		goroutinesFallTo(t, goroutines)
		for start := time.Now(); timerFiles(t) > files; time.Sleep(time.Millisecond) {
			require.Less(t, time.Since(start), 20*time.Second, "%d descriptors", timerFiles(t))
		}
	}
	rests()
	for _, tw := range wheels {
		fires(tw, time.Millisecond)
		tw.AfterFunc(time.Hour, func() {}).Stop()
	}
	rests()
	for _, tw := range wheels[:2] {
		x := tw.AfterFunc(time.Hour, func() {})
		fires(tw, 2*idleBell)
		x.Stop()
	}
	rests()
	for _, tw := range wheels {
		wakeups := tw.Stats().Wakeups
		time.Sleep(time.Millisecond)
		require.Equal(t, wakeups, tw.Stats().Wakeups, "nothing recurs")
		require.NoError(t, tw.verify(true))
		require.NoError(t, tw.Shutdown(t.Context()))
	}
}

// TestPreciseWakeupOfDroppedWheels: wheels that the program drops give them back too.
func TestPreciseWakeupOfDroppedWheels(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), timerFiles(t)
	func() {
		for range 50 {
			tw := New(WithPreciseWakeup())
			tw.AfterFunc(time.Hour, func() {}).Stop()
			require.True(t, isPrecise(tw))
		}
	}()
	start := time.Now()
	for runtime.NumGoroutine() > goroutines || timerFiles(t) > files {
		runtime.GC()
		time.Sleep(time.Millisecond)
		require.Less(t, time.Since(start), 20*time.Second, "%d goroutines, %d descriptors",
			runtime.NumGoroutine(), timerFiles(t))
	}
}

// TestPreciseWakeupRingsOnce: the alarm does not ring before its time.
func TestPreciseWakeupRingsOnce(t *testing.T) {
	tw := New(WithPreciseWakeup())
	fired := make(chan struct{})
	tw.AfterFunc(20*time.Millisecond, func() { close(fired) })
	<-fired
	require.Equal(t, int64(1), tw.Stats().Wakeups)
	require.NoError(t, tw.Shutdown(t.Context()))
}

// TestPreciseWakeupStop: the parked goroutine does not outlive Shutdown, and the
// descriptor is given back.
func TestPreciseWakeupStop(t *testing.T) {
	for range 100 {
		tw := New(WithPreciseWakeup(), WithInline())
		tw.AfterFunc(time.Hour, func() { t.Error("ran") })
		require.True(t, isPrecise(tw))
		require.NoError(t, tw.Shutdown(t.Context()))
		tw.alarm.mu.Lock()
		require.ErrorContains(t, tw.alarm.waker.bell.(*timerfd).file.Close(), "already closed")
		tw.alarm.mu.Unlock()
	}
}

// TestPreciseWakeupGoexit: a callback that ends the driver's goroutine does not end
// the alarm.
func TestPreciseWakeupGoexit(t *testing.T) {
	tw := New(WithPreciseWakeup(), WithInline())
	done := make(chan struct{})
	for range 10 {
		tw.AfterFunc(time.Millisecond, runtime.Goexit)
	}
	tw.AfterFunc(20*time.Millisecond, func() { close(done) })
	<-done
	require.NoError(t, tw.Shutdown(t.Context()))
}

// TestPreciseWakeupFallsBack: in a bubble, and without a file descriptor, the wheel
// works all the same.
func TestPreciseWakeupFallsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithPreciseWakeup())
		r := newRecorder()
		tw.AfterFunc(time.Minute, r.hit)
		require.False(t, isPrecise(tw))
		pass(t, tw, time.Hour)
		require.Equal(t, []time.Duration{time.Minute}, r.at)
		require.NoError(t, tw.Shutdown(t.Context()))
		synctest.Wait()
	})

	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	tw := New(WithPreciseWakeup())
	fired := make(chan struct{})
	tw.AfterFunc(time.Millisecond, func() { close(fired) })
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.False(t, isPrecise(tw))
	<-fired
	require.NoError(t, tw.Shutdown(t.Context()))
}

// TestPreciseWakeupTakesNoBellForNothing: a timer that never comes needs no bell, and neither does
// its Stop.
func TestPreciseWakeupTakesNoBellForNothing(t *testing.T) {
	tw := New(WithPreciseWakeup())
	defer tw.Stop()
	require.True(t, tw.AfterFunc(math.MaxInt64, func() {}).Stop())
	require.False(t, isPrecise(tw))
}
