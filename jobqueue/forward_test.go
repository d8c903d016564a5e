package jobqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A testSink has a function for Send, and notes the calls.
type testSink struct {
	send func(ctx context.Context, jobs []*Job) []error

	mu       sync.Mutex
	sizes    []int
	times    []time.Time
	underWay int
	most     int            // under way at a time
	taken    map[string]int // by message id, those without an error
}

func (s *testSink) Send(ctx context.Context, jobs []*Job) (errs []error) {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(jobs))
	s.times = append(s.times, time.Now())
	s.underWay++
	s.most = max(s.most, s.underWay)
	s.mu.Unlock()
	errs = forEach(jobs, errors.New("did not return"))
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.underWay--
		if s.taken == nil {
			s.taken = map[string]int{}
		}
		for i, job := range jobs {
			if errs == nil || i < len(errs) && errs[i] == nil {
				s.taken[job.MessageID()]++
			}
		}
	}()
	errs = s.send(ctx, jobs)
	return errs
}

// calls returns the sizes of the batches, and when they were sent.
func (s *testSink) calls() (sizes []int, times []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes), slices.Clone(s.times)
}

// took returns how often each message was taken.
func (s *testSink) took() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.taken)
}

// forEach returns the same error for each job.
func forEach(jobs []*Job, err error) []error { return slices.Repeat([]error{err}, len(jobs)) }

var errAway = fmt.Errorf("%w: connection refused", ErrUnavailable)

func TestForwardSendsInBatches(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		sink := &testSink{send: func(context.Context, []*Job) []error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}}
		c.Forward("q", sink, Workers(100))
		defer running(t, c)()
		ids, err := c.AddMany(t.Context(), "q", make([]Item, 1000), In(time.Minute))
		require.NoError(t, err)
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		sizes, _ := sink.calls()
		require.Empty(t, sizes)
		time.Sleep(time.Second)
		synctest.Wait()
		took := sink.took()
		require.Len(t, took, 1000)
		for _, id := range ids {
			require.Equal(t, 1, took[id.String()])
		}
		require.Equal(t, 2, sink.most)
		sizes, _ = sink.calls()
		require.Less(t, len(sizes), 100, "%v", sizes)
		for _, size := range sizes {
			require.LessOrEqual(t, size, 100)
		}
		q := statsOf(t, c, "q")
		require.Equal(t, int64(1000), q.Acked)
		require.Zero(t, q.Ready+q.Leased+q.Delayed+q.Dead)
	})
}

