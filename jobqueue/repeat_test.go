package jobqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// recurring runs a recurring job for some time and returns when its runs began, from the start of
// the bubble, which is midnight UTC of a Saturday, 2000-01-01.
func recurring(t *testing.T, c *Client, during time.Duration, handler Handler,
	opts ...AddOption) (at []time.Duration) {
	t.Helper()
	start := time.Now()
	c.Handle("q", func(ctx context.Context, job *Job) error {
		at = append(at, time.Since(start))
		return handler(ctx, job)
	}, Retry1, Attempts(3))
	defer running(t, c)()
	_, err := c.Add(t.Context(), "q", nil, opts...)
	require.NoError(t, err)
	time.Sleep(during)
	synctest.Wait()
	return at
}

func succeed(context.Context, *Job) error { return nil }

const day = 24 * time.Hour

func TestRecurringJobs(t *testing.T) {
	minutes := func(of ...float64) (ds []time.Duration) {
		for _, m := range of {
			ds = append(ds, time.Duration(m*float64(time.Minute)))
		}
		return ds
	}
	for name, test := range map[string]struct {
		opts    []AddOption
		during  time.Duration
		handler Handler
		at      []time.Duration
	}{
		"Every": {
			[]AddOption{Every(time.Minute)}, 3*time.Minute + time.Second, succeed, minutes(1, 2, 3),
		},
		"the first run is given": {
			[]AddOption{Every(time.Hour), In(time.Minute)}, 2 * time.Hour, succeed, minutes(1, 61),
		},
		"a run that takes long moves none, and those missed become one": {
			[]AddOption{Every(time.Minute)}, 8 * time.Minute,
			func(_ context.Context, job *Job) error {
				if job.Repeat.Runs == 0 {
					time.Sleep(210 * time.Second) // from 1 to 4.5
				}
				return nil
			}, []time.Duration{time.Minute, 270 * time.Second, 5 * time.Minute,
				6 * time.Minute, 7 * time.Minute, 8 * time.Minute},
		},
		"a failed run is retried, and then the next one comes": {
			[]AddOption{Every(time.Minute)}, 150 * time.Second,
			func(_ context.Context, job *Job) error {
				if job.Repeat.Runs == 0 {
					return errors.New("no luck")
				}
				return nil
			}, []time.Duration{time.Minute, 61 * time.Second, 62 * time.Second, 2 * time.Minute},
		},
		"Times": {
			[]AddOption{Every(time.Minute), Times(2)}, time.Hour, succeed, minutes(1, 2),
		},
		"Until": {
			[]AddOption{Every(time.Minute), Until(time.Date(2000, 1, 1, 0, 3, 0, 0,
				time.UTC))}, time.Hour, succeed, minutes(1, 2, 3),
		},
		"Cron": {
			[]AddOption{Cron("30 8 * * 1-5", "Europe/Berlin")}, 4 * day, succeed,
			// Berlin is an hour ahead. Monday is the third.
			[]time.Duration{2*day + 7*time.Hour + 30*time.Minute,
				3*day + 7*time.Hour + 30*time.Minute},
		},
		"Cron through the change to summer time": {
			// 2000-03-26 in Berlin has no 02:30, and robfig/cron leaves that day out.
			[]AddOption{Cron("30 2 * * *", "Europe/Berlin"), At(time.Date(2000, 3, 25, 1, 30, 0,
				0, time.UTC))}, 87 * day, succeed,
			[]time.Duration{84*day + 90*time.Minute, 86*day + 30*time.Minute},
		},
		"Cron in UTC": {
			[]AddOption{Cron("@daily", "")}, 2*day + time.Second, succeed, []time.Duration{day,
				2 * day},
		},
		"Bury ends a run, not the recurrence": {
			[]AddOption{Every(time.Minute)}, 3 * time.Minute,
			func(context.Context, *Job) error { return Bury("no") }, minutes(1, 2, 3),
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Client) {
				require.Equal(t, test.at, recurring(t, c, test.during, test.handler, test.opts...))
			})
		})
	}
}

func TestARunThatFailedForGoodLeavesADeadCopy(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		recurring(t, c, 150*time.Second, func(context.Context,
			*Job) error {
			return errors.New("no luck")
		},
			Every(time.Minute), Key("k"))
		ctx := t.Context()
		dead, _, err := c.List(ctx, "q", Dead, "", 10)
		require.NoError(t, err)
		require.Len(t, dead, 2)
		require.Empty(t, dead[0].Key)
		require.Equal(t, "no luck", dead[0].LastError)
		require.Equal(t, 3, dead[0].Attempts)
		job, err := c.Get(ctx, "q", ByKey("k"))
		require.NoError(t, err)
		require.NotEqual(t, dead[0].ID, job.ID)
		require.Zero(t, job.Attempts)
		require.Equal(t, 2, job.Repeat.Runs)
		require.Equal(t, time.Minute, job.Repeat.Every)
		require.True(t, job.Due.Equal(time.Date(2000, 1, 1, 0, 3, 0, 0, time.UTC)))
		require.True(t, job.Due.Equal(job.Repeat.Run))
	})
}

type fibonacci struct{}

