package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// A fake is a receiver without a network, on the fake clock.
type fake struct {
	mu      sync.Mutex
	start   time.Time
	began   []time.Duration
	answer  func(attempt int) answerAfter
	now     map[string]int
	overlap bool
}

type answerAfter struct {
	d    time.Duration
	code int
}

const hang = time.Duration(1 << 62)

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	id := req.Header.Get("Notification-Id")
	f.mu.Lock()
	f.now[id]++
	f.overlap = f.overlap || f.now[id] > 1
	f.began = append(f.began, time.Since(f.start))
	f.mu.Unlock()
	attempt, err := strconv.Atoi(req.Header.Get("Notification-Attempt"))
	if err != nil {
		return nil, err
	}
	a := f.answer(attempt)
	defer func() {
		f.mu.Lock()
		f.now[id]--
		f.mu.Unlock()
	}()
	select {
	case <-time.After(a.d):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: a.code, Status: http.StatusText(a.code), Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// newTestNotifier has answers to the first attempts, and 204 at once to all others. It
// collects results; read them when nothing moves.
func newTestNotifier(timeout time.Duration, answers []answerAfter, opts ...timingwheel.Option) (*notifier, *fake, *[]result) {
	f := &fake{start: time.Now(), now: make(map[string]int)}
	f.answer = func(attempt int) answerAfter {
		if attempt <= len(answers) {
			return answers[attempt-1]
		}
		return answerAfter{0, http.StatusNoContent}
	}
	var mu sync.Mutex
	results := new([]result)
	nt := newNotifier(timingwheel.New(opts...), &http.Client{Transport: f, Timeout: timeout}, func(r result) {
		mu.Lock()
		defer mu.Unlock()
		*results = append(*results, r)
	})
	return nt, f, results
}

// realPolicies are those of the program on a clock that is not scaled.
func realPolicies() map[string]policy {
	return policies(func(d time.Duration) time.Duration { return d })
}

func times(n int, a answerAfter) (as []answerAfter) {
	for range n {
		as = append(as, a)
	}
	return as
}

func minutes(ms ...int) (ds []time.Duration) {
	for _, m := range ms {
		ds = append(ds, time.Duration(m)*time.Minute)
	}
	return ds
}

func TestAttempts(t *testing.T) {
	no := answerAfter{0, http.StatusInternalServerError}
	hangs := answerAfter{hang, 0}
	for name, c := range map[string]struct {
		policy  string
		timeout time.Duration
		answers []answerAfter
		want    []time.Duration
		ok      bool
	}{
		"every, success at once":        {"every", time.Minute, nil, minutes(0), true},
		"every, three refusals":         {"every", time.Minute, times(3, no), minutes(0, 5, 10, 15), true},
		"every, hung receiver":          {"every", time.Minute, times(2, hangs), minutes(0, 5, 10), true},
		"every, longer than the gap":    {"every", 7 * time.Minute, times(2, hangs), minutes(0, 7, 14), true},
		"every, slow success":           {"every", 7 * time.Minute, []answerAfter{{6 * time.Minute, 200}}, minutes(0), true},
		"steps, success at the last":    {"steps", time.Minute, times(3, no), minutes(0, 2, 12, 72), true},
		"steps, never":                  {"steps", time.Minute, times(99, no), minutes(0, 2, 12, 72), false},
		"steps, longer than some gaps":  {"steps", 20 * time.Minute, times(99, hangs), minutes(0, 20, 40, 100), false},
		"steps, redirect is no success": {"steps", time.Minute, []answerAfter{{0, 304}}, minutes(0, 2), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nt, f, results := newTestNotifier(c.timeout, c.answers)
				s, err := nt.send("http://receiver/", []byte("hello"), realPolicies()[c.policy])
				require.NoError(t, err)
				require.Equal(t, status{ID: 1, URL: "http://receiver/", Policy: c.policy}, s)
				time.Sleep(240 * time.Hour)
				synctest.Wait()
				require.Equal(t, c.want, f.began)
				require.False(t, f.overlap)
				require.Len(t, *results, len(c.want))
				for i, r := range *results {
					require.Equal(t, i == len(c.want)-1, r.last)
					require.Equal(t, i+1, r.Attempts)
					require.Equal(t, r.last && c.ok, r.err == nil)
				}
				require.Empty(t, nt.pending(), "it is forgotten, delivered or not")
				require.Zero(t, nt.tw.Len())
				require.Empty(t, nt.stop(context.Background()))
			})
		})
	}
}

