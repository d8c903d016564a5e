package main

import (
	"math"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// A storyClock maps the times of the story to the times at which the program
// plays them. It is used where times come in and go out, so that the table and
// the house know nothing of it.
type storyClock struct {
	began   time.Time // on the machine's wall clock
	opening time.Time // the same moment in the story
	scale   float64   // seconds of the story in one second
}

func newStoryClock(opening time.Time, scale float64) storyClock {
	return storyClock{began: time.Now().Round(0), opening: opening, scale: scale}
}

// real returns when the story comes to t, rounded up so that nothing is early.
func (c storyClock) real(t time.Time) time.Time { return c.began.Add(c.duration(t.Sub(c.opening))) }

// story returns what the clocks of the story show at the real time t.
func (c storyClock) story(t time.Time) time.Time {
	return c.opening.Add(time.Duration(math.Round(float64(t.Sub(c.began)) * c.scale)))
}

// duration returns how long d takes to play.
func (c storyClock) duration(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(float64(d) / c.scale))
}

// inStory lets a Scheduler that knows the times of the story run on the machine's
// clock, with which ScheduleFunc asks it. Both roundings go up, so that the time
// that comes back in is never before the one that went out, or that run would be
// asked for twice. (They may put it behind by some microseconds of the story,
// which a table of minutes does not notice.)
type inStory struct {
	clock     storyClock
	scheduler timingwheel.Scheduler
}

func (s inStory) Next(t time.Time) time.Time {
	next := s.scheduler.Next(s.clock.story(t))
	if next.IsZero() {
		return next
	}
	return s.clock.real(next)
}
