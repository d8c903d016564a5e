package jobqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

// A hooked store has a function around Do.
type hooked struct {
	store.Store
	mu   sync.Mutex
	hook func(ops []store.Op, do func() error) error
}

func (h *hooked) Do(ctx context.Context, ops []store.Op) error {
	h.mu.Lock()
	hook := h.hook
	h.mu.Unlock()
	do := func() error { return h.Store.Do(ctx, ops) }
	if hook == nil {
		return do()
	}
	return hook(ops, do)
}

func (h *hooked) set(hook func(ops []store.Op, do func() error) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

// claims says whether there is a Claim among the operations.
func claims(ops []store.Op) bool {
	for _, op := range ops {
		if _, ok := op.(*store.Claim); ok {
			return true
		}
	}
	return false
}

// bubbleHooked is bubble with a hooked store.
func bubbleHooked(t *testing.T, f func(t *testing.T, c *Client, h *hooked), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &hooked{Store: memory.New()}
		c := New(h, append([]Option{quiet}, opts...)...)
		defer func() { require.NoError(t, c.Close()) }()
		f(t, c, h)
	})
}

func TestRunWaitsForHandlersAndGivesBackTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		var finished atomic.Int32
		quick := true
		c.Handle("q", func(ctx context.Context, job *Job) error {
			if !quick {
				time.Sleep(time.Minute)
			}
			if ctx.Err() == nil {
				finished.Add(1)
			}
			return nil
		}, Workers(2))
		stop := running(t, c)
		// Quick handlers have the dispatcher fetch ahead.
		_, err := c.AddMany(t.Context(), "q", make([]Item, 100))
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, int32(100), finished.Load())
		quick = false
		_, err = c.AddMany(t.Context(), "q", make([]Item, 100))
		require.NoError(t, err)
		synctest.Wait()
		q := statsOf(t, c, "q")
		require.Equal(t, 2, q.Running)
		require.Equal(t, 100, q.Leased)

		before := time.Now()
		stop()
		require.Equal(t, time.Minute, time.Since(before),
			"it waits for the handlers and for nothing else")
		require.Equal(t, int32(102), finished.Load())
		q = statsOf(t, c, "q")
		require.Equal(t, 98, q.Ready)
		require.Equal(t, int64(98), q.Returned)
		require.Zero(t, q.Running+q.Leased)
		jobs, _, err := c.List(t.Context(), "q", Ready, "", 100)
		require.NoError(t, err)
		for _, job := range jobs {
			require.Zero(t, job.Attempts)
		}
		_, err = c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, int32(102), finished.Load())

		defer running(t, c)()
		time.Sleep(24 * time.Hour)
		require.Equal(t, int32(201), finished.Load())
	})
}

func TestAClaimUnderWayWhenRunEnds(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		calls := 0
		c.Handle("q", func(context.Context, *Job) error { calls++; return nil })
		h.set(func(ops []store.Op, do func() error) error {
			err := do()
			if claims(ops) {
				time.Sleep(time.Minute)
			}
			return err
		})
		id, err := c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		stop := running(t, c)
		synctest.Wait()
		job, err := c.Get(t.Context(), "q", ByID(id))
		require.NoError(t, err)
		require.Equal(t, Leased, job.State)
		stop()
		require.Zero(t, calls)
		job, err = c.Get(t.Context(), "q", ByID(id))
		require.NoError(t, err)
		require.Equal(t, Ready, job.State)
		require.Zero(t, job.Attempts)
	})
}

func TestPauseBetweenClaimAndDelivery(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		start := time.Now()
		var at []time.Duration
		c.Handle("q", func(context.Context, *Job) error {
			at = append(at,
				time.Since(start))
			return nil
		})
		h.set(func(ops []store.Op, do func() error) error {
			err := do()
			if claims(ops) {
				time.Sleep(time.Minute)
			}
			return err
		})
		_, err := c.Add(ctx, "q", nil)
		require.NoError(t, err)
		defer running(t, c)()
		time.Sleep(time.Second)
		require.NoError(t, c.Pause(ctx, "q"))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, at)
		q := statsOf(t, c, "q")
		require.True(t, q.Paused)
		require.Equal(t, 1, q.Ready)
		h.set(nil)
		require.NoError(t, c.Resume(ctx, "q"))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Hour + time.Second}, at)
	})
}

