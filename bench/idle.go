package bench

import (
	"runtime"
	"time"
)

// idle is what timers cost that do nothing.
var idle = Workload{
	Name:    "Idle",
	What:    "CPU and wake-ups of an instance that is empty, that has one timer in an hour, whose timers were all stopped",
	Pending: []int{0},
	Procs:   []int{1},
	Lacks:   lacks(needStart),
	Run:     runIdle,
}

// runIdle watches each of the three for c.Duration, a second by default, and for
// what the process does anyway, itself alone. c.N timers, 10,000 by default, are
// stopped.
func runIdle(c Case) (Result, error) {
	n, duration := or(c.N, 10_000), or(c.Duration, time.Second)
	var r Result
	settle()
	r.addIdle("alone", Instance{}, duration, runtime.NumGoroutine())
	for i, state := range []struct {
		name string
		with func(Instance) []Timer
	}{
		{"empty", func(Instance) []Timer { return nil }},
		{"far", func(in Instance) []Timer { return []Timer{in.Start(time.Hour, nothing)} }},
		{"stopped", func(in Instance) []Timer {
			// Of deadlines that come while it is watched: whoever still wakes for
			// them shows.
			timers := make([]Timer, n)
			for i := range timers {
				timers[i] = in.Start(50*time.Millisecond+duration*time.Duration(i)/time.Duration(n), nothing)
			}
			stopAll(timers)
			return nil
		}},
	} {
		settle()
		goroutines := runtime.NumGoroutine()
		in := c.Impl.Open()
		kept := state.with(in)
		r.addIdle(state.name, in, duration, goroutines)
		stopAll(kept)
		in.Close()
		c.progress(float64(i+2) / 4)
	}
	return r, nil
}

func (r *Result) addIdle(name string, in Instance, duration time.Duration, goroutines int) {
	time.Sleep(50 * time.Millisecond) // what was under way comes to rest
	before, ok := processUsage()
	woken := in.wakeups()
	time.Sleep(duration)
	after, _ := processUsage()
	if ok {
		used := after.since(before)
		r.add(name+" cpu", "us/s", float64(used.cpu.Microseconds())/duration.Seconds())
		r.add(name+" thread wake-ups", "1/s", float64(used.switches)/duration.Seconds())
	}
	if in.Stats != nil {
		r.add(name+" wake-ups", "1/s", float64(in.wakeups()-woken)/duration.Seconds())
	}
	r.add(name+" goroutines", "", float64(runtime.NumGoroutine()-goroutines))
}
