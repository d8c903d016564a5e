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

// TestServer has a client send some messages, over a pipe and on the fake clock. Then the client
// hangs up, or waits for the end.
func TestServer(t *testing.T) {
	for _, tc := range []struct {
		messages int
		every    time.Duration
		hangsUp  bool
		end      time.Duration
	}{
		{0, 0, false, idle},
		{3600, time.Second, false, idle + time.Hour},
		{2, idle - 1, false, 3 * idle}, // just in time; the end is rounded up to the tick
		{0, 0, true, 0},
		{2, time.Second, true, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(timingwheel.New(), idle)
			start := time.Now()
			client, end := net.Pipe()
			srv.add(end)
			for range tc.messages {
				time.Sleep(tc.every)
				_, err := client.Write([]byte("still up"))
				require.NoError(t, err)
				_, err = io.ReadFull(client, make([]byte, 8))
				require.NoError(t, err)
			}
			if tc.hangsUp {
				client.Close()
			}
			client.Read(make([]byte, 1)) // until the end
			srv.running.Wait()
			require.Equal(t, tc.end, time.Since(start))
			require.Zero(t, len(srv.conns)+srv.tw.Len())
		})
	}
}

// TestLateMessage sends a message when the callback was handed over and has not begun.
func TestLateMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handedOver := make(chan func(), 2)
		tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
		srv := newServer(tw, idle)
		client, end := net.Pipe()
		srv.add(end)
		expire := <-handedOver
		client.Write([]byte("too late"))
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "it is not answered")
		srv.running.Wait()
		require.Zero(t, tw.Len(), "the message left no timer armed")
		expire()
		time.Sleep(2 * idle)
		require.Empty(t, handedOver)
	})
}

func TestClose(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := newServer(timingwheel.New(), time.Hour)
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	ended := make(chan error)
	go func() { ended <- srv.serve(ln) }()
	client.Write([]byte("still up"))
	client.Read(make([]byte, 8))
	ln.Close()
	require.Equal(t, 1, srv.close())
	require.NoError(t, <-ended)
	_, end := net.Pipe()
	srv.add(end)
	require.Empty(t, srv.conns, "too late")
	require.Zero(t, srv.tw.Len())
}
