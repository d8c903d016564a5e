package wheeldebug

import (
	"context"
	"log/slog"
	"runtime/pprof"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// This file holds what names callbacks: in the log if they are slow, and in profiles.

// LogSlow returns a hook for timingwheel.WithSlowCallback that logs to l as a warning,
// with the attributes callback, the function's name, and for, how long:
//
//	timingwheel.New(timingwheel.WithInline(),
//		timingwheel.WithSlowCallback(10*time.Millisecond, wheeldebug.LogSlow(slog.Default())))
//
// It panics if l is nil.
func LogSlow(l *slog.Logger) func(timingwheel.SlowCallback) {
	if l == nil {
		panic("wheeldebug: nil Logger")
	}
	return func(c timingwheel.SlowCallback) {
		message := "a timer's callback is holding up the wheel"
		switch {
		case c.Waited:
			message = "the executor was late to begin a timer's callback"
		case c.Alone && c.Over:
			message = "a timer's callback took long"
		case c.Alone:
			message = "a timer's callback is taking long"
		case c.Over:
			message = "a timer's callback held up the wheel"
		}
		l.Warn(message, "callback", c.Name, "for", c.For)
	}
}

// Label is the key of the label that WithProfilerLabels sets.
const Label = "timer"

// WithProfilerLabels has every callback run with the labels of ctx for package
// runtime/pprof and one more, Label, whose value is the function's name: so that a
// profile tells whose timers take the processor, or whose goroutines hang. Goroutines
// that a callback starts inherit them.
//
// Labels come from a context, as Go does not tell which a goroutine has. So a callback
// has none but these, and a worker of WithExecutor's has those of ctx afterwards. If your
// workers have labels, give the context that they come from; if each worker has its own,
// do without WithProfilerLabels. For no other labels ctx is context.Background().
//
// Cost: some allocations for each callback. WithProfilerLabels panics if ctx is nil.
func WithProfilerLabels(ctx context.Context) timingwheel.Option {
	if ctx == nil {
		panic("wheeldebug: WithProfilerLabels with a nil context")
	}
	return inside.Hooks.Around(func(name string, f func()) {
		pprof.Do(ctx, pprof.Labels(Label, name), func(context.Context) { f() })
	}).(timingwheel.Option)
}
