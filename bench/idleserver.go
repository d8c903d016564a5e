package bench

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

// idleServer is what most of the timers of a server are for.
var idleServer = Workload{
	Name:    "IdleServer",
	What:    "a million connections with an idle timeout of 5 s, each touched every 2 s: CPU per touch with the loop around it, and the lateness of an unrelated timer of 5 ms, of the implementation (late) and of package time (other late)",
	Pending: []int{0},
	Procs:   []int{1},
	Lacks: lacks(func(in Instance) string {
		if missing := needFiring(in); missing != "" {
			return missing
		}
		return needReset(in)
	}),
	Run: runIdleServer,
}

const (
	idleTimeout = 5 * time.Second
	idleTouch   = 2 * time.Second // from one touch of a connection to the next
	probeEvery  = 5 * time.Millisecond
)

// runIdleServer serves c.N connections, a million by default, for c.Duration, 15 s
// by default.
func runIdleServer(c Case) (Result, error) {
	n, duration := or(c.N, 1_000_000), or(c.Duration, 15*time.Second)
	b := c.open()
	defer b.close()

	// No connection falls silent: a timer that fires is one that was touched too
	// late, by an overloaded machine.
	var closed atomic.Int64
	idle := func() { closed.Add(1) }

	// Connections are touched in a random order, again and again the same. They
	// start as that would have left them, so there is no burst that comes of all
	// having been opened at once.
	conns := make([]Timer, n)
	order := rand.New(rand.NewPCG(9, 10)).Perm(n)
	for k, i := range order {
		conns[i] = b.in.New(idle)
		conns[i].Reset(idleTimeout - idleTouch + idleTouch*time.Duration(k)/time.Duration(n))
	}
	defer stopAll(conns)
	runtime.GC()
	c.progress(0.2)

	own := newProbe(b.in, probeEvery, duration)
	other := newProbe(Time.Open(), probeEvery, duration)
	before, ok := processUsage()
	touches := 0
	for start, next := time.Now(), 0; ; {
		elapsed := time.Since(start)
		for due := int(elapsed.Seconds() * float64(n) / idleTouch.Seconds()); touches < due; touches++ {
			conns[order[next]].Reset(idleTimeout)
			if next++; next == n {
				next = 0
			}
		}
		if elapsed >= duration {
			break
		}
		time.Sleep(time.Millisecond)
	}
	after, _ := processUsage()
	late, otherLate := own.end(), other.end()

	var r Result
	if ok {
		r.add("cpu", "ns/touch", float64(after.since(before).cpu)/float64(max(touches, 1)))
	}
	r.addQuantiles("late", "ms", time.Millisecond, late)
	r.addQuantiles("other late", "ms", time.Millisecond, otherLate)
	r.add("touches", "touches/s", float64(touches)/duration.Seconds())
	r.add("closed", "timers", float64(closed.Load()))
	r.Lateness = thin(late)
	c.progress(1)
	return r, nil
}
