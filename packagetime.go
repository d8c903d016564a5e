package timingwheel

import "time"

// This file holds what package time and a wheel have in common.

// A Clock starts timers. A library that accepts one lets its users choose whether package time or
// a wheel keeps its timeouts:
//
//	func NewClient(clock timingwheel.Clock) *Client
//
//	NewClient(timingwheel.PackageTime()) // as before
//	NewClient(tw.Clock())                // for programs with a wheel
//
// It has one method, so that a test can have a Clock of its own in a few lines. A library that
// needs a channel or a context instead can accept a function: After and WithTimeout have the
// signatures of time.After and context.WithTimeout. Both clocks tell the same time, which time.Now
// returns.
type Clock interface {
	// AfterFunc calls f once d has passed, and returns a timer that can stop it.
	AfterFunc(d time.Duration, f func()) ClockTimer
}

// A ClockTimer is what a *Timer and a *time.Timer have in common. The methods mean the same for
// both, except that a stopped wheel starts nothing.
type ClockTimer interface {
	// Stop prevents the timer from firing. It returns true if it does.
	Stop() bool
	// Reset makes the timer fire d from now. It returns true if the timer was pending.
	Reset(d time.Duration) bool
}

var (
	_ ClockTimer = (*Timer)(nil)
	_ ClockTimer = (*time.Timer)(nil)
)

// PackageTime returns the Clock whose AfterFunc is time.AfterFunc. It allocates nothing.
func PackageTime() Clock { return packageTime{} }

type packageTime struct{}

func (packageTime) AfterFunc(d time.Duration, f func()) ClockTimer { return time.AfterFunc(d, f) }

// Clock returns the Clock whose AfterFunc is that of tw. It allocates nothing.
func (tw *TimingWheel) Clock() Clock {
	tw.check("Clock")
	return (*wheelClock)(tw)
}

// wheelClock is a TimingWheel whose AfterFunc returns an interface.
type wheelClock TimingWheel

func (c *wheelClock) AfterFunc(d time.Duration, f func()) ClockTimer {
	return (*TimingWheel)(c).AfterFunc(d, f)
}
