package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// This file holds the table that says when devices are switched. It is a Scheduler. A line has five
// columns, and # begins a comment:
//
//	# minute hour weekday device on/off
//	30       6    mon-fri boiler on
//	0        22   *       hall   off
//	*/20     7,18 sat,sun fan    on
//
// Minute, hour and weekday are a number or name, a range, a list of these, * for all, or */n for
// every n-th from the first. Times are those of the wall clock, in the location of the time that
// Next is given. When clocks are put forward, the times that they leave out do not happen that day.
// When clocks are put back, only the first of two equal times counts.

// A table never changes, so it needs no lock.
type table []line

// A line switches a device at the times whose minute, hour and weekday are in its sets.
type line struct {
	minutes, hours, weekdays uint64 // a bit for each
	device                   string
	on                       bool
}

var weekdays = strings.NewReplacer("sun", "0", "mon", "1", "tue", "2", "wed", "3",
	"thu", "4", "fri", "5", "sat", "6")

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

func parseLine(fields []string) (l line, err error) {
	if len(fields) != 5 {
		return l, fmt.Errorf("%d columns, want 5", len(fields))
	}
	l.device, l.on = fields[3], fields[4] == "on"
	if !l.on && fields[4] != "off" {
		return l, fmt.Errorf("%q is neither on nor off", fields[4])
	}
	if l.minutes, err = parseSet(fields[0], 59); err != nil {
		return l, fmt.Errorf("minute %q: %w", fields[0], err)
	}
	if l.hours, err = parseSet(fields[1], 23); err != nil {
		return l, fmt.Errorf("hour %q: %w", fields[1], err)
	}
	if l.weekdays, err = parseSet(weekdays.Replace(fields[2]), 6); err != nil {
		return l, fmt.Errorf("weekday %q: %w", fields[2], err)
	}
	return l, nil
}

// parseSet reads a column of values from 0 to last. A range may go beyond the last value, as
// fri-mon does.
func parseSet(text string, last int) (set uint64, err error) {
	value := func(text string, least int) int {
		n, e := strconv.Atoi(text)
		if e != nil || n < least || n > last {
			n, err = least, fmt.Errorf("not between %d and %d", least, last)
		}
		return n
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, step := 0, last, 1
		if every, ok := strings.CutPrefix(part, "*/"); ok {
			step = value(every, 1)
		} else if part != "*" {
			low, high, isRange := strings.Cut(part, "-")
			from = value(low, 0)
			if to = from; isRange {
				to = value(high, 0)
			}
			if to < from {
				to += last + 1
			}
		}
		for i := from; i <= to; i += step {
			set |= 1 << (i % (last + 1))
		}
	}
	return set, err
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
	minute, hour, weekday := now.Minute(), now.Hour(), now.Weekday()
	for _, l := range t {
		if l.minutes>>minute&(l.hours>>hour)&(l.weekdays>>weekday)&1 == 1 && !shownBefore(now) {
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
