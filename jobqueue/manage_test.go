package jobqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeyConflicts(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		first, err := c.Add(ctx, "q", []byte("1"), Key("k"), In(time.Hour))
		require.NoError(t, err)
		kept, err := c.Add(ctx, "q", []byte("2"), Key("k"))
		require.NoError(t, err)
		require.Equal(t, first, kept)
		_, err = c.Add(ctx, "q", []byte("3"), Key("k"), OnConflict(Fail))
		require.ErrorIs(t, err, ErrKeyExists)
		require.EqualError(t, err, "jobqueue: add to q: a live job has this key")
		other, err := c.Add(ctx, "r", []byte("4"), Key("k"), OnConflict(Fail))
		require.NoError(t, err, "another queue")
		require.NotEqual(t, first, other)
		replaced, err := c.Add(ctx, "q", []byte("5"), Key("k"), OnConflict(Replace))
		require.NoError(t, err)
		require.NotEqual(t, first, replaced)
		job, err := c.Get(ctx, "q", ByKey("k"))
		require.NoError(t, err)
		require.Equal(t, "5", string(job.Body))
		require.Equal(t, Ready, job.State)
		_, err = c.Get(ctx, "q", ByID(first))
		require.ErrorIs(t, err, ErrNotFound)
		require.Equal(t, int64(2), statsOf(t, c, "q").Added)

		// Replace of one that is being worked on.
		got, err := c.Reserve(ctx, "q", 1, time.Minute)
		require.NoError(t, err)
		last, err := c.Add(ctx, "q", []byte("6"), Key("k"), OnConflict(Replace))
		require.NoError(t, err)
		require.ErrorIs(t, got[0].Ack(ctx), ErrLeaseLost)
		job, err = c.Get(ctx, "q", ByKey("k"))
		require.NoError(t, err, "the acknowledgement of the old one did not free the key")
		require.Equal(t, last, job.ID)
	})
}

func TestAddMany(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		ids, err := c.AddMany(ctx, "q", []Item{
			{Body: []byte("a")},
			{Body: []byte("b"), Options: []AddOption{Key("b"), In(2 * time.Hour)}},
			{Body: []byte("c"), Options: []AddOption{Priority(1000)}},
			{Body: []byte("d"), Options: []AddOption{Key("b"), OnConflict(Fail)}},
			{Body: make([]byte, 101)},
		}, In(time.Hour))
		var refused AddErrors
		require.ErrorAs(t, err, &refused)
		require.Len(t, refused, 5)
		require.NoError(t, refused[0])
		require.NoError(t, refused[1])
		require.ErrorIs(t, refused[2], ErrInvalid)
		require.ErrorIs(t, refused[3], ErrKeyExists)
		require.ErrorIs(t, refused[4], ErrTooLarge)
		require.ErrorIs(t, err, ErrKeyExists)
		require.EqualError(t, err, "jobqueue: add to q: 3 of 5 jobs refused, the first: "+
			"invalid option: Priority(1000) is not between -128 and 127")
		require.NotZero(t, ids[0])
		require.NotZero(t, ids[1])
		require.Equal(t, []ID{0, 0, 0}, ids[2:])
		job, err := c.Get(ctx, "q", ByID(ids[0]))
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Until(job.Due))
		job, err = c.Get(ctx, "q", ByKey("b"))
		require.NoError(t, err)
		require.Equal(t, 2*time.Hour, time.Until(job.Due))

		ids, err = c.AddMany(ctx, "q", nil)
		require.NoError(t, err)
		require.Empty(t, ids)
	}, WithMaxBody(100))
}

func TestWhatIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		add := func(queue string, opts ...AddOption) error {
			_, err := c.Add(ctx, queue, nil, opts...)
			return err
		}
		for _, name := range []string{"", "/", "a/", "/a", "a\nb", "a\xff", strings.Repeat("a",
			256)} {
			require.ErrorIs(t, add(name), ErrBadName, "%q", name)
		}
		year10000 := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
		require.ErrorIs(t, add("q", At(year10000)), ErrBadTime)
		require.ErrorIs(t, c.RescheduleAt(ctx, "q", ByKey("k"), year10000), ErrBadTime)
		require.ErrorIs(t, add("q", Key(strings.Repeat("k", 1025))), ErrTooLarge)
		require.ErrorIs(t, add("q", MaxAttempts(0)), ErrInvalid)
		require.ErrorIs(t, add("q", Priority(-129)), ErrInvalid)
		require.ErrorIs(t, add("q", OnConflict(7)), ErrInvalid)
		_, err := c.Add(ctx, "q", make([]byte, 1<<20+1))
		require.ErrorIs(t, err, ErrTooLarge)
		require.EqualError(t, err,
			"jobqueue: add to q: the job is too large: a body of 1048577 bytes; the limit is 1048576")
		require.ErrorIs(t, c.UpdateBody(ctx, "q", ByKey("k"), make([]byte, 1<<20+1)), ErrTooLarge)
		_, err = c.Purge(ctx, "q", Leased)
		require.ErrorIs(t, err, ErrInvalid)
		_, _, err = c.List(ctx, "q", 0, "", 1)
		require.ErrorIs(t, err, ErrInvalid)
		_, _, err = c.List(ctx, "q", Ready, "", 0)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorIs(t, c.Limit(ctx, "q", Limits{Jobs: -1}), ErrInvalid)
		require.ErrorIs(t, c.Backup(ctx, "x"), ErrNoBackup)
		_, err = c.Reserve(ctx, "q", 0, time.Minute)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = c.Reserve(ctx, "q", 1, time.Microsecond)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorIs(t, c.Requeue(ctx, "q", 17), ErrNotFound)

		require.NoError(t, add("q", At(time.Date(1815, 12, 10, 0, 0, 0, 0, time.UTC)), Key("past")))
		require.NoError(t, add("q", In(-time.Hour), Key("now")))
		require.NoError(t, add("q", At(year10000.Add(-time.Nanosecond)), Key("far")))
		got, err := c.TryReserve(ctx, "q", 10, time.Minute)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, "past", got[0].Key)
		require.Equal(t, "now", got[1].Key)
		require.LessOrEqual(t, statsOf(t, c, "q").Lateness.Sum, time.Millisecond,
			"it was not late before it was added")

		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = c.Add(cancelled, "q", nil)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrUnknown)
	})
}

func TestWithQueues(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		_, err := c.Add(t.Context(), "orders", nil)
		require.NoError(t, err)
		_, err = c.Add(t.Context(), "odrers", nil)
		require.ErrorIs(t, err, ErrUnknownQueue)
		require.ErrorIs(t, c.Pause(t.Context(), "odrers"), ErrUnknownQueue)
		_, err = c.Get(t.Context(), "odrers", ByID(1))
		require.ErrorIs(t, err, ErrUnknownQueue)
		require.Panics(t, func() { c.Handle("odrers", succeed) })
	}, WithQueues("orders", "mails"))
}

func TestTheOrderOfClaims(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		due := time.Now().Add(time.Minute)
		for i, opts := range [][]AddOption{
			{At(due)}, {At(due), Priority(5)}, {At(due),
				Priority(-5)}, {At(due)}, {At(due.Add(-1)), Priority(9)},
			{At(due.Add(-1e6)), Priority(100)},
		} {
			_, err := c.Add(ctx, "q", []byte(fmt.Sprint(i)), opts...)
			require.NoError(t, err)
		}
		got, err := c.Reserve(ctx, "q", 10, time.Minute)
		require.NoError(t, err)
		require.Equal(t, "5", string(got[0].Body))
		got, err = c.Reserve(ctx, "q", 10, time.Minute)
		require.NoError(t, err)
		var order string
		for _, d := range got {
			order += string(d.Body)
		}
		require.Equal(t, "20314", order)
	})
}

