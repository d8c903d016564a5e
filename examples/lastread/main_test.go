package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStory plays the whole story over real sockets.
func TestStory(t *testing.T) {
	var out story.Buffer
	err := program.Run(t.Context(), &out, "-scale", "9000")
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	require.Contains(t, out.String(), "none was lost")
}

// TestServe uses the program as one does by hand.
func TestServe(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out story.Buffer
	ended := make(chan error, 1)
	go func() { ended <- program.Run(ctx, &out, "-addr", "127.0.0.1:0") }()
	server := story.NewClient(out.Await(t, "http://[0-9.:]+"))
	defer server.Close()
	for _, c := range []struct {
		method, path string
		want         any
	}{
		{"GET", "/news/ada", []any{}},
		{"GET", "/news/ben", []any{}},
		{"GET", "/waiting", 2.0},
		{"DELETE", "/readers/ben", true},
		{"DELETE", "/readers/ben", false},
		{"GET", "/waiting", 1.0},
	} {
		var got any
		require.NoError(t, server.Call(ctx, c.method, c.path, nil, &got))
		require.Equal(t, c.want, got, "%s %s", c.method, c.path)
	}
	interrupt()
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), `to come: ["ada"]`)
}

// TestDigest has what a reader missed, and no more, in his digest.
func TestDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mails [][]string
		n := newNews(timingwheel.New(), quiet, func(reader string, unread []string) {
			mails = append(mails, append([]string{reader}, unread...))
		})
		n.publish()
		n.read("ada")
		n.publish()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Equal(t, [][]string{{"ada", "article 2"}}, mails)
		require.Zero(t, n.digests.Len())
	})
}

// The judgement must not only pass what is right.
func TestJudge(t *testing.T) {
	start := time.Now()
	at := func(hours ...float64) (instants []time.Time) {
		for _, h := range hours {
			instants = append(instants, start.Add(time.Duration(h*float64(time.Hour))))
		}
		return instants
	}
	reads := func(hours ...float64) (spans []span) {
		for _, before := range at(hours...) {
			spans = append(spans, span{before, before.Add(time.Minute)})
		}
		return spans
	}
	for name, c := range map[string]struct {
		reader     reader
		handedBack []string
		wrong      string
	}{
		"pushed on":                  {reader{reads: reads(0, 1, 2), digests: at(4)}, nil, ""},
		"came back":                  {reader{reads: reads(0, 3), digests: at(2, 5)}, nil, ""},
		"same moment, sent":          {reader{reads: reads(0, 2), digests: at(2, 4)}, nil, ""},
		"left":                       {reader{reads: reads(0), left: at(1)[0]}, nil, ""},
		"handed back":                {reader{reads: reads(0)}, []string{"ada"}, ""},
		"lost":                       {reader{reads: reads(0)}, nil, "0 digests"},
		"a nanosecond early":         {reader{reads: reads(0), digests: []time.Time{at(2)[0].Add(-1)}}, nil, "1ns early"},
		"not pushed on":              {reader{reads: reads(0, 1), digests: at(2)}, nil, "last digest 1h0m0s early"},
		"twice":                      {reader{reads: reads(0), digests: at(2, 4)}, nil, "2 digests"},
		"while the reader was there": {reader{reads: reads(0, 1, 2), digests: at(3, 4)}, nil, "2 digests"},
		"sent and handed back":       {reader{reads: reads(0), digests: at(2)}, []string{"ada"}, "1 digests"},
	} {
		t.Run(name, func(t *testing.T) {
			err := judge(map[string]*reader{"ada": &c.reader, "ben": {reads: reads(0), digests: at(2)}}, c.handedBack, quiet)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
}
