package jobqueue

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/inside"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

// TestTheWallClockIsStepped steps the wall clock while nothing is asked of the store, which cannot
// notice by itself. A job with an instant is delivered on time all the same if its time comes more
// than a minute after the step, and otherwise at most a minute late; the store is asked once more
// for each ring that was too early, and not otherwise.
func TestTheWallClockIsStepped(t *testing.T) {
	for name, test := range map[string]struct {
		step  time.Duration // ten minutes from the start
		after time.Duration // from the start to the delivery of a job that is due in an hour
		late  time.Duration // how much more that may be
		asked int
	}{
		"not":               {after: time.Hour, asked: 2},
		"forward":           {step: 30 * time.Minute, after: 30 * time.Minute, asked: 2},
		"beyond the job":    {step: 2 * time.Hour, after: 10 * time.Minute, late: soon, asked: 2},
		"back":              {step: -time.Hour, after: 2 * time.Hour, asked: 3},
		"by a few seconds":  {step: 3 * time.Second, after: time.Hour - 3*time.Second, asked: 2},
		"back by a few too": {step: -3 * time.Second, after: time.Hour + 3*time.Second, asked: 3},
	} {
		for _, pull := range []bool{false, true} {
			kind := map[bool]string{false: "handler", true: "Reserve"}[pull]
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var step atomic.Int64
					wall := func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
					h := &hooked{Store: memory.New(memory.WithClock(wall))}
					c := New(h, quiet)
					inside.Hooks.Wall(c.tw, wall)
					start := time.Now()
					_, err := c.Add(t.Context(), "q", nil, At(start.Add(time.Hour)))
					require.NoError(t, err)
					asked := 0
					h.set(func(ops []store.Op, do func() error) error {
						if claims(ops) {
							asked++
						}
						return do()
					})
					var after time.Duration
					var claimed int
					got := func() { after, claimed = time.Since(start), asked }
					stop := func() {}
					if pull {
						go func() {
							_, err := c.Reserve(t.Context(), "q", 1, time.Hour)
							require.NoError(t, err)
							got()
						}()
					} else {
						c.Handle("q", func(context.Context, *Job) error { got(); return nil })
						stop = running(t, c)
					}
					time.Sleep(10 * time.Minute)
					step.Store(int64(test.step))
					time.Sleep(3 * time.Hour)
					synctest.Wait()
					require.GreaterOrEqual(t, after, test.after)
					require.LessOrEqual(t, after, test.after+test.late)
					require.Equal(t, test.asked, claimed)
					stop()
					require.NoError(t, c.Close())
				})
			})
		}
	}
}

// TestYearsPassInABubble waits for a job of ten years. A wake-up for each of its minutes would take
// minutes of real time.
func TestYearsPassInABubble(t *testing.T) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c := NewMemory(quiet)
		start, delivered := time.Now(), time.Duration(0)
		_, err := c.Add(t.Context(), "q", nil, At(start.AddDate(10, 0, 0)))
		require.NoError(t, err)
		c.Handle("q", func(context.Context, *Job) error {
			delivered = time.Since(start)
			return nil
		})
		stop := running(t, c)
		time.Sleep(20 * 365 * 24 * time.Hour)
		synctest.Wait()
		require.Equal(t, start.AddDate(10, 0, 0).Sub(start), delivered)
		stop()
		require.NoError(t, c.Close())
	})
	require.Less(t, time.Since(began), 5*time.Second)
}