func TestCancelBetweenClaimAndDelivery(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		calls := 0
		c.Handle("q", func(context.Context, *Job) error { calls++; return nil })
		h.set(func(ops []store.Op, do func() error) error {
			err := do()
			if claims(ops) {
				time.Sleep(time.Minute)
			}
			return err
		})
		_, err := c.Add(ctx, "q", nil, Key("k"))
		require.NoError(t, err)
		defer running(t, c)()
		time.Sleep(time.Second)
		require.ErrorIs(t, c.Cancel(ctx, "q", ByKey("k")), ErrRunning)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, calls)
	})
}

func TestCancelOfAJobInTheBuffer(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		var got []string
		c.Handle("q", func(_ context.Context, job *Job) error {
			if job.Key == "slow" {
				time.Sleep(time.Second)
			}
			got = append(got, job.Key)
			return nil
		}, Workers(1))
		defer running(t, c)()
		_, err := c.Add(ctx, "q", nil, Key("first"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = c.AddMany(ctx, "q", []Item{{Options: []AddOption{Key("slow")}},
			{Options: []AddOption{Key("b")}}, {Options: []AddOption{Key("c")}}})
		require.NoError(t, err)
		synctest.Wait()
		job, err := c.Get(ctx, "q", ByKey("b"))
		require.NoError(t, err)
		require.Equal(t, Leased, job.State, "it was fetched ahead")
		require.NoError(t, c.Cancel(ctx, "q", ByKey("b")), "no delivery has begun, and none will")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"first", "slow", "c"}, got)
	})
}

func TestJobsInTheBufferAreGivenBackAfterAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		var begun atomic.Int32
		c.Handle("q", func(_ context.Context, job *Job) error {
			begun.Add(1)
			if job.Key == "slow" {
				time.Sleep(time.Hour)
			}
			return nil
		}, Workers(1), Lease(20*time.Second))
		defer running(t, c)()
		_, err := c.Add(ctx, "q", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = c.AddMany(ctx, "q", []Item{{Options: []AddOption{Key("slow")}}, {}, {}})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, 3, statsOf(t, c, "q").Leased)
		time.Sleep(9 * time.Second) // the second beat is after half a lease
		synctest.Wait()
		q := statsOf(t, c, "q")
		require.Equal(t, 1, q.Leased)
		require.Equal(t, 2, q.Ready, "another process may take them")
		got, err := c.TryReserve(ctx, "q", 5, time.Minute)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, 1, got[0].Attempts)
		for _, d := range got {
			require.NoError(t, d.Ack(ctx))
		}
		time.Sleep(2 * time.Hour)
		require.Equal(t, int32(2), begun.Load())
	})
}

func TestGrace(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		c.Handle("q", func(ctx context.Context, job *Job) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), context.Canceled)
			if job.Key == "done" {
				return nil
			}
			return ctx.Err()
		})
		stop := running(t, c)
		id, err := c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		_, err = c.Add(t.Context(), "q", nil, Key("done"))
		require.NoError(t, err)
		synctest.Wait()
		start := time.Now()
		stop()
		require.Equal(t, time.Minute, time.Since(start))
		job, err := c.Get(t.Context(), "q", ByID(id))
		require.NoError(t, err)
		require.Zero(t, job.Attempts)
		require.Equal(t, Ready, job.State)
		q := statsOf(t, c, "q")
		require.Equal(t, int64(1), q.Returned)
		require.Equal(t, int64(1), q.Acked)
		require.Zero(t, q.Retried+q.Snoozed)
	}, WithGrace(time.Minute))
}

func TestTheStoreFailsForAWhile(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		var calls, fails atomic.Int32
		c.Handle("q", func(_ context.Context, job *Job) error { calls.Add(1); return nil })
		defer running(t, c)()
		noSpace := errors.New("no space left on device")
		id, err := c.Add(ctx, "q", nil, In(time.Minute))
		require.NoError(t, err)
		h.set(func(ops []store.Op, do func() error) error {
			if !claims(ops) { // the handler runs, and its acknowledgement fails
				fails.Add(1)
				return noSpace
			}
			if calls.Load() > 0 {
				fails.Add(1)
				return noSpace
			}
			return do()
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, int32(1), calls.Load())
		require.Greater(t, fails.Load(), int32(3))
		require.Less(t, fails.Load(), int32(20))
		_, err = c.Add(ctx, "q", nil)
		require.ErrorIs(t, err, noSpace)
		_, err = c.Get(ctx, "q", ByID(id))
		require.NoError(t, err)
		h.set(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, err = c.Get(ctx, "q", ByID(id))
		require.ErrorIs(t, err, ErrNotFound, "the acknowledgement was kept")
		_, err = c.Add(ctx, "q", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, int32(2), calls.Load())
	})
}

