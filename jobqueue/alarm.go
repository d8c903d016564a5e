package jobqueue

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// An alarm calls a function when a store said that a queue may have something to claim. Whether it
// meant time that passes or an instant of the wall clock, which may be stepped, it did not say. So
// the alarm follows both clocks and rings by the first. If that was too early, a claim finds
// nothing, and its answer sets the alarm again. A lock of its owner guards it.
type alarm struct {
	c     *Client
	ring  func()
	timer timingwheel.Timer
	wall  *timingwheel.Timer // follows the wall clock; nil if the timer fires soon
	next  time.Time          // when the timer is set to fire, zero if that is of no interest
}

// soon is how late an instant may be if the wall clock is stepped. It is also how often the wheel
// reads the wall clock.
const soon = time.Minute

func (a *alarm) init(c *Client, ring func()) {
	a.c, a.ring = c, ring
	c.tw.Init(&a.timer, ring)
}

// setLocked has the alarm ring so far from now, unless it rings earlier.
func (a *alarm) setLocked(now time.Time, in time.Duration) {
	at := now.Add(in)
	if !a.next.IsZero() && !at.Before(a.next) {
		return
	}
	a.stopWallLocked()
	a.next = at
	a.timer.Reset(in)
	if in > soon && !a.c.set.steady {
		a.wall = a.c.tw.AtFunc(at.Round(0), func() {
			if a.timer.Stop() {
				a.ring()
			}
		})
	}
}

// stopLocked is called by ring too.
func (a *alarm) stopLocked() {
	a.next = time.Time{}
	a.timer.Stop()
	a.stopWallLocked()
}

func (a *alarm) stopWallLocked() {
	if a.wall != nil {
		a.wall.Stop()
		a.wall = nil
	}
}