func (fibonacci) Next(t time.Time) time.Time {
	if t.Location().String() != "Asia/Tokyo" {
		panic(t.Location())
	}
	since := t.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	a, b := time.Minute, 2*time.Minute
	for a <= since {
		a, b = b, a+b
	}
	if a > 13*time.Minute {
		return time.Time{}
	}
	return t.Add(a - since)
}

func TestRegisteredScheduler(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		c.RegisterScheduler("fibonacci", fibonacci{})
		at := recurring(t, c, time.Hour, succeed, Scheduled("fibonacci", "Asia/Tokyo"))
		require.Equal(t, []time.Duration{1 * time.Minute, 2 * time.Minute, 3 * time.Minute,
			5 * time.Minute, 8 * time.Minute,
			13 * time.Minute}, at)
		require.Zero(t, statsOf(t, c, "q").Delayed, "it ended")
	})
}

func TestARecurringJobWithoutItsSchedulerWaits(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		c.RegisterScheduler("fibonacci", fibonacci{})
		_, err := c.Add(t.Context(), "q", nil, Scheduled("fibonacci", "Asia/Tokyo"))
		require.NoError(t, err)
		delete(c.schedulers, "fibonacci") // as in a process that was started anew
		start := time.Now()
		var at []time.Duration
		c.Handle("q", func(context.Context, *Job) error {
			at = append(at,
				time.Since(start))
			return nil
		}, Attempts(1))
		defer running(t, c)()
		time.Sleep(10*time.Minute + 30*time.Second)
		synctest.Wait()
		require.Empty(t, at)
		require.Zero(t, statsOf(t, c, "q").Dead)
		c.RegisterScheduler("fibonacci", fibonacci{})
		time.Sleep(time.Hour)
		synctest.Wait()
		// Those missed became one, which is due at once; the run after it comes at 13 min.
		require.Equal(t, []time.Duration{11 * time.Minute, 11 * time.Minute, 13 * time.Minute}, at)
	})
}

func TestARescheduledRunMovesNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		start := time.Now()
		var at []time.Duration
		c.Handle("q", func(context.Context, *Job) error {
			at = append(at,
				time.Since(start))
			return nil
		})
		defer running(t, c)()
		ctx := t.Context()
		_, err := c.Add(ctx, "q", nil, Every(time.Hour), Key("k"))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.NoError(t, c.Reschedule(ctx, "q", ByKey("k"), 0))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.NoError(t, c.Cancel(ctx, "q", ByKey("k")))
		time.Sleep(24 * time.Hour)
		require.Equal(t, []time.Duration{10 * time.Minute, 2 * time.Hour}, at)
	})
}

func TestNextRunWhenTheWallClockWasStepped(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		run := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		for now, want := range map[time.Time]time.Time{
			run:                            run.Add(time.Minute),
			run.Add(time.Second):           run.Add(time.Minute),
			run.Add(-time.Second):          run.Add(time.Minute), // it was rescheduled to earlier
			run.Add(time.Hour):             run.Add(time.Hour),   // missed: one of them, now
			run.Add(90 * time.Second):      run.Add(time.Minute), // missed
			run.Add(-time.Hour):            run.Add(-59 * time.Minute),
			run.Add(-time.Hour + 1):        run.Add(-59 * time.Minute),
			run.Add(-time.Hour - 1):        run.Add(-time.Hour),
			run.Add(-24*time.Hour - 10000): run.Add(-24 * time.Hour),
		} {
			next, _, err := c.nextRun(Repeat{Every: time.Minute, Run: run}, now)
			require.NoError(t, err)
			require.Equal(t, want, next, now)
		}
	})
}

func TestSchedulesThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		for _, test := range []struct {
			opts []AddOption
			err  error
		}{
			{[]AddOption{Every(0)}, ErrBadSchedule},
			{[]AddOption{Every(-1)}, ErrBadSchedule},
			{[]AddOption{Times(3)}, ErrBadSchedule},
			{[]AddOption{Times(0), Every(1)}, ErrInvalid},
			{[]AddOption{Every(time.Hour), Cron("@daily", "")}, ErrBadSchedule},
			{[]AddOption{Cron("* * *", "")}, ErrBadSchedule},
			{[]AddOption{Cron("@every 1s", "")}, ErrBadSchedule},
			{[]AddOption{Cron("TZ=UTC * * * * *", "")}, ErrBadSchedule},
			{[]AddOption{Cron("0 0 30 2 *", "")}, ErrBadSchedule},
			{[]AddOption{Cron("@daily", "Mars/Olympus")}, ErrBadZone},
			{[]AddOption{Scheduled("none", "")}, ErrBadSchedule},
			{[]AddOption{Scheduled("none", "Mars/Olympus")}, ErrBadZone},
			{[]AddOption{Every(time.Hour), Until(time.Now().Add(time.Minute))}, ErrBadSchedule},
			{[]AddOption{Every(time.Hour), At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
				ErrBadTime},
		} {
			_, err := c.Add(t.Context(), "q", nil, test.opts...)
			require.ErrorIs(t, err, test.err)
		}
		require.Empty(t, statsOfAll(t, c).Queues)
	})
}

func statsOfAll(t *testing.T, c *Client) Stats {
	t.Helper()
	stats, err := c.Stats(t.Context())
	require.NoError(t, err)
	return stats
}
