package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// With the timeout of a third of a second a receiver can hardly be too slow by mistake.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), config{scale: 1800, timeout: 10 * time.Minute}, &out)
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	for _, line := range []string{
		`#1 to /fails/3 \(every\), attempt \d+: delivered`,
		`#2 to /hangs/2 \(every\), attempt 1: no answer in time`,
		`#2 to /hangs/2 \(every\), attempt \d+: delivered`,
		`#3 to /fails/2 \(steps\), attempt \d: delivered`,
		`#4 to /fails/99 \(steps\), attempt 4: .*, which was the last`,
		`#5 to /fails/99 \(every\) was not delivered`,
		`nothing was forgotten`,
	} {
		require.Regexp(t, line, out.String())
	}
}

func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, run(ctx, config{scale: 600, timeout: time.Minute}, io.Discard), context.Canceled)
}

func TestRunCannotListen(t *testing.T) {
	require.Error(t, run(context.Background(), config{scale: 1, timeout: time.Minute, addr: "127.0.0.1:nowhere"}, io.Discard))
}

// With -addr the program serves until it is interrupted, and lists what is left.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out safeBuffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config{scale: 1, timeout: time.Minute, addr: "127.0.0.1:0"}, &out) }()
	find := func(pattern string) (found string) {
		require.Eventually(t, func() bool {
			found = regexp.MustCompile(pattern).FindString(out.String())
			return found != ""
		}, time.Minute, time.Millisecond)
		return found
	}
	here := find(`http://[0-9.:]+/notifications`)
	there := strings.TrimSuffix(find(`http://[0-9.:]+/fails/N`), "N")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(here, "application/json", strings.NewReader(`{"url": "`+there+`1", "policy": "steps", "body": 1}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	find("#1 to /fails/1 .*503")
	cancel()
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "#1 to /fails/1 (steps) was not delivered (attempts: 1)")
}

func TestHandler(t *testing.T) {
	nt, _, _ := newTestNotifier(time.Minute, nil)
	held := policies()["every"]
	held.gaps[0] = time.Hour
	h := handler(nt, map[string]policy{"every": held})
	for _, c := range []struct {
		method, body string
		code         int
		want         string
	}{
		{"GET", "", 200, `[]`},
		{"POST", `{"url": "http://receiver/", "policy": "every", "body": {"a": 1}}`, 202, `{"id":1,"url":"http://receiver/","policy":"every","attempts":0}`},
		{"POST", `{"url": "http://receiver/", "policy": "never"}`, 400, ``},
		{"POST", `hello`, 400, ``},
		{"GET", "", 200, `[{"id":1,"url":"http://receiver/","policy":"every","attempts":0}]`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, "/notifications", strings.NewReader(c.body)))
		require.Equal(t, c.code, w.Code, "%s %s", c.method, c.body)
		require.True(t, json.Valid(w.Body.Bytes()))
		if c.want != "" {
			require.JSONEq(t, c.want, w.Body.String())
		}
	}
	require.Len(t, nt.stop(context.Background()), 1)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/notifications", strings.NewReader(`{"policy": "every"}`)))
	require.Equal(t, 503, w.Code)
}

// The judgement must not only pass what is right.
func TestJudge(t *testing.T) {
	start := time.Now()
	refused := errors.New("refused")
	try := func(n, minute int, err error) result {
		began := start.Add(time.Duration(minute) * time.Minute)
		return result{status: status{Attempts: n}, began: began, ended: began.Add(time.Minute), err: err}
	}
	early := try(2, 5, nil)
	early.began = early.began.Add(-1)
	overlapping := try(1, 0, refused)
	overlapping.ended = start.Add(6 * time.Minute)
	steps := []result{try(1, 0, refused), try(2, 2, refused), try(3, 12, refused), try(4, 72, refused)}
	for name, c := range map[string]struct {
		record record
		wrong  string
	}{
		"delivered at once":     {record{want: delivered, results: []result{try(1, 0, nil)}}, ""},
		"delivered later":       {record{want: delivered, results: []result{try(1, 0, refused), try(2, 6, nil)}}, ""},
		"given up":              {record{want: givenUp, status: status{Policy: "steps"}, results: steps}, ""},
		"listed":                {record{want: listed, results: []result{try(1, 0, refused)}, listed: 1}, ""},
		"early":                 {record{want: delivered, results: []result{try(1, 0, refused), early}}, "tried 1ns early"},
		"overlapping":           {record{want: delivered, results: []result{overlapping, try(2, 5, nil)}}, "twice at once"},
		"after success":         {record{want: delivered, results: []result{try(1, 0, nil), try(2, 5, nil)}}, "ended 2 times"},
		"too often":             {record{want: givenUp, status: status{Policy: "steps"}, results: append(steps[:4:4], try(5, 200, refused))}, "too often"},
		"given up early":        {record{want: givenUp, status: status{Policy: "steps"}, results: steps[:3]}, "ended 0 times"},
		"forgotten":             {record{want: listed, results: []result{try(1, 0, refused)}}, "ended 0 times"},
		"delivered and listed":  {record{want: delivered, results: []result{try(1, 0, nil)}, listed: 1}, "ended 2 times"},
		"never tried":           {record{want: delivered}, "never tried"},
		"another end":           {record{want: listed, results: []result{try(1, 0, nil)}}, "was delivered instead of listed"},
		"delivered to nobody":   {record{want: delivered, status: status{ID: 2}, results: []result{try(1, 0, nil)}}, "nobody has taken it"},
		"an attempt is missing": {record{want: delivered, results: []result{try(1, 0, refused), try(3, 10, nil)}}, "attempt 3"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.record
			r.sending = start
			if r.Policy == "" {
				r.Policy = "every"
			}
			if r.ID == 0 {
				r.ID = 1
			}
			err := judge(map[int]*record{r.ID: &r}, map[string]int{"1": 1}, policies())
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
		{nil, config{scale: storyScale, timeout: requestTimeout}},
		{[]string{"-scale", "100", "-timeout", "30s"}, config{scale: 100, timeout: 30 * time.Second}},
		{[]string{"-addr", ":80"}, config{scale: 1, timeout: requestTimeout, addr: ":80"}},
		{[]string{"-addr", ":80", "-scale", "60"}, config{scale: 60, timeout: requestTimeout, addr: ":80"}},
	} {
		cfg, err := parse(c.args, io.Discard)
		require.NoError(t, err)
		require.Equal(t, c.want, cfg)
	}
	for _, args := range [][]string{{"-scale", "-1"}, {"-scale", "NaN"}, {"-scale", "1e9"}, {"-timeout", "0"}, {"-timeout", "-1s"}, {"-nonsense"}, {"extra"}} {
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