func TestListAndPages(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		var items []Item
		for i := range 1234 {
			items = append(items, Item{Body: []byte(fmt.Sprint(i)),
				Options: []AddOption{In(time.Duration(1234-i) * time.Second)}})
		}
		_, err := c.AddMany(ctx, "q", items)
		require.NoError(t, err)
		n := 0
		for job, err := range c.Jobs(ctx, "q", Delayed) {
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(1233-n), string(job.Body))
			n++
		}
		require.Equal(t, 1234, n)
		time.Sleep(100 * time.Second)
		jobs, next, err := c.List(ctx, "q", Ready, "", 100)
		require.NoError(t, err)
		require.Len(t, jobs, 100)
		require.Empty(t, next)
		require.Equal(t, "1233", string(jobs[0].Body))
		jobs, next, err = c.List(ctx, "q", Ready, "", 99)
		require.NoError(t, err)
		require.Len(t, jobs, 99)
		jobs, next, err = c.List(ctx, "q", Ready, next, 99)
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		require.Empty(t, next)
		for range c.Jobs(ctx, "q", Delayed) {
			break
		}
		n, err = c.Purge(ctx, "q", Delayed)
		require.NoError(t, err)
		require.Equal(t, 1134, n)
		counts, err := c.DueIn(ctx, "q", 0, time.Hour)
		require.NoError(t, err)
		require.Equal(t, []int{100, 0}, counts)
	})
}

func TestDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		broken := true
		var got []string
		c.Handle("q", func(_ context.Context, job *Job) error {
			if broken {
				return Bury("broken")
			}
			got = append(got, fmt.Sprint(string(job.Body), " ", job.Attempts, " ", job.LastError))
			return nil
		}, Workers(1))
		defer running(t, c)()
		a, err := c.Add(ctx, "q", []byte("a"), Key("a"))
		require.NoError(t, err)
		for i := range 1500 {
			_, err := c.Add(ctx, "q", []byte(fmt.Sprint(i)))
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1501, statsOf(t, c, "q").Dead)
		broken = false
		_, err = c.Add(ctx, "q", []byte("b"), Key("a"), In(time.Hour))
		require.NoError(t, err, "the key of a dead job is free")
		require.ErrorIs(t, c.Requeue(ctx, "q", a), ErrKeyExists)
		n, err := c.RequeueAll(ctx, "q")
		require.NoError(t, err)
		require.Equal(t, 1500, n)
		require.NoError(t, c.Cancel(ctx, "q", ByKey("a")))
		require.NoError(t, c.Requeue(ctx, "q", a))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, got, 1501)
		require.Contains(t, got, "a 1 broken")
		require.Contains(t, got, "1499 1 broken")
	})
}

func TestLimits(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		add := func(queue, body string, opts ...AddOption) error {
			_, err := c.Add(ctx, queue, []byte(body), opts...)
			return err
		}
		require.NoError(t, c.Limit(ctx, "a/x", Limits{Jobs: 2}))
		require.NoError(t, c.Limit(ctx, "a/", Limits{Jobs: 3, Bytes: 10}))
		require.NoError(t, add("a/x", "1", Key("k")))
		require.NoError(t, add("a/x", "2"))
		require.ErrorIs(t, add("a/x", "3"), ErrFull)
		require.NoError(t, add("a/x", "4", Key("k"), OnConflict(Replace)),
			"the one replaced makes room")
		require.NoError(t, add("a/y", "5"))
		require.ErrorIs(t, add("a/y", "6"), ErrFull)
		require.NoError(t, add("b/y", "7"))
		require.NoError(t, c.Cancel(ctx, "a/x", ByKey("k")))
		require.ErrorIs(t, add("a/y", "123456789"), ErrFull)
		require.NoError(t, add("a/y", "1", Key("up")))
		require.ErrorIs(t, c.UpdateBody(ctx, "a/y", ByKey("up"), []byte("1234567")), ErrFull)
		require.NoError(t, c.UpdateBody(ctx, "a/y", ByKey("up"), []byte("123456")))

		stats := statsOfAll(t, c)
		require.Equal(t, []NamespaceStats{{Name: "a/", Limits: Limits{Jobs: 3, Bytes: 10},
			Jobs: 3, Bytes: 10}}, stats.Namespaces)

		require.NoError(t, c.Limit(ctx, "last", Limits{Jobs: 2, DropOldest: true}))
		for i := range 5 {
			require.NoError(t, add("last", fmt.Sprint(i), In(time.Minute)))
		}
		dead, _, err := c.List(ctx, "last", Dead, "", 10)
		require.NoError(t, err)
		require.Len(t, dead, 3)
		require.Equal(t, "0", string(dead[0].Body))
		require.NoError(t, c.Limit(ctx, "last", Limits{}))
		require.NoError(t, add("last", "x"))
		require.Equal(t, 3, statsOf(t, c, "last").Delayed+statsOf(t, c, "last").Ready)
	})
}

