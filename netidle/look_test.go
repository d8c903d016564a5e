package netidle

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests what check learns from the kernel: a peer that takes a little is not idle, one
// that takes nothing is, and a silent one is closed on time.

// Each report of the kernel moves the instants of the last read and write to the right time.
func TestLook(t *testing.T) {
	const s = int64(time.Second)
	step := int64(kernelStep)
	ago := func(at int64) time.Duration { return time.Duration(100*s - at) } // asked at 100 s
	for name, test := range map[string]struct {
		reports     []report
		read, write int64 // 0: unchanged, at the last touch, 10 s
	}{
		"nothing since": {[]report{
			{received: ago(9 * s), sent: ago(10 * s), answered: ago(10*s + 4*step)},
		}, 0, 0},
		"unread bytes": {[]report{
			{unread: true, received: ago(9 * s), sent: ago(9 * s), answered: ago(9 * s)},
		}, 100 * s, 0},
		"bytes that were taken and not touched for yet": {[]report{
			{received: ago(70 * s), sent: ago(9 * s), answered: ago(9 * s)},
		}, 70*s + step, 0},
		"the same step of the kernel's clock": {[]report{
			{received: ago(10*s + 2*step), sent: ago(10*s + 2*step), answered: ago(10*s + 2*step)},
		}, 0, 0},
		"a late acknowledgement": {[]report{
			{received: ago(9 * s), sent: ago(10 * s), answered: ago(11 * s)},
		}, 0, 0},
		"sent little by little": {[]report{
			{received: ago(9 * s), sent: ago(40 * s), answered: ago(40*s + step), rto: time.Second},
		}, 0, 40*s + 2*step},
		"kept alive after that": {[]report{
			{received: ago(9 * s), sent: ago(40 * s), answered: ago(90 * s), rto: time.Second},
		}, 0, 42*s + step},
		"a peer that is gone": {[]report{
			{queued: 5, received: ago(9 * s), sent: ago(80 * s), answered: ago(9 * s)},
		}, 0, 0},
		"a peer that takes a little": {[]report{
			{queued: 5, received: ago(9 * s), sent: ago(80 * s), answered: ago(80 * s), acked: 7},
		}, 0, 80*s + step},
		"a peer that takes no more": {[]report{
			{queued: 5, received: ago(9 * s), sent: ago(20 * s), answered: ago(20 * s), acked: 7},
			{queued: 5, received: ago(9 * s), sent: ago(95 * s), answered: ago(95 * s), acked: 7},
		}, 0, 20*s + step},
		"a closed window that is probed": {[]report{{
			queued: 5, received: ago(9 * s), sent: ago(20 * s), answered: ago(99 * s),
			rto: time.Second / 5, acked: 7,
		}}, 0, 20*s + 2*s/5 + step},
		"an answer that is no later": {[]report{{
			queued: 5, received: ago(9 * s), sent: ago(20 * s), answered: ago(8 * s),
			rto: time.Second / 5, acked: 7,
		}}, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			tw := timingwheel.New()
			defer tw.Stop()
			c := NewConn(&fakeConn{}, tw, Limits{ReadIdle: time.Hour, WriteIdle: time.Hour})
			defer c.Close()
			touched := c.config.Load().epoch.Add(10 * time.Second)
			c.TouchRead(touched)
			c.TouchWrite(touched)
			time.Sleep(100 * time.Second)
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, r := range test.reports {
				r.timed = true
				c.lookAtReadsLocked(100*s, r)
				c.lookAtWritesLocked(100*s, r)
			}
			require.Equal(t, max(test.read, 10*s), c.lastRead(), name)
			require.Equal(t, max(test.write, 10*s), c.lastWrite(), name)
		})
	}
}

