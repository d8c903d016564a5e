package wheeldebug

import (
	"bytes"
	"context"
	"log/slog"
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// here begins the names of this package's functions.
const here = "github.com/go-timingwheel/timingwheel/wheeldebug."

func TestLogSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		withoutTime := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		options := &slog.HandlerOptions{ReplaceAttr: withoutTime}
		plain := slog.New(slog.NewTextHandler(&out, options))
		tw := timingwheel.New(timingwheel.WithInline(),
			timingwheel.WithSlowCallback(time.Second, LogSlow(plain)))
		tw.AfterFunc(time.Minute, dawdle)
		time.Sleep(time.Hour)
		synctest.Wait()
		name := "callback=" + here + "dawdle"
		require.Equal(t,
			`level=WARN msg="a timer's callback is holding up the wheel" `+name+" for=1s\n"+
				`level=WARN msg="a timer's callback held up the wheel" `+name+" for=3s\n",
			out.String())

		out.Reset()
		waited := timingwheel.SlowCallback{Name: "f", For: time.Second, Waited: true, Over: true}
		LogSlow(plain)(waited)
		require.Equal(t,
			`level=WARN msg="the executor was late to begin a timer's callback" callback=f for=1s`+
				"\n",
			out.String())

		out.Reset()
		tw = timingwheel.New(timingwheel.WithSlowCallback(time.Second, LogSlow(plain)))
		tw.AfterFunc(time.Minute, dawdle)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, `level=WARN msg="a timer's callback is taking long" `+name+" for=1s\n"+
			`level=WARN msg="a timer's callback took long" `+name+" for=3s\n", out.String())
	})
	require.PanicsWithValue(t, "wheeldebug: nil Logger", func() { LogSlow(nil) })
}

func dawdle() { time.Sleep(3 * time.Second) }

// In the goroutine profile, the goroutine of a callback has its label, whatever the executor. So
// does that of a schedule's run. The label is gone when the callback has returned.
func TestProfilerLabels(t *testing.T) {
	for name, opts := range map[string][]timingwheel.Option{
		"goroutine": nil,
		"inline":    {timingwheel.WithInline()},
		"custom":    {timingwheel.WithExecutor(func(f func()) { go f() })},
	} {
		t.Run(name, func(t *testing.T) {
			tw := timingwheel.New(append(opts, WithProfilerLabels(context.Background()))...)
			for _, start := range []func(f func()){
				func(f func()) { tw.AfterFunc(0, f) },
				func(f func()) { tw.ScheduleFunc(once{}, f, timingwheel.StartNow()) },
			} {
				profile := make(chan string)
				start(func() { profile <- goroutines(t) })
				require.Contains(t, <-profile, `"timer":"`+here+`TestProfilerLabels.func`)
			}
			require.NoError(t, tw.Shutdown(t.Context()))
			require.NotContains(t, goroutines(t), `"timer":`)
		})
	}
}

// A worker keeps the labels of the context that was passed to WithProfilerLabels, and a callback
// has them too.
func TestProfilerLabelsOfAWorker(t *testing.T) {
	work := make(chan func())
	profiles := make(chan string)
	worker := pprof.WithLabels(context.Background(), pprof.Labels("pool", "orders"))
	var tw *timingwheel.TimingWheel
	go pprof.Do(worker, pprof.Labels(), func(context.Context) {
		for f := range work {
			f()
			profiles <- goroutines(t)
		}
		close(profiles)
	})
	tw = timingwheel.New(timingwheel.WithExecutor(func(f func()) { work <- f }),
		WithProfilerLabels(worker))
	tw.AfterFunc(time.Millisecond, func() { profiles <- goroutines(t) })
	during, after := <-profiles, <-profiles
	require.Regexp(t, `"pool":"orders", "timer":"`+here+`TestProfilerLabelsOfAWorker.func`, during)
	require.Contains(t, after, `"pool":"orders"`)
	require.NotContains(t, after, `"timer":`)
	require.NoError(t, tw.Shutdown(t.Context()))
	close(work)
	<-profiles
	require.PanicsWithValue(t, "wheeldebug: WithProfilerLabels with a nil context", func() {
		//lint:ignore SA1012 the misuse under test
		WithProfilerLabels(nil)
	})
}

// once is a Scheduler without runs.
type once struct{}

func (once) Next(time.Time) time.Time { return time.Time{} }

func goroutines(t *testing.T) string {
	var out bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&out, 1))
	return out.String()
}
