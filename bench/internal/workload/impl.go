package workload

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// An Impl is an implementation of timers under test.
type Impl struct {
	Name string
	// Open makes an instance.
	Open func() Instance
	// Only, if not empty, is the name of the one workload that the implementation is meant for. It
	// could run the others, but they would show nothing new.
	Only string
	// FiresOnly says that the implementation differs from another only in how timers fire, so the
	// workloads that time single calls leave it out.
	FiresOnly bool
}

// Impls has the implementations of this package.
var Impls = []Impl{Wheel, Inline, Precise, Fine, Time, Floor, Conn}

// An Instance is one wheel, heap, or whatever the implementation has, as a table of functions. A
// function is nil if the implementation has no counterpart: the suite reports what a library lacks
// and does not emulate it.
type Instance struct {
	// Start arms a new timer that calls f once after d.
	Start func(d time.Duration, f func()) Timer
	// New makes a timer that Reset arms, as often as the caller likes.
	New func(f func()) Timer
	// Close ends the instance.
	Close func()

	// The other fields are optional.

	// NewTouch is New for timers that will only be extended, where that differs.
	NewTouch func(f func()) Timer
	// Worker returns the instance that goroutine i works on, if not this one.
	Worker func(i int) Instance
	// Stats returns the wheel's counters.
	Stats func() timingwheel.Stats
	// Silent says that timers never fire, as those of the floor.
	Silent bool
	// Max is how many timers New can make, or 0 for any number.
	Max int
	// fill is Start for timers that stay pending, where Start is nil.
	fill func(d time.Duration, f func()) Timer
}

// wakeups returns how often the driver has woken up, or 0 if the instance does not count.
func (in Instance) wakeups() int64 {
	if in.Stats == nil {
		return 0
	}
	return in.Stats().Wakeups
}

// Both *time.Timer and *timingwheel.Timer are Timers, so both pay for the same call through an
// interface. A Reset of a pending timer to a later time is a touch. If Instance.New is nil, Reset
// is not called.
type Timer interface {
	Stop() bool
	Reset(time.Duration) bool
}

// A Toucher can be moved to an instant, for callers that have already read the clock.
type Toucher interface {
	Timer
	ResetAt(time.Time) bool
}

// An Unstoppable is a timer of an implementation without Stop. The workloads in which timers fire
// stop only the few that salvo.lead starts, and leave those of an Unstoppable pending: they are a
// hundredth of all, an hour away, and none of them fires while the workload measures.
type Unstoppable interface {
	Timer
	Unstoppable()
}
