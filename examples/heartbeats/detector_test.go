package main

import (
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
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDetector has heartbeats arrive at some moments of the fake clock, in real durations.
func TestDetector(t *testing.T) {
	for name, tc := range map[string]struct{ beats, want string }{
		"once":         {"1s", "6s suspected, heard at 1s"},
		"every second": {"0s 1s 2s 3s 4s", "9s suspected, heard at 4s"},
		"just in time": {"0s 4.999999999s 9.999999998s", "15s suspected, heard at 9.999999998s"},
		"a tick too late": {"0s 5.01s", "5s suspected, heard at 0s; 5.01s back; " +
			"10.01s suspected, heard at 5.01s"},
		"back, and gone again": {"0s 20s 22s", "5s suspected, heard at 0s; 20s back; " +
			"27s suspected, heard at 22s"},
		"silent for a day": {"0s 24h", "5s suspected, heard at 0s; 24h0m0s back; " +
			"24h0m5s suspected, heard at 24h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got story.Notes
				start := time.Now()
				tw := timingwheel.New(timingwheel.WithTick(tick))
				d := newDetector(tw, 2, limit, func(v verdict) {
					require.Equal(t, 1, v.client) // client 0 is never heard, and never suspected
					if v.suspect {
						got.Add("suspected, heard at %v", v.heard.Sub(start))
					} else {
						got.Add("back")
					}
				})
				for beat := range strings.FieldsSeq(tc.beats) {
					at, err := time.ParseDuration(beat)
					require.NoError(t, err)
					time.Sleep(time.Until(start.Add(at)))
					synctest.Wait()
					d.beat(1, time.Now())
				}
				time.Sleep(time.Hour)
				require.Equal(t, tc.want, strings.Join(got.Lines(), "; "))
				require.Zero(t, tw.Len())
			})
		})
	}
}

// TestLateCallback makes the call of a timer that a heartbeat came too late to extend, and
// delivers a heartbeat that a later one has overtaken.
func TestLateCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verdicts, tw := make(chan verdict, 10), timingwheel.New(timingwheel.WithTick(tick))
		d := newDetector(tw, 1, limit, func(v verdict) { verdicts <- v })
		start := time.Now()
		time.Sleep(time.Second)
		d.beat(0, start.Add(time.Second))
		d.silent(0)
		d.beat(0, start)
		time.Sleep(limit - 1)
		synctest.Wait()
		require.Empty(t, verdicts)
		time.Sleep(tick)
		synctest.Wait()
		require.Len(t, verdicts, 1)
		require.Equal(t, time.Second, (<-verdicts).heard.Sub(start))
		d.silent(0)
		require.Empty(t, verdicts, "the same verdict again")
	})
}

// TestBeatWithoutLock would hang if a heartbeat of a client that is well took its lock.
func TestBeatWithoutLock(t *testing.T) {
	tw := timingwheel.New()
	d := newDetector(tw, 1, time.Hour, func(verdict) {})
	d.beat(0, time.Now())
	d.clients[0].mu.Lock()
	require.Zero(t, testing.AllocsPerRun(100, func() { d.beat(0, time.Now()) }))
	d.clients[0].mu.Unlock()
	require.NoError(t, tw.Shutdown(t.Context()))
}

// TestRaces has heartbeats arrive from several readers around the moment at which the limit
// ends. Verdicts alternate and are not early, and the last one stands.
func TestRaces(t *testing.T) {
	const clients, readers, short = 50, 4, 2 * time.Millisecond
	tw := timingwheel.New(timingwheel.WithTick(50 * time.Microsecond))
	var mu sync.Mutex
	suspected, alive := make([]bool, clients), clients
	d := newDetector(tw, clients, short, func(v verdict) {
		mu.Lock()
		defer mu.Unlock()
		assert.NotEqual(t, suspected[v.client], v.suspect, "the same verdict twice")
		if suspected[v.client] = v.suspect; v.suspect {
			alive--
			assert.GreaterOrEqual(t, v.at.Sub(v.heard), short)
		} else {
			alive++
		}
	})
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
				now := time.Now()
				for i := range clients {
					d.beat(i, now)
				}
				time.Sleep(short - 200*time.Microsecond + rand.N(800*time.Microsecond))
			}
		})
	}
	reading.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return alive == 0
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, tw.Shutdown(t.Context()))
}
