package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
	"github.com/go-timingwheel/timingwheel/netidle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReaper serves one connection on the fake clock, over a pipe, in real durations.
func TestReaper(t *testing.T) {
	for name, tc := range map[string]struct {
		asks    []time.Duration // when requests are sent
		request string
		at      time.Duration // when the connection is closed
		why     netidle.Reason
	}{
		"silent":         {nil, "", idleLimit, netidle.Idle},
		"one request":    {[]time.Duration{20 * time.Second}, "GET /", 20*time.Second + idleLimit, netidle.Idle},
		"busy":           {[]time.Duration{50 * time.Second, 100 * time.Second, 150 * time.Second, 200 * time.Second}, "GET /", lifeLimit, netidle.Lifetime},
		"slow handler":   {[]time.Duration{time.Second}, "GET /report", time.Second + reportTime + idleLimit, netidle.Idle},
		"stalled upload": {[]time.Duration{time.Second}, "POST /upload", time.Second + bodyLimit, netidle.ReadIdle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, tw := time.Now(), timingwheel.New()
				var at time.Duration
				var reason netidle.Reason
				r := &reaper{
					tw:     tw,
					limits: netidle.HTTPLimits{Idle: idleLimit, Body: bodyLimit, Response: bodyLimit, Lifetime: lifeLimit},
					reaped: func(_ *netidle.Conn, why netidle.Reason) { at, reason = time.Since(start), why },
				}
				server := &http.Server{Handler: handler(story.NewRun(start, 1))}
				conn, peer := net.Pipe()
				l := &oneConn{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conns <- conn
				served := make(chan error, 1)
				go func() { served <- r.serve(server, l) }()
				in := bufio.NewReader(peer)
				for _, at := range tc.asks {
					time.Sleep(at - time.Since(start))
					require.Equal(t, tc.why == netidle.ReadIdle, ask(peer, in, tc.request) != nil)
				}
				_, err := in.ReadByte()
				require.Equal(t, io.EOF, err)
				synctest.Wait()
				require.Equal(t, tc.at, at)
				require.Equal(t, tc.why, reason)
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
