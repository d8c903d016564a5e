package story

import (
	"context"
	"math"
	"time"
)

// A Clock maps the times of a story to those at which the program plays it. It is used
// where times come in and go out, and at no other place, so that what lies between
// knows one time only: that of the machine. It is never changed and needs no lock.
type Clock struct {
	Scale   float64   // seconds of the story in one second
	Opening time.Time // the time of the story at which it begins
	began   time.Time // the same moment on the machine's wall clock, which calendars go by
}

// NewClock lets a story begin now.
func NewClock(opening time.Time, scale float64) *Clock {
	return &Clock{Scale: scale, Opening: opening, began: time.Now().Round(0)}
}

// Real returns how long d takes to play, rounded up so that nothing is early.
func (c *Clock) Real(d time.Duration) time.Duration {
	if c.Scale == 1 { // exactly: a float64 holds a hundred days in nanoseconds and no more
		return d
	}
	return time.Duration(math.Ceil(float64(d) / c.Scale))
}

// RealAt returns when the story comes to t, rounded up too.
func (c *Clock) RealAt(t time.Time) time.Time { return c.began.Add(c.Real(t.Sub(c.Opening))) }

// StoryAt returns what the clocks of the story show at a time of the machine. Of
// RealAt(t) it is not before t.
func (c *Clock) StoryAt(real time.Time) time.Time {
	d := real.Sub(c.began)
	if c.Scale != 1 {
		d = time.Duration(math.Round(float64(d) * c.Scale))
	}
	return c.Opening.Add(d)
}

// A Scene is something that happens at a time of the story.
type Scene struct {
	after time.Duration
	do    func(context.Context) error
}

// At has do happen so long after the opening.
func At(after time.Duration, do func(context.Context) error) Scene { return Scene{after, do} }

// Play has the scenes happen in their order, each not before its time, until one fails
// or ctx ends.
func (c *Clock) Play(ctx context.Context, scenes ...Scene) error {
	for _, s := range scenes {
		if err := c.Until(ctx, s.after); err != nil {
			return err
		}
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Until sleeps until so long after the opening.
func (c *Clock) Until(ctx context.Context, after time.Duration) error {
	return Sleep(ctx, time.Until(c.began.Add(c.Real(after))))
}

// Sleep returns after d of the machine's time, or with an error when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return ctx.Err()
	}
}
