package netidle

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests WithOnTimeout, WithReset and WithActivity. Other options are tested with what
// they change.

// The owner sees the error of the limit after the hook has returned. No hook begins after the
// owner's Close.
func TestHookIsOverBeforeTheOwnerKnows(t *testing.T) {
	tw := newWheel(t)
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			var over atomic.Bool
			c, _ := pair(t, tw, Limits{Idle: 3 * time.Millisecond},
				WithOnTimeout(func(*Conn, Reason) {
					if over.Load() {
						t.Error("the hook began after Close")
					}
					time.Sleep(time.Millisecond)
					if over.Load() {
						t.Error("the hook runs after Close")
					}
				}))
			_, err := c.Read(make([]byte, 1))
			if !errors.Is(err, ErrTimeout) {
				t.Error(i, err)
			}
			c.Close()
			over.Store(true)
		})
	}
	all.Wait()
}

// A hook that panics does not keep the connection open.
func TestHookPanics(t *testing.T) {
	recovered := make(chan any, 1)
	tw := timingwheel.New(timingwheel.WithPanicHandler(func(v any, _ []byte) { recovered <- v }))
	defer tw.Stop()
	c, _ := pair(t, tw, Limits{Idle: time.Millisecond},
		WithOnTimeout(func(*Conn, Reason) { panic("hook") }))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.Equal(t, "hook", <-recovered)
}

// With WithReset the peer reads an error and the server waits for nothing. Without it the peer
// reads all that was sent, and the end of the stream.
func TestReset(t *testing.T) {
	for _, test := range []struct {
		name  string
		wrap  func(net.Conn) net.Conn
		opts  []Option
		reset bool
	}{
		{"FIN", func(c net.Conn) net.Conn { return c }, nil, false},
		{"reset", func(c net.Conn) net.Conn { return c }, []Option{WithReset()}, true},
		{"under a layer", func(c net.Conn) net.Conn { return struct{ net.Conn }{c} },
			[]Option{WithReset()}, true},
		{"under TLS", func(c net.Conn) net.Conn { return tls.Server(c, tlsConfig(t)) },
			[]Option{WithReset()}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := tcpPair(t)
			defer b.Close()
			closed := make(chan error, 1)
			inner := closeConn{test.wrap(a), closed}
			if server, isTLS := inner.Conn.(*tls.Conn); isTLS {
				shaken := make(chan error, 1)
				go func() { shaken <- server.Handshake() }()
				require.NoError(t, tls.Client(b, &tls.Config{InsecureSkipVerify: true}).Handshake())
				require.NoError(t, <-shaken)
			}
			c := NewConn(inner, newWheel(t), Limits{Idle: 50 * time.Millisecond}, test.opts...)
			defer c.Close()
			var err error
			for err == nil {
				_, err = c.Write(make([]byte, 1<<20))
			}
			require.ErrorIs(t, err, ErrTimeout)
			start := time.Now()
			<-closed
			require.Less(t, time.Since(start), 3*time.Second, "TLS waits for five to say goodbye")
			_, err = io.Copy(io.Discard, b)
			if test.reset {
				var failed *net.OpError
				require.True(t, errors.As(err, &failed), "%v", err)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// closeConn reports its first Close.
type closeConn struct {
	net.Conn
	closed chan error
}

func (c closeConn) NetConn() net.Conn { return c.Conn }

func (c closeConn) Close() error {
	err := c.Conn.Close()
	select {
	case c.closed <- err:
	default:
	}
	return err
}

// LastRead and LastWrite are exact for all limits, also after SetLimits.
func TestActivity(t *testing.T) {
	for _, limits := range []Limits{{}, {ReadIdle: time.Hour}, {WriteIdle: time.Hour},
		{Idle: time.Hour}, {Due: time.Hour}, {Lifetime: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			c, peer, _ := pipe(t, limits, WithActivity())
			requireLast := func(read, write time.Duration) {
				t.Helper()
				require.Equal(t, read, c.LastRead().Sub(start))
				require.Equal(t, write, c.LastWrite().Sub(start))
			}
			read := func() {
				go peer.Write([]byte("x"))
				c.Read(make([]byte, 1))
			}
			requireLast(0, 0)
			time.Sleep(second)
			read()
			requireLast(second, 0)
			time.Sleep(second)
			c.Write([]byte("x"))
			requireLast(second, 2*second)
			time.Sleep(second)
			c.SetLimits(Limits{Idle: time.Minute})
			requireLast(second, 2*second)
			c.SetLimits(Limits{Due: time.Minute})
			time.Sleep(second)
			read()
			requireLast(4*second, 2*second)
			c.TouchWrite(time.Now())
			requireLast(4*second, 4*second)
		})
	}
	c, _ := pair(t, newWheel(t), Limits{Idle: time.Hour})
	require.Zero(t, c.LastRead())
	require.Zero(t, c.LastWrite())
}

// WithExtend and LastRead together close an old connection once nothing has moved for a second.
func TestLeaveWhenQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s timeouts
		c, _, _ := pipe(t, Limits{Lifetime: time.Minute}, WithActivity(), s.hook(start),
			WithExtend(func(c *Conn, why Reason, n int) time.Duration {
				if quiet := time.Since(c.LastWrite()); n < 100 && quiet < second {
					return second - quiet
				}
				return 0
			}))
		for range 700 {
			c.Write([]byte("x"))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		_, at := s.list()
		require.Equal(t, []time.Duration{69*second + 900*time.Millisecond + second}, at)
	})
}
