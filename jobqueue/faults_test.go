package jobqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// gone says whether a job has left the queue.
func gone(t *testing.T, c *Client, key string) bool {
	t.Helper()
	_, err := c.Get(t.Context(), "q", ByKey(key))
	if err == nil {
		return false
	}
	require.ErrorIs(t, err, ErrNotFound)
	return true
}

// fetchAhead has the handler of q finish one job at once, so that the dispatcher fetches ahead.
func fetchAhead(t *testing.T, c *Client) {
	t.Helper()
	_, err := c.Add(t.Context(), "q", nil)
	require.NoError(t, err)
	time.Sleep(time.Second)
	synctest.Wait()
}

func TestAJobAnnouncedDuringAClaimGoesToAFreeWorker(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		h.set(func(ops []store.Op, do func() error) error {
			err := do()
			if claims(ops) {
				time.Sleep(time.Second)
			}
			return err
		})
		c.Handle("q", func(_ context.Context, job *Job) error {
			if job.Key == "slow" {
				time.Sleep(time.Hour)
			}
			return nil
		}, Workers(2))
		_, err := c.Add(ctx, "q", nil, Key("slow"))
		require.NoError(t, err)
		defer running(t, c)()
		time.Sleep(500 * time.Millisecond)
		_, err = c.Add(ctx, "q", nil, Key("other"))
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.True(t, gone(t, c, "other"), "it does not wait for the slow one")
	})
}

func TestOutcomesAreStoredInTimeInASecondRun(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		var slow atomic.Bool
		c.Handle("q", func(_ context.Context, job *Job) error {
			if job.Key == "slow" {
				time.Sleep(time.Hour)
			}
			if slow.Load() {
				time.Sleep(100 * time.Microsecond) // within the time that an outcome may wait
			}
			return nil
		}, Workers(1))
		stop := running(t, c)
		fetchAhead(t, c)
		slow.Store(true)
		_, err := c.AddMany(ctx, "q", make([]Item, 2))
		require.NoError(t, err)
		time.Sleep(250 * time.Microsecond) // the timer that the first one has set is still to fire
		stop()

		slow.Store(false)
		defer running(t, c)()
		fetchAhead(t, c)
		_, err = c.AddMany(ctx, "q", []Item{
			{Options: []AddOption{Key("quick")}}, {Options: []AddOption{Key("slow")}},
		})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.True(t, gone(t, c, "quick"))
		require.False(t, gone(t, c, "slow"))
	})
}

func TestABacklogInTheBufferIsGivenBackAfterAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		c.Handle("q", func(_ context.Context, job *Job) error {
			if job.Key == "slow" {
				time.Sleep(time.Hour)
			}
			return nil
		}, Workers(1), Lease(20*time.Second))
		defer running(t, c)()
		fetchAhead(t, c)
		items := make([]Item, 2000)
		items[0].Options = []AddOption{Key("slow")}
		_, err := c.AddMany(ctx, "q", items)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Greater(t, statsOf(t, c, "q").Leased, 100, "fetched ahead")
		time.Sleep(time.Minute)
		require.Equal(t, 1, statsOf(t, c, "q").Leased, "another process may take the others")
	})
}

func TestTheLoggerMayCallTheClient(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		c.set.log = slog.New(logFunc(func(slog.Record) {
			_, err := c.Add(ctx, "q", nil, In(time.Hour), Key("log"))
			if err != nil {
				t.Error(err)
			}
		}))
		c.Handle("q", func(_ context.Context, job *Job) error {
			switch job.Key {
			case "cancelled":
				require.ErrorIs(t, c.Cancel(ctx, "q", ByKey("cancelled")), ErrRunning)
			case "poison":
				time.Sleep(time.Hour)
			}
			return nil
		}, Attempts(1), Lease(time.Second), Timeout(time.Second))
		defer running(t, c)()
		for _, key := range []string{"cancelled", "poison"} { // refused; dead by its lease
			_, err := c.Add(ctx, "q", nil, Key(key))
			require.NoError(t, err)
		}
		var failures atomic.Int32
		h.set(func(ops []store.Op, do func() error) error {
			if claims(ops) && failures.Add(1) < 3 {
				return errors.New("no luck")
			}
			return do()
		})
		time.Sleep(2 * time.Hour)
		q := statsOf(t, c, "q")
		require.Equal(t, int64(1), q.Buried)
		require.Positive(t, q.Refused)
	})
}

