package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errNo = errors.New("no")

// An answer is what post returns after a while.
type answer struct {
	after time.Duration
	err   error
}

const never = time.Duration(1 << 62)

// A receiver notes when attempts begin, on the fake clock, and fails the test if they overlap.
type receiver struct {
	t      *testing.T
	answer func(attempt int) answer

	mu    sync.Mutex
	start time.Time
	began []float64    // minutes after start
	busy  map[int]bool // by notification
}

// newReceiver gives these answers in turn, and then takes everything at once.
func newReceiver(t *testing.T, answers ...answer) *receiver {
	answers = append(answers, answer{})
	return &receiver{t: t, start: time.Now(), busy: make(map[int]bool), answer: func(i int) answer {
		return answers[min(i, len(answers))-1]
	}}
}

func (f *receiver) setBusy(id int, busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.NotEqual(f.t, busy, f.busy[id], "attempts overlap")
	if f.busy[id] = busy; busy {
		f.began = append(f.began, time.Since(f.start).Minutes())
	}
}

func (f *receiver) post(ctx context.Context, s status, _ []byte) error {
	f.setBusy(s.ID, true)
	defer f.setBusy(s.ID, false)
	a := f.answer(s.Attempts)
	select {
	case <-time.After(a.after):
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestAttempts posts one notification on the fake clock, in real durations.
func TestAttempts(t *testing.T) {
	no, hangs := answer{0, errNo}, answer{20 * time.Minute, errNo}
	for name, tc := range map[string]struct {
		policy  policy
		answers []answer
		want    string // minutes at which attempts begin
		ok      bool
	}{
		"every, three refusals":        {every, []answer{no, no, no}, "[0 5 10 15]", true},
		"every, longer than the gap":   {every, []answer{hangs, hangs}, "[0 20 40]", true},
		"every, slow success":          {every, []answer{{hangs.after, nil}}, "[0]", true},
		"steps, success at the last":   {steps, []answer{no, no, no}, "[0 2 12 72]", true},
		"steps, no success":            {steps, []answer{no, no, no, no}, "[0 2 12 72]", false},
		"steps, longer than some gaps": {steps, []answer{hangs, hangs, no}, "[0 20 40 100]", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, told, attempts := newReceiver(t, tc.answers...), 0, len(strings.Fields(tc.want))
				tell := func(s status, _ time.Time, err error, last bool) {
					told++
					require.Equal(t, told, s.Attempts)
					require.Equal(t, told == attempts, last)
					require.Equal(t, last && tc.ok, err == nil)
				}
				nt := newNotifier(timingwheel.New(), f.post, tell)
				s, err := nt.send("http://receiver/", []byte("hello"), tc.policy)
				require.NoError(t, err)
				require.Equal(t, status{ID: 1, URL: "http://receiver/", Policy: tc.policy}, s)
				time.Sleep(240 * time.Hour)
				synctest.Wait()
				require.Equal(t, tc.want, fmt.Sprint(f.began))
				require.Equal(t, attempts, told)
				require.Empty(t, nt.pending(), "it is forgotten, delivered or not")
				require.Zero(t, nt.tw.Len())
			})
		})
	}
}

// TestStop stops the notifier 30 s after it has begun the first attempt, and waits for 10 s.
func TestStop(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		first answer
		tell  time.Duration // how long telling the outcome takes
		took  time.Duration // stop
		left  string        // the error of what is listed; empty if it was delivered
	}{
		"between two attempts":          {answer{0, errNo}, 0, 0, "no"},
		"while an attempt succeeds":     {answer{35 * s, nil}, 0, 5 * s, ""},
		"while an attempt fails":        {answer{35 * s, errNo}, 0, 5 * s, "no"},
		"while a failed attempt tells":  {answer{0, errNo}, 35 * s, 5 * s, "no"},
		"while a receiver does nothing": {answer{never, nil}, 0, 10 * s, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newReceiver(t, tc.first)
				nt := newNotifier(timingwheel.New(), f.post,
					func(status, time.Time, error, bool) { time.Sleep(tc.tell) })
				nt.send("http://receiver/", nil, every)
				time.Sleep(30 * s)
				ctx, cancel := context.WithTimeout(t.Context(), 10*s)
				defer cancel()
				var want []status
				if tc.left != "" {
					want = []status{{1, "http://receiver/", every, 1, tc.left}}
				}
				start := time.Now()
				require.Equal(t, want, nt.stop(ctx))
				require.Equal(t, tc.took, time.Since(start))
				require.Zero(t, nt.tw.Len())
				require.Equal(t, want, nt.stop(ctx), "once more")
				_, err := nt.send("http://receiver/", nil, every)
				require.ErrorIs(t, err, errStopped)
				time.Sleep(time.Hour)
				require.Len(t, f.began, 1, "no attempt is made after stop")
			})
		})
	}
}

// TestStopMeetsAttempt stops the notifier when an attempt was handed over and has not begun.
func TestStopMeetsAttempt(t *testing.T) {
	handedOver := make(chan func(), 1)
	f := newReceiver(t)
	tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
	nt := newNotifier(tw, f.post, nil)
	_, err := nt.send("http://receiver/", nil, every)
	require.NoError(t, err)
	attempt := <-handedOver
	require.Len(t, nt.stop(t.Context()), 1)
	attempt()
	require.Empty(t, f.began)
	require.NoError(t, tw.Shutdown(t.Context()))
}

// TestHammer stops the notifier in the middle of many notifications. Some attempts take longer
// than their gaps. Each notification has one end, and its attempts do not overlap.
func TestHammer(t *testing.T) {
	const n = 300
	synctest.Test(t, func(t *testing.T) {
		f := newReceiver(t)
		f.answer = func(int) answer {
			return answer{rand.N(8 * time.Minute), []error{nil, errNo, errNo, errNo}[rand.IntN(4)]}
		}
		var mu sync.Mutex
		ends, tried := make(map[int]int), make(map[string]bool)
		tell := func(s status, _ time.Time, _ error, last bool) {
			mu.Lock()
			defer mu.Unlock()
			attempt := fmt.Sprint(s.ID, " ", s.Attempts)
			assert.False(t, tried[attempt], attempt)
			if tried[attempt] = true; last {
				ends[s.ID]++
			}
		}
		nt := newNotifier(timingwheel.New(), f.post, tell)
		for i := range n {
			time.Sleep(10 * time.Second)
			_, err := nt.send("http://receiver/", nil, []policy{every, steps}[i%2])
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for _, s := range nt.stop(ctx) {
			ends[s.ID]++
		}
		require.NoError(t, nt.tw.Shutdown(t.Context()))
		for id := 1; id <= n; id++ {
			require.Equal(t, 1, ends[id], "notification %d", id)
		}
	})
}
