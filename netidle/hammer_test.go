package netidle

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file lets activity and expiry meet, on short limits and real sockets. "Never
// early" is exact here: for a closing to be right, a whole limit without any touch must
// have passed before it, and only touches that were made before it count.

// touched is a touch: the instant that was recorded, and one when it had been.
type touched struct{ at, done int64 }

// requireNotEarly checks a connection that was closed no later than closed. The limit was
// reached at some touch plus limit, before closed, and every touch done before that was
// no later.
func requireNotEarly(t *testing.T, touches []touched, limit time.Duration, closed int64) {
	t.Helper()
	if isEarly(touches, limit, closed) {
		require.Fail(t, "closed early", "at %v, touches %v", time.Duration(closed), touches)
	}
}

func isEarly(touches []touched, limit time.Duration, closed int64) bool {
	for _, last := range append(touches, touched{}) { // the beginning counts as one
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

// Each connection has a reader, whose peer falls silent after a while; each must be
// closed once, by its hook, and not early.
func TestHammerReads(t *testing.T) {
	const (
		conns = 150
		limit = 20 * time.Millisecond
	)
	tw := timingwheel.New()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var hooks sync.Map // *Conn to *atomic.Int64
	var all sync.WaitGroup
	all.Add(conns) // hooks
	listener := NewListener(l, tw, Limits{ReadIdle: limit}, WithOnTimeout(func(c *Conn, why Reason) {
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
			require.Eventually(t, func() bool { _, ok := hooks.Load(c); return ok }, 30*time.Second, time.Millisecond)
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

// Several goroutines touch one connection, each with a clock reading that may be old
// when it arrives, others change its limits, and some close it.
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
						touches = append(touches, touched{int64(now.Sub(c.config.Load().epoch)), done})
						mu.Unlock()
						if i%3 == 0 {
							c.SetLimits(Limits{Idle: limit, Lifetime: time.Hour + time.Duration(rand.Int64N(1000))})
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
						return // nobody's hook, then
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

// Closing, expiring, reading, writing and setting limits all at once: for the race
// detector, and for what is left behind.
func TestHammerEverything(t *testing.T) {
	tw := newWheel(t)
	var all sync.WaitGroup
	for i := range 60 {
		var opts []Option
		if i%2 == 0 {
			opts = append(opts, WithExpire())
		}
		a, b := tcpPair(t)
		c := NewConn(a, tw, Limits{ReadIdle: 5 * time.Millisecond, WriteIdle: 7 * time.Millisecond, Idle: 4 * time.Millisecond, Lifetime: 30 * time.Millisecond}, opts...)
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
