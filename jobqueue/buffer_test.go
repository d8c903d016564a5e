package jobqueue

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// TestTheLastAttemptIsNotFetchedAhead: a job on its last attempt stays in the store until a worker
// is free for it.
func TestTheLastAttemptIsNotFetchedAhead(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		var order []string
		c.Handle("q", func(_ context.Context, job *Job) error {
			order = append(order, job.Key)
			if job.Key == "slow" {
				time.Sleep(time.Second)
			}
			return nil
		}, Workers(1))
		defer running(t, c)()
		fetchAhead(t, c)
		order = nil
		_, err := c.AddMany(ctx, "q", []Item{
			{Options: []AddOption{Key("slow")}},
			{Options: []AddOption{Key("a")}},
			{Options: []AddOption{Key("once"), MaxAttempts(1)}},
			{Options: []AddOption{Key("b")}},
			{Options: []AddOption{Key("last"), MaxAttempts(1)}},
		})
		require.NoError(t, err)
		synctest.Wait()
		state := func(key string) State {
			t.Helper()
			job, err := c.Get(ctx, "q", ByKey(key))
			require.NoError(t, err)
			return job.State
		}
		require.Equal(t, Leased, state("slow"))
		require.Equal(t, Leased, state("a"), "it has attempts to spare")
		require.Equal(t, Ready, state("once"))
		require.Equal(t, Ready, state("b"), "it is behind")
		begun := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"slow", "a", "once", "b", "last"}, order)
		require.Equal(t, time.Second, time.Since(begun), "none has waited for anything else")
		time.Sleep(time.Second)
		require.Empty(t, list(t, c, "q", Ready)) // as all are done
	})
}

// TestAFreshLastAttemptBegins has a backlog: beside one, too, a job on its last attempt is fetched
// only if it begins.
func TestAFreshLastAttemptBegins(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		var begun []string
		c.Handle("q", func(_ context.Context, job *Job) error {
			if begun = append(begun, job.Key); job.Key != "" {
				time.Sleep(time.Second)
			}
			return nil
		}, Workers(1))
		defer running(t, c)()
		fetchAhead(t, c)
		begun = nil
		old := At(time.Now().Add(-time.Hour))
		_, err := c.AddMany(t.Context(), "q", []Item{
			{Options: []AddOption{Key("a"), old}},
			{Options: []AddOption{Key("b"), old}},
			{Options: []AddOption{Key("last"), MaxAttempts(1)}},
		})
		require.NoError(t, err)
		synctest.Wait()
		for _, job := range list(t, c, "q", Leased) {
			if job.Key == "last" {
				require.Equal(t, []string{"last"}, begun)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.ElementsMatch(t, []string{"a", "b", "last"}, begun)
	})
}

// TestAQueueOfOneAttempt: with one attempt for each job, a worker has one job and no other waits
// for it.
func TestAQueueOfOneAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		var mu sync.Mutex
		n := 0
		c.Handle("q", func(_ context.Context, job *Job) error {
			mu.Lock()
			n++
			mine := n
			mu.Unlock()
			if mine > 50 {
				time.Sleep(time.Minute)
			}
			return nil
		}, Workers(3), Attempts(1))
		defer running(t, c)()
		_, err := c.AddMany(ctx, "q", make([]Item, 100))
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Len(t, list(t, c, "q", Leased), 3)
		require.Len(t, list(t, c, "q", Ready), 47)
		time.Sleep(time.Hour)
		require.Zero(t, statsOf(t, c, "q").Leased+statsOf(t, c, "q").Ready)
	})
}

// TestAKilledProcessBuriesNothingThatNeverBegan: the file is copied while the worker of a quick
// queue is busy, as kill -9 would leave it. A process that opens the copy has all jobs but those
// that were begun.
func TestAKilledProcessBuriesNothingThatNeverBegan(t *testing.T) {
	ctx := t.Context()
	folder := t.TempDir()
	once := WithDefaults(Attempts(1))
	c, err := Open(filepath.Join(folder, "first"), quiet, once)
	require.NoError(t, err)
	const jobs, quick = 200, 50
	begun, release := map[string]bool{}, make(chan struct{})
	blocked := make(chan struct{})
	c.Handle("q", func(_ context.Context, job *Job) error {
		begun[job.Key] = true
		if len(begun) == quick {
			close(blocked)
			<-release
		}
		return nil
	}, Workers(1))
	items := make([]Item, jobs)
	for i := range items {
		items[i].Options = []AddOption{Key("job-" + strconv.Itoa(i))}
	}
	_, err = c.AddMany(ctx, "q", items)
	require.NoError(t, err)
	runs, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(runs) }()
	<-blocked
	require.NoError(t, c.Backup(ctx, filepath.Join(folder, "copy")))
	before := map[string]bool{}
	for key := range begun {
		before[key] = true
	}
	stop()
	close(release)
	require.NoError(t, <-ended)
	require.NoError(t, c.Close())

	c, err = Open(filepath.Join(folder, "copy"), quiet, once)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for {
		got, err := c.TryReserve(ctx, "q", jobs, time.Minute)
		require.NoError(t, err)
		if len(got) == 0 {
			break
		}
		for _, d := range got {
			before[d.Key] = true
			require.NoError(t, d.Ack(ctx))
		}
	}
	require.Len(t, before, jobs, "each job was begun by one of the two")
}

func list(t *testing.T, c *Client, queue string, state State) []*Job {
	t.Helper()
	jobs, _, err := c.List(t.Context(), queue, state, "", 1000)
	require.NoError(t, err)
	return jobs
}