// Connections that fall silent are closed on time, although bytes are often not acknowledged yet
// when their Timers fire.
func TestEchoIsClosedOnTime(t *testing.T) {
	const limit = 400 * time.Millisecond
	var all sync.WaitGroup
	tw := newWheel(t)
	late := make(chan time.Duration, 100)
	for i := range cap(late) {
		all.Go(func() {
			var last, closed time.Time
			hooked := make(chan struct{})
			hook := func(*Conn, Reason) { closed = time.Now(); close(hooked) }
			c, peer := pair(t, tw, Limits{Idle: limit}, WithOnTimeout(hook))
			all.Go(func() {
				p := make([]byte, 100)
				stop := time.Now().Add(limit + time.Duration(i)*limit/50)
				for time.Now().Before(stop) {
					peer.Write(p)
					io.ReadFull(peer, p)
					time.Sleep(time.Millisecond)
				}
			})
			p := make([]byte, 100)
			for {
				n, err := c.Read(p)
				if err != nil {
					break
				}
				c.Write(p[:n])
				last = time.Now()
			}
			<-hooked
			late <- closed.Sub(last) - limit
		})
	}
	all.Wait()
	var longest time.Duration
	for range cap(late) {
		l := <-late
		require.Greater(t, l, -10*time.Millisecond) // last is a little later than the touch
		longest = max(longest, l)
	}
	t.Log("latest", longest)
	require.Less(t, longest, 20*time.Second)
}

// moving runs transfer, which calls step again and again, and requires that no connection reaches
// its limit meanwhile. It tries again if this machine stalled for so long that one may have.
func moving(t *testing.T, limit time.Duration,
	transfer func(t *testing.T, opt Option, step func()) error) {
	t.Helper()
	t.Parallel()
	for range 5 {
		var s timeouts
		var gap time.Duration
		last := time.Now()
		err := transfer(t, s.hook(last), func() {
			now := time.Now()
			gap, last = max(gap, now.Sub(last)), now
		})
		whys, at := s.list()
		if gap < limit/2 {
			require.NoError(t, err)
			require.Empty(t, whys, "reached a limit at %v, while the longest pause was %v", at, gap)
			return
		}
	}
	t.Skip("this machine stalls")
}

const (
	movingLimit = 600 * time.Millisecond
	movingStep  = 20 * time.Millisecond
)

// slowly reads n bytes, perStep at a time.
func slowly(r io.Reader, n, perStep int, step func()) {
	for n > 0 {
		time.Sleep(movingStep)
		m, err := r.Read(make([]byte, perStep))
		step()
		if n -= m; err != nil {
			return
		}
	}
}

// A slow download is not idle. The kernel buffers much and rarely wakes the writer: about once for
// 100 KB, which take longer than the limit.
func TestSlowReceiver(t *testing.T) {
	if !canAskTCP {
		t.Skip("the kernel cannot be asked")
	}
	const (
		buffers = 450 << 10 // more than the buffers below hold
		perStep = 4 << 10
	)
	for name, send := range map[string]func(c *Conn, data []byte, f *os.File) error{
		"Write": func(c *Conn, data []byte, _ *os.File) error { return errorOf(c.Write(data)) },
		"file":  func(c *Conn, _ []byte, f *os.File) error { return errorOf(io.Copy(c, f)) },
	} {
		for _, limits := range []Limits{{WriteIdle: movingLimit}, {Idle: movingLimit}} {
			t.Run(fmt.Sprint(name, limits), func(t *testing.T) {
				tw := newWheel(t)
				f, data := randomFile(t, buffers+100<<10)
				moving(t, movingLimit, func(t *testing.T, opt Option, step func()) error {
					f.Seek(0, 0)
					a, sink := tcpPair(t)
					a.SetWriteBuffer(200 << 10) // Linux doubles it
					sink.SetReadBuffer(16 << 10)
					c := NewConn(a, tw, limits, opt)
					sent := make(chan error, 1)
					go func() { sent <- send(c, data, f) }()
					slowly(sink, len(data), perStep, step)
					err := <-sent
					c.Close()
					sink.Close()
					return err
				})
			})
		}
	}
}

