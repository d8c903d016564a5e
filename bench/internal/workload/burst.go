package workload

import (
	"runtime"
	"sync"
	"time"
)

// Burst is the worst moment: everything is due at once, while other goroutines keep using timers.
var Burst = Workload{
	Name: "Burst",
	What: "{N} timers due at one instant, while other goroutines start and stop a timer every " +
		"20 us: how long these calls take, alone (call) and from when they were due (response). " +
		"The control starts {N} goroutines instead, beside callers that do the floor's work with " +
		"a mutex each.",
	Pending: []int{0},
	Procs:   []int{1},
	N:       1_000_000,
	needs: func(in Instance) string {
		if missing := needFiring(in); missing != "" {
			return missing
		}
		return needStop(in)
	},
	run: runBurst,
}

// runBurst lets c.N timers come due beside one caller for each processor.
func runBurst(c Case) (Result, error) {
	var r Result

	b := c.open()
	defer b.close()
	s := newSalvo(b.in, c.N)
	s.load(func() time.Duration { return 0 })
	end := s.beside(func() func(i int) {
		return func(i int) { b.in.Start(delays[i%len(delays)], nothing).Stop() }
	})
	err := s.wait(0)
	took := end()
	if err != nil {
		return r, err
	}
	r.addCallTimes("", took)
	r.add("through", "ms", (s.allFired()-s.due).Seconds()*1e3)
	if b.in.Stats != nil {
		r.add("hold", "timers", float64(b.in.Stats().LongestHold))
	}
	c.progress(0.6)

	control := newSalvo(starter(c.N), c.N)
	control.load(func() time.Duration { return 0 })
	end = control.beside(func() func(i int) {
		own := newFloorList().instance()
		return func(i int) { own.Start(delays[i%len(delays)], nothing).Stop() }
	})
	err = control.wait(0)
	took = end()
	if err != nil {
		return r, err
	}
	r.addCallTimes("control ", took)
	r.add("control through", "ms", (control.allFired()-control.due).Seconds()*1e3)
	s.addTo(&r)
	c.progress(1)
	return r, nil
}

// callEvery is how often each caller wants to make a call. The thousands of calls in a burst
// suffice to tell the slowest in a thousand, and a caller could make far more.
const callEvery = 20 * time.Microsecond

// A callTimes is how long calls took.
type callTimes struct {
	call     histogram // from the call to its return
	response histogram // from when the call was due, so with the wait for a processor
}

// beside starts a caller for each processor, shortly before the salvo is due. The callers go on
// until the last timer has fired and they have caught up. The returned function waits for that and
// returns the times of the calls that were due after the first deadline.
//
// A caller that was held up makes the calls that it missed, and each counts from when it was due.
// Otherwise a delay of 10 ms would be one slow call among millions, and no quantile would show it.
func (s *salvo) beside(caller func() (call func(i int))) (end func() *callTimes) {
	const warmUp = 10 * time.Millisecond
	first := max(s.due-warmUp, time.Since(s.base)) // the first calls are due; Sleep may oversleep
	time.Sleep(first - time.Since(s.base))
	var callers sync.WaitGroup
	took := make([]callTimes, runtime.GOMAXPROCS(0))
	for w := range took {
		call := caller()
		callers.Go(func() {
			wanted := first
			for i := w * 997; !s.over.Load() || wanted < s.allFired(); i++ {
				from := time.Since(s.base)
				if from < wanted {
					runtime.Gosched()
					continue
				}
				call(i)
				to := time.Since(s.base)
				if wanted >= s.due {
					took[w].call.record(to - from)
					took[w].response.record(to - wanted)
				}
				wanted += callEvery
			}
		})
	}
	return func() *callTimes {
		s.over.Store(true) // even if some never fired
		callers.Wait()
		for w := range took[1:] {
			took[0].call.merge(&took[w+1].call)
			took[0].response.merge(&took[w+1].response)
		}
		return &took[0]
	}
}

func (r *Result) addCallTimes(prefix string, took *callTimes) {
	r.addHistogram(prefix+"call", &took.call)
	r.addHistogram(prefix+"response", &took.response)
}

// starter returns the control: an implementation whose timers all wait for the deadline of the
// first. A single goroutine then starts a goroutine for each.
func starter(n int) Instance {
	fs := make([]func(), 0, n)
	return Instance{Start: func(d time.Duration, f func()) Timer {
		if d == time.Hour { // one of lead's
			return inert{}
		}
		if fs = append(fs, f); len(fs) == n {
			time.AfterFunc(d, func() {
				for _, f := range fs {
					go f()
				}
			})
		}
		return inert{}
	}}
}

type inert struct{}

func (inert) Stop() bool               { return false }
func (inert) Reset(time.Duration) bool { return false }
