package bench

import (
	"context"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// BenchmarkContext makes a context with a timeout and cancels it: below context.Background, below a
// parent that can be cancelled, and each with a call of Done in between, as a waiting caller makes.
func BenchmarkContext(b *testing.B) {
	tw := timingwheel.New()
	defer tw.Stop()
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	ours, cancelOurs := tw.WithTimeout(context.Background(), 2*time.Hour)
	defer cancelOurs()
	theirs, cancelTheirs := context.WithTimeout(context.Background(), 2*time.Hour)
	defer cancelTheirs()
	type withTimeout func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	use := func(make withTimeout, parent context.Context, done bool) func() {
		return func() {
			ctx, cancel := make(parent, time.Hour)
			if done {
				ctx.Done()
			}
			cancel()
		}
	}
	for _, p := range []struct {
		name         string
		ours, theirs context.Context
	}{
		{"background", context.Background(), context.Background()},
		{"cancellable", cancellable, cancellable},
		{"timeout", ours, theirs}, // each below a parent of its own package
	} {
		for _, done := range []bool{false, true} {
			name := "parent=" + p.name
			if done {
				name += "/done"
			}
			b.Run(name, func(b *testing.B) {
				beside(b,
					use(tw.WithTimeout, p.ours, done),
					use(context.WithTimeout, p.theirs, done))
			})
		}
	}
	b.Run("parent=background/cause", func(b *testing.B) {
		beside(b, func() {
			_, cancel := tw.WithTimeoutCause(context.Background(), time.Hour, nil)
			cancel()
		}, func() {
			_, cancel := context.WithTimeoutCause(context.Background(), time.Hour, nil)
			cancel()
		})
	})
}

// BenchmarkChannel makes a timer with a channel and stops it, and moves a pending one.
func BenchmarkChannel(b *testing.B) {
	tw := timingwheel.New()
	defer tw.Stop()
	b.Run("NewTimer", func(b *testing.B) {
		beside(b,
			func() { tw.NewTimer(time.Hour).Stop() },
			func() { time.NewTimer(time.Hour).Stop() })
	})
	b.Run("Reset", func(b *testing.B) {
		ours, theirs := tw.NewTimer(time.Hour), time.NewTimer(time.Hour)
		beside(b, func() { ours.Reset(time.Hour) }, func() { theirs.Reset(time.Hour) })
		ours.Stop()
		theirs.Stop()
	})
	b.Run("NewTicker", func(b *testing.B) {
		beside(b,
			func() { tw.NewTicker(time.Hour).Stop() },
			func() { time.NewTicker(time.Hour).Stop() })
	})
}

// beside runs batches of ours and of package time's in turn, so that other load on the machine
// affects both. It reports the time of each and the ratio.
func beside(b *testing.B, ours, theirs func()) {
	const batch = 1000
	var spent [2]time.Duration
	for n := 0; n < b.N; n += batch {
		for i, f := range []func(){ours, theirs} {
			began := time.Now()
			for range batch {
				f()
			}
			spent[i] += time.Since(began)
		}
	}
	calls := float64((b.N + batch - 1) / batch * batch)
	b.ReportMetric(float64(spent[0])/calls, "ns/op")
	b.ReportMetric(float64(spent[1])/calls, "packagetime-ns")
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "ratio")
}
