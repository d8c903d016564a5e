package jobqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// one adds a job and returns it as it is an hour later.
func one(t *testing.T, c *Client, opts ...AddOption) *Job {
	t.Helper()
	id, err := c.Add(t.Context(), "q", []byte("body"), opts...)
	require.NoError(t, err)
	time.Sleep(time.Hour)
	synctest.Wait()
	job, err := c.Get(t.Context(), "q", ByID(id))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	require.NoError(t, err)
	return job
}

func statsOf(t *testing.T, c *Client, queue string) QueueStats {
	t.Helper()
	stats, err := c.Stats(t.Context())
	require.NoError(t, err)
	for _, q := range stats.Queues {
		if q.Name == queue {
			return q
		}
	}
	t.Fatalf("no statistics of %s", queue)
	return QueueStats{}
}

func TestWhatAHandlerReturnsDecides(t *testing.T) {
	for name, test := range map[string]struct {
		opts    []HandleOption
		add     []AddOption
		outcome func(job *Job) error
		at      []time.Duration // of the attempts
		state   State           // 0 if it is gone
		last    string
	}{
		"nil": {
			outcome: func(*Job) error { return nil },
			at:      []time.Duration{0},
		},
		"RetryIn, wrapped": {
			opts:    []HandleOption{Attempts(3)},
			outcome: func(*Job) error { return fmt.Errorf("busy: %w", RetryIn(10*time.Second)) },
			at:      []time.Duration{0, 10 * time.Second, 20 * time.Second},
			state:   Dead, last: "busy: retry in 10s",
		},
		"Snooze costs no attempt": {
			opts: []HandleOption{Attempts(1)},
			outcome: func(job *Job) error {
				if job.Attempts != 1 {
					return Bury("an attempt was counted")
				}
				if time.Since(job.Added) < time.Minute {
					return Snooze(30 * time.Second)
				}
				return nil
			},
			at: []time.Duration{0, 30 * time.Second, time.Minute},
		},
		"Bury": {
			outcome: func(*Job) error {
				return errors.Join(errors.New("no such order"),
					Bury("given up"))
			},
			at:    []time.Duration{0},
			state: Dead, last: "no such order\ngiven up",
		},
		"MaxAttempts of the job": {
			opts:    []HandleOption{Backoff(time.Second)},
			add:     []AddOption{MaxAttempts(2)},
			outcome: func(*Job) error { return errors.New("x") },
			at:      []time.Duration{0, time.Second},
			state:   Dead, last: "x",
		},
		"the last step is repeated": {
			opts:    []HandleOption{Backoff(time.Second, 10*time.Minute), Attempts(0)},
			outcome: func(*Job) error { return errors.New("x") },
			at: []time.Duration{0, time.Second, 601 * time.Second, 1201 * time.Second,
				1801 * time.Second, 2401 * time.Second,
				3001 * time.Second},
			state: Delayed, last: "x",
		},
		"the last step is final": {
			opts:    []HandleOption{FinalBackoff(time.Second, 2*time.Second)},
			outcome: func(*Job) error { return errors.New("x") },
			at:      []time.Duration{0, time.Second, 3 * time.Second},
			state:   Dead, last: "x",
		},
		"BackoffFunc": {
			opts: []HandleOption{BackoffFunc(func(n int, err error) (time.Duration, bool) {
				return time.Duration(n) * time.Minute, err.Error() == "x" && n < 3
			})},
			outcome: func(*Job) error { return errors.New("x") },
			at:      []time.Duration{0, time.Minute, 3 * time.Minute},
			state:   Dead, last: "x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Client) {
				start := time.Now()
				var at []time.Duration
				c.Handle("q", func(_ context.Context, job *Job) error {
					at = append(at, time.Since(start))
					return test.outcome(job)
				}, test.opts...)
				defer running(t, c)()
				job := one(t, c, test.add...)
				require.Equal(t, test.at, at)
				if test.state == 0 {
					require.Nil(t, job)
					return
				}
				require.Equal(t, test.state, job.State)
				require.Equal(t, test.last, job.LastError)
				require.Equal(t, len(test.at), job.Attempts)
			})
		})
	}
}

func TestIsSnooze(t *testing.T) {
	require.True(t, IsSnooze(fmt.Errorf("later: %w", Snooze(time.Second))))
	for _, err := range []error{nil, io.EOF, RetryIn(time.Second), Bury("over")} {
		require.False(t, IsSnooze(err))
	}
}