func TestTheStoreFailsForGood(t *testing.T) {
	for _, failure := range []error{ErrFailed, errors.New("something else, while Run ends")} {
		synctest.Test(t, func(t *testing.T) {
			h := &hooked{Store: memory.New()}
			c := New(h, quiet)
			started := make(chan struct{})
			c.Handle("q", func(context.Context, *Job) error {
				close(started)
				time.Sleep(time.Second)
				return nil
			})
			c.Handle("r", succeed)
			_, err := c.AddMany(t.Context(), "q", []Item{{}})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error)
			go func() { ran <- c.Run(ctx) }()
			<-started
			h.set(func([]store.Op, func() error) error { return fmt.Errorf("write: %w", failure) })
			if failure != ErrFailed {
				cancel()
			}
			require.ErrorIs(t, <-ran, failure)
			cancel()
			require.NoError(t, c.Close())
		})
	}
}

func TestAnIdleQueueAsksTheStoreNothing(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		var asked atomic.Int32
		c.Handle("q", succeed)
		c.Handle("empty", succeed)
		defer running(t, c)()
		for i := range 100 {
			_, err := c.Add(ctx, "q", nil, In(time.Duration(i+1)*24*time.Hour), Key(fmt.Sprint(i)))
			require.NoError(t, err)
		}
		synctest.Wait()
		h.set(func(_ []store.Op, do func() error) error { asked.Add(1); return do() })
		time.Sleep(24*time.Hour - time.Minute)
		require.Zero(t, asked.Load())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, asked.Load(), int32(3),
			"a claim, the acknowledgement, and a look at when the lease would have ended")
		asked.Store(0)
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		require.Zero(t, asked.Load())
	})
}

func TestGroups(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		failure := errors.New("the disk is on fire")
		var groups atomic.Int32
		h.set(func(ops []store.Op, do func() error) error {
			time.Sleep(time.Second)
			groups.Add(1)
			if len(ops) > 1 {
				return failure
			}
			return do()
		})
		// Two groups of one are under way; those who come meanwhile share one, and its error.
		var failed atomic.Int32
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				if _, err := c.Add(ctx, "q", nil); err != nil {
					require.ErrorIs(t, err, failure)
					failed.Add(1)
				}
			})
			if i < groupsUnderWay {
				synctest.Wait()
			}
		}
		// One who does not wait long enough takes its operation back.
		hasty, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err := c.Add(hasty, "q", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrUnknown)
		callers.Wait()
		require.Equal(t, int32(48), failed.Load())
		require.Equal(t, int32(3), groups.Load())
		require.Equal(t, 2, statsOf(t, c, "q").Ready)

		// One whose operation is being stored cannot know.
		hasty, cancel = context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err = c.Add(hasty, "q", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrUnknown)
		time.Sleep(time.Minute)
	})
}

func TestPullersAreLetThroughOneByOne(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		start := time.Now()
		var mu sync.Mutex
		got := map[string]time.Duration{}
		var pullers sync.WaitGroup
		for range 10 {
			pullers.Go(func() {
				d, err := c.Reserve(ctx, "q", 1, time.Minute)
				require.NoError(t, err)
				mu.Lock()
				got[string(d[0].Body)] = time.Since(start)
				mu.Unlock()
				require.NoError(t, d[0].Ack(ctx))
			})
		}
		synctest.Wait()
		var asked atomic.Int32
		h.set(func(ops []store.Op, do func() error) error {
			if claims(ops) {
				asked.Add(1)
			}
			return do()
		})
		for i := range 10 {
			_, err := c.Add(ctx, "q", []byte(fmt.Sprint(i)), In(time.Duration(i/5)*time.Hour))
			require.NoError(t, err)
		}
		synctest.Wait()
		hasty, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := c.Reserve(hasty, "q", 1, time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		pullers.Wait()
		for i := range 10 {
			require.Equal(t, time.Duration(i/5)*time.Hour, got[fmt.Sprint(i)], i)
		}
		require.Less(t, asked.Load(), int32(30))
	})
}

// TestHammer counts the outcome of every job on the real clock: each is delivered once or
// cancelled, none after a Cancel that returned nil, and none early.
func TestHammer(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { hammer(t, NewMemory(quiet)) })
	t.Run("embedded", func(t *testing.T) {
		c, err := Open(t.TempDir(), quiet)
		require.NoError(t, err)
		hammer(t, c)
	})
}

