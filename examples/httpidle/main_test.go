package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, 60, ""))
	t.Logf("\n%s", &out)
	for _, line := range []string{
		"connection of anna, reason: idle", "connection of ben, reason: idle", "connection of dora, reason: idle", "dora: has the report",
		"connection of finn, reason: read idle",
	} {
		require.Contains(t, out.String(), line)
	}
	require.NotContains(t, out.String(), "connection of dora, reason: lifetime")
}

func TestServeUntilInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	require.NoError(t, run(ctx, io.Discard, 60, "127.0.0.1:0"))
	require.Error(t, run(ctx, io.Discard, 60, "nowhere:at all"))
}

// The reaper on a fake clock and pipes, to the tick.
func TestReaper(t *testing.T) {
	for _, test := range []struct {
		name string
		asks []time.Duration // when requests come
		path string
		at   time.Duration
		why  netidle.Reason
	}{
		{"silent", nil, "", idleLimit, netidle.Idle},
		{"one request", []time.Duration{20 * time.Second}, "/", 20*time.Second + idleLimit, netidle.Idle},
		{"busy", []time.Duration{50 * time.Second, 100 * time.Second, 150 * time.Second, 200 * time.Second}, "/", lifeLimit, netidle.Lifetime},
		{"slow handler", []time.Duration{time.Second}, "/report", time.Second + reportTime + idleLimit, netidle.Idle},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tw := timingwheel.New()
				var at time.Duration
				var reason netidle.Reason
				r := &reaper{
					tw:     tw,
					limits: netidle.HTTPLimits{Idle: idleLimit, Body: bodyLimit, Response: bodyLimit, Life: lifeLimit},
					reaped: func(_ *netidle.Conn, why netidle.Reason) { at, reason = time.Since(start), why },
				}
				server := &http.Server{Handler: handler(newClock(io.Discard, 1))}
				conn, peer := net.Pipe()
				l := &oneConn{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conns <- conn
				served := make(chan error, 1)
				go func() { served <- r.serve(server, l) }()
				in := bufio.NewReader(peer)
				for _, ask := range test.asks {
					time.Sleep(ask - time.Since(start))
					fmt.Fprintf(peer, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", test.path)
					response, err := http.ReadResponse(in, nil)
					require.NoError(t, err)
					io.Copy(io.Discard, response.Body)
				}
				_, err := in.ReadByte()
				require.Equal(t, io.EOF, err)
				synctest.Wait()
				require.Equal(t, test.at, at)
				require.Equal(t, test.why, reason)
				require.NoError(t, server.Shutdown(t.Context()))
				require.ErrorIs(t, <-served, http.ErrServerClosed)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

// oneConn is a listener that hands out what is in conns.
type oneConn struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
