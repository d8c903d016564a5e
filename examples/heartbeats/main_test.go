package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// TestWitness has each kind of wrong verdict found.
func TestWitness(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, tc := range []struct {
		name string
		tell func(w *witness)
		want string
	}{
		{"right", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.mark([]int{0}, true)
			w.judge(verdict{0, true, at(1), at(6)})
		}, ""},
		{"right, with a heartbeat on its way", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.heard([]int{0}, at(6))
			w.judge(verdict{0, true, at(1), at(6)})
			w.judge(verdict{0, false, at(6), at(6)})
		}, ""},
		{"early", func(w *witness) {
			w.heard([]int{0}, at(2))
			w.judge(verdict{0, true, at(2), at(6)})
		}, "1s early"},
		{"although it was heard", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.heard([]int{0}, at(2))
			w.heard([]int{0}, at(3))
			w.judge(verdict{0, true, at(1), at(6)})
		}, "although it was heard"},
		{"twice", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.judge(verdict{0, true, at(1), at(6)})
			w.judge(verdict{0, true, at(1), at(7)})
		}, "twice"},
		{"back unasked", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.judge(verdict{0, false, at(1), at(1)})
		}, "twice"},
		{"forgotten", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.heard([]int{0}, at(100))
		}, "not suspected"},
		{"wrong at the end", func(w *witness) {
			w.heard([]int{0}, at(1))
			w.mark([]int{0}, true)
		}, "dead true, suspected false"},
		{"unheard", func(*witness) {}, "1 clients have not been heard"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWitness(1, limit, awaitWithin)
			tc.tell(w)
			if tc.want == "" {
				require.NoError(t, w.agreed())
			} else {
				require.ErrorContains(t, w.agreed(), tc.want)
			}
		})
	}
}

// TestServer sends what is not a heartbeat.
func TestServer(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	got := make(chan []int, 10)
	s := listen(conn, 10, func(clients []int, _ time.Time) { got <- append([]int{}, clients...) })
	from, err := net.Dial("udp", conn.LocalAddr().String())
	require.NoError(t, err)
	defer from.Close()
	for _, tc := range []struct {
		packet string
		want   []int
	}{
		{"1 2\n3\r\n", []int{1, 2, 3}},
		{"", []int{}},
		{"9 10 -1 x 99999999999999999999 \x00\xff 0", []int{9, 0}},
		{strings.Repeat("z", 9000), []int{}},
	} {
		_, err := from.Write([]byte(tc.packet))
		require.NoError(t, err)
		require.Equal(t, tc.want, <-got)
	}
	require.NoError(t, s.close())
	require.EqualValues(t, 6, s.strange.Load())
}

// TestRun plays the whole story over real sockets.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out, 8, 1000))
	t.Logf("\n%s", &out)
	require.Contains(t, out.String(), "All is well")
}

// lines is a writer for a program that runs on.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestServe(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended, out := make(chan error), &lines{}
	go func() { ended <- serve(ctx, out, "127.0.0.1:0", 10) }()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "serving at") }, 30*time.Second, time.Millisecond)
	interrupt()
	require.NoError(t, <-ended)
	require.Error(t, serve(ctx, out, "127.0.0.1:-1", 10))
}
