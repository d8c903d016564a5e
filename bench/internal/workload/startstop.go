package workload

import (
	"fmt"
	"math/rand/v2"
)

// StartStop is a timeout that did not happen.
var StartStop = Workload{
	Name:     "StartStop",
	What:     "Start a timer of 1 to 31 s and stop it, beside timers that stay pending.",
	Pending:  []int{0, 100_000, 1_000_000, 10_000_000},
	Procs:    []int{1, 2, 4, 8},
	Duration: callsFor,
	needs:    needStop,
	calls:    prepareStartStop,
}

func prepareStartStop(c Case) (*Calls, error) {
	b := c.open()
	k := &Calls{bed: b}
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

// Churn is a crowd of timers, any of which may be the next to go. The timers and their neighbours
// in the implementation's structure are cold in the cache.
var Churn = Workload{
	Name:     "Churn",
	What:     "Stop a random one of the pending timers and start another.",
	Pending:  []int{10_000, 1_000_000},
	Procs:    []int{1, 2},
	Duration: callsFor,
	needs:    needStop,
	calls:    prepareChurn,
}

func prepareChurn(c Case) (*Calls, error) {
	if c.Pending < c.Procs {
		return nil, fmt.Errorf("%d pending timers are too few for %d procs", c.Pending, c.Procs)
	}
	b := c.open()
	k := &Calls{bed: b}
	for w, in := range b.workers {
		// Each worker takes the timers that open started on its instance.
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

// Rearm is a timer that moves back and forth.
var Rearm = Workload{
	Name:     "Rearm",
	What:     "Reset one timer to 1 to 31 s, earlier or later than before.",
	Pending:  []int{0, 1_000_000},
	Procs:    []int{1, 2, 4, 8},
	Duration: callsFor,
	needs:    needReset,
	calls:    prepareRearm,
}

func prepareRearm(c Case) (*Calls, error) {
	b := c.open()
	k := &Calls{bed: b}
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