// logFunc is a slog.Handler.
type logFunc func(slog.Record)

func (f logFunc) Enabled(_ context.Context, l slog.Level) bool  { return l >= slog.LevelInfo }
func (f logFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f logFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f logFunc) WithGroup(string) slog.Handler                 { return f }

func TestManyWorkers(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		var calls atomic.Int32
		var most atomic.Int64
		h.set(func(ops []store.Op, do func() error) error {
			for _, op := range ops {
				if claim, ok := op.(*store.Claim); ok {
					most.Store(max(most.Load(), int64(claim.Max)))
				}
			}
			return do()
		})
		c.Handle("q", func(context.Context, *Job) error {
			calls.Add(1)
			time.Sleep(time.Minute)
			return nil
		}, Workers(math.MaxInt))
		defer running(t, c)()
		fetchAhead(t, c)
		_, err := c.AddMany(ctx, "q", make([]Item, 2500))
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, int32(2501), calls.Load())
		require.LessOrEqual(t, most.Load(), int64(2000), "whatever the number of workers")
		time.Sleep(2 * time.Minute)
		_, err = c.AddMany(ctx, "q", make([]Item, 2500))
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, int32(5001), calls.Load())
	})
}

func TestLargeBodiesAreNotFetchedFarAhead(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		c.Handle("q", func(_ context.Context, job *Job) error {
			if job.Key == "slow" {
				time.Sleep(time.Second)
			}
			return nil
		}, Workers(1))
		defer running(t, c)()
		fetchAhead(t, c)
		items := make([]Item, 200)
		for i := range items {
			items[i].Body = make([]byte, 1<<20)
		}
		items[100].Options = []AddOption{Key("slow")}
		_, err := c.AddMany(t.Context(), "q", items[:50])
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = c.AddMany(t.Context(), "q", items[50:])
		require.NoError(t, err)
		time.Sleep(500 * time.Millisecond)
		require.Less(t, statsOf(t, c, "q").Leased, 20)
		time.Sleep(time.Minute)
		require.Equal(t, int64(201), statsOf(t, c, "q").Acked)
	})
}

// A brokenError panics when it is asked for its text.
type brokenError struct{ text *string }

func (e brokenError) Error() string { return *e.text }

func TestWhatDecidesAboutAFailedAttemptPanics(t *testing.T) {
	explode := func() (time.Duration, bool) { panic("no idea") }
	exit := func() (time.Duration, bool) { runtime.Goexit(); return 0, true }
	for name, test := range map[string]struct {
		backoff func() (time.Duration, bool)
		handler func() error
		last    string
	}{
		"BackoffFunc": {explode, func() error { return errors.New("x") },
			"panic: no idea"},
		"BackoffFunc after Goexit": {explode, func() error { runtime.Goexit(); return nil },
			"panic: no idea"},
		"BackoffFunc exits": {exit, func() error { return errors.New("x") },
			"runtime.Goexit"},
		"BackoffFunc exits, as Handle": {exit, func() error { runtime.Goexit(); return nil },
			"runtime.Goexit"},
		"the error": {
			func() (time.Duration, bool) { return time.Second, true },
			func() error { return brokenError{} }, "panic: runtime error: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Client) {
				calls := 0
				c.Handle("q", func(context.Context, *Job) error {
					calls++
					return test.handler()
				}, BackoffFunc(func(int, error) (time.Duration, bool) { return test.backoff() }),
					Attempts(3), Workers(1))
				defer running(t, c)()
				time.Sleep(time.Second)
				job := one(t, c)
				require.Equal(t, Dead, job.State)
				require.Equal(t, 3, calls)
				require.Contains(t, job.LastError, test.last)
				require.Zero(t, statsOf(t, c, "q").Running)
			})
		})
	}
}

