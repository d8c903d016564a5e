// Package bench is the benchmark suite of the timing wheel: implementations of
// timers as tables of functions, and workloads that run the same load on each.
//
//	go test -run '^$' -bench . ./bench
//
// runs them as Go benchmarks beside package time and the floor, in a few minutes;
// with -short the sizes are smaller, and with -pending 10000000 at the end larger.
// Names follow benchstat's key=value form, so two columns of one run can be set
// against each other:
//
//	go test -run '^$' -bench StartStop -count 10 ./bench | tee new.txt
//	benchstat -col /impl new.txt
//
// bench/report, a module of its own, adds other libraries and writes tables and
// charts.
package bench

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// An Impl is an implementation of timers under test.
type Impl struct {
	Name string
	// Open makes an instance; everything else works on it.
	Open func() Instance
	// Only is the name of the one workload it is for, "" if it is for all. It is a
	// matter of choice, not of what the implementation lacks: in the others it
	// would tell nothing that one without Only does not tell.
	Only string
}

// Impls are the implementations of this package.
var Impls = []Impl{Wheel, Inline, Precise, Fine, Time, Floor, Conn}

// An Instance is one wheel, heap or whatever the implementation has, as a table
// of functions. A function it has no counterpart of is nil: what a peer lacks is
// marked, not faked.
type Instance struct {
	// Start arms a new timer that calls f once after d.
	Start func(d time.Duration, f func()) Timer
	// New makes a timer that only Reset arms, and that can be armed again and
	// again.
	New func(f func()) Timer
	// Close ends the instance.
	Close func()

	// The rest is optional.

	// NewTouch is New for timers that will only be pushed on, where that is
	// something else.
	NewTouch func(f func()) Timer
	// Worker returns what the i-th of several goroutines works on, where that is
	// not the instance itself.
	Worker func(i int) Instance
	// Stats are the wheel's counters.
	Stats func() timingwheel.Stats
	// Silent says that timers never fire: the floor's do not.
	Silent bool
	// Max is how many timers New can make, 0 if as many as one likes.
	Max int
	// fill is Start for timers that merely stay pending, where Start is missing.
	fill func(d time.Duration, f func()) Timer
}

// wakeups is how often the driver woke up so far, 0 if nobody counts.
func (in Instance) wakeups() int64 {
	if in.Stats == nil {
		return 0
	}
	return in.Stats().Wakeups
}

// A Timer is met by *time.Timer and *timingwheel.Timer alike, so both cost the
// same call through an interface. Reset is the touch too: a Reset of a pending
// timer to later. Of timers that Start returned it is called only if New is not
// nil.
type Timer interface {
	Stop() bool
	Reset(time.Duration) bool
}

// A Toucher can be moved to an instant that the caller has read already.
type Toucher interface {
	Timer
	ResetAt(time.Time) bool
}