func TestAPanicIsAFailedAttempt(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	bubble(t, func(t *testing.T, c *Client) {
		c.Handle("q", func(context.Context, *Job) error { return explode(nil) }, Attempts(2),
			Workers(1))
		defer running(t, c)()
		job := one(t, c)
		require.Equal(t, Dead, job.State)
		require.Equal(t, 2, job.Attempts)
		require.Contains(t, job.LastError, "panic: runtime error: ")
		require.Contains(t, job.LastError, "handle_test.go")
		first, _, _ := strings.Cut(job.LastError[strings.Index(job.LastError, "\n\n")+2:], "(")
		require.Contains(t, first, "explode",
			"the stack begins where it panicked, not where it was caught")
		q := statsOf(t, c, "q")
		require.Equal(t, int64(2), q.Panics)
		require.Equal(t, int64(1), q.Retried)
		require.Equal(t, int64(1), q.Buried)
		require.Equal(t, 2, strings.Count(log.String(), "msg=\"jobqueue:"))
		require.Contains(t, log.String(),
			"level=WARN msg=\"jobqueue: an attempt failed\" queue=q id="+
				job.ID.String()+" attempt=1")
		require.Contains(t, log.String(), "level=ERROR msg=\"jobqueue: a job is dead\"")
	}, WithLogger(logger))
}

// TestCancelOfARunningJobIsNoWarning: what the handler returns is refused, as the caller of Cancel
// was told.
func TestCancelOfARunningJobIsNoWarning(t *testing.T) {
	var log bytes.Buffer
	bubble(t, func(t *testing.T, c *Client) {
		c.Handle("q", func(ctx context.Context, _ *Job) error {
			time.Sleep(time.Second)
			return ctx.Err()
		})
		id, err := c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		stop := running(t, c)
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, c.Cancel(t.Context(), "q", ByID(id)), ErrRunning)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, statsOf(t, c, "q").Refused)
		stop()
		require.NotContains(t, log.String(), "refused")
	}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
}

func explode(p *int) error {
	*p++
	return nil
}

func TestGoexitIsAFailedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		c.Handle("q", func(_ context.Context, job *Job) error {
			if job.Attempts < 3 {
				runtime.Goexit()
			}
			return nil
		}, Workers(1), Retry1)
		defer running(t, c)()
		require.Nil(t, one(t, c))
		q := statsOf(t, c, "q")
		require.Equal(t, int64(2), q.Retried)
		require.Equal(t, int64(1), q.Acked)
		require.Zero(t, q.Running)
	})
}

// Retry1 retries after a second.
func Retry1(o *handleOptions) { Backoff(time.Second)(o) }

func TestLeasesAreExtendedWhileAHandlerRuns(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		calls := 0
		c.Handle("q", func(ctx context.Context, job *Job) error {
			calls++
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		}, Lease(time.Second))
		defer running(t, c)()
		require.Nil(t, one(t, c))
		require.Equal(t, 1, calls)
		require.Zero(t, statsOf(t, c, "q").Refused)
	})
}

func TestAHandlerThatIgnoresItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		start := time.Now()
		var at []time.Duration
		c.Handle("q", func(ctx context.Context, job *Job) error {
			at = append(at, time.Since(start))
			if job.Attempts == 1 {
				<-ctx.Done()
				require.Equal(t, time.Minute, time.Since(start))
				require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
				time.Sleep(10 * time.Minute)
			}
			return nil
		}, Lease(20*time.Second), Timeout(time.Minute))
		defer running(t, c)()
		require.Nil(t, one(t, c))
		require.Len(t, at, 2)
		// The last beat before the timeout was at 55 s, and its lease ran for 20 s.
		require.Equal(t, 75*time.Second, at[1])
		q := statsOf(t, c, "q")
		require.Equal(t, int64(1), q.Acked, "the second")
		require.Equal(t, int64(1), q.Refused, "the first, too late")
	})
}

