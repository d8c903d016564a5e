package bench

import (
	"runtime"
	"sync"
	"time"
)

// burst is the worst moment: everything is due at once, and other goroutines go
// on using timers.
var burst = Workload{
	Name:    "Burst",
	What:    "a million timers due at one instant while other goroutines start and stop one every 20 us: how long those calls take, by themselves (call) and from when they were to be made (response); the control starts a million goroutines beside callers that do the floor's work, each with a mutex of its own",
	Pending: []int{0},
	Procs:   []int{1},
	Lacks:   lacks(needFiring),
	Run:     runBurst,
}

// runBurst lets c.N timers, a million by default, come due beside as many callers
// as there are processors.
func runBurst(c Case) (Result, error) {
	n := or(c.N, 1_000_000)
	var r Result

	b := c.open()
	defer b.close()
	s := newSalvo(b.in, n)
	s.load(func() time.Duration { return 0 })
	end := s.beside(func() func(i int) {
		return func(i int) { b.in.Start(delays[i%len(delays)], nothing).Stop() }
	})
	err := s.wait(0)
	took := end()
	if err != nil {
		return r, err
	}
	r.addCalls("", took)
	r.add("through", "ms", (s.allFired()-s.due).Seconds()*1e3)
	if b.in.Stats != nil {
		r.add("hold", "timers", float64(b.in.Stats().LongestHold))
	}
	c.progress(0.6)

	control := newSalvo(starter(n), n)
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
	r.addCalls("control ", took)
	r.add("control through", "ms", (control.allFired()-control.due).Seconds()*1e3)
	s.addTo(&r)
	c.progress(1)
	return r, nil
}

// callEvery is how often each caller wants to make a call: often enough that its
// thousands of calls tell the worst of a thousand, and far below what it could make.
const callEvery = 20 * time.Microsecond

// A callTimes is how long calls took.
type callTimes struct {
	call     histogram // from the call to its return
	response histogram // from when it was to be made: waiting for a processor included
}

// beside starts a caller for each processor, shortly before the salvo is due. They
// call until the last timer has fired, and then what they missed. The returned function waits for that and
// returns the times of the calls that were to be made after the first deadline.
//
// A caller that was held up makes up for the calls it missed, and each counts from
// when it was to be made. Or a hold-up of 10 ms would be one slow call among
// millions, and no quantile would know of it.
func (s *salvo) beside(caller func() (call func(i int))) (end func() *callTimes) {
	const warmUp = 10 * time.Millisecond
	time.Sleep(s.due - warmUp - time.Since(s.base))
	var callers sync.WaitGroup
	took := make([]callTimes, runtime.GOMAXPROCS(0))
	for w := range took {
		call := caller()
		callers.Go(func() {
			wanted := time.Since(s.base)
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
		s.over.Store(true) // also if some never fired
		callers.Wait()
		for w := range took[1:] {
			took[0].call.merge(&took[w+1].call)
			took[0].response.merge(&took[w+1].response)
		}
		return &took[0]
	}
}

func (r *Result) addCalls(prefix string, took *callTimes) {
	r.addHistogram(prefix+"call", "us", time.Microsecond, &took.call)
	r.addHistogram(prefix+"response", "us", time.Microsecond, &took.response)
}

// starter returns the control: an implementation whose timers all wait for the
// deadline of the first, and are then started as goroutines by a single one.
func starter(n int) Instance {
	fs := make([]func(), 0, n)
	return Instance{Start: func(d time.Duration, f func()) Timer {
		if d == time.Hour { // of lead
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