// TestNoHandlerBeginsOnceRunsContextHasEnded: not even in the moment before Run notices.
func TestNoHandlerBeginsOnceRunsContextHasEnded(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, c *Client) {
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			c.Handle("q", func(context.Context, *Job) error {
				calls++
				cancel()
				return nil
			}, Workers(1))
			_, err := c.AddMany(t.Context(), "q", make([]Item, 20))
			require.NoError(t, err)
			require.NoError(t, c.Run(ctx))
			require.Equal(t, 1, calls)
			require.Len(t, list(t, c, "q", Ready), 19)
		})
	}
}

// TestAWaitOfNothingIsAMillisecond: a handler that always wants its job back at once does not keep
// a processor busy.
func TestAWaitOfNothingIsAMillisecond(t *testing.T) {
	for name, err := range map[string]error{
		"Snooze(0)": Snooze(0), "Snooze(-1)": Snooze(-1), "RetryIn(0)": RetryIn(0),
		"RetryIn(-1)": RetryIn(-1), "Backoff(0)": errors.New("bad luck"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Client) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				calls := 0
				c.Handle("q", func(context.Context, *Job) error {
					if calls++; calls == 50 {
						cancel()
					}
					return err
				}, Workers(1), Attempts(0), Backoff(0))
				_, err := c.Add(ctx, "q", nil)
				require.NoError(t, err)
				began := time.Now()
				require.NoError(t, c.Run(ctx))
				require.Equal(t, 50, calls)
				require.Equal(t, 49*time.Millisecond, time.Since(began))
			})
		})
	}
}

// TestReplaceOfAJobInTheBuffer: of two jobs with a key, the one that was replaced does not begin.
func TestReplaceOfAJobInTheBuffer(t *testing.T) {
	for name, add := range map[string]func(c *Client, opts ...AddOption) error{
		"Add": func(c *Client, opts ...AddOption) error {
			_, err := c.Add(context.Background(), "q", []byte("new"), opts...)
			return err
		},
		"AddMany": func(c *Client, opts ...AddOption) error {
			_, err := c.AddMany(context.Background(), "q", []Item{{Body: []byte("new")}}, opts...)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Client) {
				ctx := t.Context()
				var got []string
				var cause error
				c.Handle("q", func(ctx context.Context, job *Job) error {
					got = append(got, job.Key+string(job.Body))
					if job.Key == "slow" && len(job.Body) == 0 {
						<-ctx.Done()
						cause = context.Cause(ctx)
					}
					return nil
				}, Workers(1))
				defer running(t, c)()
				fetchAhead(t, c)
				got = nil
				_, err := c.AddMany(ctx, "q", []Item{
					{Options: []AddOption{Key("slow")}}, {Options: []AddOption{Key("b")}},
				})
				require.NoError(t, err)
				synctest.Wait()
				require.Len(t, list(t, c, "q", Leased), 2, "b was fetched ahead")
				require.NoError(t, add(c, Key("b"), OnConflict(Replace)))
				require.NoError(t, add(c, Key("slow"), OnConflict(Replace)))
				synctest.Wait()
				require.Equal(t, []string{"slow", "bnew", "slownew"}, got)
				require.ErrorIs(t, cause, ErrLeaseLost)
				require.NoError(t, add(c, Key("b"), OnConflict(Replace)), "which has ended")
				synctest.Wait()
				require.Len(t, got, 4)
			})
		})
	}
}

// TestLastAttemptsWhileTheStoreFails: errors of the store, certain and not, keep no job from its
// end, and no worker idles beside a job that is not claimed ahead.
func TestLastAttemptsWhileTheStoreFails(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		var n, calls atomic.Int32
		h.set(func(ops []store.Op, do func() error) error {
			switch n.Add(1) % 7 {
			case 3:
				return errors.New("no answer")
			case 5:
				return errors.Join(do(), store.ErrUnknown)
			}
			return do()
		})
		c.Handle("q", func(context.Context, *Job) error {
			calls.Add(1)
			return nil
		}, Workers(2), Lease(time.Second), Attempts(3))
		defer running(t, c)()
		for added := 0; added < 200; {
			_, err := c.Add(ctx, "q", nil, MaxAttempts(1+added%2))
			if err == nil || errors.Is(err, ErrUnknown) { // which the hook does carry out
				added++
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		h.set(nil)
		q := statsOf(t, c, "q")
		require.Zero(t, q.Ready+q.Delayed+q.Leased)
		require.GreaterOrEqual(t, int(calls.Load())+q.Dead, 200)
	})
}

// TestRunEndsAtAnyMoment: whatever is under way when Run ends, no attempt is lost or counted twice.
func TestRunEndsAtAnyMoment(t *testing.T) {
	for d := range 40 {
		bubble(t, func(t *testing.T, c *Client) {
			var calls atomic.Int32
			c.Handle("q", func(_ context.Context, job *Job) error {
				calls.Add(1)
				time.Sleep(300 * time.Microsecond)
				if job.Attempts < 2 {
					return RetryIn(0)
				}
				return nil
			}, Workers(3), Attempts(2))
			_, err := c.AddMany(t.Context(), "q", make([]Item, 60))
			require.NoError(t, err)
			for range 3 {
				end := time.Duration(d) * 100 * time.Microsecond
				ctx, cancel := context.WithTimeout(t.Context(), end)
				require.NoError(t, c.Run(ctx))
				cancel()
				require.Zero(t, statsOf(t, c, "q").Leased)
			}
			stop := running(t, c)
			time.Sleep(time.Hour)
			stop()
			require.Equal(t, int32(120), calls.Load())
			require.Zero(t, statsOf(t, c, "q").Dead)
		})
	}
}
