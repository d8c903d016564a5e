package bench

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// more is for the sizes that take minutes and gigabytes:
//
//	go test -run '^$' -bench StartStop ./bench -pending 10000000
var more = flag.Int("pending", 0, "benchmark beside this many pending timers instead of the usual sizes")

func BenchmarkStartStop(b *testing.B)   { benchmark(b, startStop) }
func BenchmarkChurn(b *testing.B)       { benchmark(b, churn) }
func BenchmarkRearm(b *testing.B)       { benchmark(b, rearm) }
func BenchmarkTouchHot(b *testing.B)    { benchmark(b, touchHot) }
func BenchmarkTouchAt(b *testing.B)     { benchmark(b, touchAt) }
func BenchmarkTouchRandom(b *testing.B) { benchmark(b, touchRandom) }
func BenchmarkMemory(b *testing.B)      { benchmark(b, memory) }
func BenchmarkGC(b *testing.B)          { benchmark(b, gc) }
func BenchmarkIdle(b *testing.B)        { benchmark(b, idle) }
func BenchmarkIdleServer(b *testing.B)  { benchmark(b, idleServer) }
func BenchmarkPunctual(b *testing.B)    { benchmark(b, punctual) }
func BenchmarkFire(b *testing.B)        { benchmark(b, fire) }
func BenchmarkBurst(b *testing.B)       { benchmark(b, burst) }

// benchmark runs a workload as sub-benchmarks with names that benchstat can pivot
// on: for each size on one goroutine, and for the smallest on several.
func benchmark(b *testing.B, w Workload) {
	pending := sizes(w)
	for _, im := range Impls {
		if !w.Takes(im) || w.Lacks(im) != "" || w.calls != nil && im.Name == Inline.Name { // that differs in firing alone
			continue
		}
		for _, n := range pending {
			for _, procs := range w.Procs {
				if procs > 1 && (n != pending[0] || testing.Short() && procs > 2) {
					continue
				}
				c := Case{Impl: im, Pending: n, Procs: procs}
				name := fmt.Sprintf("impl=%s/pending=%d/procs=%d", im.Name, n, procs)
				if w.calls != nil {
					benchmarkCalls(b, name, w, c)
				} else {
					b.Run(name, func(b *testing.B) { benchmarkRun(b, w, c) })
				}
			}
		}
	}
}

// sizes leaves out what takes too long for everyday use.
func sizes(w Workload) []int {
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

// benchmarkCalls makes b.N calls in all, on as many goroutines as the case says.
// The testing package runs a benchmark again and again with larger and larger b.N;
// the pending timers are started for the first time only.
func benchmarkCalls(b *testing.B, name string, w Workload, c Case) {
	var k *calls
	b.Run(name, func(b *testing.B) {
		defer setProcs(c.Procs)() // first: what is made next may ask for it
		if k == nil {
			var err error
			if k, err = w.calls(c); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC() // the garbage of getting ready is not the benchmark's
		b.ReportAllocs()
		b.ResetTimer()
		k.times(b.N)
		b.StopTimer()
	})
	if k != nil { // the name was asked for
		k.close()
	}
}

// benchmarkRun runs the workload b.N times and reports the mean of each metric.
func benchmarkRun(b *testing.B, w Workload, c Case) {
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
	b.ReportMetric(0, "ns/op") // of a whole run; it says nothing
}

// unit names a metric as the testing package wants it, without blanks.
func unit(m Metric) string {
	return strings.ReplaceAll(strings.Trim(m.Name+"-"+m.Unit, "-"), " ", "-")
}

// small is the case scaled down to a fraction of a second.
func small(w Workload, c Case) Case {
	switch w.Name {
	case idle.Name:
		c.N, c.Duration = 1_000, 200*time.Millisecond
	case gc.Name:
		c.N = 3
	case punctual.Name:
		c.N, c.Duration = 2_000, 300*time.Millisecond
	case memory.Name:
	default:
		c.N, c.Duration = 20_000, 500*time.Millisecond
	}
	return c
}
