package timingwheel

import (
	"bytes"
	"io"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
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
		require.Equal(t, []SlowCallback{{Name: inThisPackage + "dawdle", For: time.Second}}, log.told(), "while it is at it")
		pass(t, tw, time.Hour+time.Minute)
		want := []SlowCallback{{Name: inThisPackage + "dawdle", For: time.Second}, {Name: inThisPackage + "dawdle", For: 3 * time.Second, Over: true}}
		require.Equal(t, append(want, want...), log.told(), "a schedule's by the name of what the caller gave")
	})
}

func TestStuckInlineCallback(t *testing.T) {
	var log slowLog
	tw := New(WithInline(), WithSlowCallback(time.Millisecond, log.add))
	release := make(chan struct{})
	tw.AfterFunc(0, func() { <-release })
	require.Eventually(t, func() bool { return len(log.told()) == 1 }, time.Minute, time.Millisecond)
	require.False(t, log.told()[0].Over)
	require.Contains(t, log.told()[0].Name, "TestStuckInlineCallback.func")
	close(release)
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Eventually(t, func() bool { return len(log.told()) == 2 }, time.Minute, time.Millisecond)
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
		tw := New(WithExecutor(func(f func()) { work <- f }), WithSlowCallback(time.Second, log.add), withShards(1))
		tw.AfterFunc(time.Millisecond, dawdle)    // begins at once
		tw.AfterFunc(2*time.Millisecond, exactly) // waits in the channel, for 2.999 s
		tw.AfterFunc(3*time.Millisecond, exactly) // has the executor wait for the channel, for 2.998 s
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

// On goroutines of their own callbacks may take as long as they like.
func TestSlowGoroutinesAreNobodysBusiness(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log slowLog
		tw := New(WithSlowCallback(time.Second, log.add))
		tw.AfterFunc(0, dawdle)
		pass(t, tw, time.Hour)
		require.Empty(t, log.told())
	})
}

// TestTrace reads an execution trace back: the driver's regions, callbacks by name, and how
// late the alarm was. Without a trace being taken there is nothing to pay.
func TestTrace(t *testing.T) {
	tw := New(WithInline(), WithWheelSize(2))
	tw.AfterFunc(0, func() {})
	require.Zero(t, testing.AllocsPerRun(100, func() { endRegion(region("none")) }))

	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skip("somebody else takes a trace: ", err)
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
	for _, name := range []string{"timingwheel: driver", "timingwheel: flush what is due", "timingwheel: reinsert ahead"} {
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
