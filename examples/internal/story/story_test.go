package story

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
}

func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r, began := NewRun(opening, 60), time.Now()
		r.Out = &out
		r.Until(time.Minute)
		r.Printf("one\nand more")
		r.Until(time.Hour)
		r.Printf("two")
		require.Equal(t, "06:01:00  one\n          and more\n07:00:00  two\n", out.String())
		require.Equal(t, time.Minute, time.Since(began))
		require.ErrorIs(t, r.Await(time.Second, func() error { return errBroken }), errBroken)
		require.GreaterOrEqual(t, time.Since(began), time.Minute+time.Second+patience)
	})
	require.Equal(t, "p50 2s  p90 2s  p99 2s  max 3s",
		Percentiles([]time.Duration{3 * time.Second, time.Second, 2 * time.Second}))
}

// TestVerdict plays stories that want "e" once or twice, and not before the opening.
func TestVerdict(t *testing.T) {
	for want, seen := range map[string][]time.Time{
		"":                               {opening},
		"e: seen 0 times, want 1 to 2":   nil,
		"e: seen 3 times, want 1 to 2":   {opening, opening, opening},
		"e: 2ns early":                   {opening, opening.Add(-2)},
		"other: seen 1 times, want 0 to": {opening, opening},
		"failed":                         {opening},
	} {
		var out bytes.Buffer
		r := NewRun(opening, 1)
		r.Out = &out
		err := r.play(Program{Passed: "it works", Play: func(r *Run) {
			r.Want(5, 5, time.Time{}, "e")
			r.Want(1, 2, opening, "%s", "e")
			for _, at := range seen {
				r.See(at, "%s", "e")
			}
			require.Equal(t, seen, r.Seen("e"))
			if r.Check(want != "failed", "failed"); strings.HasPrefix(want, "other") {
				r.See(opening, "other")
			}
		}})
		if want == "" {
			require.NoError(t, err)
			require.Regexp(t, `^06:..:..  all is well: it works\n$`, out.String())
		} else {
			require.ErrorContains(t, err, want)
			require.Empty(t, out.String())
		}
	}
}

func TestGoroutinesAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		defer close(ended)
		require.ErrorContains(t, NewRun(opening, 1).play(Program{Play: func(*Run) {
			for range 10 { // more than earlier tests leave to end meanwhile
				go func() { <-ended }()
			}
		}}), "goroutines are left")
	})
}
