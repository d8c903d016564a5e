package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// each runs a benchmark for every implementation beside numbers of timers that
// stay pending throughout. -short leaves out the largest.
func each(b *testing.B, run func(b *testing.B, in Instance)) {
	for _, pending := range []int{0, 100_000, 1_000_000} {
		if testing.Short() && pending > 100_000 {
			continue
		}
		for _, im := range []Impl{Wheel, Inline, Time} {
			b.Run(fmt.Sprintf("impl=%s/pending=%d", im.Name, pending), func(b *testing.B) {
				in := im.Open()
				kept := keepPending(in, pending)
				runtime.GC() // the garbage of making them is not the benchmark's
				b.ReportAllocs()
				b.ResetTimer()
				run(b, in)
				b.StopTimer()
				for _, t := range kept {
					t.Stop()
				}
				in.Close()
				runtime.GC() // package time lets go of stopped timers late
			})
		}
	}
}

func nothing() {}

// keepPending starts n timers of one to sixty minutes.
func keepPending(in Instance, n int) []Timer {
	r := rand.New(rand.NewPCG(1, 2))
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = in.Start(time.Minute+time.Duration(r.Int64N(int64(59*time.Minute))), nothing)
	}
	return timers
}

// delays are 4,096 delays of 1 to 31 s: enough to spread over the wheel, few
// enough to stay in the cache.
var delays = func() (d [4096]time.Duration) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range d {
		d[i] = time.Second + time.Duration(r.Int64N(int64(30*time.Second)))
	}
	return d
}()

// BenchmarkStartStop starts a timer and stops it: a timeout that did not happen.
func BenchmarkStartStop(b *testing.B) {
	each(b, func(b *testing.B, in Instance) {
		i := 0
		for b.Loop() {
			in.Start(delays[i%len(delays)], nothing).Stop()
			i++
		}
	})
}

// BenchmarkReset moves one timer to a random earlier or later time.
func BenchmarkReset(b *testing.B) {
	each(b, func(b *testing.B, in Instance) {
		t := in.New(nothing)
		defer t.Stop()
		i := 0
		for b.Loop() {
			t.Reset(delays[i%len(delays)])
			i++
		}
	})
}

// BenchmarkTouch pushes one timer's deadline on by the same timeout every time,
// as a connection does with every packet.
func BenchmarkTouch(b *testing.B) {
	each(b, func(b *testing.B, in Instance) {
		t := in.New(nothing)
		defer t.Stop()
		for b.Loop() {
			t.Reset(5 * time.Second)
		}
	})
}

// BenchmarkFire starts timers that are due within 100 ms, in batches of up to
// 100,000, and waits for them: the time of a whole life, waiting included, and
// the processor is mostly idle for small b.N.
func BenchmarkFire(b *testing.B) {
	each(b, func(b *testing.B, in Instance) {
		const batch = 100_000
		var left atomic.Int64
		var done sync.WaitGroup
		fired := func() {
			if left.Add(-1) == 0 {
				done.Done()
			}
		}
		for n := b.N; n > 0; n -= batch {
			size := min(n, batch)
			left.Store(int64(size))
			done.Add(1)
			for i := range size {
				in.Start(delays[i%len(delays)]/310, fired)
			}
			done.Wait()
		}
	})
}
