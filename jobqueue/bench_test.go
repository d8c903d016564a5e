package jobqueue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// BenchmarkDeliver is what the client adds to a store: jobs that are due are claimed, handled and
// acknowledged, on the store in memory.
func BenchmarkDeliver(b *testing.B) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			c := NewMemory(quiet)
			items := make([]Item, b.N)
			for i := range items {
				items[i].Body = make([]byte, 100)
			}
			if _, err := c.AddMany(b.Context(), "q", items); err != nil {
				b.Fatal(err)
			}
			var left sync.WaitGroup
			left.Add(b.N)
			c.Handle("q", func(context.Context, *Job) error { left.Done(); return nil },
				Workers(workers))
			b.ReportAllocs()
			b.ResetTimer()
			go c.Run(b.Context())
			left.Wait()
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkLateness delivers a thousand jobs a second and reports how late their handlers began.
func BenchmarkLateness(b *testing.B) {
	c := NewMemory(quiet)
	c.Handle("q", func(context.Context, *Job) error { return nil })
	go c.Run(b.Context())
	start := time.Now().Add(10 * time.Millisecond)
	for i := range b.N {
		_, err := c.Add(b.Context(), "q", nil,
			At(start.Add(time.Duration(i)*time.Millisecond+
				time.Duration(i%7)*100*time.Microsecond)))
		if err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(time.Until(start.Add(time.Duration(b.N)*time.Millisecond + 50*time.Millisecond)))
	stats, err := c.Stats(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	q := stats.Queues[0]
	b.ReportMetric(float64(q.Lateness.Quantile(0.5).Microseconds()), "p50-µs")
	b.ReportMetric(float64(q.Lateness.Quantile(0.99).Microseconds()), "p99-µs")
	b.ReportMetric(float64(q.Lateness.Sum.Microseconds())/float64(q.Lateness.Samples), "mean-µs")
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
}