type schedulerFunc func(time.Time) time.Time

func (f schedulerFunc) Next(t time.Time) time.Time { return f(t) }

func TestASchedulerThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		var broken atomic.Bool
		c.RegisterScheduler("s", schedulerFunc(func(t time.Time) time.Time {
			if broken.Load() {
				panic("no idea")
			}
			return t.Add(time.Hour)
		}))
		runs := 0
		c.Handle("q", func(context.Context, *Job) error { runs++; return nil })
		id, err := c.Add(ctx, "q", nil, Scheduled("s", ""))
		require.NoError(t, err)
		broken.Store(true)
		defer running(t, c)()
		time.Sleep(time.Hour + time.Millisecond)
		job, err := c.Get(ctx, "q", ByID(id))
		require.NoError(t, err)
		require.Equal(t, Delayed, job.State)
		require.Contains(t, job.LastError, "panic: no idea")
		broken.Store(false)
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		require.Equal(t, 3, runs, "the failed attempt, the next, and the next run")
	})
}

func TestAPullerWithoutTheSchedulerPutsTheJobOff(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		hourly := schedulerFunc(func(t time.Time) time.Time { return t.Add(time.Hour) })
		c.RegisterScheduler("s", hourly)
		id, err := c.Add(ctx, "q", nil, Scheduled("s", ""))
		require.NoError(t, err)
		delete(c.schedulers, "s")
		time.Sleep(time.Hour)
		got, err := c.TryReserve(ctx, "q", 1, time.Minute)
		require.NoError(t, err)
		require.Empty(t, got, "its next run could not be told")
		job, err := c.Get(ctx, "q", ByID(id))
		require.NoError(t, err)
		require.Equal(t, Delayed, job.State)
		require.Zero(t, job.Attempts)
		c.RegisterScheduler("s", hourly)
		got, err = c.Reserve(ctx, "q", 1, time.Minute)
		require.NoError(t, err)
		require.Len(t, got, 1)
	})
}

func TestAPullerWhoseClaimFailsPassesItsTurnOn(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.Reserve(ctx, "q", 1, time.Minute)
				results <- err
			}()
			synctest.Wait()
		}
		var failed atomic.Bool
		noLuck := errors.New("no luck")
		h.set(func(ops []store.Op, do func() error) error {
			if claims(ops) && !failed.Swap(true) {
				return noLuck
			}
			return do()
		})
		_, err := c.Add(ctx, "q", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, results, 2, "the job goes to the other one")
		require.ErrorIs(t, <-results, noLuck)
		require.NoError(t, <-results)
	})
}

func TestReserveFollowsTheOptionsOfHandle(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		c.Handle("q", succeed, Backoff(time.Hour), Attempts(2))
		for _, queue := range []string{"q", "other"} {
			_, err := c.Add(ctx, queue, nil)
			require.NoError(t, err)
			got, err := c.Reserve(ctx, queue, 1, time.Minute)
			require.NoError(t, err)
			require.NoError(t, got[0].Nack(ctx, errors.New("x")))
		}
		require.Greater(t, statsOf(t, c, "q").Next, 50*time.Minute)
		require.Equal(t, time.Minute, statsOf(t, c, "other").Next.Round(time.Second),
			"WithDefaults")
		got, err := c.Reserve(ctx, "q", 1, time.Minute)
		require.NoError(t, err)
		require.NoError(t, got[0].Nack(ctx, errors.New("x")))
		require.Equal(t, 1, statsOf(t, c, "q").Dead)
	}, WithDefaults(Backoff(time.Minute)))
}

