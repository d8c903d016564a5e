package workload

import (
	"runtime"
	"time"
)

// Idle is what timers cost while they do nothing.
var Idle = Workload{
	Name: "Idle",
	What: "CPU and wake-ups of an instance that is empty, of one with a single timer an hour " +
		"away (far), and of one whose {N} timers were all stopped, each for {D}.",
	Pending:  []int{0},
	Procs:    []int{1},
	N:        10_000,
	Duration: time.Second,
	phases:   4,
	needs:    needStop,
	run:      runIdle,
}

// runIdle watches the process alone first, because it uses some CPU without an instance as well.
func runIdle(c Case) (Result, error) {
	var r Result
	settle()
	r.addIdle("alone", Instance{}, c.Duration, runtime.NumGoroutine())
	for i, state := range []struct {
		name string
		with func(Instance) []Timer
	}{
		{"empty", func(Instance) []Timer { return nil }},
		{"far", func(in Instance) []Timer { return []Timer{in.Start(time.Hour, nothing)} }},
		{"stopped", func(in Instance) []Timer {
			// Their deadlines pass while it is watched, so a wake-up for a stopped timer shows.
			timers := make([]Timer, c.N)
			for i := range timers {
				d := c.Duration * time.Duration(i) / time.Duration(c.N)
				timers[i] = in.Start(50*time.Millisecond+d, nothing)
			}
			stopAll(timers)
			return nil
		}},
	} {
		settle()
		goroutines := runtime.NumGoroutine()
		in := c.Impl.Open()
		kept := state.with(in)
		r.addIdle(state.name, in, c.Duration, goroutines)
		stopAll(kept)
		in.Close()
		c.progress(float64(i+2) / 4)
	}
	return r, nil
}

func (r *Result) addIdle(name string, in Instance, duration time.Duration, goroutines int) {
	time.Sleep(50 * time.Millisecond) // let running work end
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
