package main

import (
	"strings"
	"time"
)

// This file holds the table that says when devices are switched. It is a Scheduler. Times are those
// of the wall clock, in the location of the time that Next is given. When clocks are put forward,
// the times that they leave out do not happen that day. When clocks are put back, only the first of
// two equal times counts.

// A table never changes, so it needs no lock.
type table []line

type line struct {
	hour, minute int
	days         string // of the week, such as workdays
	device       string
	on           bool
}

const (
	workdays = "Mon Tue Wed Thu Fri"
	weekend  = "Sat Sun"
	daily    = workdays + " " + weekend
)

func (l line) String() string {
	return l.device + " " + map[bool]string{true: "on", false: "off"}[l.on]
}

// searched is how far Next looks ahead. A line of a single weekday is due within eight days, or
// fifteen if the clocks leave it out the first time; one more is for a location that has left out a
// whole day.
const searched = 16 * 24 * time.Hour

// Next returns the first time after t at which a line is due, or the zero time if the table is
// empty. It looks at each minute. That takes less than 0.1 ms for a day, which is nothing for a
// device.
func (t table) Next(after time.Time) time.Time {
	at := after.Truncate(time.Minute).Add(time.Minute)
	for end := at.Add(searched); len(t) > 0 && at.Before(end); at = at.Add(time.Minute) {
		if len(t.at(at)) > 0 {
			return at
		}
	}
	return time.Time{}
}

// at returns the lines that are due in the minute of a time.
func (t table) at(now time.Time) (due []line) {
	hour, minute, _ := now.Clock()
	for _, l := range t {
		if l.hour == hour && l.minute == minute && strings.Contains(l.days, now.Format("Mon")) &&
			!shownBefore(now) {
			due = append(due, l)
		}
	}
	return due
}

// shownBefore reports whether the clock shows this time of day for the second time, because it was
// put back.
func shownBefore(at time.Time) bool {
	began, _ := at.ZoneBounds()
	_, before := began.Add(-1).Zone()
	_, now := at.Zone()
	return !began.IsZero() && at.Sub(began) < time.Duration(before-now)*time.Second
}
