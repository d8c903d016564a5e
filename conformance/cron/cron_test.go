// Package cron tests package timingwheel with the schedules of robfig/cron. It is a module of its
// own, so the users of the wheel do not depend on robfig/cron. It holds tests only.
//
// robfig/cron handles daylight saving like this: a schedule runs whenever a clock in its zone shows
// one of its times. So a daily run whose time does not exist on a day in spring is left out that
// day, and a run whose time comes twice on a day in autumn takes place twice. (Other crons run the
// former after the gap and the latter once.) robfig/cron searches in steps of whole hours. If the
// clocks of a zone change by half an hour, as on Lord Howe Island, a step ends on the half hour,
// and the schedule leaves out a day's run or runs an hour late: see quirks. The wheel runs exactly
// when Next says.
package cron

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tick = time.Millisecond

// spec is a schedule and, independent of robfig/cron, when it runs: in the minutes in which a clock
// in the zone matches.
type spec struct {
	text  string
	match func(clock time.Time) bool
}

func daily(hour, minute int) func(time.Time) bool {
	return func(c time.Time) bool { return c.Hour() == hour && c.Minute() == minute }
}

func on(day time.Weekday, match func(time.Time) bool) func(time.Time) bool {
	return func(c time.Time) bool { return c.Weekday() == day && match(c) }
}

// everywhere are specs for each zone.
var everywhere = []spec{
	{text: "* * * * *", match: func(time.Time) bool { return true }},
	{text: "*/15 * * * *", match: func(c time.Time) bool { return c.Minute()%15 == 0 }},
	{text: "0 * * * *", match: func(c time.Time) bool { return c.Minute() == 0 }},
	{text: "@hourly", match: func(c time.Time) bool { return c.Minute() == 0 }},
	{text: "30 */2 * * *", match: func(c time.Time) bool {
		return c.Hour()%2 == 0 && c.Minute() == 30
	}},
	{text: "@daily", match: daily(0, 0)},
	{text: "0 12 * * *", match: daily(12, 0)},
	{text: "@weekly", match: on(time.Sunday, daily(0, 0))},
	{text: "15 9 * * 1-5", match: func(c time.Time) bool {
		return c.Weekday() != time.Saturday && c.Weekday() != time.Sunday && daily(9, 15)(c)
	}},
}

var zones = []struct {
	name string
	// The changes of the year 2000: the first instant of the new time, and by how much the clocks
	// go forward.
	changes map[string]time.Duration
	specs   []spec
	// Instants at which a spec matches and that Next leaves out, or the reverse.
	quirks map[string][]string
}{
	{"Europe/Berlin", map[string]time.Duration{
		"2000-03-26T01:00:00Z": time.Hour,
		"2000-10-29T01:00:00Z": -time.Hour,
	}, []spec{
		{text: "30 2 * * *", match: daily(2, 30)}, // left out, and comes twice
		{text: "0 2 * * *", match: daily(2, 0)},   // the same, at the edge
		{text: "59 1 * * *", match: daily(1, 59)}, // the minute before
		{text: "0 3 * * *", match: daily(3, 0)},   // the first after
		{text: "30 2 * * 0", match: on(time.Sunday, daily(2, 30))},
	}, nil},
	{"America/New_York", map[string]time.Duration{
		"2000-04-02T07:00:00Z": time.Hour,
		"2000-10-29T06:00:00Z": -time.Hour,
	}, []spec{
		{text: "30 2 * * *", match: daily(2, 30)}, // left out
		{text: "30 1 * * *", match: daily(1, 30)}, // comes twice
		{text: "0 1 * * *", match: daily(1, 0)},
		{text: "0 3 * * *", match: daily(3, 0)},
		{text: "30 1 * * SUN", match: on(time.Sunday, daily(1, 30))},
	}, nil},
	{"Australia/Lord_Howe", map[string]time.Duration{
		"2000-03-25T15:00:00Z": -30 * time.Minute,
		"2000-08-26T15:30:00Z": 30 * time.Minute,
	}, []spec{
		{text: "15 2 * * *", match: daily(2, 15)}, // left out
		{text: "45 1 * * *", match: daily(1, 45)}, // comes twice
		{text: "45 2 * * *", match: daily(2, 45)},
		{text: "0 3 * * *", match: daily(3, 0)},
	}, map[string][]string{
		"@daily":     {"2000-03-26T13:30:00Z", "2000-08-27T13:00:00Z"}, // not after the change
		"0 12 * * *": {"2000-03-26T01:30:00Z", "2000-08-27T01:00:00Z"}, // not on its day
		"@weekly":    {"2000-04-01T13:30:00Z", "2000-09-02T13:00:00Z"}, // nor a week after it
		"0 3 * * *":  {"2000-03-25T16:30:00Z", "2000-08-26T16:00:00Z"}, // not on its day
		"15 2 * * *": {"2000-03-25T15:45:00Z"},                         // not on its day
		"45 1 * * *": {"2000-08-26T15:45:00Z"},                         // at 2:45, besides 1:45
	}},
	{"America/Sao_Paulo", map[string]time.Duration{
		"2000-02-27T02:00:00Z": -time.Hour,
		"2000-10-08T03:00:00Z": time.Hour,
	}, []spec{
		{text: "30 0 * * *", match: daily(0, 30)},   // left out, like midnight
		{text: "30 23 * * *", match: daily(23, 30)}, // comes twice, on one day
		{text: "0 1 * * *", match: daily(1, 0)},
	}, nil},
	{"UTC", map[string]time.Duration{"2000-03-26T01:00:00Z": 0}, nil, nil},
}

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return at
}

