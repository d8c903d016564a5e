package bench

import (
	"runtime"
	"slices"
	"time"
)

// memory is what is paid for as long as a timer is pending.
var memory = Workload{
	Name:    "Memory",
	What:    "heap bytes for each pending timer, and of an instance without any",
	Pending: []int{1_000_000, 10_000_000},
	Procs:   []int{1},
	Lacks:   lacks(needStart),
	Run:     runMemory,
}

// runMemory is right about package time in a process that has had few timers
// before: the heaps it keeps them in never shrink, 16 bytes for each at the most
// there were at once.
func runMemory(c Case) (Result, error) {
	c.Pending = or(c.Pending, 1_000_000)
	var r Result

	// Many, or the little that the runtime allocates meanwhile would show.
	some := make([]Instance, 64)
	before := heap()
	for i := range some {
		some[i] = c.Impl.Open()
	}
	r.add("empty", "B", float64(heap()-before)/float64(len(some)))
	for _, in := range some {
		in.Close()
	}
	clear(some)

	before = heap()
	b := c.open()
	// The slice that keeps the handles is the caller's.
	taken := heap() - before - int64(cap(b.kept))*handleSize
	r.add("timer", "B/timer", float64(taken)/float64(c.Pending))
	b.close()
	c.progress(1)
	return r, nil
}

// handleSize is that of a Timer: an interface of two words.
const handleSize = 2 * (32 << (^uint(0) >> 63)) / 8

// heap returns the bytes that are reachable.
func heap() int64 {
	settle()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// gc is what pending timers cost those who have nothing to do with them.
var gc = Workload{
	Name:    "GC",
	What:    "CPU and time of one garbage collection beside pending timers, the caller's slice of handles included",
	Pending: []int{1_000_000, 10_000_000},
	Procs:   []int{1},
	Lacks:   lacks(needStart),
	Run:     runGC,
}

// runGC takes the median of c.N collections, 5 by default, with the timers and,
// for what the process has anyway, before the instance is opened: itself alone.
func runGC(c Case) (Result, error) {
	c.Pending = or(c.Pending, 1_000_000)
	n := or(c.N, 5)
	var r Result
	settle()
	alone, _, ok := collect(n)
	b := c.open()
	defer b.close()
	settle()
	c.progress(0.5)
	cpu, wall, _ := collect(n)
	if ok {
		r.add("cpu", "ms", cpu.Seconds()*1e3)
		r.add("alone cpu", "ms", alone.Seconds()*1e3)
	}
	r.add("time", "ms", wall.Seconds()*1e3)
	runtime.KeepAlive(b)
	c.progress(1)
	return r, nil
}

// collect returns the medians of n garbage collections; ok is false if there is
// none of the CPU.
func collect(n int) (cpu, wall time.Duration, ok bool) {
	cpus, walls := make([]time.Duration, n), make([]time.Duration, n)
	for i := range n {
		var before, after usage
		before, ok = processUsage()
		start := time.Now()
		runtime.GC()
		walls[i] = time.Since(start)
		after, _ = processUsage()
		cpus[i] = after.since(before).cpu
	}
	slices.Sort(cpus)
	slices.Sort(walls)
	return cpus[n/2], walls[n/2], ok
}