// TestForwardTakesAnErrorForEachJob has a batch whose jobs end in different ways.
func TestForwardTakesAnErrorForEachJob(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		outcomes := map[string]error{
			"ok":    nil,
			"fail":  errors.New("refused"),
			"bury":  Bury("no such topic"),
			"later": fmt.Errorf("busy: %w", RetryIn(time.Minute)),
			"wait":  Snooze(time.Minute),
		}
		sink := &testSink{send: func(_ context.Context, jobs []*Job) (errs []error) {
			time.Sleep(time.Millisecond)
			for _, job := range jobs {
				errs = append(errs, outcomes[string(job.Body)])
			}
			return errs
		}}
		c.Forward("q", sink, Backoff(time.Hour), Attempts(2))
		start := time.Now()
		ids := map[string]ID{}
		for body := range outcomes {
			id, err := c.Add(t.Context(), "q", []byte(body))
			require.NoError(t, err)
			ids[body] = id
		}
		stop := running(t, c)
		time.Sleep(time.Second)
		stop()
		for body, want := range map[string]struct {
			state    State
			attempts int
			in       time.Duration
			last     string
		}{
			"fail":  {Delayed, 1, time.Hour, "refused"},
			"bury":  {Dead, 1, 0, "no such topic"},
			"later": {Delayed, 1, time.Minute, "busy: retry in 1m0s"},
			"wait":  {Delayed, 0, time.Minute, ""},
		} {
			job, err := c.Get(t.Context(), "q", ByID(ids[body]))
			require.NoError(t, err, body)
			require.Equal(t, want.state, job.State, body)
			require.Equal(t, want.attempts, job.Attempts, body)
			require.Equal(t, want.last, job.LastError, body)
			if want.state == Delayed {
				require.WithinDuration(t, start.Add(want.in), job.Due, time.Second, body)
			}
		}
		_, err := c.Get(t.Context(), "q", ByID(ids["ok"]))
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// TestForwardToASinkThatIsAway: an outage of an hour costs no attempt, sends little, and keeps no
// more jobs in memory than there are workers.
func TestForwardToASinkThatIsAway(t *testing.T) {
	var log bytes.Buffer
	bubble(t, func(t *testing.T, c *Client) {
		back := time.Now().Add(time.Hour)
		sink := &testSink{send: func(_ context.Context, jobs []*Job) []error {
			if time.Now().Before(back) {
				return forEach(jobs, errAway)
			}
			return nil
		}}
		c.Forward("q", sink, Workers(10), Attempts(1))
		defer running(t, c)()
		_, err := c.AddMany(t.Context(), "q", make([]Item, 1000))
		require.NoError(t, err)
		time.Sleep(time.Hour - time.Millisecond)
		synctest.Wait()
		sizes, times := sink.calls()
		require.Greater(t, len(sizes), 360)
		require.Less(t, len(sizes), 800, "it waits for 5 to 10 s between its attempts")
		require.GreaterOrEqual(t, times[2].Sub(times[1]), 50*time.Millisecond)
		require.Less(t, times[4].Sub(times[0]), 2*time.Second)
		for _, size := range sizes {
			require.LessOrEqual(t, size, 10)
		}
		q := statsOf(t, c, "q")
		require.Zero(t, q.Retried+q.Buried)
		require.Equal(t, 10, q.Running)
		require.Equal(t, 1000, q.Ready+q.Leased)

		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Len(t, sink.took(), 1000)
		require.Equal(t, int64(1000), statsOf(t, c, "q").Acked)
	}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.Equal(t, 1, strings.Count(log.String(), "a sink is unavailable"), log.String())
	require.Contains(t, log.String(), "connection refused")
	require.Equal(t, 1, strings.Count(log.String(), "is available again"))
	require.Contains(t, log.String(), "after=1h0m")
	require.Equal(t, 2, strings.Count(log.String(), "\n"))
}

func TestRunEndsWhileASinkIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		sink := &testSink{send: func(_ context.Context, jobs []*Job) []error {
			return forEach(jobs, errAway)
		}}
		c.Forward("q", sink, Workers(10), Attempts(1))
		// What wraps an error does not make it a failed attempt.
		c.Use(func(next Handler) Handler {
			return func(ctx context.Context, job *Job) error {
				if err := next(ctx, job); err != nil {
					return fmt.Errorf("middleware: %w", err)
				}
				return nil
			}
		})
		start := time.Now()
		_, err := c.AddMany(t.Context(), "q", make([]Item, 100))
		require.NoError(t, err)
		for range 3 {
			stop := running(t, c)
			time.Sleep(17 * time.Minute)
			before := time.Now()
			stop()
			require.Less(t, time.Since(before), 2*flushDelay)
			jobs, _, err := c.List(t.Context(), "q", Ready, "", 1000)
			require.NoError(t, err)
			require.Len(t, jobs, 100)
			for _, job := range jobs {
				require.Zero(t, job.Attempts)
				require.Equal(t, start.UTC(), job.Due.UTC())
			}
		}
	})
}

func TestPauseWhileASinkIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		var here atomic.Bool
		sink := &testSink{send: func(_ context.Context, jobs []*Job) []error {
			if !here.Load() {
				return forEach(jobs, errAway)
			}
			return nil
		}}
		c.Forward("q", sink, Attempts(1))
		defer running(t, c)()
		_, err := c.AddMany(t.Context(), "q", make([]Item, 100))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.NoError(t, c.Pause(t.Context(), "q"))
		time.Sleep(40 * time.Second) // Lease and the longest wait
		require.Zero(t, statsOf(t, c, "q").Leased)
		here.Store(true)
		time.Sleep(time.Hour)
		require.Empty(t, sink.took())
		require.NoError(t, c.Resume(t.Context(), "q"))
		time.Sleep(time.Minute)
		require.Len(t, sink.took(), 100)
	})
}

