package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// A receiver notes when attempts begin, on the fake clock, and fails a test if they overlap.
type receiver struct {
	t      *testing.T
	answer func(attempt int) answer

	mu    sync.Mutex
	start time.Time
	began []time.Duration
	busy  map[int]bool // by notification
}

// newReceiver gives these answers in turn, and then takes everything at once.
func newReceiver(t *testing.T, answers ...answer) *receiver {
	return &receiver{t: t, start: time.Now(), busy: make(map[int]bool), answer: func(attempt int) answer {
		if attempt > len(answers) {
			return answer{}
		}
		return answers[attempt-1]
	}}
}

func (f *receiver) setBusy(id int, busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.NotEqual(f.t, busy, f.busy[id], "attempts overlap")
	if f.busy[id] = busy; busy {
		f.began = append(f.began, time.Since(f.start))
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

func times(n int, a answer) (as []answer) {
	for range n {
		as = append(as, a)
	}
	return as
}

// TestAttempts posts one notification on the fake clock, in real durations.
func TestAttempts(t *testing.T) {
	no, hangs := answer{0, errNo}, func(minutes time.Duration) answer { return answer{minutes * time.Minute, errNo} }
	for name, tc := range map[string]struct {
		policy  string
		answers []answer
		want    []time.Duration // minutes at which attempts begin
		ok      bool
	}{
		"every, success at once":       {"every", nil, []time.Duration{0}, true},
		"every, three refusals":        {"every", times(3, no), []time.Duration{0, 5, 10, 15}, true},
		"every, receiver hangs":        {"every", times(2, hangs(1)), []time.Duration{0, 5, 10}, true},
		"every, longer than the gap":   {"every", times(2, hangs(7)), []time.Duration{0, 7, 14}, true},
		"every, slow success":          {"every", []answer{{6 * time.Minute, nil}}, []time.Duration{0}, true},
		"steps, success at the last":   {"steps", times(3, no), []time.Duration{0, 2, 12, 72}, true},
		"steps, no success":            {"steps", times(99, no), []time.Duration{0, 2, 12, 72}, false},
		"steps, longer than some gaps": {"steps", times(99, hangs(20)), []time.Duration{0, 20, 40, 100}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newReceiver(t, tc.answers...)
				told := 0
				nt := newNotifier(timingwheel.New(), f.post, func(s status, _ time.Time, err error, last bool) {
					told++
					require.Equal(t, told, s.Attempts)
					require.Equal(t, told == len(tc.want), last)
					require.Equal(t, last && tc.ok, err == nil)
				})
				s, err := nt.send("http://receiver/", []byte("hello"), policies()[tc.policy])
				require.NoError(t, err)
				require.Equal(t, status{ID: 1, URL: "http://receiver/", Policy: tc.policy}, s)
				time.Sleep(240 * time.Hour)
				synctest.Wait()
				for i := range tc.want {
					tc.want[i] *= time.Minute
				}
				require.Equal(t, tc.want, f.began)
				require.Equal(t, len(tc.want), told)
				require.Empty(t, nt.pending(), "it is forgotten, delivered or not")
				require.Zero(t, nt.tw.Len())
			})
		})
	}
}

// TestStop stops the notifier 30 s after it has begun the first attempt, and waits for 10 s.
func TestStop(t *testing.T) {
	for name, tc := range map[string]struct {
		first answer
		tell  time.Duration // how long telling the outcome takes
		took  time.Duration // stop
		left  string        // the error of what is listed; empty if it was delivered
	}{
		"between two attempts":          {answer{0, errNo}, 0, 0, "no"},
		"while an attempt succeeds":     {answer{35 * time.Second, nil}, 0, 5 * time.Second, ""},
		"while an attempt fails":        {answer{35 * time.Second, errNo}, 0, 5 * time.Second, "no"},
		"while a failed attempt tells":  {answer{0, errNo}, 35 * time.Second, 5 * time.Second, "no"},
		"while a receiver does nothing": {answer{never, nil}, 0, 10 * time.Second, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newReceiver(t, tc.first)
				nt := newNotifier(timingwheel.New(), f.post, func(status, time.Time, error, bool) { time.Sleep(tc.tell) })
				nt.send("http://receiver/", nil, policies()["every"])
				time.Sleep(30 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				want := []status{}
				if tc.left != "" {
					want = append(want, status{1, "http://receiver/", "every", 1, tc.left})
				}
				start := time.Now()
				require.Equal(t, want, nt.stop(ctx))
				require.Equal(t, tc.took, time.Since(start))
				require.Zero(t, nt.tw.Len())
				require.Equal(t, want, nt.stop(ctx), "once more")
				_, err := nt.send("http://receiver/", nil, policies()["every"])
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
	nt := newNotifier(timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f })), f.post, nil)
	_, err := nt.send("http://receiver/", nil, policies()["every"])
	require.NoError(t, err)
	attempt := <-handedOver
	require.Len(t, nt.stop(t.Context()), 1)
	attempt()
	require.Empty(t, f.began)
	require.NoError(t, nt.tw.Shutdown(t.Context()))
}

// TestHammer stops the notifier in the middle of many notifications. Some attempts take longer
// than their gaps. Each notification has one end, and its attempts do not overlap.
func TestHammer(t *testing.T) {
	const n = 300
	synctest.Test(t, func(t *testing.T) {
		f := newReceiver(t)
		f.answer = func(int) answer {
			return answer{rand.N(8 * time.Minute), []error{nil, errNo, errNo, errNo, errNo, errNo}[rand.IntN(6)]}
		}
		var mu sync.Mutex
		ends, tried := make(map[int]int), make(map[string]bool)
		nt := newNotifier(timingwheel.New(), f.post, func(s status, _ time.Time, _ error, last bool) {
			mu.Lock()
			defer mu.Unlock()
			attempt := fmt.Sprint(s.ID, " ", s.Attempts)
			require.False(t, tried[attempt], attempt)
			tried[attempt] = true
			if last {
				ends[s.ID]++
			}
		})
		for i := range n {
			time.Sleep(10 * time.Second)
			_, err := nt.send("http://receiver/", nil, policies()[[]string{"every", "steps"}[i%2]])
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
		t.Logf("%d attempts", len(tried))
	})
}
