package timingwheel

import (
	"math/rand/v2"
	"time"
)

// This file holds the options of a schedule: what becomes of runs that overlap or were missed, and
// by how much runs are delayed. An option sets fields of schedule, which schedule.go uses. What it
// allocates has a row in cost_test.go and in the table of README.md's section Cost.

// A ScheduleOption sets how a schedule begins, how its runs are spread, and what happens to runs
// that overlap or were missed. If an option is given twice, the last one counts. ScheduleFunc
// panics if two options contradict each other: SkipWhileRunning and QueueWhileRunning, or
// SkipMissed and RunMissed.
type ScheduleOption func(*schedule)

// SkipWhileRunning leaves out a run that would begin while another run of the
// same schedule is in progress. By default runs may overlap.
func SkipWhileRunning() ScheduleOption {
	return func(r *schedule) {
		if r.overlap == queueOverlap {
			panic(overlapConflict)
		}
		r.overlap = skipOverlap
	}
}

// QueueWhileRunning makes a run that would begin while another is in progress wait for it. So each
// run takes place and no two overlap. A waiting run takes no memory. It follows on the goroutine of
// the run before it, and does not begin if the wheel is stopped before its turn.
func QueueWhileRunning() ScheduleOption {
	return func(r *schedule) {
		if r.overlap == skipOverlap {
			panic(overlapConflict)
		}
		r.overlap = queueOverlap
	}
}

// SkipMissed leaves out runs that come more than grace late, as after a suspend of the machine. By
// default all runs that were missed become one, which takes place at once, except on a wheel that
// NewTimingWheel made. A useful grace is longer than the tick and the platform's wake-up together.
// SkipMissed panics if grace is negative.
func SkipMissed(grace time.Duration) ScheduleOption {
	if grace < 0 {
		panic("timingwheel: SkipMissed with the negative grace " + grace.String())
	}
	return func(r *schedule) {
		if r.missed == runMissed {
			panic(missedConflict)
		}
		r.missed, r.grace = skipMissed, grace
	}
}

// RunMissed makes up for every run that was missed, one after the other. It is
// the default on a wheel that NewTimingWheel made.
func RunMissed() ScheduleOption {
	return func(r *schedule) {
		if r.missed == skipMissed {
			panic(missedConflict)
		}
		r.missed = runMissed
	}
}

// StartNow makes the first run at once instead of when the Scheduler says. The Scheduler continues
// from there: with Every, the second run comes one period later. So a schedule has this run even if
// its Scheduler has none. Jitter delays it like the others, so that a fleet that restarts does not
// begin in step. The run may begin before ScheduleFunc has returned.
func StartNow() ScheduleOption {
	return func(r *schedule) { r.offsets().startNow = true }
}

// Jitter delays every run by a random duration, at least zero and less than d, drawn anew for each
// run. The delays do not add up: run n of Every(p) comes between n*p and n*p+d. A run that Reset
// moves comes when Reset says, and Jitter delays those after it again.
//
// d should be less than the time between two runs. Runs keep their order in any case: a run that
// would overtake a delayed one comes together with it. By default the two then become one, as if
// one had been missed; with SkipMissed and RunMissed both take place. Jitter panics if d is
// negative; zero means no jitter.
func Jitter(d time.Duration) ScheduleOption {
	if d < 0 {
		panic("timingwheel: Jitter with the negative duration " + d.String())
	}
	return func(r *schedule) { r.offsets().jitter = d }
}

const (
	overlapConflict = "timingwheel: ScheduleFunc with both SkipWhileRunning and QueueWhileRunning"
	missedConflict  = "timingwheel: ScheduleFunc with both SkipMissed and RunMissed"
)

type overlapPolicy uint8

const (
	allowOverlap overlapPolicy = iota
	skipOverlap
	queueOverlap
)

type missedPolicy uint8

const (
	joinMissed missedPolicy = iota // unless NewTimingWheel made the wheel
	runMissed
	skipMissed
)

// offset is what StartNow and Jitter add to a schedule. It is a struct of its own because few
// schedules have either, and every timer for a wall time is a schedule. Only the driver uses it
// once the timer is armed.
type offset struct {
	startNow bool
	jitter   time.Duration

	// shift is by how much the pending run is later than its place in the rhythm.
	shift time.Duration

	// planned is the deadline that the pending run was armed with, and -1 if it is
	// onWall. A pending timer with another was moved by Reset, and the rhythm with
	// it. (One that Reset left where it was is taken as not moved.)
	planned int64
}

func (r *schedule) offsets() *offset {
	if r.offset == nil {
		r.offset = &offset{}
	}
	return r.offset
}

// draw returns by how much to delay a run.
func (o *offset) draw() time.Duration {
	if o == nil || o.jitter == 0 {
		return 0
	}
	return rand.N(o.jitter)
}

// most is the largest that draw returns.
func (o *offset) most() time.Duration {
	if o == nil || o.jitter == 0 {
		return 0
	}
	return o.jitter - 1
}

// of returns the shift of the run that is due by this word. planned is false for a run that Reset
// has moved, which has no shift, and also, as it makes no difference there, for one of Every's
// without an offset.
func (o *offset) of(word uint64) (shift time.Duration, planned bool) {
	switch {
	case stateOf(word) == pending && (o == nil || deadlineOf(word) != o.planned):
		return 0, false
	case o == nil:
		return 0, true
	}
	return o.shift, true
}
