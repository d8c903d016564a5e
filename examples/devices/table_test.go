package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

func TestParseTable(t *testing.T) {
	for text, want := range map[string]string{
		houseTable: "",
		"30 6 mon-fri boiler on\r\n0 22 * hall off\r\n": "",
		"0,15,30-40 */2 sat-mon,wed lamp on":            "",
		"0 1 * lamp on\n0 25 * lamp off":                `line 2: hour "25": not between 0 and 23`,
		"60 1 * lamp on":                                `line 1: minute "60": not between 0 and 59`,
		"-1 1 * lamp on":                                `line 1: minute "-1": not between 0 and 59`,
		"# lamp\n\n0 1 someday lamp on":                 `line 3: weekday "someday": not between 0 and 6`,
		"*/0 1 * lamp on":                               `line 1: minute "*/0": not between 1 and 59`,
		"0, 1 * lamp on":                                `line 1: minute "0,": not between 0 and 59`,
		"0 1 lamp on":                                   "line 1: 4 columns instead of 5: minute hour weekday device on/off",
		"0 1 * lamp dim":                                `line 1: "dim" is neither on nor off`,
	} {
		if _, err := parseTable(text); want == "" {
			require.NoError(t, err, text)
		} else {
			require.EqualError(t, err, want)
		}
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
		at, s := r.RealAt(want), inStory{r, tab, want.AddDate(0, 0, 6)}
		for range 1000 {
			at, want = s.Next(at), tab.Next(want)
			require.Equal(t, r.RealAt(want), at, "scale %v", scale)
		}
		require.True(t, s.Next(r.RealAt(s.end)).IsZero())
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
