package bench

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// more is for sizes that take minutes and gigabytes:
//
//	go test -run '^$' -bench StartStop ./bench -pending 10000000
var more = flag.Int("pending", 0, "benchmark beside this `number` of pending timers only")

func BenchmarkStartStop(b *testing.B)   { benchmark(b, workload.StartStop) }
func BenchmarkChurn(b *testing.B)       { benchmark(b, workload.Churn) }
func BenchmarkRearm(b *testing.B)       { benchmark(b, workload.Rearm) }
func BenchmarkTouchHot(b *testing.B)    { benchmark(b, workload.TouchHot) }
func BenchmarkTouchAt(b *testing.B)     { benchmark(b, workload.TouchAt) }
func BenchmarkTouchRandom(b *testing.B) { benchmark(b, workload.TouchRandom) }
func BenchmarkMemory(b *testing.B)      { benchmark(b, workload.Memory) }
func BenchmarkGC(b *testing.B)          { benchmark(b, workload.GC) }
func BenchmarkIdle(b *testing.B)        { benchmark(b, workload.Idle) }
func BenchmarkIdleServer(b *testing.B)  { benchmark(b, workload.IdleServer) }
func BenchmarkPunctual(b *testing.B)    { benchmark(b, workload.Punctual) }
func BenchmarkFire(b *testing.B)        { benchmark(b, workload.Fire) }
func BenchmarkBurst(b *testing.B)       { benchmark(b, workload.Burst) }

// benchmark runs a workload as sub-benchmarks whose names benchstat can pivot on: each size on one
// goroutine, and the smallest on several.
func benchmark(b *testing.B, w workload.Workload) {
	pending := sizes(w)
	for _, im := range workload.Impls {
		if !w.Takes(im) || w.Lacks(im) != "" {
			continue
		}
		for _, n := range pending {
			for _, procs := range w.Procs {
				if procs > 1 && (n != pending[0] || testing.Short() && procs > 2) {
					continue
				}
				c := workload.Case{Impl: im, Pending: n, Procs: procs}
				name := fmt.Sprintf("impl=%s/pending=%d/procs=%d", im.Name, n, procs)
				if w.PerCall() {
					benchmarkCalls(b, name, w, c)
				} else {
					b.Run(name, func(b *testing.B) { benchmarkRun(b, w, c) })
				}
			}
		}
	}
}

// sizes leaves out what takes too long for everyday use.
func sizes(w workload.Workload) []int {
	if *more > 0 {
		return []int{*more}
	}
	limit := 1_000_000
	if testing.Short() {
		limit = 100_000
	}
	var usual []int
	for _, n := range w.Pending {
		usual = append(usual, min(n, limit))
	}
	return slices.Compact(usual)
}

// benchmarkCalls makes b.N calls in all, on as many goroutines as the case says. The testing
// package runs a benchmark several times with growing b.N. Only the first of them starts the
// pending timers.
func benchmarkCalls(b *testing.B, name string, w workload.Workload, c workload.Case) {
	var k *workload.Calls
	b.Run(name, func(b *testing.B) {
		defer workload.SetProcs(c.Procs)() // first, because the implementation may look at it
		if k == nil {
			var err error
			if k, err = w.Prepare(c); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC() // so that the calls do not pay for the garbage of the preparation
		b.ReportAllocs()
		b.ResetTimer()
		k.Times(b.N)
		b.StopTimer()
	})
	if k != nil { // -bench selected the name
		k.Close()
	}
}

// benchmarkRun runs the workload b.N times and reports the mean of each metric.
func benchmarkRun(b *testing.B, w workload.Workload, c workload.Case) {
	if testing.Short() {
		c = small(w, c)
	}
	sum := map[string]float64{}
	for range b.N {
		r, err := w.Run(c)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range r.Metrics {
			sum[unit(m)] += m.Value
		}
	}
	for u, v := range sum {
		b.ReportMetric(v/float64(b.N), u)
	}
	b.ReportMetric(0, "ns/op") // the time of a whole run, which says nothing
}

// unit returns a metric's name and unit in the form of the testing package, without blanks.
func unit(m workload.Metric) string {
	return strings.ReplaceAll(strings.Trim(m.Name+"-"+m.Unit, "-"), " ", "-")
}

// small scales the case down to a fraction of a second.
func small(w workload.Workload, c workload.Case) workload.Case {
	switch w.Name {
	case workload.Idle.Name:
		c.N, c.Duration = 1_000, 200*time.Millisecond
	case workload.GC.Name:
		c.N = 3
	case workload.Punctual.Name:
		c.N, c.Duration = 2_000, 300*time.Millisecond
	case workload.Memory.Name:
	default:
		c.N, c.Duration = 20_000, 500*time.Millisecond
	}
	return c
}
