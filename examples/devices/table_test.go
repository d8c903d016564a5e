package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseTable(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		lines      []int // of the errors
		reason     string
	}{
		{"the story's", houseTable, nil, ""},
		{"windows", "30 6 mon-fri boiler on\r\n0 22 * hall off\r\n", nil, ""},
		{"lists, ranges, steps", "0,15,30-40 */2 sat-mon,wed lamp on", nil, ""},
		{"hour", "0 1 * lamp on\n0 25 * lamp off", []int{2}, `hour "25" is not between 0 and 23`},
		{"minute", "60 1 * lamp on", []int{1}, `minute "60"`},
		{"sign", "-1 1 * lamp on", []int{1}, `minute "" is not`},
		{"weekday", "0 1 someday lamp on", []int{1}, `weekday "someday" is none of sun mon`},
		{"step of nothing", "*/0 1 * lamp on", []int{1}, "step"},
		{"empty list", "0, 1 * lamp on", []int{1}, `minute ""`},
		{"four columns", "0 1 lamp on", []int{1}, "4 columns and not 5"},
		{"neither", "0 1 * lamp dim", []int{1}, `"dim" is neither on nor off`},
		{"contradiction", "0 1 mon-fri lamp on\n\n*/30 0-3 fri,sat lamp off", []int{3}, "lamp is switched on and off at the same time, see line 1"},
		{"all of them", "x\n0 1 * lamp on\ny", []int{1, 3}, "1 columns"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseTable(tc.text)
			var lines []int
			if err != nil {
				require.ErrorContains(t, err, tc.reason)
				for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
					var wrong *lineError
					require.True(t, errors.As(err, &wrong))
					lines = append(lines, wrong.Line)
				}
			}
			require.Equal(t, tc.lines, lines)
		})
	}
}

const layout = "Mon 2006-01-02 15:04 -0700"

func TestNext(t *testing.T) {
	for _, tc := range []struct {
		name, zone, text, after string
		want                    []string
	}{
		{"strictly after", "UTC", "30 6 * x on", "Mon 2027-03-01 06:30 +0000",
			[]string{"Tue 2027-03-02 06:30 +0000"}},
		{"weekdays", "UTC", "30 6 mon-fri x on", "Thu 2027-03-04 07:00 +0000",
			[]string{"Fri 2027-03-05 06:30 +0000", "Mon 2027-03-08 06:30 +0000"}},
		{"over the weekend, names around the end", "UTC", "0 0 fri-sun x on", "Fri 2027-03-05 00:00 +0000",
			[]string{"Sat 2027-03-06 00:00 +0000", "Sun 2027-03-07 00:00 +0000", "Fri 2027-03-12 00:00 +0000"}},
		{"steps, end of the year", "UTC", "*/20 23 * x on", "Thu 2026-12-31 23:19 +0000",
			[]string{"Thu 2026-12-31 23:20 +0000", "Thu 2026-12-31 23:40 +0000", "Fri 2027-01-01 23:00 +0000"}},
		{"the earliest line", "UTC", "0 9 * x on\n0 8 * y on\n0 9 * z off", "Mon 2027-03-01 00:00 +0000",
			[]string{"Mon 2027-03-01 08:00 +0000", "Mon 2027-03-01 09:00 +0000", "Tue 2027-03-02 08:00 +0000"}},
		{"spring: left out", "Europe/Berlin", "30 2 * x on", "Sat 2027-03-27 02:30 +0100",
			[]string{"Mon 2027-03-29 02:30 +0200"}},
		{"spring: left out, weekly", "Europe/Berlin", "30 2 sun x on", "Sun 2027-03-21 02:30 +0100",
			[]string{"Sun 2027-04-04 02:30 +0200"}},
		{"spring: around the gap", "Europe/Berlin", "0,59 1-3 * x on", "Sun 2027-03-28 01:00 +0100",
			[]string{"Sun 2027-03-28 01:59 +0100", "Sun 2027-03-28 03:00 +0200", "Sun 2027-03-28 03:59 +0200", "Mon 2027-03-29 01:00 +0200"}},
		{"autumn: the first time", "Europe/Berlin", "30 2 * x on", "Sun 2027-10-31 00:00 +0200",
			[]string{"Sun 2027-10-31 02:30 +0200", "Mon 2027-11-01 02:30 +0100"}},
		{"autumn: asked between the two", "Europe/Berlin", "30 2 * x on", "Sun 2027-10-31 02:10 +0100",
			[]string{"Mon 2027-11-01 02:30 +0100"}},
		{"autumn: around", "Europe/Berlin", "0 * * x on", "Sun 2027-10-31 01:00 +0200",
			[]string{"Sun 2027-10-31 02:00 +0200", "Sun 2027-10-31 03:00 +0100", "Sun 2027-10-31 04:00 +0100"}},
		{"autumn, west", "America/New_York", "30 1 * x on", "Sat 2027-11-06 12:00 -0400",
			[]string{"Sun 2027-11-07 01:30 -0400", "Mon 2027-11-08 01:30 -0500"}},
		{"half an hour", "Australia/Lord_Howe", "45 1 * x on\n15 2 * y on", "Sat 2027-04-03 12:00 +1100",
			[]string{"Sun 2027-04-04 01:45 +1100", "Sun 2027-04-04 02:15 +1030", "Mon 2027-04-05 01:45 +1030"}},
		{"no midnight", "Asia/Beirut", "0,30 0,1 * x on", "Sat 2024-03-30 23:00 +0200",
			[]string{"Sun 2024-03-31 01:00 +0300", "Sun 2024-03-31 01:30 +0300", "Mon 2024-04-01 00:00 +0300"}},
		{"no Friday", "Pacific/Apia", "0 10 fri x on", "Fri 2011-12-23 10:00 -1000",
			[]string{"Fri 2012-01-06 10:00 +1400"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			loc, err := time.LoadLocation(tc.zone)
			require.NoError(t, err)
			tab, err := parseTable(tc.text)
			require.NoError(t, err)
			at, err := time.Parse(layout, tc.after)
			require.NoError(t, err)
			at = at.In(loc)
			require.Equal(t, tc.after, at.Format(layout))
			var got []string
			for range tc.want {
				at = tab.Next(at)
				require.Equal(t, loc, at.Location())
				got = append(got, at.Format(layout))
			}
			require.Equal(t, tc.want, got)
			require.NotEmpty(t, tab.at(at))
			require.Empty(t, tab.at(at.Add(time.Second)))
		})
	}
}

