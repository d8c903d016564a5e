package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// TestDetector lets a client be heard at some moments of the fake clock.
func TestDetector(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, tc := range []struct {
		name  string
		beats []time.Duration
		want  []string
	}{
		{"never heard, never suspected", nil, nil},
		{"once", []time.Duration{1 * s}, []string{"suspect after 6s, heard at 1s"}},
		{"every second", []time.Duration{0, 1 * s, 2 * s, 3 * s, 4 * s}, []string{"suspect after 9s, heard at 4s"}},
		{"just in time", []time.Duration{0, 5*s - 1, 10*s - 2, 15*s - 3}, []string{"suspect after 20s, heard at 14.999999997s"}},
		{"a tick too late", []time.Duration{0, 5*s + 10*ms}, []string{
			"suspect after 5s, heard at 0s", "back after 5.01s", "suspect after 10.01s, heard at 5.01s"}},
		{"back, and gone again", []time.Duration{0, 20 * s, 21 * s, 22 * s}, []string{
			"suspect after 5s, heard at 0s", "back after 20s", "suspect after 27s, heard at 22s"}},
		{"silent for a day", []time.Duration{0, 24 * time.Hour}, []string{
			"suspect after 5s, heard at 0s", "back after 24h0m0s", "suspect after 24h0m5s, heard at 24h0m0s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				wheel := timingwheel.New(timingwheel.WithTick(tick))
				start := time.Now()
				d := newDetector(wheel, 2, limit, func(v verdict) {
					if v.client != 1 {
						t.Errorf("a verdict about client %d", v.client)
					}
					if v.suspect {
						got = append(got, fmt.Sprintf("suspect after %v, heard at %v", v.at.Sub(start), v.heard.Sub(start)))
					} else {
						got = append(got, fmt.Sprintf("back after %v", v.at.Sub(start)))
					}
				})
				for _, at := range tc.beats {
					time.Sleep(time.Until(start.Add(at)))
					synctest.Wait()
					d.beat(1, time.Now())
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, tc.want, got)
				require.Zero(t, wheel.Len())
				require.NoError(t, wheel.Shutdown(t.Context()))
			})
		})
	}
}

// TestLateCallback delivers the call of a timer that a heartbeat came too late to
// extend, and a heartbeat that was overtaken by a later one.
func TestLateCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheel := timingwheel.New(timingwheel.WithTick(tick))
		verdicts := make(chan verdict, 10)
		d := newDetector(wheel, 1, limit, func(v verdict) { verdicts <- v })
		start := time.Now()
		time.Sleep(time.Second)
		d.beat(0, start.Add(time.Second))
		d.silent(0)
		require.Empty(t, verdicts)
		d.beat(0, start)
		time.Sleep(limit - 1)
		synctest.Wait()
		require.Empty(t, verdicts)
		time.Sleep(tick)
		synctest.Wait()
		require.Len(t, verdicts, 1)
		require.Equal(t, time.Second, (<-verdicts).heard.Sub(start))
		d.silent(0)
		require.Empty(t, verdicts)
		require.NoError(t, wheel.Shutdown(t.Context()))
	})
}

// TestBeatWithoutLock would hang if a heartbeat of a client that is well took its lock.
func TestBeatWithoutLock(t *testing.T) {
	wheel := timingwheel.New()
	d := newDetector(wheel, 1, time.Hour, func(verdict) {})
	d.beat(0, time.Now())
	d.clients[0].mu.Lock()
	require.Zero(t, testing.AllocsPerRun(100, func() { d.beat(0, time.Now()) }))
	d.clients[0].mu.Unlock()
	require.NoError(t, wheel.Shutdown(t.Context()))
}

// TestRaces has heartbeats arrive, from several readers, around the very moment at
// which the limit ends. Verdicts have to alternate and never to be early, and the
// last one stands.
func TestRaces(t *testing.T) {
	const clients, readers, short = 50, 4, 2 * time.Millisecond
	wheel := timingwheel.New(timingwheel.WithTick(50 * time.Microsecond))
	var mu sync.Mutex
	suspected, verdicts := make([]bool, clients), 0
	d := newDetector(wheel, clients, short, func(v verdict) {
		mu.Lock()
		defer mu.Unlock()
		verdicts++
		if suspected[v.client] == v.suspect {
			t.Errorf("client %d: twice %t", v.client, v.suspect)
		}
		suspected[v.client] = v.suspect
		if v.suspect && v.at.Sub(v.heard) < short {
			t.Errorf("client %d: early, after %v", v.client, v.at.Sub(v.heard))
		}
	})
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
				now := time.Now()
				for i := range clients {
					d.beat(i, now)
				}
				time.Sleep(short - 200*time.Microsecond + rand.N(800*time.Microsecond))
			}
		})
	}
	running.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range suspected {
			if !s {
				return false
			}
		}
		return true
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, wheel.Shutdown(t.Context()))
	require.GreaterOrEqual(t, verdicts, clients)
	t.Log(verdicts, "verdicts")
}
