package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file holds the table that says when devices are switched. It is a Scheduler. Each line has a
// time of day, a day of the week or a range of days (* for all), a device, and on or off; # begins
// a comment. Times are those of the wall clock, in the location of the time that Next is given.
// When clocks are put forward, the times that they leave out do not happen that day. When clocks
// are put back, only the first of two equal times counts.

// A table never changes, so it needs no lock.
type table []line

type line struct {
	hour, minute int
	days         [7]bool // by time.Weekday
	device       string
	on           bool
}

func (l line) String() string {
	return l.device + " " + map[bool]string{true: "on", false: "off"}[l.on]
}

func parseTable(text string) (t table, _ error) {
	for i, text := range strings.Split(text, "\n") {
		text, _, _ = strings.Cut(text, "#")
		if fields := strings.Fields(text); len(fields) > 0 {
			l, err := parseLine(fields)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			t = append(t, l)
		}
	}
	return t, nil
}

var week = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func parseLine(fields []string) (l line, _ error) {
	if len(fields) != 4 {
		return l, fmt.Errorf("%d columns, want 4", len(fields))
	}
	at, err := time.Parse("15:04", fields[0])
	if err != nil {
		return l, fmt.Errorf("%q is not a time of day", fields[0])
	}
	first, last, isRange := strings.Cut(strings.Replace(fields[1], "*", "sun-sat", 1), "-")
	if !isRange {
		last = first
	}
	from, to := slices.Index(week, first), slices.Index(week, last)
	if from < 0 || to < 0 {
		return l, fmt.Errorf("%q is not a day or a range of days", fields[1])
	}
	if to < from {
		to += len(week) // the range goes beyond Saturday, as fri-mon does
	}
	for day := from; day <= to; day++ {
		l.days[day%len(week)] = true
	}
	l.hour, l.minute, l.device, l.on = at.Hour(), at.Minute(), fields[2], fields[3] == "on"
	if !l.on && fields[3] != "off" {
		return l, fmt.Errorf("%q is neither on nor off", fields[3])
	}
	return l, nil
}

// searched is how far Next looks ahead. A line of a single weekday is due within eight days, or
// fifteen if the clocks leave it out the first time; one more is for a location that has left out a
// whole day.
const searched = 16 * 24 * time.Hour

// Next returns the first time after t at which a line is due, or the zero time if the table is
// empty. It looks at each minute. That takes about 0.1 ms for a day, which is nothing for a device.
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
	hour, minute, day := now.Hour(), now.Minute(), now.Weekday()
	for _, l := range t {
		if l.hour == hour && l.minute == minute && l.days[day] && !shownBefore(now) {
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
