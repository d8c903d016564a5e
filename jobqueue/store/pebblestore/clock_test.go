package pebblestore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// A testClock has a wall clock that can be stepped.
type testClock struct{ passed, step atomic.Int64 }

var dawn = time.Unix(1_700_000_000, 0).UTC()

func (c *testClock) pass(d time.Duration) { c.passed.Add(int64(d)) }

func (c *testClock) wall() time.Time {
	return dawn.Add(time.Duration(c.passed.Load() + c.step.Load()))
}

// option makes a clock that counts from now on.
func (c *testClock) option() Option {
	start := c.passed.Load()
	return WithClock(c.wall, func() time.Duration { return time.Duration(c.passed.Load() - start) })
}

func claimed(t *testing.T, s *Store) (keys []string) {
	claim, err := do(s, &store.Claim{Queue: "q", Max: 10, Lease: 24 * time.Hour})
	require.NoError(t, err)
	for _, j := range claim.Jobs {
		keys = append(keys, j.Key)
	}
	return keys
}

func addKeyed(t *testing.T, s *Store, key string, w store.When) {
	_, err := do(s, &store.Add{Job: store.Job{Queue: "q", Key: key}, When: w})
	require.NoError(t, err)
}

// TestSteppedClock steps the wall clock while the store is open: instants follow it, durations do
// not, and this holds after the store is opened anew.
func TestSteppedClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			c, fs := &testClock{}, vfs.NewMem()
			s := mustOpen(t, fs, c.option())
			woken := 0
			s.Watch(func(string, time.Duration) { woken++ })
			addKeyed(t, s, "in", store.When{In: 90 * time.Minute})
			addKeyed(t, s, "at", store.When{At: dawn.Add(90 * time.Minute)})
			addKeyed(t, s, "in early", store.When{In: time.Minute})
			require.Empty(t, claimed(t, s))
			woken = 0

			c.step.Store(int64(step))
			c.pass(time.Minute)
			_, err := do(s, &store.Extend{Queue: "other"})
			require.ErrorIs(t, err, store.ErrLeaseLost)
			require.Equal(t, 1, woken,
				"whatever group comes first notices, and the watcher looks again")
			require.Equal(t, []string{"in early"}, claimed(t, s))
			j, err := s.Get(context.Background(), "q", store.Ref{Key: "in"})
			require.NoError(t, err)
			require.Equal(t, dawn.Add(90*time.Minute+step), j.Due, "shown by the wall clock")

			require.NoError(t, s.Close())
			s = mustOpen(t, fs, c.option())
			require.Equal(t, []string{"in early"}, claimed(t, s), "its lease ended")

			first, second := "at", "in"
			if step < 0 {
				first, second = "in", "at"
			}
			at := map[string]time.Duration{"in": 90 * time.Minute, "at": 90*time.Minute - step}
			for _, key := range []string{first, second} {
				c.pass(at[key] - time.Duration(c.passed.Load()) - time.Millisecond)
				require.Empty(t, claimed(t, s), "a millisecond before %s", key)
				c.pass(time.Millisecond)
				require.Equal(t, []string{key}, claimed(t, s))
			}
			require.NoError(t, s.Close())
			mustVerify(t, fs)
		})
	}
}

// TestClockSteppedWhileClosed shows that the store's time does not go back behind what was written.
func TestClockSteppedWhileClosed(t *testing.T) {
	c, fs := &testClock{}, vfs.NewMem()
	s := mustOpen(t, fs, c.option())
	addKeyed(t, s, "in", store.When{In: time.Minute})
	addKeyed(t, s, "at", store.When{At: dawn.Add(time.Minute)})
	require.NoError(t, s.Close())

	c.step.Store(int64(-time.Hour))
	s = mustOpen(t, fs, c.option())
	c.pass(time.Minute - time.Millisecond)
	require.Empty(t, claimed(t, s))
	c.pass(time.Millisecond)
	require.Equal(t, []string{"in"}, claimed(t, s))
	c.pass(time.Hour - time.Millisecond)
	require.Empty(t, claimed(t, s))
	c.pass(time.Millisecond)
	require.Equal(t, []string{"at"}, claimed(t, s))
	require.NoError(t, s.Close())
}
