package bench

import "time"

// A Case says what a workload runs on. Zero values are the workload's defaults.
type Case struct {
	Impl     Impl
	Pending  int           // timers of 1 to 60 minutes that stay pending throughout
	Procs    int           // goroutines that make the calls; above 1, GOMAXPROCS too
	Duration time.Duration // how long to measure
	N        int           // size of what is measured: timers that fire, connections

	// Progress, if not nil, is called now and then with the part that is done, 0
	// to 1, and never while anything is being timed.
	Progress func(done float64)
}

// A Metric is one figure that a workload measured.
type Metric struct {
	Name, Unit string
	Value      float64
}

// A Result is what one run of a workload measured. The metrics of one workload
// always come in the same order; one that the platform or the implementation
// cannot give is left out.
type Result struct {
	Metrics  []Metric
	Lateness []time.Duration // sorted sample of at most 10,000; nil if there is none
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

// A Workload runs one load on one implementation.
type Workload struct {
	Name, What string
	Pending    []int // the sizes of a full run
	Procs      []int // the numbers of goroutines of a full run
	// Lacks returns what the implementation lacks to run the workload, "" if
	// nothing.
	Lacks func(Impl) string
	Run   func(Case) (Result, error)

	// calls is set of workloads that time single calls, for testing.B to count.
	calls prepare
}

// Workloads are all of them, in an order that matters within one process: the
// runtime keeps what it needed for the goroutines of a burst, hundreds of
// megabytes after a million at once, and every later collection looks through it.
// So what starts goroutines by the million comes last, and a report that runs the
// list several times starts a process for each run.
var Workloads = []Workload{
	startStop, churn, rearm,
	touchHot, touchAt, touchRandom,
	memory, gc, idle,
	idleServer, punctual, fire, burst,
}

// Takes reports whether the implementation is for the workload; Lacks tells
// whether it can run it.
func (w Workload) Takes(im Impl) bool { return im.Only == "" || im.Only == w.Name }

// progress tells the caller how much of the run is done.
func (c Case) progress(done float64) {
	if c.Progress != nil {
		c.Progress(done)
	}
}

// lacks returns a Workload.Lacks that looks at an instance.
func lacks(of func(Instance) string) func(Impl) string {
	return func(im Impl) string {
		in := im.Open()
		defer in.Close()
		return of(in)
	}
}

func needStart(in Instance) string {
	if in.Start == nil {
		return "a call that starts a timer"
	}
	return ""
}

func needReset(in Instance) string {
	if in.New == nil {
		return "a timer that can be reset"
	}
	return ""
}

func needTouch(in Instance) string {
	if in.NewTouch == nil && in.New == nil {
		return "a timer that can be reset"
	}
	return ""
}

func needFiring(in Instance) string {
	if in.Silent {
		return "timers that fire"
	}
	return needStart(in)
}
