package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errUnreachable = errors.New("unreachable")

// inUTC makes the tests independent of where they run.
type inUTC struct{ timingwheel.Scheduler }

func (s inUTC) Next(t time.Time) time.Time { return s.Scheduler.Next(t.UTC()) }

// TestHouse runs a house on the fake clock, which begins at midnight before Saturday, 1 January
// 2000, in real durations.
func TestHouse(t *testing.T) {
	for name, tc := range map[string]struct {
		table  string
		takes  time.Duration // an attempt
		broken time.Duration // until then all attempts fail
		want   string
	}{
		"a weekend": {"08:00 Sat+Sun lamp on\n22:30 * lamp off", 0, 0,
			"8h0m0s tell lamp on, 8h0m0s lamp on: done at attempt 1, " +
				"22h30m0s tell lamp off, 22h30m0s lamp off: done at attempt 1, " +
				"32h0m0s tell lamp on, 32h0m0s lamp on: done at attempt 1, " +
				"46h30m0s tell lamp off, 46h30m0s lamp off: done at attempt 1"},
		"off the network for a while": {"08:00 Sat lamp on", time.Second, 489 * time.Minute,
			"8h0m0s tell lamp on, 8h0m1s lamp on: failed at attempt 1, " +
				"8h5m1s tell lamp on, 8h5m2s lamp on: failed at attempt 2, " +
				"8h10m2s tell lamp on, 8h10m3s lamp on: done at attempt 3"},
		"replaced between attempts": {"08:00 Sat lamp on\n08:07 Sat lamp off", 0, 486 * time.Minute,
			"8h0m0s tell lamp on, 8h0m0s lamp on: failed at attempt 1, " +
				"8h5m0s tell lamp on, 8h5m0s lamp on: failed at attempt 2, " +
				"8h7m0s lamp on: replaced at attempt 2, 8h7m0s tell lamp off, " +
				"8h7m0s lamp off: done at attempt 1"},
		"replaced during an attempt that fails": {"08:00 Sat lamp on\n08:01 Sat lamp off",
			90 * time.Second, 8*time.Hour + 2*time.Minute,
			"8h0m0s tell lamp on, 8h1m30s lamp on: replaced at attempt 1, " +
				"8h1m30s tell lamp off, 8h3m0s lamp off: done at attempt 1"},
		"replaced during an attempt that succeeds": {"08:00 Sat lamp on\n08:01 Sat lamp off",
			90 * time.Second, 0,
			"8h0m0s tell lamp on, 8h1m30s lamp on: done at attempt 1, " +
				"8h1m30s tell lamp off, 8h3m0s lamp off: done at attempt 1"},
		"replaced twice during an attempt": {
			"08:00 Sat lamp on\n08:01 Sat lamp off\n08:02 Sat lamp on",
			150 * time.Second, 0,
			"8h0m0s tell lamp on, 8h2m0s lamp off: replaced at attempt 0, " +
				"8h2m30s lamp on: done at attempt 1, 8h2m30s tell lamp on, " +
				"8h5m0s lamp on: done at attempt 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var notes story.Notes
				midnight, tw := time.Now(), timingwheel.New()
				tell := func(_ context.Context, l line) error {
					notes.Add("tell %s", l)
					if time.Sleep(tc.takes); time.Since(midnight) < tc.broken {
						return errUnreachable
					}
					return nil
				}
				report := func(o order, err error, replaced bool) {
					what := "done"
					if replaced {
						what = "replaced"
					} else if err != nil {
						what = "failed"
					}
					notes.Add("%s: %s at attempt %d", o.line, what, o.attempts)
				}
				h := newHouse(tw, parse(tc.table), retryAfter, tell, report)
				tw.ScheduleFunc(inUTC{h}, h.run, timingwheel.RunMissed(),
					timingwheel.QueueWhileRunning())
				time.Sleep(48 * time.Hour)
				h.close()
				require.NoError(t, tw.Shutdown(t.Context()))
				require.ElementsMatch(t, strings.Split(tc.want, ", "), notes.Lines())
			})
		})
	}
}

// TestRaces has orders come faster than attempts end, some of which fail. A device is told by one
// goroutine at a time, and each order ends once.
func TestRaces(t *testing.T) {
	tab := parse("00:00 * lamp on\n00:00 * fan on\n00:01 * fan off\n00:02 * lamp off\n" +
		"00:02 * fan on\n00:03 * fan off\n00:04 * lamp on\n00:04 * radio off\n00:05 * fan on")
	var mu sync.Mutex
	busy, told, ended := map[string]bool{}, 0, map[string]int{}
	tell := func(_ context.Context, l line) error {
		mu.Lock()
		assert.False(t, busy[l.device], "%s is told by two at once", l.device)
		busy[l.device] = true
		told++
		n := told
		mu.Unlock()
		time.Sleep(time.Duration(n%4) * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		busy[l.device] = false
		return []error{errUnreachable, nil, nil}[n%3]
	}
	tw := timingwheel.New()
	h := newHouse(tw, tab, time.Millisecond, tell, func(o order, err error, replaced bool) {
		if err == nil || replaced {
			mu.Lock()
			defer mu.Unlock()
			ended[o.line.String()+o.at.String()]++
		}
	})
	want := map[string]int{}
	at := h.Next(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	for range 300 {
		h.run()
		for _, l := range tab.at(at) {
			want[l.String()+at.String()] = 1
		}
		at = h.Next(at)
		time.Sleep(time.Millisecond)
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ended) == len(want) && tw.Len() == 0
	}, 30*time.Second, time.Millisecond)
	h.close()
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Equal(t, want, ended)
}
