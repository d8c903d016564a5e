package story

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	opening   = time.Date(2027, time.March, 1, 6, 0, 0, 0, time.UTC)
	errBroken = errors.New("broken")
)

// TestClock checks that no time is early on any scale, and none is lost on the way and back.
func TestClock(t *testing.T) {
	for _, scale := range []float64{1, 3, 7.7, 21600, 1e6} {
		r := NewRun(opening, scale)
		for _, d := range []time.Duration{0, time.Minute, 29 * time.Hour, 1000*time.Hour + 1} {
			real := r.RealAt(opening.Add(d))
			require.False(t, r.StoryAt(real).Before(opening.Add(d)), "scale %v, %v", scale, d)
			require.InDelta(t, float64(d)/scale, float64(real.Sub(r.began)), 1)
		}
	}
	// To the nanosecond in real time, as meetings may be years ahead.
	r, ahead := NewRun(opening, 1), 50000*time.Hour+1
	require.Equal(t, opening.Add(ahead), r.StoryAt(r.RealAt(opening.Add(ahead))))
}

func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r, began := NewRun(opening, 60), time.Now()
		r.Out = &out
		say := func(text string) func() { return func() { r.Printf("%s", text) } }
		ctx, cancel := context.WithTimeout(t.Context(), 61*time.Second)
		defer cancel()
		err := r.Play(ctx, Scene{time.Minute, say("one\nand more")}, Scene{time.Hour, say("two")},
			Scene{2 * time.Hour, say("three")})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "06:01:00  one\n          and more\n07:00:00  two\n", out.String())
		require.Equal(t, 61*time.Second, time.Since(began))
		broken, began := func() error { return errBroken }, time.Now()
		require.ErrorIs(t, r.Await(t.Context(), time.Second, broken), errBroken)
		require.GreaterOrEqual(t, time.Since(began), time.Second+patience)
		require.ErrorIs(t, r.Await(ctx, time.Hour, broken), context.DeadlineExceeded)
		require.NoError(t, r.Await(ctx, 0, func() error { return nil }))
	})
	err := Together(2, func(i int) error { return fmt.Errorf("error %d", i) })
	require.EqualError(t, err, "error 0\nerror 1")
	require.Equal(t, "p50 2s  p90 2s  p99 2s  max 3s",
		Percentiles([]time.Duration{3 * time.Second, time.Second, 2 * time.Second}))
}

// TestRun runs stories that want "e" once or twice, and not before the opening.
func TestRun(t *testing.T) {
	for want, seen := range map[string][]time.Time{
		"":                               {opening},
		"e: seen 0 times, want 1 to 2":   nil,
		"e: seen 3 times, want 1 to 2":   {opening, opening, opening},
		"e: 2ns early":                   {opening, opening.Add(-2)},
		"other: seen 1 times, want 0 to": {opening, opening},
		"failed":                         {opening},
		"interrupted":                    {opening},
	} {
		var out bytes.Buffer
		r := NewRun(opening, 1)
		r.Out = &out
		err := Program{Passed: "it works", Play: func(_ context.Context, r *Run) error {
			r.Want(5, 5, time.Time{}, "e")
			r.Want(1, 2, opening, "%s", "e")
			for _, at := range seen {
				r.See(at, "%s", "e")
			}
			require.Equal(t, seen, r.Seen("e"))
			if r.Check(want != "failed", "failed"); want == "interrupted" {
				return fmt.Errorf("e: %w", context.Canceled)
			} else if want == "other: seen 1 times, want 0 to" {
				r.See(opening, "other")
			}
			return nil
		}}.run(t.Context(), r)
		if want == "" {
			require.NoError(t, err)
			require.Regexp(t, `^06:..:..  all is well: it works\n$`, out.String())
		} else {
			require.ErrorContains(t, err, want)
			require.Empty(t, out.String())
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		defer close(ended)
		require.ErrorContains(t, Program{Play: func(context.Context, *Run) error {
			for range 10 { // more than earlier tests leave to end meanwhile
				go func() { <-ended }()
			}
			return nil
		}}.run(t.Context(), NewRun(opening, 1)), "goroutines are left")
	})
}
