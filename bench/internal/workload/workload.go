// Package workload is the benchmark suite of the timing wheel. An Impl is an implementation of
// timers, and a Workload runs the same load on each of them.
//
// The benchmarks of package bench and the command bench/report run the suite.
package workload

import (
	"strconv"
	"strings"
	"time"
)

// A Workload runs one load on one implementation.
type Workload struct {
	Name string
	// What is a sentence that describes the load. {N} and {D} stand for the Case's N and Duration.
	What string
	// Pending and Procs are the sizes of a full run, in ascending order.
	Pending, Procs []int
	// N and Duration are the defaults of a Case.
	N        int
	Duration time.Duration

	// phases is how many times a run measures for the case's Duration, or 0 for once.
	phases int
	// needs returns what the instance lacks to run the workload, or "".
	needs func(Instance) string
	// Either calls or run is set. A workload with calls times single calls.
	calls prepare
	run   func(Case) (Result, error)
}

// All has every workload. A new one also gets a benchmark in bench/bench_test.go and, to appear in
// README.md's table, a row in bench/report/readme.go. Within one process the order matters: after a
// burst the runtime keeps what it needed for the goroutines, hundreds of megabytes after a million
// at once, and every later collection scans it. So the workloads that start a million goroutines
// come last. The report, which runs the list several times, starts a process for each run.
var All = []Workload{
	StartStop, Churn, Rearm,
	TouchHot, TouchAt, TouchRandom,
	Memory, GC, Idle,
	IdleServer, Punctual, Fire, Burst,
}

// A Case says what a workload runs on. The workload fills in zero values.
type Case struct {
	Impl     Impl
	Pending  int           // timers of 1 to 60 minutes that stay pending throughout
	Procs    int           // goroutines that make the calls; GOMAXPROCS as well, if above 1
	Duration time.Duration // how long to measure
	N        int           // size of what is measured, such as timers that fire or connections

	// Progress, if not nil, is called now and then with the part that is done, 0 to 1. It is never
	// called while anything is being timed.
	Progress func(done float64)
}

func (c Case) progress(done float64) {
	if c.Progress != nil {
		c.Progress(done)
	}
}

// complete returns the case with the workload's values for what is zero.
func (w Workload) complete(c Case) Case {
	c.Procs = max(c.Procs, 1)
	if c.Pending == 0 && len(w.Pending) > 0 {
		c.Pending = w.Pending[0]
	}
	if c.Duration <= 0 {
		c.Duration = w.Duration
	}
	if c.N <= 0 {
		c.N = w.N
	}
	return c
}

// Run runs the workload once.
func (w Workload) Run(c Case) (Result, error) {
	c = w.complete(c)
	if w.calls != nil {
		return w.calls.run(c)
	}
	return w.run(c)
}

// PerCall reports whether the workload times single calls, so that Prepare works.
func (w Workload) PerCall() bool { return w.calls != nil }

// Prepare opens the case's implementation and makes everything ready for the calls.
func (w Workload) Prepare(c Case) (*Calls, error) { return w.calls(w.complete(c)) }

// Describe returns What for the case.
func (w Workload) Describe(c Case) string {
	c = w.complete(c)
	return strings.NewReplacer("{N}", thousands(c.N), "{D}", inWords(c.Duration)).Replace(w.What)
}

// inWords writes a duration as 3 s or 300 ms.
func inWords(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.Itoa(int(d/time.Second)) + " s"
	}
	return strconv.Itoa(int(d/time.Millisecond)) + " ms"
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// MinTime returns how long a run of the case measures. The run takes longer, because it starts and
// stops the timers as well.
func (w Workload) MinTime(c Case) time.Duration {
	return w.complete(c).Duration * time.Duration(max(w.phases, 1))
}

// Takes reports whether the implementation is meant for the workload. Lacks reports whether it can
// run it.
func (w Workload) Takes(im Impl) bool {
	return (im.Only == "" || im.Only == w.Name) && !(im.FiresOnly && w.PerCall())
}

// Lacks returns what the implementation lacks to run the workload, or "".
func (w Workload) Lacks(im Impl) string {
	in := im.Open()
	defer in.Close()
	return w.needs(in)
}

func needStart(in Instance) string {
	if in.Start == nil {
		return "a call that starts a timer"
	}
	return ""
}

func needStop(in Instance) string {
	if missing := needStart(in); missing != "" {
		return missing
	}
	t := in.Start(time.Hour, nothing)
	if _, ok := t.(Unstoppable); ok {
		return "Stop"
	}
	t.Stop()
	return ""
}

func needReset(in Instance) string {
	if in.New == nil {
		return "a timer that can be reset"
	}
	return ""
}

func needTouch(in Instance) string {
	if in.NewTouch != nil {
		return ""
	}
	return needReset(in)
}

func needFiring(in Instance) string {
	if in.Silent {
		return "timers that fire"
	}
	return needStart(in)
}

// A Metric is one figure that a workload measured.
type Metric struct {
	Name, Unit string
	Value      float64
}

// A Result is what one run of a workload measured. The metrics of a workload always come in the
// same order. A metric that the platform or the implementation cannot give is left out.
type Result struct {
	Metrics  []Metric
	Lateness []time.Duration // sorted sample of at most 10,000, or nil
}

// Get returns the value of the metric called name, and whether there is one.
func (r Result) Get(name string) (value float64, ok bool) {
	for _, m := range r.Metrics {
		if m.Name == name {
			return m.Value, true
		}
	}
	return 0, false
}

func (r *Result) add(name, unit string, value float64) {
	r.Metrics = append(r.Metrics, Metric{name, unit, value})
}
