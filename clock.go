package timingwheel

import (
	"math"
	"time"
)

// Time inside the package is one of three things, kept apart by name:
//
//   - an instant in nanoseconds since the wheel was made, on the monotonic
//     clock (now, deadline); durations live here;
//   - a tick, an instant divided by the wheel's tick (expiration, wheel.now);
//     deadlines round up to it and the clock rounds down, so that a timer whose
//     tick has come is never early;
//   - a wall time, a time.Time without monotonic reading, for AtFunc and
//     ScheduleFunc alone.

// A clock tells the time of a wheel. Its fields are fixed.
type clock struct {
	start time.Time        // instant 0
	tick  int64            // nanoseconds
	wall  func() time.Time // the wall clock: time.Now, except in tests that step it
}

// never is the deadline that does not come: the largest a state word can hold, 146 years after the
// wheel was made. Later deadlines saturate to it, and the driver never looks at it. Firing at the
// largest deadline that fits would be early, because math.MaxInt64 is 292 years.
const never int64 = 1<<62 - 1

// wallRecheck is how long a timer that follows the wall clock waits at most before the wall clock
// is read again: a step or a suspend of the machine is noticed within this time.
const wallRecheck = time.Minute

// now returns the monotonic instant. A call reads the clock once. The instant is negative only if a
// wheel that was made outside a synctest bubble is used inside, where the year is 2000. Every timer
// would then be early.
func (c *clock) now() int64 { return notBeforeStart(time.Since(c.start)) }

// at returns the instant of a reading of the clock.
func (c *clock) at(now time.Time) int64 { return notBeforeStart(now.Sub(c.start)) }

// tickBegun returns the instant at which the tick of a reading of the clock began.
func (c *clock) tickBegun(now time.Time) int64 {
	instant := c.at(now)
	return instant - instant%c.tick
}

func notBeforeStart(d time.Duration) int64 {
	if d < 0 {
		panic("timingwheel: used in a synctest bubble that it was not made in")
	}
	return int64(d)
}

// deadlineAfter returns now+d, saturated at both ends.
func deadlineAfter(now int64, d time.Duration) int64 {
	now = min(now, never-1) // a wheel older than that still fires what is due at once
	if d <= 0 {
		return now
	}
	if int64(d) >= never-now {
		return never
	}
	return now + int64(d)
}

// deadlineAt returns the instant of t, which has a monotonic reading.
func (c *clock) deadlineAt(t time.Time) int64 {
	return min(max(int64(t.Sub(c.start)), 0), never)
}

// instant is the inverse of deadlineAt.
func (c *clock) instant(deadline int64) time.Time {
	return c.start.Add(time.Duration(deadline))
}

// tickOf returns the first tick at or after the deadline.
func (c *clock) tickOf(deadline int64) int64 {
	e := deadline / c.tick
	if deadline%c.tick != 0 {
		e++
	}
	return e
}

// tickAt returns the tick that has begun at the instant now.
func (c *clock) tickAt(now int64) int64 { return now / c.tick }

// untilTick returns how long it is until the tick e begins.
func (c *clock) untilTick(e int64) time.Duration {
	if e > math.MaxInt64/c.tick {
		return math.MaxInt64
	}
	return time.Duration(e*c.tick - c.now())
}

// duration returns so many ticks as a duration, saturated.
func (c *clock) duration(ticks int64) time.Duration {
	if ticks > math.MaxInt64/c.tick {
		return math.MaxInt64
	}
	return time.Duration(ticks * c.tick)
}

// everyAfter returns the first of the instants next, next+d, next+2d and so on that is after past.
func everyAfter(next, d, past int64) int64 {
	if next > past {
		return next
	}
	return deadlineAfter(past, time.Duration(d-(past-next)%d))
}

// isWallOnly reports whether t has no monotonic reading. Round(0) is the documented way to strip
// one.
func isWallOnly(t time.Time) bool { return t == t.Round(0) }
