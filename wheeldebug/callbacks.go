package wheeldebug

import (
	"context"
	"log/slog"
	"runtime/pprof"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// This file names callbacks: slow ones in the log, and all of them in profiles.

// LogSlow returns a hook for timingwheel.WithSlowCallback that logs a warning to l. Its attributes
// are callback, the function's name, and for, the duration:
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

// WithProfilerLabels runs every callback with the runtime/pprof labels of ctx and one more, Label,
// whose value is the function's name. A profile then shows whose timers use the processor, or whose
// goroutines hang. Goroutines that a callback starts inherit the labels.
//
// A callback has only these labels, and a worker of WithExecutor has those of ctx afterwards,
// because Go does not report the labels of a goroutine. If all your workers have the same labels,
// pass the context that these come from. If each has its own, do not use WithProfilerLabels.
// Without workers, or if they have no labels, pass context.Background().
//
// It costs a few allocations for each callback. WithProfilerLabels panics if ctx is nil.
func WithProfilerLabels(ctx context.Context) timingwheel.Option {
	if ctx == nil {
		panic("wheeldebug: WithProfilerLabels with a nil context")
	}
	return inside.Hooks.Around(func(name string, f func()) {
		pprof.Do(ctx, pprof.Labels(Label, name), func(context.Context) { f() })
	}).(timingwheel.Option)
}
