package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestParseTable(t *testing.T) {
	for text, want := range map[string]string{
		houseTable:                           "",
		"30 6 mon-fri boiler on\r\n":         "",
		"0,15,30-40 */2 sat-mon,wed lamp on": "",
		"0 1 * x on\n0 25 * x off":           `line 2: hour "25": not between 0 and 23`,
		"60 1 * lamp on":                     `line 1: minute "60": not between 0 and 59`,
		"-1 1 * lamp on":                     `line 1: minute "-1": not between 0 and 59`,
		"# lamp\n\n0 1 someday lamp on":      `line 3: weekday "someday": not between 0 and 6`,
		"*/0 1 * lamp on":                    `line 1: minute "*/0": not between 1 and 59`,
		"0, 1 * lamp on":                     `line 1: minute "0,": not between 0 and 59`,
		"0 1 lamp on":                        "line 1: 4 columns, want 5",
		"0 1 * lamp dim":                     `line 1: "dim" is neither on nor off`,
	} {
		if _, err := parseTable(text); want == "" {
			require.NoError(t, err, text)
		} else {
			require.EqualError(t, err, want)
		}
	}
}

const layout = "2006-01-02T15:04-0700"

// TestNext looks for times of a table: all in want but the first, each after the one before.
func TestNext(t *testing.T) {
	for name, tc := range map[string]struct{ zone, table, want string }{
		"strictly after": {"UTC", "30 6 * x on", "2027-03-01T06:30+0000 2027-03-02T06:30+0000"},
		"weekdays": {"UTC", "30 6 mon-fri x on",
			"2027-03-04T07:00+0000 2027-03-05T06:30+0000 2027-03-08T06:30+0000"},
		"names around the end of the week": {"UTC", "0 0 fri-sun x on",
			"2027-03-05T00:00+0000 2027-03-06T00:00+0000 2027-03-07T00:00+0000 " +
				"2027-03-12T00:00+0000"},
		"steps, end of the year": {"UTC", "*/20 23 * x on",
			"2026-12-31T23:19+0000 2026-12-31T23:20+0000 2026-12-31T23:40+0000 " +
				"2027-01-01T23:00+0000"},
		"the earliest line": {"UTC", "0 9 * x on\n0 8 * y on\n0 9 * z off",
			"2027-03-01T00:00+0000 2027-03-01T08:00+0000 2027-03-01T09:00+0000 " +
				"2027-03-02T08:00+0000"},
		"spring: left out": {"Europe/Berlin", "30 2 * x on",
			"2027-03-27T02:30+0100 2027-03-29T02:30+0200"},
		"spring: left out, weekly": {"Europe/Berlin", "30 2 sun x on",
			"2027-03-21T02:30+0100 2027-04-04T02:30+0200"},
		"spring: around the gap": {"Europe/Berlin", "0,59 1-3 * x on",
			"2027-03-28T01:00+0100 2027-03-28T01:59+0100 2027-03-28T03:00+0200 " +
				"2027-03-28T03:59+0200 2027-03-29T01:00+0200"},
		"autumn: the first time": {"Europe/Berlin", "30 2 * x on",
			"2027-10-31T00:00+0200 2027-10-31T02:30+0200 2027-11-01T02:30+0100"},
		"autumn: asked between the two": {"Europe/Berlin", "30 2 * x on",
			"2027-10-31T02:10+0100 2027-11-01T02:30+0100"},
		"autumn: around": {"Europe/Berlin", "0 * * x on",
			"2027-10-31T01:00+0200 2027-10-31T02:00+0200 2027-10-31T03:00+0100"},
		"autumn, west": {"America/New_York", "30 1 * x on",
			"2027-11-06T12:00-0400 2027-11-07T01:30-0400 2027-11-08T01:30-0500"},
		"half an hour": {"Australia/Lord_Howe", "45 1 * x on\n15 2 * y on",
			"2027-04-03T12:00+1100 2027-04-04T01:45+1100 2027-04-04T02:15+1030 " +
				"2027-04-05T01:45+1030"},
		"no midnight": {"Asia/Beirut", "0,30 0,1 * x on",
			"2024-03-30T23:00+0200 2024-03-31T01:00+0300 2024-03-31T01:30+0300 " +
				"2024-04-01T00:00+0300"},
		"no Friday": {"Pacific/Apia", "0 10 fri x on",
			"2011-12-23T10:00-1000 2012-01-06T10:00+1400"},
	} {
		t.Run(name, func(t *testing.T) {
			loc, err := time.LoadLocation(tc.zone)
			require.NoError(t, err)
			tab, err := parseTable(tc.table)
			require.NoError(t, err)
			first, _, _ := strings.Cut(tc.want, " ")
			at, err := time.Parse(layout, first)
			require.NoError(t, err)
			at = at.In(loc)
			got := at.Format(layout)
			for range strings.Count(tc.want, " ") {
				at = tab.Next(at)
				require.Equal(t, loc, at.Location())
				got += " " + at.Format(layout)
			}
			require.Equal(t, tc.want, got)
			require.NotEmpty(t, tab.at(at))
		})
	}
}

// TestInStory goes through a table on scales that do not divide well: no time is left out, and
// none happens twice.
func TestInStory(t *testing.T) {
	tab, err := parseTable("*/7 * * x on")
	require.NoError(t, err)
	for _, scale := range []float64{1, 1.1, 3, 7.7, 12000, 99999.9} {
		want := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
		r := story.NewRun(want, scale)
		at, s := r.RealAt(want), inStory{r, tab}
		for range 1000 {
			at, want = s.Next(at), tab.Next(want)
			require.Equal(t, r.RealAt(want), at, "scale %v", scale)
		}
		require.True(t, s.Next(r.RealAt(end)).IsZero())
	}
}

// FuzzTable checks that every table that is accepted leads to times, and these in order.
func FuzzTable(f *testing.F) {
	f.Add(houseTable, int64(1806195600))
	f.Add("0 2 sun x on\n"+strings.Repeat("*/59 */23 * x on\n", 10), int64(1824944400))
	f.Add("1-0 1-0 tue-mon,* x on", int64(-1))
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
