package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), config{scale: 9000}, &out)
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	for _, line := range []string{
		"ada reads", "digest to ben", "digest to ada", "cleo wants no digest", "40 readers came back",
		"nobody is left in memory", "hands back", "none was lost",
	} {
		require.Contains(t, out.String(), line)
	}
}

func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, run(ctx, config{scale: 600}, io.Discard), context.Canceled)
}

func TestRunCannotListen(t *testing.T) {
	require.Error(t, run(context.Background(), config{scale: 1, addr: "127.0.0.1:nowhere"}, io.Discard))
}

// With -addr the program serves until it is interrupted.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out safeBuffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config{scale: 1, addr: "127.0.0.1:0"}, &out) }()
	var url string
	require.Eventually(t, func() bool {
		url = regexp.MustCompile(`http://[0-9.:]+`).FindString(out.String())
		return url != ""
	}, time.Minute, time.Millisecond)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url + "/news/ada")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	cancel()
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "to come: 1 ada")
}

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type mail struct {
			at     time.Duration
			reader string
			unread []string
		}
		var mails []mail
		start := time.Now()
		n := newNews(timingwheel.New(), quiet, func(reader string, unread []string) {
			mails = append(mails, mail{time.Since(start), reader, unread})
		})
		h := handler(n)
		for _, c := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"GET", "/news/ada", "", 200, `[]`},
			{"POST", "/articles", `{"title": "one"}`, 201, `"one"`},
			{"POST", "/articles", `{}`, 400, ``},
			{"POST", "/articles", `one`, 400, ``},
			{"GET", "/news/ada", "", 200, `["one"]`},
			{"GET", "/news/ada", "", 200, `[]`},
			{"GET", "/news/ben", "", 200, `["one"]`},
			{"GET", "/waiting", "", 200, `2`},
			{"DELETE", "/readers/ben", "", 200, ``},
			{"DELETE", "/readers/ben", "", 200, ``},
			{"GET", "/waiting", "", 200, `1`},
			{"POST", "/articles", `{"title": "two"}`, 201, `"two"`},
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
			require.Equal(t, c.status, w.Code, "%s %s %s", c.method, c.path, c.body)
			require.True(t, json.Valid(w.Body.Bytes()))
			if c.want != "" {
				require.JSONEq(t, c.want, w.Body.String(), "%s %s", c.method, c.path)
			}
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Equal(t, []mail{{quiet, "ada", []string{"two"}}}, mails)
		require.Zero(t, n.digests.tw.Len())
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
		record record
		wrong  string
	}{
		"one read":                   {record{reads: reads(0), digests: at(2)}, ""},
		"pushed on":                  {record{reads: reads(0, 1, 2), digests: at(4)}, ""},
		"came back":                  {record{reads: reads(0, 3), digests: at(2, 5)}, ""},
		"same moment, pushed on":     {record{reads: reads(0, 2), digests: at(4)}, ""},
		"same moment, sent":          {record{reads: reads(0, 2), digests: at(2, 4)}, ""},
		"left":                       {record{reads: reads(0), left: at(1)[0]}, ""},
		"left too late":              {record{reads: reads(0), left: at(2)[0], digests: at(2)}, ""},
		"listed":                     {record{reads: reads(0), listed: 1}, ""},
		"lost":                       {record{reads: reads(0)}, "0 digests"},
		"a nanosecond early":         {record{reads: reads(0), digests: []time.Time{at(2)[0].Add(-1)}}, "1ns early"},
		"not pushed on":              {record{reads: reads(0, 1), digests: at(2)}, "last digest 1h0m0s early"},
		"the later one lost":         {record{reads: reads(0, 3), digests: at(2)}, "last digest 3h0m0s early"},
		"twice":                      {record{reads: reads(0), digests: at(2, 4)}, "2 digests"},
		"while the reader was there": {record{reads: reads(0, 1, 2), digests: at(3, 4)}, "2 digests"},
		"after he had left":          {record{reads: reads(0), left: at(1)[0], digests: at(2)}, "1 digests"},
		"sent and listed":            {record{reads: reads(0), listed: 1, digests: at(2)}, "1 digests"},
		"listed twice":               {record{reads: reads(0), listed: 2}, "listed 2 times"},
		"unasked":                    {record{digests: at(2)}, "never read"},
	} {
		t.Run(name, func(t *testing.T) {
			err := judge(map[string]*record{"ada": &c.record, "ben": {reads: reads(0), digests: at(2)}}, quiet)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want config
	}{
		{nil, config{scale: storyScale}},
		{[]string{"-scale", "100"}, config{scale: 100}},
		{[]string{"-addr", ":80"}, config{scale: 1, addr: ":80"}},
		{[]string{"-addr", ":80", "-scale", "60"}, config{scale: 60, addr: ":80"}},
	} {
		cfg, err := parse(c.args, io.Discard)
		require.NoError(t, err)
		require.Equal(t, c.want, cfg)
	}
	for _, args := range [][]string{{"-scale", "-1"}, {"-scale", "NaN"}, {"-scale", "1e9"}, {"-scale", "fast"}, {"-nonsense"}, {"extra"}} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, "%v", args)
		require.NotContains(t, err.Error(), "\n", "%v", args)
	}
	var help bytes.Buffer
	_, err := parse([]string{"-h"}, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, help.String(), "-addr")
}

// safeBuffer is a bytes.Buffer that is written and read at the same time.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
