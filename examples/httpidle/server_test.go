package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/netidle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServe serves one connection on the fake clock, over a pipe, in real durations.
func TestServe(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		asks    []time.Duration // when requests are sent
		request string
		at      time.Duration // when the connection is closed
		why     netidle.Reason
	}{
		"silent":      {nil, "", idleLimit, netidle.Idle},
		"one request": {[]time.Duration{20 * s}, get, 20*s + idleLimit, netidle.Idle},
		"busy": {[]time.Duration{50 * s, 100 * s, 150 * s, 200 * s}, get, lifeLimit,
			netidle.Lifetime},
		"slow handler":   {[]time.Duration{s}, report, s + reportTime + idleLimit, netidle.Idle},
		"stalled upload": {[]time.Duration{s}, upload, s + bodyLimit, netidle.ReadIdle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at time.Duration
				var reason netidle.Reason
				closed := func(_ *netidle.Conn, why netidle.Reason) {
					at, reason = time.Since(start), why
				}
				conn, peer := net.Pipe()
				l := &oneConn{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conns <- conn
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() {
					server := &http.Server{Handler: handler(story.NewRun(start, 1))}
					limits := netidle.HTTPLimits{Idle: idleLimit, Body: bodyLimit, Lifetime: lifeLimit}
					served <- serve(ctx, server, l, limits, closed)
				}()
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
				stop()
				require.NoError(t, <-served)
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
