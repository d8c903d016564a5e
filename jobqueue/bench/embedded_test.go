package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

const (
	callers  = 256
	bodySize = 100
	queue    = "orders/expire"
)

func BenchmarkEmbeddedAdd(b *testing.B) {
	for _, callers := range []int{callers, 1} {
		b.Run(fmt.Sprintf("empty/callers=%d", callers), func(b *testing.B) {
			c := open(b, b.TempDir())
			add(b, c, callers)
			check(b, c.Close())
		})
		b.Run(fmt.Sprintf("yardstick/callers=%d", callers), func(b *testing.B) {
			c := newYardstick(b)
			add(b, c, callers)
			check(b, c.Close())
		})
	}
	b.Run("many", func(b *testing.B) {
		c := open(b, b.TempDir())
		m := start(b)
		addMany(b, c, b.N, scattered)
		m.report(b.N)
		check(b, c.Close())
	})
}

// BenchmarkEmbeddedPending is all that is measured beside many pending jobs. Its parts follow each
// other on one store, as filling it takes longest.
func BenchmarkEmbeddedPending(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store")
	c := open(b, path)
	first := keys.Load()
	addMany(b, c, pending(), scattered)
	known := keys.Load() - first
	random := func() jobqueue.Ref {
		return jobqueue.ByKey(fmt.Sprintf("order-%012d", first+1+rand.Int64N(known)))
	}
	b.Run("add", func(b *testing.B) { add(b, c, callers) })
	b.Run("reschedule", func(b *testing.B) {
		m := start(b)
		each(b, callers, b.N, func(int) error {
			return c.Reschedule(context.Background(), queue, random(),
				time.Hour+time.Duration(rand.Int64N(int64(100*time.Hour))))
		})
		m.report(b.N)
	})
	b.Run("cancel", func(b *testing.B) {
		var gone atomic.Int64
		m := start(b)
		each(b, callers, b.N, func(int) error {
			if err := c.Cancel(context.Background(), queue, random()); err != nil {
				gone.Add(1)
			}
			return nil
		})
		m.report(b.N)
	})
	// A Client has one handler a queue, and a benchmark may run more than once.
	var handle atomic.Value
	c.Handle(queue, func(context.Context, *jobqueue.Job) error {
		handle.Load().(func())()
		return nil
	}, jobqueue.Workers(64))
	b.Run("deliver", func(b *testing.B) { deliver(b, c, &handle) })
	b.Run("memory", func(b *testing.B) {
		debug.FreeOSMemory()
		b.ReportMetric(float64(anonymous())/1e6, "RssAnon-MB")
		b.ReportMetric(float64(size(b, path))/1e6, "disk-MB")
	})
	check(b, c.Close())
	b.Run("open", func(b *testing.B) {
		const rounds = 3
		var took time.Duration
		for range rounds {
			began := time.Now()
			c := open(b, path)
			_, err := c.Add(context.Background(), queue+"/now", nil)
			check(b, err)
			_, err = c.Reserve(context.Background(), queue+"/now", 1, time.Minute)
			check(b, err)
			took += time.Since(began)
			check(b, c.Close())
		}
		b.ReportMetric(float64(took.Milliseconds())/rounds, "ms-to-first-job")
	})
}

// deliver adds jobs that are due at scattered times that have passed, and measures how fast
// handlers get them and their acknowledgements are stored.
func deliver(b *testing.B, c *jobqueue.Client, handle *atomic.Value) {
	addMany(b, c, b.N, func() jobqueue.AddOption {
		return jobqueue.At(time.Now().Add(-time.Duration(rand.Int64N(int64(time.Hour)))))
	})
	n := (b.N + 999) / 1000 * 1000
	var left sync.WaitGroup
	left.Add(n)
	handle.Store(left.Done)
	m := start(b)
	stop := run(c)
	left.Wait()
	stop()
	m.report(n)
}

// BenchmarkEmbeddedChurn adds and acknowledges jobs through a store that holds many pending ones
// all the time. It measures how large the files become, beside those of a new store of as many
// jobs, and how long reads take behind what was deleted.
func BenchmarkEmbeddedChurn(b *testing.B) {
	const held = 100_000
	path := filepath.Join(b.TempDir(), "store")
	c := open(b, path)
	due := func() jobqueue.AddOption {
		return jobqueue.In(time.Duration(rand.Int64N(int64(4 * time.Second))))
	}
	var done sync.WaitGroup
	done.Add(b.N)
	var left atomic.Int64
	left.Store(int64(b.N))
	room := make(chan struct{}, held)
	c.Handle(queue, func(context.Context, *jobqueue.Job) error {
		room <- struct{}{}
		if left.Add(-1) >= 0 {
			done.Done()
		}
		return nil
	}, jobqueue.Workers(64))
	addMany(b, c, held, due)
	largest := watchSize(b, path)
	m := start(b)
	stop := run(c)
	each(b, callers, b.N, func(int) error {
		<-room
		_, err := c.Add(context.Background(), queue, make([]byte, bodySize), due(),
			jobqueue.Key(key()))
		return err
	})
	done.Wait()
	m.report(b.N)
	stop()

	b.ReportMetric(float64(largest())/1e6, "largest-MB")
	b.ReportMetric(float64(size(b, path))/1e6, "disk-MB")
	b.ReportMetric(float64(newSize(b, held))/1e6, "live-MB")
	began := time.Now()
	_, _, err := c.List(context.Background(), queue, jobqueue.Delayed, "", 100)
	check(b, err)
	b.ReportMetric(float64(time.Since(began).Microseconds()), "list-µs")
	began = time.Now()
	_, err = c.Reserve(context.Background(), queue, 1, time.Minute)
	check(b, err)
	b.ReportMetric(float64(time.Since(began).Microseconds()), "claim-µs")
	check(b, c.Close())
}