func TestRequeueAllEndsAlthoughTheJobsDieAgain(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		c.Handle("q", func(context.Context, *Job) error { return Bury("poison") })
		defer running(t, c)()
		_, err := c.AddMany(ctx, "q", make([]Item, 2500))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		requeues := 0
		h.set(func(ops []store.Op, do func() error) error {
			err := do()
			if _, ok := ops[0].(*store.Requeue); ok {
				if requeues++; requeues > 10 {
					return errors.New("there is no end")
				}
				time.Sleep(time.Minute)
			}
			return err
		})
		n, err := c.RequeueAll(ctx, "q")
		require.NoError(t, err)
		require.Equal(t, 2500, n)
	})
}

func TestARecurringJobWithTimesThatJSONRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		_, err := c.Add(ctx, "q", nil, Every(time.Hour), Until(time.Date(10000, 1, 1, 0, 0, 0, 0,
			time.UTC)))
		require.ErrorIs(t, err, ErrBadTime)
		odd := time.FixedZone("odd", 30*60*60)
		id, err := c.Add(ctx, "q", nil, Every(time.Hour), At(time.Now().In(odd)),
			Until(time.Now().Add(24*time.Hour).In(odd)))
		require.NoError(t, err)
		job, err := c.Get(ctx, "q", ByID(id))
		require.NoError(t, err)
		require.NotNil(t, job.Repeat, "it is still a recurring job")
	})
}

func TestMiddlewareMayCallTheClientWhenItIsPutAround(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		c.Use(func(next Handler) Handler {
			c.RegisterScheduler("s", schedulerFunc(func(t time.Time) time.Time { return t }))
			return next
		})
		c.Handle("q", succeed)
		defer running(t, c)()
		require.Nil(t, one(t, c))
		c.Handle("late", succeed)
	})
}

func TestAnInterruptedHandlerMayBury(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		c.Handle("q", func(ctx context.Context, _ *Job) error {
			<-ctx.Done()
			return Bury("half done")
		})
		stop := running(t, c)
		id, err := c.Add(t.Context(), "q", nil)
		require.NoError(t, err)
		synctest.Wait()
		stop()
		job, err := c.Get(t.Context(), "q", ByID(id))
		require.NoError(t, err)
		require.Equal(t, Dead, job.State)
		require.Equal(t, "half done", job.LastError)
	}, WithGrace(time.Minute))
}

// TestABacklogAndNewJobs works off a backlog while new jobs come due. One that has not been overdue
// for long goes first; beside an older one, new jobs go out at once, and both keep their order.
func TestABacklogAndNewJobs(t *testing.T) {
	for _, overdue := range []time.Duration{0, time.Minute} {
		t.Run(overdue.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Client) { backlogAndNew(t, c, overdue) })
		})
	}
}