func hammer(t *testing.T, c *Client) {
	type fate struct {
		delivered, cancelled, interrupted atomic.Int32
		over                              sync.Once
	}
	const producers, jobs = 8, 500
	fates := make([]fate, producers*jobs)
	var left sync.WaitGroup
	left.Add(len(fates))
	handler := func(ctx context.Context, job *Job) error {
		if time.Now().Before(job.Due) {
			t.Error("early")
		}
		if job.Attempts == 1 && job.Priority == 1 {
			return RetryIn(time.Millisecond)
		}
		var n int
		fmt.Sscan(string(job.Body), &n)
		fates[n].delivered.Add(1)
		fates[n].over.Do(left.Done)
		return nil
	}
	for _, queue := range []string{"a", "b"} {
		c.Handle(queue, handler, Workers(4))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() {
		for ctx.Err() == nil { // with interruptions
			short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
			if err := c.Run(short); err != nil {
				t.Error(err)
			}
			stop()
		}
	})
	var callers sync.WaitGroup
	for p := range producers {
		callers.Go(func() {
			queue := []string{"a", "b", "pulled"}[p%3]
			for i := range jobs {
				n := p*jobs + i
				key := fmt.Sprint(n)
				_, err := c.Add(ctx, queue, []byte(key), Key(key),
					In(time.Duration(rand.IntN(20))*time.Millisecond), Priority(n%7%2))
				if err != nil {
					t.Error(err)
				}
				switch rand.IntN(10) {
				case 0:
					err := c.Cancel(ctx, queue, ByKey(key))
					switch {
					case err == nil:
						fates[n].cancelled.Add(1)
						fates[n].over.Do(left.Done)
					case errors.Is(err, ErrRunning):
						fates[n].interrupted.Add(1)
						fates[n].over.Do(left.Done)
					case !errors.Is(err, ErrNotFound):
						t.Error(err)
					}
				case 1:
					c.Reschedule(ctx, queue, ByKey(key),
						time.Duration(rand.IntN(5))*time.Millisecond)
				case 2:
					if n%50 == 0 {
						c.Pause(ctx, queue)
						c.Resume(ctx, queue)
					}
				}
			}
		})
	}
	var pullers sync.WaitGroup
	for range 3 {
		pullers.Go(func() {
			for {
				got, err := c.Reserve(ctx, "pulled", 5, time.Minute)
				if err != nil {
					return
				}
				for _, d := range got {
					err := handler(ctx, &d.Job)
					if err != nil {
						err = d.Nack(ctx, err)
					} else {
						err = d.Ack(ctx)
					}
					if err != nil && !errors.Is(err, ErrLeaseLost) && ctx.Err() == nil {
						t.Error(err)
					}
				}
			}
		})
	}
	callers.Wait()
	left.Wait()
	cancel()
	runs.Wait()
	pullers.Wait()
	require.NoError(t, c.Close())
	for i := range fates {
		delivered, cancelled := fates[i].delivered.Load(), fates[i].cancelled.Load()
		if fates[i].interrupted.Load() > 0 {
			require.LessOrEqual(t, delivered, int32(1), i)
			continue
		}
		require.Equal(t, int32(1), delivered+cancelled, i)
	}
}

func TestAnAcknowledgementDoesNotWaitForTheNextJob(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		c.Handle("q", func(_ context.Context, job *Job) error {
			if job.Key == "slow" {
				time.Sleep(time.Hour)
			}
			return nil
		}, Workers(1))
		defer running(t, c)()
		_, err := c.Add(ctx, "q", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = c.AddMany(ctx, "q", []Item{
			{Options: []AddOption{Key("quick")}}, {Options: []AddOption{Key("slow")}},
		})
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = c.Get(ctx, "q", ByKey("quick"))
		require.ErrorIs(t, err, ErrNotFound)
		job, err := c.Get(ctx, "q", ByKey("slow"))
		require.NoError(t, err)
		require.Equal(t, Leased, job.State)
	})
}

func TestAWakeUpBetweenAClaimAndTheWaitIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		for _, in := range []time.Duration{0, time.Second} {
			g := &c.of("q").gate
			seen := g.look()
			g.wake(in)
			require.NoError(t, g.wait(t.Context(), c.closing, -1, seen))
		}
	})
}

func TestAPullerThatGivesUpPassesItsTurnOn(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		g := &c.of("q").gate
		for range 50 {
			hasty, cancel := context.WithCancel(t.Context())
			patient, giveUp := context.WithTimeout(t.Context(), time.Hour)
			var through atomic.Int32
			var waits sync.WaitGroup
			for _, ctx := range []context.Context{hasty, patient} {
				waits.Go(func() {
					if g.wait(ctx, c.closing, -1, g.look()) == nil {
						through.Add(1)
					}
				})
				synctest.Wait()
			}
			cancel()
			g.wake(0)
			waits.Wait()
			giveUp()
			require.Equal(t, int32(1), through.Load())
		}
	})
}
