package netidle

import (
	"crypto/tls"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file runs activity and expiry at the same time, with short limits and real sockets. It tests
// exactly that no connection is closed early: a whole limit without any touch must have passed
// before the closing, and only touches that were made before it count.

// touched is a touch: the instant that it recorded, and a later one when it was done.
type touched struct{ at, done int64 }

// requireNotEarly requires that a connection, which was closed no later than closed, was not closed
// early: some touch plus limit is before closed, and no touch that was done before that instant is
// later than this touch.
func requireNotEarly(t *testing.T, touches []touched, limit time.Duration, closed int64) {
	t.Helper()
	if isEarly(touches, limit, closed) {
		require.Fail(t, "closed early", "at %v, touches %v", time.Duration(closed), touches)
	}
}

func isEarly(touches []touched, limit time.Duration, closed int64) bool {
	for _, last := range append(touches, touched{}) { // the beginning counts as a touch
		reached := last.at + int64(limit)
		right := reached <= closed
		for _, other := range touches {
			right = right && (other.done >= reached || other.at <= last.at)
		}
		if right {
			return false
		}
	}
	return true
}

func TestIsEarly(t *testing.T) {
	touches := []touched{{10, 11}, {20, 21}}
	require.False(t, isEarly(touches, 10, 30))
	require.False(t, isEarly(touches, 9, 19), "when the second touch was done it was too late")
	require.False(t, isEarly(nil, 10, 10))
	require.True(t, isEarly(touches, 12, 31))
	require.True(t, isEarly(touches, 12, 24))
	require.True(t, isEarly(nil, 10, 9))
}

// Each connection has a reader whose peer falls silent after a while. Each must be closed once and
// not early, and its hook must be called.
func TestHammerReads(t *testing.T) {
	const (
		conns = 150
		limit = 20 * time.Millisecond
	)
	tw := timingwheel.New()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var hooks sync.Map // from *Conn to when it was called
	var all sync.WaitGroup
	all.Add(conns) // hooks
	listener := NewListener(l, tw, Limits{ReadIdle: limit},
		WithOnTimeout(func(c *Conn, why Reason) {
			closed := c.now()
			if old, again := hooks.LoadOrStore(c, closed); again {
				t.Errorf("hook called again, at %v and %v", old, closed)
			}
			if why != ReadIdle {
				t.Errorf("reason %v", why)
			}
			all.Done()
		}))
	for range conns {
		peer, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer peer.Close()
		go func() {
			for range rand.IntN(30) {
				time.Sleep(time.Duration(rand.Int64N(int64(limit + limit/10))))
				if _, err := peer.Write([]byte("x")); err != nil {
					return
				}
			}
		}()
		accepted, err := listener.Accept()
		require.NoError(t, err)
		c := accepted.(*Conn)
		all.Go(func() {
			var touches []touched
			p := make([]byte, 16)
			for {
				_, err := c.Read(p)
				if err != nil {
					require.ErrorIs(t, err, ErrTimeout)
					break
				}
				touches = append(touches, touched{c.lastRead(), c.now()})
			}
			require.Eventually(t, func() bool { _, ok := hooks.Load(c); return ok }, 30*time.Second,
				time.Millisecond)
			closed, _ := hooks.Load(c)
			requireNotEarly(t, touches, limit, closed.(int64))
		})
	}
	all.Wait()
	require.NoError(t, listener.Close())
	_, err = listener.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.Zero(t, tw.Len())
	tw.Stop()
}

// Several goroutines touch one connection, with clock readings that may be old by then, change its
// limits, and sometimes close it.
func TestHammerTouches(t *testing.T) {
	const (
		conns = 60
		limit = 10 * time.Millisecond
	)
	tw := newWheel(t)
	for _, opts := range [][]Option{nil, {WithExpire()}} {
		var all sync.WaitGroup
		for i := range conns {
			var calls atomic.Int64
			var closed atomic.Int64
			hooked := make(chan struct{})
			hook := WithOnTimeout(func(c *Conn, why Reason) {
				closed.Store(c.now())
				if calls.Add(1) == 1 {
					close(hooked)
				}
			})
			c := NewConn(&fakeConn{}, tw, Limits{Idle: limit}, append(opts, hook)...)
			var mu sync.Mutex
			var touches []touched
			var touchers sync.WaitGroup
			for j := range 4 {
				touchers.Go(func() {
					for range rand.IntN(40) {
						time.Sleep(time.Duration(rand.Int64N(int64(limit))))
						now := time.Now()
						if rand.IntN(4) == 0 {
							time.Sleep(time.Duration(rand.Int64N(int64(limit)))) // preempted
						}
						if j%2 == 0 {
							c.TouchRead(now)
						} else {
							c.TouchWrite(now)
						}
						done := c.now()
						mu.Lock()
						at := int64(now.Sub(c.config.Load().epoch))
						touches = append(touches, touched{at, done})
						mu.Unlock()
						if i%3 == 0 {
							lifetime := time.Hour + time.Duration(rand.Int64N(1000))
							c.SetLimits(Limits{Idle: limit, Lifetime: lifetime})
						}
						if i%10 == 0 && rand.IntN(100) == 0 {
							c.Close()
						}
					}
				})
			}
			all.Go(func() {
				touchers.Wait()
				if i%10 == 0 {
					c.Close()
					if c.Reason() == 0 {
						return // no hook is called
					}
				}
				<-hooked
				require.EqualValues(t, 1, calls.Load())
				requireNotEarly(t, touches, limit, closed.Load())
				c.Close()
			})
		}
		all.Wait()
	}
}

// Closing, expiring, reading, writing and setting limits at once must be free of data races and
// leave nothing behind.
func TestHammerEverything(t *testing.T) {
	tw := newWheel(t)
	var all sync.WaitGroup
	for i := range 60 {
		var opts []Option
		if i%2 == 0 {
			opts = append(opts, WithExpire())
		}
		a, b := tcpPair(t)
		c := NewConn(a, tw, Limits{ReadIdle: 5 * time.Millisecond, WriteIdle: 7 * time.Millisecond,
			Idle: 4 * time.Millisecond, Lifetime: 30 * time.Millisecond}, opts...)
		all.Go(func() { io.Copy(b, b); b.Close() })
		all.Go(func() { io.Copy(io.Discard, c) })
		all.Go(func() {
			for j := range 200 {
				if _, err := c.Write([]byte("x")); err != nil {
					break
				}
				c.SetDeadline(time.Now().Add(time.Hour))
				if j%8 == 0 {
					time.Sleep(time.Duration(rand.Int64N(int64(5 * time.Millisecond))))
				}
				c.SetLimits(Limits{Idle: time.Duration(rand.Int64N(int64(5 * time.Millisecond)))})
			}
			c.Close()
		})
	}
	all.Wait()
}

// With many clients at once, handlers that work for longer than the limits answer, and clients that
// stall lose their connections.
func TestHammerHTTP(t *testing.T) {
	const limit = 250 * time.Millisecond // longer than a loaded machine may stall
	for _, useTLS := range []bool{false, true} {
		handler := func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/reads":
				io.Copy(io.Discard, r.Body)
			case "/flushes":
				w.(http.Flusher).Flush()
			}
			time.Sleep(2 * limit)
			hello(w, r)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(handler))
		server.Listener = HTTPListener(server.Config, server.Listener, newWheel(t), HTTPLimits{
			Header: time.Minute, Body: limit, MinBodyRate: 1, Response: limit,
			Idle: time.Minute, Lifetime: time.Hour, Grace: time.Hour,
		})
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		if useTLS {
			server.StartTLS()
		} else {
			server.Start()
		}
		client := server.Client() // which sends a short body together with the header
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for j := range 4 {
					path := []string{"/", "/reads", "/flushes"}[(i+j)%3]
					sent := strings.NewReader("0123456789")
					response, err := client.Post(server.URL+path, "", sent)
					if err != nil {
						t.Error(err)
						return
					}
					body, err := io.ReadAll(response.Body)
					response.Body.Close()
					if err != nil || string(body) != "hello" {
						t.Errorf("%s: %q, %v", path, body, err)
					}
				}
			})
			all.Go(func() {
				for range 2 {
					c, err := net.Dial("tcp", server.Listener.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					if useTLS {
						c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
					}
					io.WriteString(c, strings.Replace(post, "/", "/reads", 1)+"abc")
					io.Copy(io.Discard, c) // to the end
					c.Close()
				}
			})
		}
		all.Wait()
		server.Close()
	}
}
