package main

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// This file holds the table that says when devices are switched: its text, and
// the times that follow from it. A table is never changed once it is made, so
// there is no lock.
//
// A line has five columns; # begins a comment:
//
//	# minute hour weekday device on/off
//	30       6    mon-fri boiler on
//	0        22   *       hall   off
//	*/20     7,18 sat,sun fan    on
//
// Minute, hour and weekday are a number or name, a range, a list of these, * for
// all, or */n for every n-th from the first.
//
// The times are those of the wall clock, in the location of the time that Next is
// given. When clocks are put forward, a time that they leave out does not come
// that day; when they are put back, a time that they show twice counts the first
// time only.

// A lineError says what is wrong with a line of a table.
type lineError struct {
	Line   int // from 1
	Reason string
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// A table is a Scheduler: its runs are the times at which any of its lines is due.
type table []line

// A line says that a device is to be on or off from these times on. Each set has a
// bit for a minute, an hour, or a weekday from Sunday.
type line struct {
	minutes, hours, weekdays uint64
	device                   string
	on                       bool
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// parseTable reads a table, and returns all that is wrong with it, joined, each a
// *lineError.
func parseTable(text string) (table, error) {
	var t table
	var numbers []int // of the lines in t
	var errs []error
	number := 0
	for text := range strings.Lines(text) {
		number++
		text, _, _ = strings.Cut(text, "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		l, err := parseLine(fields)
		for i, other := range t {
			if err == nil && other.contradicts(l) {
				err = fmt.Errorf("%s is switched on and off at the same time, see line %d", l.device, numbers[i])
			}
		}
		if err != nil {
			errs = append(errs, &lineError{number, err.Error()})
			continue
		}
		t = append(t, l)
		numbers = append(numbers, number)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t, nil
}

func parseLine(fields []string) (l line, err error) {
	if len(fields) != 5 {
		return l, fmt.Errorf("%d columns and not 5: minute hour weekday device on/off", len(fields))
	}
	if l.minutes, err = parseSet("minute", fields[0], 59, nil); err != nil {
		return l, err
	}
	if l.hours, err = parseSet("hour", fields[1], 23, nil); err != nil {
		return l, err
	}
	if l.weekdays, err = parseSet("weekday", fields[2], 6, weekdays); err != nil {
		return l, err
	}
	l.device = fields[3]
	switch fields[4] {
	case "on":
		l.on = true
	case "off":
	default:
		return l, fmt.Errorf("%q is neither on nor off", fields[4])
	}
	return l, nil
}

// parseSet reads a column of values from 0 to last; names, if there are any, stand
// for their index. A range may go beyond the last value, as fri-mon does.
func parseSet(column, text string, last int, names []string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, step := 0, last, 1
		switch low, high, isRange := strings.Cut(part, "-"); {
		case part == "*":
		case strings.HasPrefix(part, "*/"):
			step, err = strconv.Atoi(part[2:])
			if err != nil || step < 1 || step > last {
				return 0, fmt.Errorf("%s %q: the step is not between 1 and %d", column, part, last)
			}
		default:
			if from, err = parseValue(column, low, last, names); err != nil {
				return 0, err
			}
			to = from
			if isRange {
				if to, err = parseValue(column, high, last, names); err != nil {
					return 0, err
				}
			}
		}
		if to < from {
			to += last + 1
		}
		for i := from; i <= to; i += step {
			set |= 1 << (i % (last + 1))
		}
	}
	return set, nil
}

func parseValue(column, text string, last int, names []string) (int, error) {
	for i, name := range names {
		if text == name {
			return i, nil
		}
	}
	if names != nil {
		return 0, fmt.Errorf("%s %q is none of %s", column, text, strings.Join(names, " "))
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > last {
		return 0, fmt.Errorf("%s %q is not between 0 and %d", column, text, last)
	}
	return n, nil
}

// contradicts reports that there is a time at which one says on and the other off.
func (l line) contradicts(other line) bool {
	return l.device == other.device && l.on != other.on &&
		l.minutes&other.minutes != 0 && l.hours&other.hours != 0 && l.weekdays&other.weekdays != 0
}

// Next returns the first time after t at which a line is due, and the zero time if
// the table is empty.
func (t table) Next(after time.Time) (next time.Time) {
	for _, l := range t {
		if at := l.next(after); next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

// at returns the lines that are due at that time exactly.
func (t table) at(now time.Time) (due []line) {
	for _, l := range t {
		if l.next(now.Add(-1)).Equal(now) {
			due = append(due, l)
		}
	}
	return due
}

// searchDays is how many days next looks through: a line of a single weekday comes
// within eight, and within fifteen if the clocks leave it out the first time. One
// more is for a location that has left out a whole day.
const searchDays = 16

// next returns the first time after t at which the line is due. Within a day the
// first instants at which the clock shows the minutes of the day come in their order.
func (l line) next(t time.Time) time.Time {
	year, month, today := t.Date()
	for day := range searchDays {
		// A day's weekday is the same everywhere; in UTC no day is left out.
		date := time.Date(year, month, today+day, 0, 0, 0, 0, time.UTC)
		if l.weekdays&(1<<date.Weekday()) == 0 {
			continue
		}
		hours := l.hours
		if day == 0 {
			hours &^= 1<<t.Hour() - 1 // they were, at least the first time
		}
		for ; hours != 0; hours &= hours - 1 {
			hour := bits.TrailingZeros64(hours)
			for minutes := l.minutes; minutes != 0; minutes &= minutes - 1 {
				at, ok := firstShown(date, hour, bits.TrailingZeros64(minutes), t.Location())
				if ok && at.After(t) {
					return at
				}
			}
		}
	}
	return time.Time{}
}

// firstShown returns when the clocks of a location show that time of the date for
// the first time; ok is false if they leave it out.
func firstShown(date time.Time, hour, minute int, loc *time.Location) (at time.Time, ok bool) {
	shown := time.Date(date.Year(), date.Month(), date.Day(), hour, minute, 0, 0, time.UTC)
	at = inZone(shown, loc)
	if !shows(at, shown) {
		return time.Time{}, false
	}
	// Of a time that is shown twice, time.Date may return either. The other one is
	// in the zone before this one.
	if began, _ := at.ZoneBounds(); !began.IsZero() {
		_, before := began.Add(-1).Zone()
		_, now := at.Zone()
		earlier := at.Add(time.Duration(now-before) * time.Second)
		if earlier.Before(began) && shows(earlier, shown) {
			return earlier, true
		}
	}
	return at, true
}

func inZone(shown time.Time, loc *time.Location) time.Time {
	return time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), 0, 0, loc)
}

// shows reports that a clock at the instant at shows what shown does in UTC.
func shows(at, shown time.Time) bool {
	_, offset := at.Zone()
	return at.Unix()+int64(offset) == shown.Unix()
}