func TestStop(t *testing.T) {
	no := answerAfter{0, http.StatusInternalServerError}
	for name, c := range map[string]struct {
		answers  []answerAfter
		patience time.Duration // of stop, which is called after 30 s
		took     time.Duration // it
		want     []status
	}{
		"between two attempts": {
			[]answerAfter{no, no}, 10 * time.Second, 0,
			[]status{{1, "http://receiver/", "every", 1, "the receiver says Internal Server Error"}},
		},
		"attempt under way succeeds": {
			[]answerAfter{{35 * time.Second, 200}}, 10 * time.Second, 5 * time.Second,
			[]status{},
		},
		"attempt under way fails": {
			[]answerAfter{{35 * time.Second, 500}}, 10 * time.Second, 5 * time.Second,
			[]status{{1, "http://receiver/", "every", 1, "the receiver says Internal Server Error"}},
		},
		"attempt under way is cut off": {
			[]answerAfter{{hang, 0}}, 10 * time.Second, 10 * time.Second,
			[]status{{1, "http://receiver/", "every", 1, "context canceled"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nt, f, _ := newTestNotifier(time.Minute, c.answers)
				_, err := nt.send("http://receiver/", nil, realPolicies()["every"])
				require.NoError(t, err)
				time.Sleep(30 * time.Second)
				ctx, cancel := context.WithTimeout(context.Background(), c.patience)
				defer cancel()
				start := time.Now()
				require.Equal(t, c.want, nt.stop(ctx))
				require.Equal(t, c.took, time.Since(start))
				require.Equal(t, c.want, nt.stop(ctx), "once more")
				_, err = nt.send("http://receiver/", nil, realPolicies()["every"])
				require.ErrorIs(t, err, errStopped)
				require.Zero(t, nt.tw.Len())
				time.Sleep(time.Hour)
				require.Len(t, f.began, 1, "nothing is tried after stop")
			})
		})
	}
}

// An attempt that was handed over when stop came does not begin, and is listed.
func TestStopMeetsAttempt(t *testing.T) {
	handedOver := make(chan func(), 1)
	nt, f, results := newTestNotifier(time.Minute, nil, timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
	_, err := nt.send("http://receiver/", nil, realPolicies()["every"])
	require.NoError(t, err)
	attempt := <-handedOver
	require.Len(t, nt.stop(context.Background()), 1)
	attempt()
	require.Empty(t, f.began)
	require.Empty(t, *results)
	require.NoError(t, nt.tw.Shutdown(context.Background()))
}

// A failed attempt arms the next one when it has told of itself; not so if stop came
// meanwhile.
func TestStopWhileTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), now: make(map[string]int)}
		f.answer = func(int) answerAfter { return answerAfter{0, 500} }
		nt := newNotifier(timingwheel.New(), &http.Client{Transport: f}, func(result) { time.Sleep(10 * time.Second) })
		_, err := nt.send("http://receiver/", nil, realPolicies()["every"])
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.Len(t, nt.stop(context.Background()), 1)
		require.Equal(t, 10*time.Second, time.Since(f.start), "it waited")
		require.Zero(t, nt.tw.Len())
	})
}

// Many notifications at once, and a stop in the middle of them.
func TestHammer(t *testing.T) {
	const n = 300
	synctest.Test(t, func(t *testing.T) {
		// No timeout, so that some attempts take longer than their gaps.
		nt, f, results := newTestNotifier(0, nil)
		f.answer = func(int) answerAfter {
			a := answerAfter{time.Duration(rand.Int64N(int64(8 * time.Minute))), 500}
			if rand.IntN(10) == 0 {
				a.code = 204
			}
			return a
		}
		var sent sync.WaitGroup
		for i := range n {
			sent.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				_, err := nt.send("http://receiver/", nil, realPolicies()[[]string{"every", "steps"}[i%2]])
				if err != nil && !errors.Is(err, errStopped) {
					panic(err)
				}
			})
		}
		time.Sleep(75 * time.Minute)
		sent.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		undelivered := nt.stop(ctx)
		require.NoError(t, nt.tw.Shutdown(context.Background()))
		require.False(t, f.overlap)

		ends := make(map[int]int)
		tried := make(map[string]int)
		for _, r := range *results {
			at := fmt.Sprint(r.ID, " ", r.Attempts)
			tried[at]++
			require.Equal(t, 1, tried[at], "attempt %s", at)
			if _, more := realPolicies()[r.Policy].gap(r.Attempts); r.err == nil || !more {
				ends[r.ID]++
			}
		}
		for _, s := range undelivered {
			ends[s.ID]++
		}
		for id := 1; id <= n; id++ {
			require.Equal(t, 1, ends[id], "notification %d", id)
		}
		t.Logf("%d attempts, %d of %d not delivered", len(*results), len(undelivered), n)
	})
}
