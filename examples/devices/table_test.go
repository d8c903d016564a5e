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
		houseTable:                       "",
		"6:30 mon-fri boiler on\r\n":     "",
		"0:00 * x on\n24:00 * x off":     `line 2: "24:00" is not a time of day`,
		"12:60 * x on":                   `line 1: "12:60" is not a time of day`,
		"# lamp\n\n0:00 someday lamp on": `line 3: "someday" is not a day or a range of days`,
		"0:00 mon-* lamp on":             `line 1: "mon-*" is not a day or a range of days`,
		"0:00 lamp on":                   "line 1: 3 columns, want 4",
		"0:00 * lamp dim":                `line 1: "dim" is neither on nor off`,
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
		"strictly after": {"UTC", "6:30 * x on", "2027-03-01T06:30+0000 2027-03-02T06:30+0000"},
		"weekdays": {"UTC", "6:30 mon-fri x on",
			"2027-03-04T07:00+0000 2027-03-05T06:30+0000 2027-03-08T06:30+0000"},
		"names around the end of the week": {"UTC", "0:00 fri-sun x on",
			"2027-03-05T00:00+0000 2027-03-06T00:00+0000 2027-03-07T00:00+0000 " +
				"2027-03-12T00:00+0000"},
		"end of the year": {"UTC", "23:59 * x on\n0:00 fri x on",
			"2026-12-31T23:58+0000 2026-12-31T23:59+0000 2027-01-01T00:00+0000 " +
				"2027-01-01T23:59+0000"},
		"the earliest line": {"UTC", "9:00 * x on\n8:00 * y on\n9:00 * z off",
			"2027-03-01T00:00+0000 2027-03-01T08:00+0000 2027-03-01T09:00+0000 " +
				"2027-03-02T08:00+0000"},
		"spring: left out": {"Europe/Berlin", "2:30 * x on",
			"2027-03-27T02:30+0100 2027-03-29T02:30+0200"},
		"spring: left out, weekly": {"Europe/Berlin", "2:30 sun x on",
			"2027-03-21T02:30+0100 2027-04-04T02:30+0200"},
		"spring: around the gap": {"Europe/Berlin",
			"1:00 * x on\n1:59 * x on\n2:00 * x on\n2:59 * x on\n3:00 * x on\n3:59 * x on",
			"2027-03-28T01:00+0100 2027-03-28T01:59+0100 2027-03-28T03:00+0200 " +
				"2027-03-28T03:59+0200 2027-03-29T01:00+0200"},
		"autumn: the first time": {"Europe/Berlin", "2:30 * x on",
			"2027-10-31T00:00+0200 2027-10-31T02:30+0200 2027-11-01T02:30+0100"},
		"autumn: asked between the two": {"Europe/Berlin", "2:30 * x on",
			"2027-10-31T02:10+0100 2027-11-01T02:30+0100"},
		"autumn: around": {"Europe/Berlin", "1:00 * x on\n2:00 * x on\n3:00 * x on",
			"2027-10-31T01:00+0200 2027-10-31T02:00+0200 2027-10-31T03:00+0100"},
		"autumn, west": {"America/New_York", "1:30 * x on",
			"2027-11-06T12:00-0400 2027-11-07T01:30-0400 2027-11-08T01:30-0500"},
		"half an hour": {"Australia/Lord_Howe", "1:45 * x on\n2:15 * y on",
			"2027-04-03T12:00+1100 2027-04-04T01:45+1100 2027-04-04T02:15+1030 " +
				"2027-04-05T01:45+1030"},
		"no midnight": {"Asia/Beirut", "0:00 * x on\n0:30 * x on\n1:00 * x on\n1:30 * x on",
			"2024-03-30T23:00+0200 2024-03-31T01:00+0300 2024-03-31T01:30+0300 " +
				"2024-04-01T00:00+0300"},
		"no Friday": {"Pacific/Apia", "10:00 fri x on",
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

// everySeven is due when the clock shows a multiple of seven minutes.
type everySeven struct{}

func (everySeven) Next(t time.Time) time.Time {
	return t.Truncate(7 * time.Minute).Add(7 * time.Minute)
}

// TestInStory goes through times on scales that do not divide well: none is left out, and none
// happens twice.
func TestInStory(t *testing.T) {
	for _, scale := range []float64{1, 1.1, 3, 7.7, 12000, 99999.9} {
		want := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
		r := story.NewRun(want, scale)
		at, s := r.RealAt(want), inStory{r, everySeven{}}
		for range 1000 {
			at, want = s.Next(at), everySeven{}.Next(want)
			require.Equal(t, r.RealAt(want), at, "scale %v", scale)
		}
		require.True(t, s.Next(r.RealAt(end)).IsZero())
	}
}

// FuzzTable checks that every table that is accepted leads to times, and these in order.
func FuzzTable(f *testing.F) {
	f.Add(houseTable, int64(1806195600))
	f.Add("2:00 sun x on\n"+strings.Repeat("23:59 sat-sun x on\n", 10), int64(1824944400))
	f.Add("0:01 tue-mon x on", int64(-1))
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		tab, err := parseTable(text)
		if err != nil {
			return
		}
		at := time.Unix(unix%(1<<36), 0).In(berlin)
		for range 5 {
			next := tab.Next(at)
			if require.Equal(t, len(tab) == 0, next.IsZero()); next.IsZero() {
				return
			}
			require.True(t, next.After(at))
			require.NotEmpty(t, tab.at(next))
			at = next
		}
	})
}