func backlogAndNew(t *testing.T, c *Client, overdue time.Duration) {
	ctx := t.Context()
	const old, fresh = 5_000, 25
	items := make([]Item, old)
	for i := range items {
		items[i].Body = fmt.Append(nil, i)
	}
	_, err := c.AddMany(ctx, "q", items)
	require.NoError(t, err)
	time.Sleep(overdue)
	var order []int // of the bodies
	var late time.Duration
	held := 0
	c.Handle("q", func(_ context.Context, job *Job) error {
		n, err := strconv.Atoi(string(job.Body))
		require.NoError(t, err)
		order = append(order, n)
		if n >= old {
			late = max(late, time.Since(job.Due))
		}
		time.Sleep(time.Millisecond)
		d := c.of("q").dispatcher.Load()
		d.mu.Lock()
		held = max(held, len(d.buffer)+len(d.outcomes))
		d.mu.Unlock()
		return nil
	}, Workers(1))
	defer running(t, c)()
	for i := range fresh {
		time.Sleep(100 * time.Millisecond)
		_, err := c.Add(ctx, "q", fmt.Append(nil, old+i))
		require.NoError(t, err)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Len(t, order, old+fresh)
	if overdue == 0 {
		require.True(t, slices.IsSorted(order), "those that are due longer go first")
	} else {
		require.Less(t, late, 50*time.Millisecond, "new jobs do not wait")
		slices.SortStableFunc(order, func(a, b int) int { return a/old - b/old })
		require.True(t, slices.IsSorted(order), "each kind in its order")
	}
	require.Less(t, held, 2000, "memory does not grow with the backlog")
}

// TestReserveBesideABacklog has every fourth job that is reserved one by one be a new one.
func TestReserveBesideABacklog(t *testing.T) {
	bubble(t, func(t *testing.T, c *Client) {
		for range 20 {
			_, err := c.Add(t.Context(), "q", []byte("o"))
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		for range 20 {
			_, err := c.Add(t.Context(), "q", []byte("n"))
			require.NoError(t, err)
		}
		var got []byte
		for range 12 {
			jobs, err := c.TryReserve(t.Context(), "q", 1, time.Hour)
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			got = append(got, jobs[0].Body...)
		}
		require.Equal(t, "ooonooonooon", string(got))
		got = nil
		jobs, err := c.Reserve(t.Context(), "q", 8, time.Hour)
		require.NoError(t, err)
		for _, j := range jobs {
			got = append(got, j.Body...)
		}
		require.Equal(t, "oooooonn", string(got))
	})
}

// TestHammerOfABadStore has a store that is slow, fails, and fails with unknown outcome, each at
// random, while jobs are added, cancelled, paused and delivered and Run is interrupted. Every job
// is delivered or cancelled in the end, and every Run ends.
func TestHammerOfABadStore(t *testing.T) {
	bubbleHooked(t, func(t *testing.T, c *Client, h *hooked) {
		ctx := t.Context()
		h.set(func(ops []store.Op, do func() error) error {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			switch rand.IntN(10) {
			case 0:
				return errors.New("no luck")
			case 1:
				if err := do(); err != nil {
					return err
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				return ErrUnknown
			}
			return do()
		})
		const jobs = 300
		var delivered [jobs]atomic.Int32
		for _, queue := range []string{"a", "b"} {
			c.Handle(queue, func(ctx context.Context, job *Job) error {
				n := int(job.Body[0])<<8 | int(job.Body[1])
				delivered[n].Add(1)
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
				switch rand.IntN(20) {
				case 0:
					panic("no idea")
				case 1:
					runtime.Goexit()
				case 2:
					return Snooze(time.Millisecond)
				case 3:
					return errors.New("no luck")
				case 4:
					time.Sleep(time.Minute)
				}
				return nil
			}, Workers(3), Lease(time.Second), Backoff(time.Millisecond), Attempts(0))
		}
		var callers sync.WaitGroup
		for p := range 3 {
			callers.Go(func() {
				for i := range jobs / 3 {
					n := p*jobs/3 + i
					queue := []string{"a", "b"}[n%2]
					key := Key(fmt.Sprint(n))
					for {
						_, err := c.Add(ctx, queue, []byte{byte(n >> 8), byte(n)}, key)
						if err == nil {
							break
						}
					}
					switch rand.IntN(10) {
					case 0:
						if c.Cancel(ctx, queue, ByKey(fmt.Sprint(n))) == nil {
							delivered[n].Add(1)
						}
					case 1:
						c.Pause(ctx, queue)
						for c.Resume(ctx, queue) != nil {
						}
					}
				}
			})
		}
		end := time.Now().Add(time.Hour)
		for time.Now().Before(end) {
			short, stop := context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Millisecond)
			c.Run(short) // its error is that of outcomes that could not be stored
			stop()
		}
		callers.Wait()
		h.set(nil)
		stop := running(t, c)
		time.Sleep(time.Hour)
		stop()
		for n := range delivered {
			if delivered[n].Load() == 0 {
				_, err := c.Get(ctx, []string{"a", "b"}[n%2], ByKey(fmt.Sprint(n)))
				require.ErrorIs(t, err, ErrNotFound, n) // a Cancel with an unknown outcome
			}
		}
		stats, err := c.Stats(ctx)
		require.NoError(t, err)
		for _, q := range stats.Queues {
			require.Zero(t, q.Delayed+q.Ready+q.Leased+q.Running, q.Name)
			require.Less(t, q.Delivered, int64(5000))
		}
	})
}