func TestNextOfNothing(t *testing.T) {
	require.True(t, table(nil).Next(time.Now()).IsZero())
}

// TestNextFollowsTheClock compares the times of a year with what a clock shows,
// watched minute by minute.
func TestNextFollowsTheClock(t *testing.T) {
	loc, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	tab, err := parseTable("*/10 1-3 sat-mon x on")
	require.NoError(t, err)
	for _, month := range []time.Month{time.March, time.October} {
		at := time.Date(2027, month, 20, 0, 0, 0, 0, loc)
		next := tab.Next(at)
		seen := map[string]bool{}
		for end := at.AddDate(0, 0, 14); at.Before(end); at = at.Add(time.Minute) {
			shows := at.Format("01-02 15:04")
			due := at.Minute()%10 == 0 && at.Hour() >= 1 && at.Hour() <= 3 && !seen[shows] &&
				(at.Weekday() == time.Saturday || at.Weekday() == time.Sunday || at.Weekday() == time.Monday)
			seen[shows] = true
			require.Equal(t, due, at.Equal(next), "%v, next %v", at, next)
			if due {
				next = tab.Next(at)
			}
		}
	}
}

// FuzzTable has whatever is accepted come to a time, and that in order.
func FuzzTable(f *testing.F) {
	f.Add(houseTable, int64(1806195600))
	f.Add("0 2 sun x on\n"+strings.Repeat("*/59 */23 * x on\n", 10), int64(1824944400))
	f.Add("1-0 1-0 tue-mon,* x on", int64(-1))
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		tab, err := parseTable(text)
		if err != nil {
			return
		}
		at := time.Unix(unix%(1<<36), 0).In(berlin)
		for range 5 {
			next := tab.Next(at)
			if len(tab) == 0 {
				require.True(t, next.IsZero())
				return
			}
			require.True(t, next.After(at))
			require.NotEmpty(t, tab.at(next))
			at = next
		}
	})
}
