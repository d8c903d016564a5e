package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// This file holds the table that says when devices are switched, which is a Scheduler. A line has
// five columns, and # begins a comment:
//
//	# minute hour weekday device on/off
//	30       6    mon-fri boiler on
//	0        22   *       hall   off
//	*/20     7,18 sat,sun fan    on
//
// Minute, hour and weekday are a number or name, a range, a list of these, * for all, or */n for
// every n-th from the first. Times are those of the wall clock, in the location of the time that
// Next is given. When clocks are put forward, the times that they leave out do not happen that
// day. When clocks are put back, a time that they show twice counts the first time only.

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

func parseTable(text string) (table, error) {
	var t table
	number := 0
	for text := range strings.Lines(text) {
		number++
		text, _, _ = strings.Cut(text, "#")
		if fields := strings.Fields(text); len(fields) > 0 {
			l, err := parseLine(fields)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			t = append(t, l)
		}
	}
	return t, nil
}

func parseLine(fields []string) (l line, err error) {
	if len(fields) != 5 {
		return l, fmt.Errorf("%d columns instead of 5: minute hour weekday device on/off", len(fields))
	}
	l = line{device: fields[3], on: fields[4] == "on"}
	if !l.on && fields[4] != "off" {
		return l, fmt.Errorf("%q is neither on nor off", fields[4])
	}
	for i, column := range []struct {
		name string
		set  *uint64
		last int
	}{{"minute", &l.minutes, 59}, {"hour", &l.hours, 23}, {"weekday", &l.weekdays, 6}} {
		text := fields[i]
		if column.name == "weekday" {
			text = weekdays.Replace(text)
		}
		if *column.set, err = parseSet(text, column.last); err != nil {
			return l, fmt.Errorf("%s %q: %w", column.name, fields[i], err)
		}
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

// searched is how far Next looks ahead: a line of a single weekday is due within eight days, and
// within fifteen if the clocks leave it out the first time. One more day is for a location that
// has left out a whole day.
const searched = 16 * 24 * time.Hour

// Next returns the first time after t at which a line is due, or the zero time if the table is
// empty. It looks at each minute: about 0.1 ms for a day, which is nothing beside a device.
func (t table) Next(after time.Time) time.Time {
	if len(t) == 0 {
		return time.Time{}
	}
	at := after.Truncate(time.Minute).Add(time.Minute)
	for end := at.Add(searched); at.Before(end); at = at.Add(time.Minute) {
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
		if l.minutes>>minute&1 == 1 && l.hours>>hour&1 == 1 && l.weekdays>>weekday&1 == 1 && !shownBefore(now) {
			due = append(due, l)
		}
	}
	return due
}

// shownBefore reports whether the clock shows this time of day for the second time, because it
// was put back.
func shownBefore(at time.Time) bool {
	began, _ := at.ZoneBounds()
	_, before := began.Add(-1).Zone()
	_, now := at.Zone()
	return !began.IsZero() && at.Sub(began) < time.Duration(before-now)*time.Second
}
