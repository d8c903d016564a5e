package main

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const idle = 2 * time.Second

// TestServer sends messages at some moments of the fake clock, over pipes.
func TestServer(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		talks []time.Duration
		hangs time.Duration // when the client hangs up; 0: it waits for the end
		end   time.Duration
		idled bool
	}{
		"silent":               {nil, 0, 2 * s, true},
		"one message":          {[]time.Duration{s}, 0, 3 * s, true},
		"just in time":         {[]time.Duration{2*s - 1, 4*s - 2}, 0, 6 * s, true}, // rounded up to the tick
		"talks for an hour":    {everySecond(3600), 0, 3602 * s, true},
		"hangs up":             {[]time.Duration{s}, 2 * s, 2 * s, false},
		"hangs up when silent": {nil, s, s, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := make(chan time.Duration, 2)
				srv := newServer(timingwheel.New(), idle, nil, func(late time.Duration) { closed <- late })
				start := time.Now()
				client, end := net.Pipe()
				srv.add(end)
				for _, at := range tc.talks {
					time.Sleep(time.Until(start.Add(at)))
					_, err := client.Write([]byte("still up"))
					require.NoError(t, err)
					_, err = io.ReadFull(client, make([]byte, 8))
					require.NoError(t, err)
				}
				if tc.hangs > 0 {
					time.Sleep(time.Until(start.Add(tc.hangs)))
					client.Close()
				}
				client.Read(make([]byte, 1)) // until the end
				require.Equal(t, tc.end, time.Since(start))
				srv.running.Wait()
				synctest.Wait()
				require.Empty(t, srv.conns)
				require.Zero(t, srv.tw.Len())
				time.Sleep(time.Hour)
				if require.Equal(t, tc.idled, len(closed) == 1); tc.idled {
					require.Less(t, <-closed, time.Millisecond)
				}
			})
		})
	}
}

func everySecond(n int) (at []time.Duration) {
	for i := range n {
		at = append(at, time.Duration(i+1)*time.Second)
	}
	return at
}

// TestLateTouch touches a connection whose callback was handed over and has not begun.
func TestLateTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handedOver := make(chan func(), 1)
		tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
		closed := make(chan time.Duration, 1)
		srv := newServer(tw, idle, nil, func(late time.Duration) { closed <- late })
		client, end := net.Pipe()
		srv.add(end)
		expire := <-handedOver
		client.Write([]byte("too late"))
		synctest.Wait()
		require.Zero(t, tw.Len(), "the touch left no timer armed")
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1, srv.overdue())
		expire()
		srv.running.Wait() // the reader found the connection closed
		require.EqualValues(t, 1, <-closed, "its lateness is that of the arming that fired")
		require.Zero(t, srv.overdue())
	})
}

func TestClose(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := newServer(timingwheel.New(), time.Hour, ln, nil)
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	ended := make(chan error)
	go func() { ended <- srv.serve() }()
	client.Write([]byte("still up"))
	client.Read(make([]byte, 8))
	require.Equal(t, 1, srv.close())
	require.NoError(t, <-ended)
	_, end := net.Pipe()
	srv.add(end)
	require.Empty(t, srv.conns, "too late")
	require.Zero(t, srv.tw.Len())
}
