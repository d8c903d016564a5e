package story

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var opening = time.Date(2027, time.March, 1, 6, 0, 0, 0, time.UTC)

// TestClock has no time be early, whatever the scale, and none be lost on the way there
// and back.
func TestClock(t *testing.T) {
	for _, scale := range []float64{1, 3, 7.7, 21600, 1e6} {
		c := NewClock(opening, scale)
		for _, d := range []time.Duration{0, time.Minute, 29 * time.Hour, 1000*time.Hour + 1} {
			real := c.RealAt(opening.Add(d))
			require.False(t, c.StoryAt(real).Before(opening.Add(d)), "scale %v, %v", scale, d)
			require.InDelta(t, float64(d)/scale, float64(real.Sub(c.began)), 1)
		}
	}
	// In real time to the nanosecond, as meetings may be years ahead.
	c, ahead := NewClock(opening, 1), 50000*time.Hour+1
	require.Equal(t, opening.Add(ahead), c.StoryAt(c.RealAt(opening.Add(ahead))))
}

// TestPlay plays scenes on the fake clock, one of which fails.
func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out Buffer
		d := NewDiary(&out, NewClock(opening, 60), time.TimeOnly)
		broken := errors.New("broken")
		say := func(text string, err error) func(context.Context) error {
			return func(context.Context) error { d.Printf("%s", text); return err }
		}
		began := time.Now()
		require.ErrorIs(t, d.Play(t.Context(), At(time.Minute, say("one\nand more", nil)), At(time.Hour, say("two", broken)), At(2*time.Hour, say("three", nil))), broken)
		require.Equal(t, "06:01:00  one\n          and more\n07:00:00  two\n", out.String())
		require.Equal(t, time.Minute, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, d.Until(ctx, 3*time.Hour), context.DeadlineExceeded)
		began = time.Now()
		require.ErrorIs(t, Await(t.Context(), time.Second, func() error { return broken }), broken)
		require.GreaterOrEqual(t, time.Since(began), time.Second+patience)
		require.ErrorIs(t, Await(ctx, time.Hour, func() error { return broken }), context.DeadlineExceeded)
		require.NoError(t, Await(ctx, 0, func() error { return nil }))
	})
}

func TestJudge(t *testing.T) {
	var j Judge
	j.Check(true, "right")
	require.NoError(t, j.Err())
	j.Check(false, "%d wrong", 1)
	j.Check(false, "another")
	require.EqualError(t, j.Err(), "1 wrong\nanother")
	require.EqualError(t, Together(3, func(i int) error { return fmt.Errorf("error %d", i) }), "error 0\nerror 1\nerror 2")
}

func TestProgram(t *testing.T) {
	var n int
	failed := errors.New("failed\ntwice")
	p := Program{
		Name: "test", About: "A test.", Scale: 600, MaxScale: 1000, Serves: true,
		Flags: func(f *flag.FlagSet) { f.IntVar(&n, "n", 3, "a number") },
		Play: func(ctx context.Context, d *Diary, addr string) error {
			if n == 0 {
				return Misuse("-n must not be 0")
			}
			if n == 1 {
				return failed
			}
			d.Printf("%v %v %q", n, d.Scale, addr)
			return ctx.Err()
		},
	}
	for _, c := range []struct {
		args    []string
		out     string // a pattern
		status  int
		message string
	}{
		{nil, `^00:..:..  3 600 ""\n$`, 0, ""},
		{[]string{"-scale", "2", "-n", "4"}, `00:..:..  4 2 ""`, 0, ""},
		{[]string{"-addr", ":80"}, `^20..-..-.. ..:..:..  3 1 ":80"`, 0, ""},
		{[]string{"-addr", ":80", "-scale", "60"}, `3 60 ":80"`, 0, ""},
		{[]string{"-h"}, `^A test\.\n\nusage: go run ./examples/test \[flags\]\n\n  -addr address\n(.|\n)*default 600, with -addr 1`, 0, ""},
		{[]string{"-n", "0"}, `^$`, 2, "test: -n must not be 0 (-h lists the flags)"},
		{[]string{"-n", "1"}, `^$`, 1, "test: failed; twice"},
		{[]string{"-scale", "0"}, `^$`, 2, "test: -scale 0: must be at least 0.1 and at most 1000 (-h lists the flags)"},
		{[]string{"-scale", "NaN"}, `^$`, 2, "test: -scale NaN: must be at least 0.1 and at most 1000 (-h lists the flags)"},
		{[]string{"-scale", "fast"}, `^$`, 2, `test: invalid value "fast" for flag -scale: parse error (-h lists the flags)`},
		{[]string{"-nonsense"}, `^$`, 2, "test: flag provided but not defined: -nonsense (-h lists the flags)"},
		{[]string{"extra"}, `^$`, 2, `test: unexpected argument "extra" (-h lists the flags)`},
	} {
		var out Buffer
		status, message := p.exit(p.Run(t.Context(), &out, c.args...))
		require.Regexp(t, c.out, out.String(), "%q", c.args)
		require.Equal(t, c.status, status, "%q", c.args)
		require.Equal(t, c.message, message)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	status, message := p.exit(p.Run(ctx, new(Buffer)))
	require.Equal(t, 1, status)
	require.Equal(t, "test: interrupted", message)
}

// TestServe talks to a server, and leaves a stream open when the story ends.
func TestServe(t *testing.T) {
	known := errors.New("known")
	mux := http.NewServeMux()
	mux.Handle("POST /double/{id}", Handle(Codes{known: http.StatusGone}, func(r *http.Request, in int) (int, error) {
		switch ID(r) {
		case 0:
			return 0, fmt.Errorf("wrapped: %w", known)
		case 1:
			return 0, errors.New("unknown")
		}
		return 2 * in, nil
	}))
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	var out Buffer
	d := NewDiary(&out, NewClock(opening, 1), time.TimeOnly)
	broken := errors.New("broken")
	require.ErrorIs(t, d.Serve(t.Context(), "", mux, func(ctx context.Context, c *Client) error {
		got := 0
		require.NoError(t, c.Call(ctx, "POST", "/double/2", 21, &got))
		require.Equal(t, 42, got)
		require.NoError(t, c.Call(ctx, "POST", "/double/2", nil, &got))
		require.Zero(t, got)
		require.True(t, Refused(c.Call(ctx, "POST", "/double/x", 1, nil), 404, 410))
		require.EqualError(t, c.Call(ctx, "POST", "/double/1", 1, nil), `400 {"error":"unknown"}`)
		require.True(t, Refused(c.Call(ctx, "POST", "/double/2", "x", nil), 400))
		require.False(t, Refused(c.Call(ctx, "POST", "/double/2", 1, nil), 200))
		_, err := c.Stream(ctx, "/stream")
		require.NoError(t, err)
		return broken
	}), broken)
	require.Contains(t, out.Await(t, "http.*"), "a second here is 1 seconds there")
	require.Error(t, d.Serve(t.Context(), "127.0.0.1:-1", mux, nil))
}
