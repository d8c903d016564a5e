package jobqueue

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// quiet is an option for clients of tests.
var quiet = WithLogger(slog.New(slog.DiscardHandler))

// bubble runs f in a synctest bubble with a Client in memory.
func bubble(t *testing.T, f func(t *testing.T, c *Client), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := NewMemory(append([]Option{quiet}, opts...)...)
		defer func() { require.NoError(t, c.Close()) }()
		f(t, c)
	})
}

// running has Run under way until the end of the test, in a bubble.
func running(t *testing.T, c *Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestAJobIsDeliveredAtItsInstant(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		start := time.Now()
		got := make(chan *Job, 10)
		var after []time.Duration
		c.Handle("orders/expire", func(_ context.Context, job *Job) error {
			after = append(after, time.Since(start))
			got <- job
			return nil
		}, Workers(1))
		defer running(t, c)()

		id, err := c.Add(t.Context(), "orders/expire", []byte("17"), In(30*time.Minute),
			Key("order-17"), Priority(-3))
		require.NoError(t, err)
		_, err = c.Add(t.Context(), "orders/expire", []byte("18"), In(10*time.Second))
		require.NoError(t, err)
		_, err = c.Add(t.Context(), "orders/expire", []byte("19"), At(start.Add(time.Second)))
		require.NoError(t, err)
		_, err = c.Add(t.Context(), "orders/expire", []byte("20"))
		require.NoError(t, err)

		require.Equal(t, "20", string((<-got).Body))
		require.Equal(t, "19", string((<-got).Body))
		require.Equal(t, "18", string((<-got).Body))
		job := <-got
		require.Equal(t, "17", string(job.Body))
		require.Equal(t, id, job.ID)
		require.Equal(t, "order-17", job.Key)
		require.Equal(t, "orders/expire", job.Queue)
		require.Equal(t, -3, job.Priority)
		require.Equal(t, 1, job.Attempts)
		require.True(t, start.Add(30*time.Minute).Equal(job.Due))
		require.Equal(t, []time.Duration{0, time.Second, 10 * time.Second, 30 * time.Minute}, after)

		synctest.Wait()
		time.Sleep(time.Second) // the acknowledgement waits a moment for others
		_, err = c.Get(t.Context(), "orders/expire", ByID(id))
		require.ErrorIs(t, err, ErrNotFound)
	})
}

func TestCancelAndReschedule(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		start := time.Now()
		got := make(chan time.Duration, 10)
		c.Handle("q", func(_ context.Context, job *Job) error {
			got <- time.Since(start)
			return nil
		})
		defer running(t, c)()
		ctx := t.Context()
		for _, key := range []string{"cancelled", "earlier", "later"} {
			_, err := c.Add(ctx, "q", nil, Key(key), In(time.Minute))
			require.NoError(t, err)
		}
		require.NoError(t, c.Cancel(ctx, "q", ByKey("cancelled")))
		require.ErrorIs(t, c.Cancel(ctx, "q", ByKey("cancelled")), ErrNotFound)
		require.NoError(t, c.Reschedule(ctx, "q", ByKey("earlier"), time.Second))
		require.NoError(t, c.Reschedule(ctx, "q", ByKey("later"), time.Hour))
		require.Equal(t, time.Second, <-got)
		require.Equal(t, time.Hour, <-got)
		time.Sleep(24 * time.Hour)
		require.Empty(t, got)
	})
}

func TestAFailedAttemptIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		start := time.Now()
		var at []time.Duration
		c.Handle("q", func(_ context.Context, job *Job) error {
			at = append(at, time.Since(start))
			require.Equal(t, len(at), job.Attempts)
			return errors.New("no luck")
		}, Backoff(time.Second, time.Minute), Attempts(4))
		defer running(t, c)()
		id, err := c.Add(t.Context(), "q", []byte("x"))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		// The waits begin when the outcome is stored, with others a moment after the handler.
		require.Equal(t, []time.Duration{0, time.Second, 61 * time.Second, 121 * time.Second}, at)
		job, err := c.Get(t.Context(), "q", ByID(id))
		require.NoError(t, err)
		require.Equal(t, Dead, job.State)
		require.Equal(t, "no luck", job.LastError)
	})
}

func TestPull(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		start := time.Now()
		_, err := c.Add(ctx, "q", []byte("a"), In(time.Minute), Retain(time.Hour))
		require.NoError(t, err)
		none, err := c.TryReserve(ctx, "q", 10, time.Minute)
		require.NoError(t, err)
		require.Empty(t, none)

		got, err := c.Reserve(ctx, "q", 10, time.Minute)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, "a", string(got[0].Body))

		again, err := c.Reserve(ctx, "q", 10, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 2*time.Minute, time.Since(start), "the lease ran out")
		require.ErrorIs(t, got[0].Ack(ctx), ErrLeaseLost)
		require.Equal(t, 2, again[0].Attempts)
		require.NoError(t, again[0].Extend(ctx, time.Hour))
		time.Sleep(59 * time.Minute)
		require.NoError(t, again[0].Ack(ctx))
		job, err := c.Get(ctx, "q", ByID(again[0].ID))
		require.NoError(t, err)
		require.Equal(t, Done, job.State)
		time.Sleep(time.Hour)
		_, err = c.Get(ctx, "q", ByID(again[0].ID))
		require.ErrorIs(t, err, ErrNotFound)

		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = c.Reserve(ctx, "q", 1, time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
