package main

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStory plays the whole story over real sockets. With the timeout of a third of a
// second a receiver can hardly be too slow by mistake.
func TestStory(t *testing.T) {
	var out story.Buffer
	err := program().Run(t.Context(), &out, "-scale", "1800", "-timeout", "10m")
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	for _, line := range []string{
		`#1 to /fails/3 \(every\), attempt \d+: delivered`,
		`#2 to /hangs/2 \(every\), attempt 1: no answer in time`,
		`#3 to /fails/2 \(steps\), attempt \d: delivered`,
		`#4 to /fails/99 \(steps\), attempt 4: .*, which was the last`,
		`#5 to /fails/99 \(every\) was not delivered`,
		`nothing was forgotten`,
	} {
		require.Regexp(t, line, out.String())
	}
	require.ErrorContains(t, program().Run(t.Context(), &out, "-timeout", "0"), "positive")
}

// TestServe uses the program as one does by hand.
func TestServe(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out story.Buffer
	ended := make(chan error, 1)
	go func() { ended <- program().Run(ctx, &out, "-addr", "127.0.0.1:0") }()
	service := story.NewClient(out.Await(t, "http://[0-9.:]+"))
	defer service.Close()
	fails := service.URL + "/fails/"
	send := func(policy string) (got status, err error) {
		err = service.Call(ctx, "POST", "/notifications", order{fails + "1", policy, json.RawMessage("1")}, &got)
		return got, err
	}
	got, err := send("steps")
	require.NoError(t, err)
	require.Equal(t, status{ID: 1, URL: fails + "1", Policy: "steps"}, got)
	_, err = send("never")
	require.True(t, story.Refused(err, 400), "%v", err)
	out.Await(t, "#1 to /fails/1 .*503")
	var open []status
	require.NoError(t, service.Call(ctx, "GET", "/notifications", nil, &open))
	require.Len(t, open, 1)
	require.Equal(t, 1, open[0].Attempts)
	interrupt()
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "#1 to /fails/1 (steps) was not delivered (attempts: 1)")
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
		"delivered later": {record{want: delivered, results: []result{try(1, 0, refused), try(2, 6, nil)}}, ""},
		"given up":        {record{want: givenUp, status: status{Policy: "steps"}, results: steps}, ""},
		"listed":          {record{want: undelivered, results: []result{try(1, 0, refused)}, status: status{ID: 2}}, ""},
		"early":           {record{want: delivered, results: []result{try(1, 0, refused), early}}, "tried 1ns early"},
		"overlapping":     {record{want: delivered, results: []result{overlapping, try(2, 5, nil)}}, "twice at once"},
		"after success":   {record{want: delivered, results: []result{try(1, 0, nil), try(2, 5, nil)}}, `was ["delivered" "delivered"] instead of`},
		"forgotten":       {record{want: undelivered, results: []result{try(1, 0, refused)}}, `was [] instead of "listed`},
		"never tried":     {record{want: delivered}, "never tried"},
		"another end":     {record{want: undelivered, results: []result{try(1, 0, nil)}}, `was ["delivered"] instead of`},
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
			err := judge(map[int]*record{r.ID: &r}, []status{{ID: 2}}, realPolicies())
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
}