func TestCancelOfARunningJob(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		started := make(chan struct{})
		var cause error
		c.Handle("q", func(ctx context.Context, job *Job) error {
			close(started)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		defer running(t, c)()
		_, err := c.Add(ctx, "q", nil, Key("k"))
		require.NoError(t, err)
		<-started
		require.ErrorIs(t, c.Reschedule(ctx, "q", ByKey("k"), time.Hour), ErrLeased)
		require.ErrorIs(t, c.UpdateBody(ctx, "q", ByKey("k"), nil), ErrLeased)
		require.ErrorIs(t, c.Cancel(ctx, "q", ByKey("k")), ErrRunning)
		synctest.Wait()
		require.ErrorIs(t, cause, ErrLeaseLost)
		time.Sleep(time.Hour)
		q := statsOf(t, c, "q")
		require.Equal(t, int64(1), q.Delivered)
		require.Equal(t, int64(1), q.Refused)
		require.Zero(t, q.Delayed+q.Ready+q.Leased+q.Dead)
	})
}

func TestHistogram(t *testing.T) {
	var h histogram
	require.Zero(t, h.read().Quantile(0.5))
	for _, d := range []time.Duration{-1, 0, 100 * time.Microsecond, 101 * time.Microsecond,
		time.Second, 5000 * time.Second} {
		h.add(d)
	}
	r := h.read()
	require.Equal(t, int64(6), r.Samples)
	require.Equal(t, 5001*time.Second+201*time.Microsecond, r.Sum)
	require.Equal(t, int64(3), r.Counts[0])
	require.Equal(t, int64(1), r.Counts[1])
	require.Equal(t, 100*time.Microsecond, r.Quantile(0.5))
	require.Equal(t, 200*time.Microsecond, r.Quantile(0.51))
	require.Equal(t, 5000*time.Second, r.Quantile(1))
	h.add(5001 * time.Second)
	require.Equal(t, HistogramBound(histogramBounds), h.read().Quantile(1))
	require.Equal(t, 100*time.Microsecond, h.read().Quantile(0))
}

func TestAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewMemory(quiet)
		c.Handle("q", succeed)
		waits := make(chan error)
		go func() {
			_, err := c.Reserve(context.Background(), "r", 1, time.Minute)
			waits <- err
		}()
		ran := make(chan error)
		go func() { ran <- c.Run(context.Background()) }()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-waits, ErrClosed)
		require.NoError(t, <-ran)
		require.NoError(t, c.Close())
		ctx := t.Context()
		_, err := c.Add(ctx, "q", nil)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, c.Cancel(ctx, "q", ByKey("k")), ErrClosed)
		_, err = c.Get(ctx, "q", ByKey("k"))
		require.ErrorIs(t, err, ErrClosed)
		_, err = c.Stats(ctx)
		require.ErrorIs(t, err, ErrClosed)
		_, err = c.Reserve(ctx, "q", 1, time.Minute)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, c.Run(ctx), ErrClosed)
		require.True(t, errors.Is(c.Pause(ctx, "q"), ErrClosed))
	})
}