// TestASinkThatTakesSome: a job that it does not take does not hold up the others, and is not sent
// with each of them.
func TestASinkThatTakesSome(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		back := time.Now().Add(10 * time.Second)
		sink := &testSink{send: func(_ context.Context, jobs []*Job) []error {
			errs := make([]error, len(jobs))
			for i, job := range jobs {
				if string(job.Body) == "away" && time.Now().Before(back) {
					errs[i] = errAway
				}
			}
			return errs
		}}
		c.Forward("q", sink, Attempts(1))
		for i := range 1000 {
			_, err := c.Add(t.Context(), "q", nil, In(time.Duration(i)*10*time.Millisecond))
			require.NoError(t, err)
		}
		_, err := c.Add(t.Context(), "q", []byte("away"))
		require.NoError(t, err)
		defer running(t, c)()
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		sizes, _ := sink.calls()
		require.Less(t, len(sizes), 10_000/50+3)
		require.Greater(t, len(sink.took()), 985, "none waits for longer than 100 ms")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, sink.took(), 1001)
	})
}

// TestOneAttemptAtATime: a sink that is away is not asked twice at a time.
func TestOneAttemptAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		sink := &testSink{send: func(_ context.Context, jobs []*Job) []error {
			time.Sleep(5 * time.Second)
			return forEach(jobs, errAway)
		}}
		c.Forward("q", sink)
		defer running(t, c)()
		for i := range 200 {
			_, err := c.Add(t.Context(), "q", nil)
			require.NoError(t, err)
			time.Sleep(time.Second)
			if i == 7 {
				sink.mu.Lock()
				sink.most = 0
				sink.mu.Unlock()
			}
		}
		synctest.Wait()
		require.Equal(t, 1, sink.most)
	})
}

func TestCancelOfAJobThatWaitsForASink(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		var here atomic.Bool
		sink := &testSink{send: func(_ context.Context, jobs []*Job) []error {
			if !here.Load() {
				return forEach(jobs, errAway)
			}
			return nil
		}}
		c.Forward("q", sink)
		defer running(t, c)()
		id, err := c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		other, err := c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		time.Sleep(21 * time.Second)
		require.ErrorIs(t, c.Cancel(t.Context(), "q", ByID(id)), ErrRunning)
		here.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]int{other.String(): 1}, sink.took())
	})
}

// TestASinkThatDoesNotReturn: its context ends when those of all its jobs have.
func TestASinkThatDoesNotReturn(t *testing.T) {
	hangs := func(ctx context.Context, jobs []*Job) []error {
		<-ctx.Done()
		return forEach(jobs, ctx.Err())
	}
	t.Run("WithGrace", func(t *testing.T) {
		bubble(t, func(t *testing.T, c *Client) {
			sink := &testSink{send: hangs}
			c.Forward("q", sink, Attempts(1), Workers(10))
			_, err := c.AddMany(t.Context(), "q", make([]Item, 20))
			require.NoError(t, err)
			stop := running(t, c)
			time.Sleep(time.Hour)
			before := time.Now()
			stop()
			require.WithinRange(t, time.Now(), before.Add(time.Minute),
				before.Add(time.Minute+2*flushDelay))
			jobs, _, err := c.List(t.Context(), "q", Ready, "", 100)
			require.NoError(t, err)
			require.Len(t, jobs, 20)
			for _, job := range jobs {
				require.Zero(t, job.Attempts)
			}
		}, WithGrace(time.Minute))
	})
	t.Run("Timeout", func(t *testing.T) {
		bubble(t, func(t *testing.T, c *Client) {
			sink := &testSink{send: hangs}
			c.Forward("q", sink, Timeout(time.Minute), Backoff(time.Hour))
			start := time.Now()
			defer running(t, c)()
			job := one(t, c)
			require.Equal(t, "context canceled", job.LastError)
			require.Equal(t, 1, job.Attempts)
			require.Equal(t, time.Hour+time.Minute, job.Due.Sub(start))
		})
	})
	t.Run("Cancel of some", func(t *testing.T) {
		bubble(t, func(t *testing.T, c *Client) {
			sink := &testSink{send: func(ctx context.Context, jobs []*Job) []error {
				select {
				case <-time.After(time.Minute):
					return nil
				case <-ctx.Done():
					return forEach(jobs, ctx.Err())
				}
			}}
			c.Forward("q", sink)
			defer running(t, c)()
			for range 2 { // these are under way while the others gather
				_, err := c.Add(t.Context(), "q", nil)
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
			ids, err := c.AddMany(t.Context(), "q", make([]Item, 100))
			require.NoError(t, err)
			time.Sleep(time.Minute)
			for _, id := range ids[:10] {
				require.ErrorIs(t, c.Cancel(t.Context(), "q", ByID(id)), ErrRunning)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			require.Equal(t, int64(92), statsOf(t, c, "q").Acked)
			require.Zero(t, statsOf(t, c, "q").Retried)
		})
	})
}

// TestASinkThatIsBroken: whatever a sink does is a failed attempt, and the next one is made.
func TestASinkThatIsBroken(t *testing.T) {
	for name, test := range map[string]struct {
		send func(ctx context.Context, jobs []*Job) []error
		last string
	}{
		"panics": {func(context.Context, []*Job) []error { panic("oh") }, "panic: oh"},
		"Goexit": {func(context.Context, []*Job) []error { runtime.Goexit(); return nil },
			"the sink called runtime.Goexit"},
		"too few": {func(context.Context, []*Job) []error { return []error{} },
			"the sink has 0 results for 1 jobs"},
		"too many": {func(context.Context, []*Job) []error { return make([]error, 2) },
			"the sink has 2 results for 1 jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Client) {
				sink := &testSink{send: test.send}
				c.Forward("q", sink, FinalBackoff(time.Second, time.Second))
				stop := running(t, c)
				job := one(t, c)
				require.Equal(t, Dead, job.State)
				require.Equal(t, 3, job.Attempts)
				require.Contains(t, job.LastError, test.last)
				if name == "panics" {
					require.Contains(t, job.LastError, "forward_test.go")
					require.Equal(t, int64(3), statsOf(t, c, "q").Panics)
				}
				stop()
			})
		})
	}
}

func TestForwardOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		require.PanicsWithValue(t, "jobqueue: Forward to a nil Sink", func() {
			c.Forward("q", nil)
		})
		c.Forward("q", &testSink{})
		require.Panics(t, func() { c.Forward("q", &testSink{}) }, "it has a handler already")
	}, WithDefaults(Workers(3)))
}

// TestMessageID: a consumer that drops what it has seen must not drop a later run.
func TestMessageID(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		failures := 0
		var got []string
		sink := &testSink{send: func(_ context.Context, jobs []*Job) []error {
			got = append(got, jobs[0].MessageID())
			if failures++; failures == 2 {
				return []error{errors.New("refused")}
			}
			return nil
		}}
		c.Forward("q", sink, Backoff(time.Second))
		defer running(t, c)()
		id, err := c.Add(t.Context(), "q", nil, Every(time.Minute), Times(3))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		id2 := id.String()
		require.Equal(t, []string{id2 + "-0", id2 + "-1", id2 + "-1", id2 + "-2"}, got)

		got = nil
		id, err = c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{id.String()}, got)
	})
}

// TestForwardHammer lets a sink fail in every way while Run is ended and begun again. Each job
// that is acknowledged was taken, and no job is lost.
func TestForwardHammer(t *testing.T) {
	c := NewMemory(quiet)
	var calm atomic.Bool
	sink := &testSink{send: func(ctx context.Context, jobs []*Job) []error {
		if calm.Load() {
			return nil
		}
		switch rand.IntN(10) {
		case 0:
			return forEach(jobs, errAway)
		case 1:
			panic("oh")
		case 2:
			runtime.Goexit()
		case 3:
			time.Sleep(time.Millisecond)
		}
		errs := make([]error, len(jobs))
		for i := range errs {
			switch rand.IntN(10) {
			case 0:
				errs[i] = errAway
			case 1:
				errs[i] = errors.New("refused")
			}
		}
		return errs
	}}
	c.Forward("q", sink, Backoff(time.Millisecond), Attempts(0), Workers(64))
	const jobs = 5000
	var ids []ID
	var adding sync.WaitGroup
	adding.Go(func() {
		for range jobs / 100 {
			some, err := c.AddMany(context.Background(), "q", make([]Item, 100))
			if !assert.NoError(t, err) {
				return
			}
			ids = append(ids, some...)
		}
	})
	run := func(d time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		require.NoError(t, c.Run(ctx))
	}
	for range 20 {
		run(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	adding.Wait()
	calm.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		assert.Eventually(t, func() bool {
			stats, err := c.Stats(context.Background())
			return err == nil && stats.Queues[0].Acked == jobs
		}, time.Minute, 10*time.Millisecond)
	}()
	require.NoError(t, c.Run(ctx))
	took := sink.took()
	require.Len(t, took, jobs)
	for _, id := range ids {
		require.NotZero(t, took[id.String()])
	}
	require.NoError(t, c.Close())
}