func TestAHandlerThatIsTooLateTakesUpAWorker(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		var running1, most atomic.Int32
		c.Handle("q", func(ctx context.Context, job *Job) error {
			most.Store(max(most.Load(), running1.Add(1)))
			defer running1.Add(-1)
			if job.Attempts < 3 {
				time.Sleep(5 * time.Minute)
			}
			return nil
		}, Lease(time.Second), Timeout(time.Second), Workers(2))
		defer running(t, c)()
		for range 5 {
			_, err := c.Add(t.Context(), "q", nil)
			require.NoError(t, err)
		}
		time.Sleep(24 * time.Hour)
		require.Equal(t, int32(2), most.Load())
		require.Equal(t, int64(5), statsOf(t, c, "q").Acked)
	})
}

func TestMiddleware(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		var order []string
		mark := func(name string) Middleware {
			return func(next Handler) Handler {
				return func(ctx context.Context, job *Job) error {
					order = append(order, name)
					err := next(ctx, job)
					order = append(order, "/"+name)
					return err
				}
			}
		}
		c.Use(mark("a"), mark("b"))
		c.Handle("q", func(ctx context.Context, job *Job) error {
			order = append(order, "handler")
			return nil
		})
		stop := running(t, c)
		require.Nil(t, one(t, c))
		require.Equal(t, []string{"a", "b", "handler", "/b", "/a"}, order)
		require.PanicsWithValue(t, "jobqueue: Use while Run is under way",
			func() { c.Use(mark("c")) })
		stop()
		c.Use(mark("c"))
		defer running(t, c)()
		order = nil
		require.Nil(t, one(t, c))
		require.Equal(t, []string{"a", "b", "c", "handler", "/c", "/b", "/a"}, order)
	})
}

func TestTyped(t *testing.T) {
	type order struct {
		Number int
		Items  []string
	}
	bubble(t, func(t *testing.T, c *Client) {
		q := NewTyped[order](c, "orders")
		var got []order
		q.Handle(func(_ context.Context, job *Job, o order) error {
			got = append(got, o)
			return nil
		}, Workers(1))
		defer running(t, c)()
		ctx := t.Context()
		_, err := q.Add(ctx, order{1, []string{"tea"}}, Key("1"), In(time.Second))
		require.NoError(t, err)
		_, err = q.AddMany(ctx, []order{{Number: 2}, {Number: 3}}, In(2*time.Second))
		require.NoError(t, err)
		require.NoError(t, q.UpdateBody(ctx, ByKey("1"), order{1, []string{"coffee"}}))
		id, err := c.Add(ctx, "orders", []byte("{"))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []order{{1, []string{"coffee"}}, {Number: 2}, {Number: 3}}, got)
		job, err := c.Get(ctx, "orders", ByID(id))
		require.NoError(t, err)
		require.Equal(t, Dead, job.State)
		require.Equal(t, "unreadable body: unexpected end of JSON input", job.LastError)

		_, err = NewTyped[func()](c, "orders").Add(ctx, func() {})
		require.ErrorContains(t, err, "jobqueue: add to orders: json: unsupported type")
	})
}

func TestHandleIsGivenNonsense(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		nop := func(context.Context, *Job) error { return nil }
		c.Handle("q", nop)
		for message, f := range map[string]func(){
			"jobqueue: the queue q has a handler already": func() {
				c.Handle("q",
					nop)
			},
			"jobqueue: Handle of a nil Handler": func() {
				c.Handle("r",
					nil)
			},
			"jobqueue: Handle of a/: not the name of a queue": func() {
				c.Handle("a/", nop)
			},
			"jobqueue: Workers(0)": func() {
				Workers(0)
			},
			"jobqueue: Lease(1µs) is shorter than a millisecond": func() {
				Lease(time.Microsecond)
			},
			"jobqueue: Timeout(0s) is not positive": func() {
				Timeout(0)
			},
			"jobqueue: Attempts(-1)": func() {
				Attempts(-1)
			},
			"jobqueue: Backoff without a step": func() {
				Backoff()
			},
			"jobqueue: BackoffFunc of nil": func() {
				BackoffFunc(nil)
			},
			"jobqueue: WithLogger of nil": func() {
				WithLogger(nil)
			},
			"jobqueue: WithGrace of a duration that is not positive": func() {
				WithGrace(0)
			},
			"jobqueue: WithMaxBody of a negative size": func() {
				WithMaxBody(-1)
			},
			"jobqueue: RegisterScheduler without a name or a Scheduler": func() {
				c.RegisterScheduler("x", nil)
			},
		} {
			require.PanicsWithValue(t, message, f)
		}
	})
}
