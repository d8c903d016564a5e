package workload

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

// IdleServer is what most timers of a server are for.
var IdleServer = Workload{
	Name: "IdleServer",
	What: "{N} connections with an idle timeout of 5 s, each touched every 2 s for {D}: CPU per " +
		"touch, the loop included, and the lateness of an unrelated 5 ms timer of the " +
		"implementation (late) and of package time (other late).",
	Pending:  []int{0},
	Procs:    []int{1},
	N:        1_000_000,
	Duration: 15 * time.Second,
	needs: func(in Instance) string {
		if missing := needFiring(in); missing != "" {
			return missing
		}
		return needReset(in)
	},
	run: runIdleServer,
}

const (
	idleTimeout = 5 * time.Second
	idleTouch   = 2 * time.Second // from one touch of a connection to the next
	probeEvery  = 5 * time.Millisecond
)

// runIdleServer serves c.N connections for c.Duration.
func runIdleServer(c Case) (Result, error) {
	b := c.open()
	defer b.close()

	// No connection falls silent. A timer fires only if an overloaded machine touches it too late.
	var closed atomic.Int64
	idle := func() { closed.Add(1) }

	// Connections are touched in one random order, over and over. They start as such a round would
	// have left them; if all were opened at once, there would be a burst.
	conns := make([]Timer, c.N)
	order := rand.New(rand.NewPCG(9, 10)).Perm(c.N)
	for k, i := range order {
		conns[i] = b.in.New(idle)
		conns[i].Reset(idleTimeout - idleTouch + idleTouch*time.Duration(k)/time.Duration(c.N))
	}
	defer stopAll(conns)
	runtime.GC()
	c.progress(0.2)

	own := newProbe(b.in, probeEvery, c.Duration)
	other := newProbe(Time.Open(), probeEvery, c.Duration)
	before, ok := processUsage()
	touches := 0
	for start, next := time.Now(), 0; ; {
		elapsed := time.Since(start)
		due := int(elapsed.Seconds() * float64(c.N) / idleTouch.Seconds())
		for ; touches < due; touches++ {
			conns[order[next]].Reset(idleTimeout)
			if next++; next == c.N {
				next = 0
			}
		}
		if elapsed >= c.Duration {
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
	r.addLateness("late", late)
	r.addLateness("other late", otherLate)
	r.add("touches", "touches/s", float64(touches)/c.Duration.Seconds())
	r.add("closed", "timers", float64(closed.Load()))
	r.Lateness = thin(late)
	c.progress(1)
	return r, nil
}
