package story

import (
	"bytes"
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

	"github.com/go-timingwheel/timingwheel"
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
	// In real time to the nanosecond, as meetings may be years ahead.
	r, ahead := NewRun(opening, 1), 50000*time.Hour+1
	require.Equal(t, opening.Add(ahead), r.StoryAt(r.RealAt(opening.Add(ahead))))
}

func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r, began := NewRun(opening, 60), time.Now()
		r.Out = &out
		say := func(text string, err error) func(context.Context) error {
			return func(context.Context) error { r.Printf("%s", text); return err }
		}
		require.ErrorIs(t, r.Play(t.Context(), At(time.Minute, say("one\nand more", nil)), At(time.Hour, say("two", errBroken)), At(2*time.Hour, say("three", nil))), errBroken)
		require.Equal(t, "06:01:00  one\n          and more\n07:00:00  two\n", out.String())
		require.Equal(t, time.Minute, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Until(ctx, 3*time.Hour), context.DeadlineExceeded)
		began = time.Now()
		require.ErrorIs(t, r.Await(t.Context(), time.Second, func() error { return errBroken }), errBroken)
		require.GreaterOrEqual(t, time.Since(began), time.Second+patience)
		require.ErrorIs(t, r.Await(ctx, time.Hour, func() error { return errBroken }), context.DeadlineExceeded)
		require.NoError(t, r.Await(ctx, 0, func() error { return nil }))
	})
	require.EqualError(t, Together(2, func(i int) error { return fmt.Errorf("error %d", i) }), "error 0\nerror 1")
}

func TestVerdict(t *testing.T) {
	for want, seen := range map[string][]time.Time{
		"":                                     {opening},
		"e: seen 0 times, wanted 1 to 2 times": nil,
		"e: seen 3 times, wanted 1 to 2 times": {opening, opening, opening},
		"e: 1ns early":                         {opening.Add(-1)},
		"e: 2ns early":                         {opening, opening.Add(-2)},
		"other: seen 1 times, wanted 0 to 0 times": {opening, opening},
	} {
		r := NewRun(opening, 1)
		r.Want(5, 5, time.Time{}, "e")
		r.Want(1, 2, opening, "%s", "e")
		for _, at := range seen {
			r.See(at, "%s", "e")
		}
		require.Equal(t, seen, r.Seen("e"))
		r.Check(true, "right")
		if len(want) > 5 && want[:5] == "other" {
			r.See(opening, "other")
		}
		if want == "" {
			require.NoError(t, r.Verdict())
			r.Check(false, "%d wrong", 1)
			want = "1 wrong"
		}
		require.EqualError(t, r.Verdict(), want)
	}
}

func TestProgram(t *testing.T) {
	var n int
	p := Program{
		Name: "test", About: "A test.", Passed: "it works", Scale: 600, MaxScale: 1000, Serves: true,
		Flags: func(f *flag.FlagSet) { f.IntVar(&n, "n", 3, "a number") },
		Play: func(ctx context.Context, r *Run) error {
			switch n {
			case 0:
				return Misuse("-n must not be 0")
			case 1:
				return errors.New("failed\ntwice")
			case 2:
				r.Want(1, 1, time.Time{}, "e")
			}
			r.Printf("%v %v %q", n, r.scale, r.Addr)
			return ctx.Err()
		},
	}
	for _, c := range []struct {
		args    []string
		out     string // a pattern
		status  int
		message string
	}{
		{nil, `^00:..:..  3 600 ""\n00:..:..  all is well: it works\n$`, 0, ""},
		{[]string{"-scale", "2", "-n", "4"}, `00:..:..  4 2 ""`, 0, ""},
		{[]string{"-addr", ":80"}, `^20..-..-.. ..:..:..  3 1 ":80"\n$`, 0, ""},
		{[]string{"-addr", ":80", "-scale", "60"}, `3 60 ":80"`, 0, ""},
		{[]string{"-h"}, `^A test\.\n\nusage: go run ./examples/test \[flags\]\n\n  -addr address\n(.|\n)*default is 1\) \(default 600\)`, 0, ""},
		{[]string{"-n", "0"}, `^$`, 2, "test: -n must not be 0 (-h lists the flags)"},
		{[]string{"-n", "1"}, `^$`, 1, "test: failed; twice"},
		{[]string{"-n", "2"}, `2 600 ""\n$`, 1, "test: e: seen 0 times, wanted 1 to 1 times"},
		{[]string{"-scale", "0"}, `^$`, 2, "test: -scale 0: must be between 0.1 and 1000 (-h lists the flags)"},
		{[]string{"-scale", "NaN"}, `^$`, 2, "test: -scale NaN: must be between 0.1 and 1000 (-h lists the flags)"},
		{[]string{"-scale", "fast"}, `^$`, 2, `test: invalid value "fast" for flag -scale: parse error (-h lists the flags)`},
		{[]string{"-nonsense"}, `^$`, 2, "test: flag provided but not defined: -nonsense (-h lists the flags)"},
		{[]string{"extra"}, `^$`, 2, `test: unexpected argument "extra" (-h lists the flags)`},
	} {
		var out bytes.Buffer
		status, message := p.exit(p.run(t.Context(), &out, c.args...))
		require.Regexp(t, c.out, out.String(), "%q", c.args)
		require.Equal(t, c.status, status, "%q", c.args)
		require.Equal(t, c.message, message)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	status, message := p.exit(p.run(ctx, new(bytes.Buffer)))
	require.Equal(t, 1, status)
	require.Equal(t, "test: interrupted", message)

	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		defer close(ended)
		p.Play = func(context.Context, *Run) error {
			for range 10 { // as many as no test before leaves to end meanwhile
				go func() { <-ended }()
			}
			return nil
		}
		require.ErrorContains(t, p.run(t.Context(), new(bytes.Buffer), "-n", "3"), "goroutines are left")
	})
}

// TestServe calls a server, and leaves a stream open when the story ends.
func TestServe(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /double/{id}", Handle(func(r *http.Request, in int) (int, error) {
		if ID(r) == 0 {
			return 0, errBroken
		}
		return 2 * in, nil
	}))
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	r := NewRun(opening, 1)
	require.ErrorIs(t, r.Serve(t.Context(), timingwheel.New(), mux, func(ctx context.Context, c *Client) error {
		got := 0
		require.NoError(t, c.Call(ctx, "POST", "/double/2", 21, &got))
		require.Equal(t, 42, got)
		require.NoError(t, c.Call(ctx, "POST", "/double/2", nil, &got))
		require.Zero(t, got)
		err := c.Call(ctx, "POST", "/double/x", 1, nil)
		require.EqualError(t, err, `refused: 409 Conflict: {"error":"broken"}`)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, c.Call(ctx, "POST", "/double/2", "x", nil), "400 Bad Request")
		_, err = c.Stream(ctx, "GET", "/stream", nil)
		require.NoError(t, err)
		return errBroken
	}), errBroken)
	r.Addr = "127.0.0.1:-1"
	require.Error(t, r.Serve(t.Context(), timingwheel.New(), http.NewServeMux(), nil))
}
