package workload

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A prepare opens the case's implementation and makes everything ready for the calls that a
// workload times.
type prepare func(Case) (*Calls, error)

// Calls are ready to be timed.
type Calls struct {
	// loops has one entry for each goroutine. loop(n) makes the call n times and allocates nothing
	// itself.
	loops []func(n int)
	bed   *bed
}

// Close stops the timers and ends the instance.
func (k *Calls) Close() { k.bed.close() }

// callsFor is how long calls are timed in a full run.
const callsFor = 300 * time.Millisecond

// chunk is how many calls a loop makes between two looks at the clock. It is so large that the look
// does not count, and so small that a library with slow calls ends in time.
const chunk = 512

// run makes the calls for a while to warm up, and then for the case's duration.
func (p prepare) run(c Case) (Result, error) {
	defer SetProcs(c.Procs)() // first, because the implementation may look at it
	k, err := p(c)
	if err != nil {
		return Result{}, err
	}
	defer k.Close()
	c.progress(0.5)
	runtime.GC() // so that the calls do not pay for the garbage of the preparation
	k.during(c.Duration / 5)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, took := k.during(c.Duration)
	runtime.ReadMemStats(&after)

	var r Result
	r.add("time", "ns/call", float64(took.Nanoseconds())/float64(n))
	r.add("allocs", "allocs/call", float64(after.Mallocs-before.Mallocs)/float64(n))
	r.add("bytes", "B/call", float64(after.TotalAlloc-before.TotalAlloc)/float64(n))
	c.progress(1)
	return r, nil
}

// during makes calls on all goroutines for about d. It returns how many it made in all, and the
// time from the first to the last. The time per call halves with two goroutines that do not slow
// each other down.
func (k *Calls) during(d time.Duration) (n int, took time.Duration) {
	var total atomic.Int64
	took = k.together(func(loop func(int)) {
		made := 0
		for start := time.Now(); time.Since(start) < d; made += chunk {
			loop(chunk)
		}
		total.Add(int64(made))
	})
	return int(total.Load()), took
}

// Times makes n calls in all.
func (k *Calls) Times(n int) {
	var worker atomic.Int64
	k.together(func(loop func(int)) {
		i, of := int(worker.Add(1)-1), len(k.loops)
		loop(n*(i+1)/of - n*i/of)
	})
}

// together runs f for each loop, on goroutines that begin together, and returns the time until the
// last has finished.
func (k *Calls) together(f func(loop func(n int))) time.Duration {
	if len(k.loops) == 1 {
		start := time.Now()
		f(k.loops[0])
		return time.Since(start)
	}
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for _, loop := range k.loops {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			f(loop)
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return time.Since(start)
}

// SetProcs sets GOMAXPROCS if several goroutines make the calls, and returns a function that
// restores it. A single goroutine leaves the other processors to the collector and to the
// implementation's goroutines, as in a program.
func SetProcs(procs int) (restore func()) {
	if procs <= 1 {
		return func() {}
	}
	was := runtime.GOMAXPROCS(procs)
	return func() { runtime.GOMAXPROCS(was) }
}