func parse(t *testing.T, s string) cron.Schedule {
	t.Helper()
	schedule, err := cron.ParseStandard(s)
	require.NoError(t, err)
	return schedule
}

// walk returns the runs between two instants by Next.
func walk(s cron.Schedule, after, until time.Time) (runs []time.Time) {
	for at := s.Next(after); !at.IsZero() && !at.After(until); at = s.Next(at) {
		runs = append(runs, at.UTC())
	}
	return runs
}

// enumerate tries each minute between two instants, and returns those that match.
func enumerate(
	match func(time.Time) bool, zone *time.Location, after, until time.Time,
) (runs []time.Time) {
	first := after.Truncate(time.Minute).Add(time.Minute)
	for at := first; !at.After(until); at = at.Add(time.Minute) {
		if match(at.In(zone)) {
			runs = append(runs, at.UTC())
		}
	}
	return runs
}

// toggle removes at from sorted times, or inserts it.
func toggle(times []time.Time, at time.Time) []time.Time {
	i, found := slices.BinarySearchFunc(times, at, time.Time.Compare)
	if found {
		return slices.Delete(times, i, i+1)
	}
	return slices.Insert(times, i, at)
}

// recorder records when runs took place.
type recorder struct{ at []time.Time }

func (r *recorder) hit() { r.at = append(r.at, time.Now().UTC()) }

// requireRuns fails unless each run took place once, not early, and less than a tick late.
func requireRuns(t *testing.T, want, got []time.Time, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		require.False(t, got[i].Before(want[i]), "%s: early for %v at %v", what, want[i], got[i])
		require.Less(t, got[i].Sub(want[i]), tick, "%s: late for %v", what, want[i])
	}
}

// around runs f on the fake clock, which begins with the year 2000, from a week before the change.
func around(t *testing.T, change time.Time, f func(t *testing.T, begin time.Time)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Begin neither on a tick of the wheel nor on a second.
		time.Sleep(time.Until(change.AddDate(0, 0, -7)) + 333_333*time.Microsecond)
		begin := time.Now()
		time.Sleep(333 * time.Microsecond)
		f(t, begin)
	})
}