// A peer that takes some bytes now and then is not idle, even if a layer is around the socket: the
// kernel's reports count, and not when a Write wakes.
func TestSlowPeerBehindWrapper(t *testing.T) {
	if !canAskTCP {
		t.Skip("the kernel cannot be asked")
	}
	const perStep = 4 << 10
	for name, wrap := range map[string]func(c net.Conn) (net.Conn, []Option){
		"embedded": func(c net.Conn) (net.Conn, []Option) { return &limited{Conn: c}, nil },
		"named": func(c net.Conn) (net.Conn, []Option) {
			find := func(inner net.Conn) net.Conn { return inner.(opaque).inner }
			return opaque{c}, []Option{WithSocket(find)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tw := newWheel(t)
			moving(t, movingLimit, func(t *testing.T, opt Option, step func()) error {
				a, sink := tcpPair(t)
				a.SetWriteBuffer(200 << 10)
				sink.SetReadBuffer(16 << 10)
				wrapped, opts := wrap(a)
				c := NewConn(wrapped, tw, Limits{WriteIdle: movingLimit}, append(opts, opt)...)
				sent := make(chan error, 1)
				data := make([]byte, 550<<10)
				go func() { sent <- errorOf(c.Write(data)) }()
				slowly(sink, len(data), perStep, step)
				err := <-sent
				c.Close()
				sink.Close()
				return err
			})
		})
	}
}

// A peer that takes nothing is closed, over all kinds of connections.
func TestStuckReceiver(t *testing.T) {
	for name, wrap := range map[string]func(t *testing.T) net.Conn{
		"tcp": func(t *testing.T) net.Conn {
			a, b := tcpPair(t)
			t.Cleanup(func() { b.Close() })
			return a
		},
		"unix": func(t *testing.T) net.Conn { a, _ := unixPair(t); return a },
		"pipe": func(t *testing.T) net.Conn {
			a, b := net.Pipe()
			t.Cleanup(func() { b.Close() })
			return a
		},
	} {
		const limit = 50 * time.Millisecond
		for _, limits := range []Limits{{WriteIdle: limit}, {Idle: limit}} {
			t.Run(name, func(t *testing.T) {
				start := time.Now()
				var s timeouts
				c := NewConn(wrap(t), newWheel(t), limits, s.hook(start))
				var err error
				for err == nil {
					_, err = c.Write(make([]byte, 1<<20))
				}
				require.ErrorIs(t, err, ErrTimeout)
				require.ErrorIs(t, err, net.ErrClosed)
				require.Eventually(t, func() bool { whys, _ := s.list(); return len(whys) == 1 },
					10*time.Second, time.Millisecond)
				_, at := s.list()
				require.GreaterOrEqual(t, at[0], limit)
			})
		}
	}
}

// The looks at the send queue end when the limit is lifted, and when it is reached.
func TestLookingEnds(t *testing.T) {
	if !canAskTCP {
		t.Skip("the kernel cannot be asked")
	}
	for name, end := range map[string]func(c *Conn, written chan error){
		"lifted":  func(c *Conn, _ chan error) { c.SetLimits(Limits{Lifetime: time.Hour}) },
		"reached": func(_ *Conn, written chan error) { require.ErrorIs(t, <-written, ErrTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			var checks atomic.Int64
			executor := func(f func()) { checks.Add(1); go f() }
			tw := timingwheel.New(timingwheel.WithExecutor(executor))
			a, b := tcpPair(t)
			defer b.Close()
			c := NewConn(a, tw, Limits{Lifetime: time.Hour}, WithExpire())
			defer c.Close()
			written := make(chan error, 1)
			go func() {
				_, err := c.Write(make([]byte, 64<<20)) // more than the buffers hold
				written <- err
			}()
			require.Eventually(t, func() bool { queue, _ := ask(c.inner); return queue.queued > 0 },
				30*time.Second, time.Millisecond)
			c.SetLimits(Limits{WriteIdle: 100 * time.Millisecond, Lifetime: time.Hour})
			// On a machine that stands still the limit may be reached before the second look.
			require.Eventually(t, func() bool { return checks.Load() > 1 || len(written) > 0 },
				30*time.Second, time.Millisecond)
			end(c, written)
			time.Sleep(20 * time.Millisecond)
			before := checks.Load()
			time.Sleep(300 * time.Millisecond)
			require.LessOrEqual(t, checks.Load()-before, int64(1))
		})
	}
}
