package workload

import (
	"runtime"
	"slices"
	"time"
)

// Memory is what a timer costs for as long as it is pending.
var Memory = Workload{
	Name:    "Memory",
	What:    "Heap bytes of each pending timer, and of an instance without timers.",
	Pending: []int{1_000_000, 10_000_000},
	Procs:   []int{1},
	needs:   needStop,
	run:     runMemory,
}

// runMemory is correct for package time only in a process that has had few timers before. Package
// time's heaps never shrink: they keep 16 bytes for each timer of the largest number ever pending.
func runMemory(c Case) (Result, error) {
	var r Result

	// Measure many instances. With one, the little that the runtime allocates meanwhile would show.
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
	// The slice of handles is the caller's.
	taken := heap() - before - int64(cap(b.kept))*handleSize
	r.add("timer", "B/timer", float64(taken)/float64(c.Pending))
	b.close()
	c.progress(1)
	return r, nil
}

// handleSize is the size of a Timer, an interface of two words.
const handleSize = 2 * (32 << (^uint(0) >> 63)) / 8

// heap returns how many bytes are reachable.
func heap() int64 {
	settle()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// GC is what pending timers cost a program that does not use them.
var GC = Workload{
	Name: "GC",
	What: "CPU and elapsed time of one garbage collection beside pending timers and " +
		"the caller's slice of handles. The median of {N}.",
	Pending: []int{1_000_000, 10_000_000},
	Procs:   []int{1},
	N:       5,
	needs:   needStop,
	run:     runGC,
}

// runGC takes the median of c.N collections beside the timers. It also takes that of the process
// alone, before it opens the instance.
func runGC(c Case) (Result, error) {
	var r Result
	settle()
	alone, _, ok := collect(c.N)
	b := c.open()
	defer b.close()
	settle()
	c.progress(0.5)
	cpu, wall, _ := collect(c.N)
	if ok {
		r.add("cpu", "ms", cpu.Seconds()*1e3)
		r.add("alone cpu", "ms", alone.Seconds()*1e3)
	}
	r.add("time", "ms", wall.Seconds()*1e3)
	runtime.KeepAlive(b)
	c.progress(1)
	return r, nil
}

// collect returns the medians of n garbage collections. If ok is false, the platform cannot tell
// the CPU time.
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
