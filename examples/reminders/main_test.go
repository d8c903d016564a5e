package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStory plays the whole story over real sockets.
func TestStory(t *testing.T) {
	var out story.Buffer
	err := program().Run(t.Context(), &out, "-scale", "70000", "-subscribers", "40")
	t.Logf("\n%s", &out)
	require.NoError(t, err)
	require.Contains(t, out.String(), "all is well")
	require.ErrorContains(t, program().Run(t.Context(), &out, "-subscribers", "3"), "between")
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
	future, past := time.Date(2099, 1, 1, 10, 0, 0, 0, time.UTC), time.Date(1999, 1, 1, 10, 0, 0, 0, time.UTC)
	anna := []string{"anna"}
	for _, tc := range []struct {
		name, method, path string
		in                 body
		code               int
		want               answer
	}{
		{"a meeting", "POST", "/meetings", body{Title: "a", With: anna, Start: past.AddDate(99, 0, 0)}, 200, answer{ID: 1, Start: past.AddDate(99, 0, 0)}},
		{"moved", "POST", "/meetings/1/move", body{Start: future}, 200, answer{ID: 1, Start: future}},
		{"moved into the past", "POST", "/meetings/1/move", body{Start: past}, 409, answer{}},
		{"without a title", "POST", "/meetings", body{With: anna, Start: future}, 400, answer{}},
		{"cancelled", "DELETE", "/meetings/1", body{}, 200, answer{ID: 1, Start: future}},
		{"cancelled again", "DELETE", "/meetings/1", body{}, 404, answer{}},
		{"a ticket", "POST", "/tickets", body{Subject: "a"}, 200, answer{ID: 1}},
		{"answered", "POST", "/tickets/1/answer", body{}, 200, answer{ID: 1}},
		{"answered again", "POST", "/tickets/1/answer", body{}, 404, answer{}},
		{"a push", "POST", "/pushes", body{Text: "a", At: future}, 200, answer{}},
		{"a push too late", "POST", "/pushes", body{Text: "a", At: past}, 409, answer{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got answer
			err := service.Call(ctx, tc.method, tc.path, tc.in, &got)
			require.Equal(t, tc.code != 200, story.Refused(err, tc.code), "%v", err)
			require.True(t, tc.want.Start.Equal(got.Start), "%v", got.Start)
			got.Start, got.Opened = tc.want.Start, time.Time{}
			require.Equal(t, tc.want, got)
		})
	}
	interrupt()
	require.NoError(t, <-ended)
}

// The judgement must not only pass what is right.
func TestJudge(t *testing.T) {
	d := story.NewDiary(new(story.Buffer), story.NewClock(opening, 1), time.TimeOnly)
	for name, c := range map[string]struct {
		got   []time.Duration // after the opening
		to    string
		wrong string
	}{
		"right": {[]time.Duration{time.Hour}, "anna", ""},
		"lost":  {nil, "anna", "0 times and not 1 times"},
		"twice": {[]time.Duration{time.Hour, time.Hour}, "anna", "2 times and not 1 times"},
		"early": {[]time.Duration{time.Hour - 1}, "anna", "1ns early"},
		"other": {[]time.Duration{time.Hour}, "ben", "ben got the reminder \"review\" unasked"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &days{Diary: d, demands: map[delivery]demand{}, got: map[delivery][]time.Time{}}
			s.demand("reminder", "review", 1, opening.Add(time.Hour), "anna")
			for _, after := range c.got {
				to := delivery{c.to, event{"reminder", "review"}}
				s.got[to] = append(s.got[to], d.RealAt(opening.Add(after)))
			}
			if err := s.judge(); c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
}
