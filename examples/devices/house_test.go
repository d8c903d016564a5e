package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// notes are what happens, and when.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (d *notes) take(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, time.Now().UTC().Format("Mon 15:04:05 ")+fmt.Sprintf(format, args...))
}

// TestHouse runs a house on the fake clock, which begins at midnight before
// Saturday, 1 January 2000, in real durations.
func TestHouse(t *testing.T) {
	unreachable := errors.New("unreachable")
	for _, tc := range []struct {
		name, table string
		takes       time.Duration // an attempt
		broken      time.Duration // until then all attempts fail
		run         time.Duration
		want        []string
	}{
		{"a weekend", "0 8 sat,sun lamp on\n30 22 * lamp off", 0, 0, 48 * time.Hour, []string{
			"Sat 08:00:00 tell lamp on", "Sat 08:00:00 lamp on 1 <nil>", "Sat 22:30:00 tell lamp off", "Sat 22:30:00 lamp off 1 <nil>",
			"Sun 08:00:00 tell lamp on", "Sun 08:00:00 lamp on 1 <nil>", "Sun 22:30:00 tell lamp off", "Sun 22:30:00 lamp off 1 <nil>",
		}},
		{"off the network for a while", "0 8 sat lamp on", time.Second, 8*time.Hour + 9*time.Minute, 24 * time.Hour, []string{
			"Sat 08:00:00 tell lamp on", "Sat 08:00:01 lamp on 1 unreachable",
			"Sat 08:05:01 tell lamp on", "Sat 08:10:02 tell lamp on", "Sat 08:10:03 lamp on 3 <nil>",
		}},
		{"replaced while it waits", "0 8 sat lamp on\n7 8 sat lamp off", 0, 8*time.Hour + 6*time.Minute, 24 * time.Hour, []string{
			"Sat 08:00:00 tell lamp on", "Sat 08:00:00 lamp on 1 unreachable", "Sat 08:05:00 tell lamp on",
			"Sat 08:07:00 lamp on 2 replaced", "Sat 08:07:00 tell lamp off", "Sat 08:07:00 lamp off 1 <nil>",
		}},
		{"replaced during an attempt that fails", "0 8 sat lamp on\n1 8 sat lamp off", 90 * time.Second, 8*time.Hour + 2*time.Minute, 24 * time.Hour, []string{
			"Sat 08:00:00 tell lamp on", "Sat 08:01:30 lamp on 1 replaced",
			"Sat 08:01:30 tell lamp off", "Sat 08:03:00 lamp off 1 <nil>",
		}},
		{"replaced during an attempt that succeeds", "0 8 sat lamp on\n1 8 sat lamp off", 90 * time.Second, 0, 24 * time.Hour, []string{
			"Sat 08:00:00 tell lamp on", "Sat 08:01:30 lamp on 1 <nil>",
			"Sat 08:01:30 tell lamp off", "Sat 08:03:00 lamp off 1 <nil>",
		}},
		{"replaced twice during an attempt", "0,2 8 sat lamp on\n1 8 sat lamp off", 150 * time.Second, 0, 24 * time.Hour, []string{
			"Sat 08:00:00 tell lamp on", "Sat 08:02:00 lamp off 0 replaced", "Sat 08:02:30 lamp on 1 <nil>",
			"Sat 08:02:30 tell lamp on", "Sat 08:05:00 lamp on 1 <nil>",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				midnight := time.Now()
				d := &notes{}
				tab, err := parseTable(tc.table)
				require.NoError(t, err)
				wheel := timingwheel.New()
				h, err := newHouse(wheel, tab, map[string]string{"lamp": "lamp"}, retryAfter,
					func(_ context.Context, addr string, on bool) error {
						d.take("tell %s %s", addr, word(on))
						time.Sleep(tc.takes)
						if time.Since(midnight) < tc.broken {
							return unreachable
						}
						return nil
					},
					func(r report) {
						err := fmt.Sprint(r.err)
						if r.replaced {
							err = "replaced"
						}
						d.take("%s %s %d %s", r.device, word(r.order.on), r.order.attempts, err)
					})
				require.NoError(t, err)
				// In UTC, as this machine may be anywhere.
				wheel.ScheduleFunc(inUTC{h}, h.run, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
				time.Sleep(tc.run)
				synctest.Wait()
				h.close()
				require.NoError(t, wheel.Shutdown(t.Context()))
				// Each line has its time; those of one instant come in any order.
				require.ElementsMatch(t, tc.want, d.lines)
			})
		})
	}
}

type inUTC struct{ timingwheel.Scheduler }

func (s inUTC) Next(t time.Time) time.Time { return s.Scheduler.Next(t.UTC()) }

func TestHouseRefuses(t *testing.T) {
	tab, err := parseTable("0 8 sat lamp on\n0 9 * fan off")
	require.NoError(t, err)
	_, err = newHouse(timingwheel.New(), tab, map[string]string{"lamp": ""}, time.Second, nil, nil)
	require.ErrorContains(t, err, `"fan"`)
}

// TestHouseRaces has orders come faster than attempts end, some of which fail. The
// device is never told by two at once, each order is settled once, and the last
// one stands.
func TestHouseRaces(t *testing.T) {
	tab, err := parseTable("*/2 * * lamp on\n1-59 * * fan on\n*/7 0-23 * radio off")
	require.NoError(t, err)
	var mu sync.Mutex
	busy, told, settled := map[string]bool{}, map[string]int{}, map[string]map[time.Time]int{}
	wheel := timingwheel.New()
	clock := story.NewClock(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), 60000) // a minute is a millisecond
	h, err := newHouse(wheel, tab, map[string]string{"lamp": "lamp", "fan": "fan", "radio": "radio"}, time.Millisecond,
		func(_ context.Context, addr string, on bool) error {
			mu.Lock()
			if busy[addr] {
				t.Errorf("%s is told by two at once", addr)
			}
			busy[addr] = true
			told[addr]++
			n := told[addr]
			mu.Unlock()
			time.Sleep(time.Duration(n%4) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			busy[addr] = false
			if n%3 == 0 {
				return net.ErrClosed
			}
			return nil
		},
		func(r report) {
			if r.err != nil && !r.replaced {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if settled[r.device] == nil {
				settled[r.device] = map[time.Time]int{}
			}
			settled[r.device][r.order.at]++
		})
	require.NoError(t, err)
	var given []time.Time
	schedule := wheel.ScheduleFunc(inStory{clock, h, time.Time{}}, func() {
		h.mu.Lock()
		given = append(given, h.runs[0]) // of this run, as runs are queued
		h.mu.Unlock()
		h.run()
	}, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
	time.Sleep(300 * time.Millisecond)
	schedule.Stop()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, d := range h.devices {
			if d.order != nil || d.trying != nil || d.attempt.Pending() {
				return false
			}
		}
		return true
	}, 30*time.Second, time.Millisecond)
	h.close()
	require.NoError(t, wheel.Shutdown(t.Context()))
	require.Greater(t, len(given), 10)
	for i, at := range given {
		if i > 0 {
			require.True(t, at.After(given[i-1]))
		}
		for _, l := range tab.at(at) {
			require.Equal(t, 1, settled[l.device][at], "%s at %v", l.device, at)
		}
	}
}