// TestBothDaylightSavingChanges runs all schedules of a zone on one wheel, from a week before the
// change until a week after.
func TestBothDaylightSavingChanges(t *testing.T) {
	for _, z := range zones {
		zone, err := time.LoadLocation(z.name)
		require.NoError(t, err)
		for change, by := range z.changes {
			t.Run(z.name+"/"+change, func(t *testing.T) {
				change := instant(t, change)
				_, before := change.Add(-1).In(zone).Zone()
				_, after := change.In(zone).Zone()
				require.Equal(t, by, time.Duration(after-before)*time.Second, "the table is right")
				around(t, change, func(t *testing.T, begin time.Time) {
					tw := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithInline())
					specs := slices.Concat(everywhere, z.specs)
					runs := make([]recorder, len(specs))
					for i, s := range specs {
						tw.ScheduleFunc(parse(t, "CRON_TZ="+z.name+" "+s.text), runs[i].hit)
					}
					time.Sleep(14 * 24 * time.Hour)
					synctest.Wait()
					require.NoError(t, tw.Shutdown(t.Context()))
					end := time.Now()
					for i, s := range specs {
						want := enumerate(s.match, zone, begin, end)
						for _, quirk := range z.quirks[s.text] {
							if at := instant(t, quirk); at.After(begin) && !at.After(end) {
								want = toggle(want, at)
							}
						}
						require.GreaterOrEqual(t, len(want), 1, s.text)
						next := walk(parse(t, "CRON_TZ="+z.name+" "+s.text), begin, end)
						require.Equal(t, want, next, "%s: Next and the clock in the zone", s.text)
						requireRuns(t, want, runs[i].at, s.text)
					}
				})
			})
		}
	}
}

// TestDaysOfTheChange spells out runs that the test above leaves to its two oracles.
func TestDaysOfTheChange(t *testing.T) {
	for _, tc := range []struct {
		name, spec, from, until string
		want                    []string
	}{
		{
			"left out", "CRON_TZ=Europe/Berlin 30 2 * * *",
			"2000-03-25T00:00:00Z", "2000-03-27T12:00:00Z",
			[]string{"2000-03-25T01:30:00Z", "2000-03-27T00:30:00Z"},
		},
		{
			"twice", "CRON_TZ=Europe/Berlin 30 2 * * *",
			"2000-10-28T00:00:00Z", "2000-10-30T12:00:00Z",
			[]string{
				"2000-10-28T00:30:00Z", "2000-10-29T00:30:00Z",
				"2000-10-29T01:30:00Z", "2000-10-30T01:30:00Z",
			},
		},
		{
			"hourly, an hour less", "CRON_TZ=Europe/Berlin 0 * * * *",
			"2000-03-25T23:30:00Z", "2000-03-26T02:30:00Z",
			[]string{"2000-03-26T00:00:00Z", "2000-03-26T01:00:00Z", "2000-03-26T02:00:00Z"},
		},
		{
			"hourly, an hour more", "CRON_TZ=America/New_York 0 0-3 * * *",
			"2000-10-29T00:30:00Z", "2000-10-29T12:00:00Z",
			[]string{
				"2000-10-29T04:00:00Z", "2000-10-29T05:00:00Z", "2000-10-29T06:00:00Z",
				"2000-10-29T07:00:00Z", "2000-10-29T08:00:00Z",
			},
		},
		{
			"hourly, half an hour more", "CRON_TZ=Australia/Lord_Howe 0 * * * *",
			"2000-03-25T13:30:00Z", "2000-03-25T17:00:00Z",
			[]string{"2000-03-25T14:00:00Z", "2000-03-25T15:30:00Z", "2000-03-25T16:30:00Z"},
		},
		{
			"no midnight", "CRON_TZ=America/Sao_Paulo 0 0 * * *",
			"2000-10-06T12:00:00Z", "2000-10-09T12:00:00Z",
			[]string{"2000-10-07T03:00:00Z", "2000-10-09T02:00:00Z"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(instant(t, tc.from)))
				tw := timingwheel.New(timingwheel.WithInline())
				var r recorder
				tw.ScheduleFunc(parse(t, tc.spec), r.hit)
				time.Sleep(time.Until(instant(t, tc.until)))
				synctest.Wait()
				tw.Stop()
				var got []string
				for _, at := range r.at {
					got = append(got, at.Format(time.RFC3339Nano))
				}
				require.Equal(t, tc.want, got)
			})
		})
	}
}

