package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// parse reads a table with a line for each of its devices.
func parse(text string) (t table) {
	for text := range strings.Lines(text) {
		columns := strings.Fields(strings.Replace(text, "*", "Mon+Tue+Wed+Thu+Fri+Sat+Sun", 1))
		var hour, minute int
		fmt.Sscanf(columns[0], "%d:%d", &hour, &minute)
		t = append(t, line{hour, minute, columns[1], columns[2], columns[3] == "on"})
	}
	return t
}

// TestNext looks for the next times of a table, each of them after the one before.
func TestNext(t *testing.T) {
	for name, tc := range map[string]struct{ zone, from, table, want string }{
		"strictly after": {"UTC", "2027-03-01 06:30 +00", "06:30 * x on", "2 06:30 UTC"},
		"weekdays": {"UTC", "2027-03-04 07:00 +00", "06:30 Mon+Tue+Wed+Thu+Fri x on",
			"5 06:30 UTC, 8 06:30 UTC, 9 06:30 UTC"},
		"around the end of the week": {"UTC", "2027-03-05 00:00 +00", "00:00 Fri+Sat+Sun x on",
			"6 00:00 UTC, 7 00:00 UTC, 12 00:00 UTC"},
		"end of the year": {"UTC", "2026-12-31 23:58 +00", "23:59 * x on\n00:00 Fri x on",
			"31 23:59 UTC, 1 00:00 UTC, 1 23:59 UTC"},
		"the earliest line": {"UTC", "2027-03-01 00:00 +00",
			"09:00 * x on\n08:00 * y on\n09:00 * z off",
			"1 08:00 UTC, 1 09:00 UTC, 2 08:00 UTC"},
		"spring: left out": {"Europe/Berlin", "2027-03-27 02:30 +01", "02:30 * x on",
			"29 02:30 CEST"},
		"spring: left out, weekly": {"Europe/Berlin", "2027-03-21 02:30 +01", "02:30 Sun x on",
			"4 02:30 CEST"},
		"spring: around the gap": {"Europe/Berlin", "2027-03-28 01:00 +01",
			"01:00 * x on\n01:59 * x on\n02:00 * x on\n02:59 * x on\n03:00 * x on\n03:59 * x on",
			"28 01:59 CET, 28 03:00 CEST, 28 03:59 CEST, 29 01:00 CEST"},
		"autumn: the first time": {"Europe/Berlin", "2027-10-31 00:00 +02", "02:30 * x on",
			"31 02:30 CEST, 1 02:30 CET"},
		"autumn: asked between the two": {"Europe/Berlin", "2027-10-31 02:10 +01", "02:30 * x on",
			"1 02:30 CET"},
		"autumn: around": {"Europe/Berlin", "2027-10-31 01:00 +02",
			"01:00 * x on\n02:00 * x on\n03:00 * x on", "31 02:00 CEST, 31 03:00 CET"},
		"autumn, west": {"America/New_York", "2027-11-06 12:00 -04", "01:30 * x on",
			"7 01:30 EDT, 8 01:30 EST"},
		"half an hour": {"Australia/Lord_Howe", "2027-04-03 12:00 +11",
			"01:45 * x on\n02:15 * y on",
			"4 01:45 +11, 4 02:15 +1030, 5 01:45 +1030"},
		"no midnight": {"Asia/Beirut", "2024-03-30 23:00 +02",
			"00:00 * x on\n00:30 * x on\n01:00 * x on\n01:30 * x on",
			"31 01:00 EEST, 31 01:30 EEST, 1 00:00 EEST"},
		"no Friday": {"Pacific/Apia", "2011-12-23 10:00 -10", "10:00 Fri x on", "6 10:00 +14"},
	} {
		t.Run(name, func(t *testing.T) {
			loc, err := time.LoadLocation(tc.zone)
			require.NoError(t, err)
			tab := parse(tc.table)
			at, err := time.Parse("2006-01-02 15:04 -07", tc.from)
			require.NoError(t, err)
			at = at.In(loc)
			for want := range strings.SplitSeq(tc.want, ", ") {
				at = tab.Next(at)
				require.Equal(t, want, at.Format("2 15:04 MST"))
				require.Equal(t, loc, at.Location())
				require.NotEmpty(t, tab.at(at))
			}
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

// FuzzTable checks that every line leads to times of its own, and these in order.
func FuzzTable(f *testing.F) {
	f.Add(uint16(390), uint8(0b0111110), int64(1806195600))
	f.Add(uint16(120), uint8(0b0000001), int64(1824944400))
	f.Fuzz(func(t *testing.T, minute uint16, weekdays uint8, unix int64) {
		days := ""
		for day := range 7 {
			if weekdays>>day&1 == 1 {
				days += time.Weekday(day).String()[:3]
			}
		}
		l := line{int(minute) / 60 % 24, int(minute) % 60, days, "x", true}
		at := time.Unix(unix%(1<<36), 0).In(berlin)
		for range 5 {
			next := table{l}.Next(at)
			if require.Equal(t, days == "", next.IsZero()); next.IsZero() {
				return
			}
			require.True(t, next.After(at))
			require.Equal(t, []int{l.hour, l.minute}, []int{next.Hour(), next.Minute()})
			require.Contains(t, days, next.Format("Mon"))
			at = next
		}
	})
}
