package bench

import (
	"fmt"
	"math/rand/v2"
)

// startStop is a timeout that did not happen.
var startStop = Workload{
	Name:    "StartStop",
	What:    "start a timer of 1 to 31 s and stop it, beside timers that stay pending",
	Pending: []int{0, 100_000, 1_000_000, 10_000_000},
	Procs:   []int{1, 2, 4, 8},
	Lacks:   lacks(needStart),
	Run:     prepare(prepareStartStop).run,
	calls:   prepareStartStop,
}

func prepareStartStop(c Case) (*calls, error) {
	b := c.open()
	k := &calls{close: b.close}
	for w, in := range b.workers {
		i := w * 997 // workers are not in step
		k.loops = append(k.loops, func(n int) {
			next := i
			for range n {
				in.Start(delays[next%len(delays)], nothing).Stop()
				next++
			}
			i = next
		})
	}
	return k, nil
}

// churn is a crowd of timers of which any one may be the next to go: the timers
// and their neighbours in whatever structure are cold in the cache.
var churn = Workload{
	Name:    "Churn",
	What:    "stop a random one of the pending timers and start another",
	Pending: []int{10_000, 1_000_000},
	Procs:   []int{1, 2},
	Lacks:   lacks(needStart),
	Run:     prepare(prepareChurn).run,
	calls:   prepareChurn,
}

func prepareChurn(c Case) (*calls, error) {
	c.Procs = max(c.Procs, 1)
	if c.Pending == 0 {
		c.Pending = 10_000
	}
	if c.Pending < c.Procs {
		return nil, fmt.Errorf("churn: %d pending timers are too few for %d goroutines", c.Pending, c.Procs)
	}
	b := c.open()
	k := &calls{close: b.close}
	for w, in := range b.workers {
		// Each worker has those timers that open started on its instance.
		r, of := rand.NewPCG(5, uint64(w)), len(b.workers)
		share := (len(b.kept) - w + of - 1) / of
		k.loops = append(k.loops, func(n int) {
			for range n {
				i := below(r, share)*of + w
				b.kept[i].Stop()
				b.kept[i] = in.Start(longDelay(r), nothing)
			}
		})
	}
	return k, nil
}

// rearm is a timer that goes back and forth.
var rearm = Workload{
	Name:    "Rearm",
	What:    "reset one timer to 1 to 31 s, earlier or later than before",
	Pending: []int{0, 1_000_000},
	Procs:   []int{1, 2, 4, 8},
	Lacks:   lacks(needReset),
	Run:     prepare(prepareRearm).run,
	calls:   prepareRearm,
}

func prepareRearm(c Case) (*calls, error) {
	b := c.open()
	k := &calls{close: b.close}
	for w, t := range b.eachOwn(func(in Instance) Timer { return in.New(nothing) }) {
		i := w * 997
		k.loops = append(k.loops, func(n int) {
			next := i
			for range n {
				t.Reset(delays[next%len(delays)])
				next++
			}
			i = next
		})
	}
	return k, nil
}