// inZone passes the first time to a schedule in a zone. Later times come in that zone, because the
// wheel passes times in the location that Next returned.
type inZone struct {
	t    *testing.T
	s    cron.Schedule
	zone *time.Location
	runs int
}

func (z *inZone) Next(at time.Time) time.Time {
	if z.runs++; z.runs == 1 {
		require.Equal(z.t, time.Local, at.Location())
		return z.s.Next(at.In(z.zone))
	}
	require.Equal(z.t, z.zone, at.Location())
	return z.s.Next(at)
}

func TestTheTimesOwnLocation(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, opts := range [][]timingwheel.ScheduleOption{
		nil, {timingwheel.RunMissed(), timingwheel.Jitter(0)},
	} {
		around(t, instant(t, "2000-10-29T01:00:00Z"), func(t *testing.T, begin time.Time) {
			tw := timingwheel.New(timingwheel.WithInline())
			var zoned, local recorder
			daily230 := &inZone{t: t, s: parse(t, "30 2 * * *"), zone: zone}
			tw.ScheduleFunc(daily230, zoned.hit, opts...)
			tw.ScheduleFunc(parse(t, "*/20 * * * *"), local.hit, opts...)
			time.Sleep(14 * 24 * time.Hour)
			synctest.Wait()
			tw.Stop()
			requireRuns(t, enumerate(daily(2, 30), zone, begin, time.Now()), zoned.at, "zoned")
			requireRuns(t, walk(parse(t, "*/20 * * * *"), begin, time.Now()), local.at, "local")
		})
	}
}

// TestConstantDelay: Every of robfig/cron follows the wall clock, on whole seconds, and ignores
// zones.
func TestConstantDelay(t *testing.T) {
	around(t, instant(t, "2000-03-26T01:00:00Z"), func(t *testing.T, begin time.Time) {
		tw := timingwheel.New(timingwheel.WithInline())
		var parsed, made recorder
		tw.ScheduleFunc(parse(t, "@every 1h30m"), parsed.hit)
		tw.ScheduleFunc(cron.Every(90*time.Minute), made.hit)
		time.Sleep(14 * 24 * time.Hour)
		synctest.Wait()
		tw.Stop()
		var want []time.Time
		for at := begin.UTC().Truncate(time.Second); len(want) < 14*16; {
			at = at.Add(90 * time.Minute)
			want = append(want, at)
		}
		requireRuns(t, want, parsed.at, "@every")
		requireRuns(t, want, made.at, "Every")
	})
}

// TestJitterAndStartNow: over both changes each run belongs to a time of cron's. With a minute of
// jitter it is clear to which, because cron's times are a quarter of an hour apart.
func TestJitterAndStartNow(t *testing.T) {
	const spec = "CRON_TZ=Australia/Lord_Howe */15 * * * *"
	for _, change := range []string{"2000-03-25T15:00:00Z", "2000-08-26T15:30:00Z"} {
		around(t, instant(t, change), func(t *testing.T, begin time.Time) {
			tw := timingwheel.New(timingwheel.WithInline())
			var r recorder
			jitter := timingwheel.Jitter(time.Minute)
			tw.ScheduleFunc(parse(t, spec), r.hit, timingwheel.StartNow(), jitter)
			time.Sleep(time.Until(begin.Truncate(time.Minute).Add(14*24*time.Hour + 2*time.Minute)))
			synctest.Wait()
			tw.Stop()
			want := slices.Concat([]time.Time{begin}, walk(parse(t, spec), begin, time.Now()))
			require.Len(t, r.at, len(want))
			for i := range want {
				require.False(t, r.at[i].Before(want[i]))
				require.LessOrEqual(t, r.at[i].Sub(want[i]), time.Minute+tick)
			}
		})
	}
}

