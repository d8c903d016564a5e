package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An answer is what a receiver does after a while.
type answer struct {
	after time.Duration
	code  int // 0 for an error
}

// A receiver is the transport of a notifier. It gives answers in turn, and then takes everything.
// It notes when attempts begin, on the fake clock.
type receiver struct {
	t       *testing.T
	answers []answer
	start   time.Time

	mu    sync.Mutex
	began []float64 // minutes after start
	busy  bool
}

func (f *receiver) setBusy(busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.NotEqual(f.t, busy, f.busy, "attempts overlap")
	if f.busy = busy; busy {
		f.began = append(f.began, time.Since(f.start).Minutes())
	}
}

func (f *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	f.setBusy(true)
	defer f.setBusy(false)
	body, err := io.ReadAll(req.Body)
	assert.NoError(f.t, err)
	assert.Equal(f.t, "hello", string(body))
	assert.Equal(f.t, fmt.Sprint(len(f.began)), req.Header.Get("Notification-Attempt"))
	a := answer{0, http.StatusOK}
	if n := len(f.began); n <= len(f.answers) {
		a = f.answers[n-1]
	}
	select {
	case <-time.After(a.after):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if a.code == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: a.code, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// TestAttempts posts one notification on the fake clock, in real durations.
func TestAttempts(t *testing.T) {
	no, hangs := answer{0, 503}, answer{time.Hour, 200}
	for name, tc := range map[string]struct {
		policy  policy
		answers []answer
		want    string // minutes at which attempts begin
		dead    string // the last error, if it is given up
	}{
		"every, three refusals":   {every, []answer{no, no, no}, "[0 5 10 15]", ""},
		"every, hangs":            {every, []answer{hangs, hangs}, "[0 6 12]", ""},
		"every, slow success":     {every, []answer{{59 * time.Second, 204}}, "[0]", ""},
		"every, not there, moved": {every, []answer{{}, {0, 300}}, "[0 5 10]", ""},
		"every, gone":             {every, []answer{no, {0, 410}}, "[0 5]", gone},
		"steps, at the last":      {steps, []answer{no, no, no}, "[0 2 12 72]", ""},
		"steps, no success":       {steps, []answer{no, no, no, no}, "[0 2 12 72]", "answered 503"},
		"steps, hangs":            {steps, []answer{hangs, hangs, no}, "[0 3 14 74]", ""},
		"steps, hangs for ever": {steps, []answer{hangs, hangs, hangs, hangs}, "[0 3 14 75]",
			"no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &receiver{t: t, answers: tc.answers, start: time.Now()}
				q := jobqueue.NewMemory()
				n := newNotifier(q, time.Minute, every, steps)
				n.client.Transport = f
				id, err := n.send(t.Context(), tc.policy, "http://receiver/", "hello")
				require.NoError(t, err)
				end := story.Background(q.Run)
				time.Sleep(240 * time.Hour)
				require.NoError(t, end())
				require.Equal(t, tc.want, fmt.Sprint(f.began))
				job, err := q.Get(t.Context(), tc.policy.queue, jobqueue.ByID(id))
				if tc.dead == "" {
					require.ErrorIs(t, err, jobqueue.ErrNotFound, "it is forgotten")
				} else {
					require.NoError(t, err)
					require.Equal(t, jobqueue.Dead, job.State)
					require.Equal(t, tc.dead, job.LastError)
				}
				require.NoError(t, q.Close())
			})
		})
	}
}

// TestRestart ends the service between two attempts, and another one goes on.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &receiver{t: t, answers: []answer{{0, 503}, {0, 503}}, start: time.Now()}
		q := jobqueue.NewMemory()
		n := newNotifier(q, time.Minute, every)
		n.client.Transport = f
		_, err := n.send(t.Context(), every, "http://receiver/", "hello")
		require.NoError(t, err)
		for _, d := range []time.Duration{2 * time.Minute, 7 * time.Minute, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			require.NoError(t, q.Run(ctx))
			cancel()
			time.Sleep(4 * time.Minute)
		}
		require.Equal(t, "[0 6 11]", fmt.Sprint(f.began), "it was not running at 5")
		require.NoError(t, q.Close())
	})
}
