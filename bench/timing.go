package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A prepare opens the case's implementation and gets everything ready for the
// calls that a workload times.
type prepare func(Case) (*calls, error)

// calls are ready to be timed.
type calls struct {
	// loops has one entry for each goroutine. loop(n) makes the call n times,
	// and allocates nothing itself.
	loops []func(n int)
	close func()
}

// chunk is how many calls are made between two looks at the clock: so many that
// the look does not count, so few that a peer with slow calls ends in time.
const chunk = 512

// run is a Workload.Run: it makes the calls for a while to warm up, and then for
// the case's duration.
func (p prepare) run(c Case) (Result, error) {
	c.Procs = max(c.Procs, 1)
	if c.Duration <= 0 {
		c.Duration = 300 * time.Millisecond
	}
	defer setProcs(c.Procs)() // first: what is made next may ask for it
	k, err := p(c)
	if err != nil {
		return Result{}, err
	}
	defer k.close()
	c.progress(0.5)
	runtime.GC() // the garbage of getting ready is not the calls'
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

// during makes calls on all goroutines for about d. It returns how many it made
// in all and the time from the first to the last, so that with two goroutines
// that do not hinder each other the time per call halves.
func (k *calls) during(d time.Duration) (n int, took time.Duration) {
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

// times makes n calls in all.
func (k *calls) times(n int) {
	var worker atomic.Int64
	k.together(func(loop func(int)) {
		i, of := int(worker.Add(1)-1), len(k.loops)
		loop(n*(i+1)/of - n*i/of)
	})
}

// together runs f for each loop, on goroutines that begin together, and returns
// how long it took until the last was done.
func (k *calls) together(f func(loop func(n int))) time.Duration {
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

// setProcs sets GOMAXPROCS if several goroutines make the calls, and returns what
// sets it back. A single one leaves the other processors to the collector and to
// whatever goroutine the implementation has, as in a program.
func setProcs(procs int) (restore func()) {
	if procs <= 1 {
		return func() {}
	}
	was := runtime.GOMAXPROCS(procs)
	return func() { runtime.GOMAXPROCS(was) }
}