// TestMissedOverAChange: an inline callback holds up the wheel from three hours before the change
// until three and a quarter hours after it.
func TestMissedOverAChange(t *testing.T) {
	const spec = "CRON_TZ=Europe/Berlin 0 * * * *"
	for _, tc := range []struct {
		name string
		opt  timingwheel.ScheduleOption
		late int // runs when the wheel continues
	}{
		{"join", timingwheel.Jitter(0), 1},
		{"run", timingwheel.RunMissed(), 7},
		{"skip", timingwheel.SkipMissed(time.Minute), 0},
		{"skip but for two", timingwheel.SkipMissed(90 * time.Minute), 2},
	} {
		for _, change := range []string{"2000-03-26T01:00:00Z", "2000-10-29T01:00:00Z"} {
			t.Run(tc.name+"/"+change, func(t *testing.T) {
				change := instant(t, change)
				around(t, change, func(t *testing.T, begin time.Time) {
					tw := timingwheel.New(timingwheel.WithInline())
					var r recorder
					tw.ScheduleFunc(parse(t, spec), r.hit, tc.opt)
					held := change.Add(-3*time.Hour - time.Minute)
					free := change.Add(3*time.Hour + 15*time.Minute)
					tw.AfterFunc(time.Until(held), func() { time.Sleep(time.Until(free)) })
					time.Sleep(14 * 24 * time.Hour)
					synctest.Wait()
					tw.Stop()
					want := walk(parse(t, spec), begin, held)
					n := len(want)
					for range tc.late {
						want = append(want, free)
					}
					want = append(want, walk(parse(t, spec), free, time.Now())...)
					require.Greater(t, n, 100)
					requireRuns(t, want, r.at, tc.name)
				})
			})
		}
	}
}

// TestReset moves a run, and cron computes the next one from there.
func TestReset(t *testing.T) {
	around(t, instant(t, "2000-03-26T01:00:00Z"), func(t *testing.T, begin time.Time) {
		tw := timingwheel.New(timingwheel.WithInline())
		var r recorder
		x := tw.ScheduleFunc(parse(t, "CRON_TZ=Europe/Berlin 0 12 * * *"), r.hit)
		at := instant(t, "2000-03-26T10:30:00Z") // half past twelve on the day of the change
		require.True(t, x.Reset(time.Until(at)))
		time.Sleep(9 * 24 * time.Hour)
		synctest.Wait()
		require.True(t, x.Stop())
		requireRuns(t, []time.Time{at, instant(t, "2000-03-27T10:00:00Z")}, r.at, "reset")
	})
}

// TestSchedulesThatNeverRun: a text that does not parse is an error of cron's, and ScheduleFunc
// panics with its nil schedule. A schedule whose date does not exist is inert.
func TestSchedulesThatNeverRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New(timingwheel.WithInline())
		for _, text := range []string{
			"61 * * * *", "* * *", "CRON_TZ=Nowhere/Else * * * * *", "@every never", "",
		} {
			s, err := cron.ParseStandard(text)
			require.Error(t, err, text)
			require.PanicsWithValue(t, "timingwheel: ScheduleFunc with a nil Scheduler",
				func() { tw.ScheduleFunc(s, func() {}) })
		}
		for _, text := range []string{"0 0 30 2 *", "CRON_TZ=Europe/Berlin 0 0 31 4,6,9,11 *"} {
			x := tw.ScheduleFunc(parse(t, text), func() { t.Error("ran") })
			require.False(t, x.Pending(), text)
			require.False(t, x.Stop())
			require.False(t, x.Reset(0))

			var r recorder
			y := tw.ScheduleFunc(parse(t, text), r.hit, timingwheel.StartNow())
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			require.Len(t, r.at, 1, "StartNow, perhaps before ScheduleFunc has returned")
			require.False(t, y.Pending())
		}
		require.Zero(t, tw.Len())
	})
}

// TestLeapDay: a schedule for 29 February runs, and is next due four years later.
func TestLeapDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New(timingwheel.WithInline())
		var r recorder
		tw.ScheduleFunc(parse(t, "CRON_TZ=Europe/Berlin 0 6 29 2 *"), r.hit)
		time.Sleep(90 * 24 * time.Hour)
		synctest.Wait()
		requireRuns(t, []time.Time{instant(t, "2000-02-29T05:00:00Z")}, r.at, "2000")
		unfired := tw.Drain()
		require.Len(t, unfired, 1)
		require.Equal(t, "2004-02-29T05:00:00Z", unfired[0].Deadline.UTC().Format(time.RFC3339))
	})
}
