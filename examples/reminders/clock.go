package main

import (
	"math"
	"time"
)

// A storyClock maps the times of the story to the times at which the program
// plays them. It is used where times come in and go out, so that what lies
// between, the calendar and the desk, knows one time only: that of the machine.
// With a scale of 1 and one beginning for both it changes nothing.
type storyClock struct {
	began   time.Time // on the machine's wall clock
	opening time.Time // the same moment in the story
	scale   float64   // seconds of the story in one second
}

// newStoryClock begins the story now. The monotonic reading is stripped, as the
// meetings go by the wall clock.
func newStoryClock(opening time.Time, scale float64) storyClock {
	return storyClock{began: time.Now().Round(0), opening: opening, scale: scale}
}

// real returns when the story comes to t, rounded up so that nothing is early.
func (c storyClock) real(t time.Time) time.Time { return c.began.Add(c.duration(t.Sub(c.opening))) }

// story returns what the clocks of the story show at the real time t.
func (c storyClock) story(t time.Time) time.Time {
	if c.scale == 1 { // exactly: a float64 holds a hundred days in nanoseconds and no more
		return c.opening.Add(t.Sub(c.began))
	}
	return c.opening.Add(time.Duration(math.Round(float64(t.Sub(c.began)) * c.scale)))
}

// duration returns how long d takes to play.
func (c storyClock) duration(d time.Duration) time.Duration {
	if c.scale == 1 {
		return d
	}
	return time.Duration(math.Ceil(float64(d) / c.scale))
}
