package netidle

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests that a limit measures how long the peer keeps us waiting: a peer that waits
// for us is not idle, one that is silent is, whatever lies between.

// limited is what netutil.LimitListener puts around a connection.
type limited struct {
	net.Conn
	releaseOnce sync.Once
	release     func()
}

func (c *limited) Close() error {
	err := c.Conn.Close()
	c.releaseOnce.Do(func() {
		if c.release != nil {
			c.release()
		}
	})
	return err
}

// opaque hides what it is a layer on.
type opaque struct{ inner net.Conn }

func (c opaque) Read(p []byte) (int, error)         { return c.inner.Read(p) }
func (c opaque) Write(p []byte) (int, error)        { return c.inner.Write(p) }
func (c opaque) Close() error                       { return c.inner.Close() }
func (c opaque) LocalAddr() net.Addr                { return c.inner.LocalAddr() }
func (c opaque) RemoteAddr() net.Addr               { return c.inner.RemoteAddr() }
func (c opaque) SetDeadline(t time.Time) error      { return c.inner.SetDeadline(t) }
func (c opaque) SetReadDeadline(t time.Time) error  { return c.inner.SetReadDeadline(t) }
func (c opaque) SetWriteDeadline(t time.Time) error { return c.inner.SetWriteDeadline(t) }

var layers = map[string]func(net.Conn) net.Conn{
	"socket":  func(c net.Conn) net.Conn { return c },
	"wrapper": func(c net.Conn) net.Conn { return &limited{Conn: c} },
	"opaque":  func(c net.Conn) net.Conn { return opaque{c} },
}

// While a write to a slow client blocks, no one reads the backend. Its data lies in our receive
// queue, or in a layer between.
func TestSlowClientOfProxy(t *testing.T) {
	const limit = time.Second // as this machine may stall
	copies := map[string]func(io.Writer) io.Writer{
		"spliced":  func(w io.Writer) io.Writer { return w },
		"buffered": func(w io.Writer) io.Writer { return writerOnly{w} },
	}
	var all sync.WaitGroup
	for name, layer := range layers {
		for _, limits := range []Limits{{ReadIdle: limit}, {Idle: limit}} {
			for how, hide := range copies {
				all.Go(func() {
					if err := proxySlowly(t, layer, limits, hide); err != nil {
						t.Errorf("%s, %s, %v: %v", name, how, limits, err)
					}
				})
			}
		}
	}
	all.Wait()
}

func proxySlowly(t *testing.T, layer func(net.Conn) net.Conn, limits Limits, hide func(io.Writer) io.Writer) error {
	near, backend := tcpPair(t)
	defer backend.Close()
	server, client := tcpPair(t)
	defer client.Close()
	defer server.Close()
	var s struck
	tw := timingwheel.New()
	defer tw.Stop()
	c := NewConn(layer(near), tw, limits, s.hook(time.Now()))
	defer c.Close()

	// More than all buffers take. They stay as they are: segments that do not fit into small
	// ones are sent again by and by, and meanwhile the backend is silent.
	const size = 16 << 20
	sent := make(chan time.Time, 1)
	go func() {
		piece := make([]byte, 1<<20)
		for range size / len(piece) {
			backend.Write(piece)
		}
		last := time.Now()
		backend.Write(piece[:1])
		sent <- last
	}()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(hide(server), c)
		server.Close()
		copied <- err
	}()
	limit := max(limits.ReadIdle, limits.Idle)
	time.Sleep(4 * limit)
	if whys, at := s.list(); len(whys) > 0 {
		return fmt.Errorf("closed at %v while the backend waits for us", at)
	}
	if _, err := io.CopyN(io.Discard, client, size+1); err != nil {
		return err
	}
	last := <-sent
	if err := <-copied; !errors.Is(err, ErrTimeout) {
		return fmt.Errorf("copied: %w", err)
	}
	if after := time.Since(last); after < limit {
		return fmt.Errorf("closed %v after the last byte", after)
	}
	return nil
}

// A Read that waits although there is something to be read waits for us.
func TestReadThatIsHeldUp(t *testing.T) {
	if !canAskReads {
		t.Skip("the kernel cannot be asked")
	}
	near, peer := tcpPair(t)
	defer peer.Close()
	inner := heldUp{near, make(chan struct{})}
	c := NewConn(inner, newWheel(t), Limits{Idle: 50 * time.Millisecond})
	defer c.Close()
	_, err := peer.Write([]byte("x"))
	require.NoError(t, err)
	time.AfterFunc(300*time.Millisecond, func() { close(inner.gate) })
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, ErrTimeout)
}

type heldUp struct {
	net.Conn
	gate chan struct{}
}

func (c heldUp) Read(p []byte) (int, error) {
	<-c.gate
	return c.Conn.Read(p)
}

// The end of the stream waits to be read, too.
func TestEndOfBackendWaits(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, layer := range layers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, backend := tcpPair(t)
			c := NewConn(layer(near), newWheel(t), Limits{ReadIdle: limit})
			defer c.Close()
			if name != "socket" || !canAskReads { // time counts until the first Read
				backend.Write([]byte("x"))
				_, err := c.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			require.NoError(t, backend.Close())
			time.Sleep(5 * limit)
			_, err := c.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
		})
	}
}

// A Read that comes late, but within the limit, has the whole limit after it.
func TestLateRead(t *testing.T) {
	const limit = 400 * time.Millisecond
	for name, layer := range layers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, backend := tcpPair(t)
			defer backend.Close()
			c := NewConn(layer(near), newWheel(t), Limits{ReadIdle: limit})
			defer c.Close()
			_, err := backend.Write([]byte("ab"))
			require.NoError(t, err)
			time.Sleep(3 * limit / 4)
			for range 2 {
				_, err = c.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			read := time.Now()
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, ErrTimeout)
			require.GreaterOrEqual(t, time.Since(read), limit-time.Millisecond)
		})
	}
}

func TestReverseProxyToSlowClient(t *testing.T) {
	const limit = 200 * time.Millisecond
	const size = 30 << 20
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(make([]byte, size))
	}))
	defer backend.Close()
	tw := newWheel(t)
	var hooks atomic.Int32
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{Dial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		if err != nil {
			return nil, err
		}
		return NewConn(c, tw, Limits{Idle: limit}, WithOnTimeout(func(*Conn, Reason) { hooks.Add(1) })), nil
	}}
	defer transport.CloseIdleConnections()
	proxy.Transport = transport
	front := httptest.NewServer(proxy)
	defer front.Close()
	response, err := front.Client().Get(front.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	time.Sleep(5 * limit)
	require.Zero(t, hooks.Load())
	n, err := io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	require.Eventually(t, func() bool { return hooks.Load() == 1 }, 30*time.Second, time.Millisecond, "idle from now on")
}

// Where the kernel does not know of all unread bytes, time counts while a call waits, exactly.
func TestTimeCountsWhileACallWaits(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		reads  []time.Duration // when a Read begins, of something that comes at once; the last waits
		writes []time.Duration
		at     time.Duration
		why    Reason
	}{
		{"a handler that computes", Limits{ReadIdle: 10 * second}, []time.Duration{second, 60 * second, 60 * second}, nil, 70 * second, ReadIdle},
		{"the same, and it answers", Limits{Idle: 10 * second}, []time.Duration{second, 60 * second}, []time.Duration{55 * second}, 70 * second, Idle},
		{"no Read ever", Limits{Idle: 10 * second}, nil, nil, 10 * second, Idle},
		{"no Read ever, but writes", Limits{Idle: 10 * second}, nil, []time.Duration{5 * second}, 15 * second, Idle},
		{"writes do not rest", Limits{WriteIdle: 10 * second}, []time.Duration{second, 5 * second}, nil, 10 * second, WriteIdle},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var s struck
				c, peer, _ := pipe(t, test.limits, s.hook(start))
				for i, at := range test.reads {
					time.AfterFunc(at, func() {
						if i < len(test.reads)-1 {
							go peer.Write([]byte("x"))
						}
						c.Read(make([]byte, 1))
					})
				}
				for _, at := range test.writes {
					time.AfterFunc(at, func() { c.Write([]byte("x")) })
				}
				time.Sleep(time.Hour)
				whys, at := s.list()
				require.Equal(t, []Reason{test.why}, whys)
				require.Equal(t, []time.Duration{test.at}, at)
			})
		})
	}
}

// Reads that end at deadlines of their own add up.
func TestPollingReadsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s struck
		c, _, _ := pipe(t, Limits{ReadIdle: 9*second + second/2, Idle: 12 * second}, s.hook(start))
		for {
			c.SetReadDeadline(time.Now().Add(second))
			_, err := c.Read(make([]byte, 1))
			if errors.Is(err, ErrTimeout) {
				break
			}
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			time.Sleep(second) // does not count
		}
		_, at := s.list()
		require.Equal(t, []time.Duration{18*second + second/2}, at)
	})
}

// A Write that waits counts for Idle, although no Read does.
func TestBlockedWriteIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tw := timingwheel.New()
		inner, peer := net.Pipe()
		defer peer.Close()
		var s struck
		c := NewConn(inner, tw, Limits{Idle: 10 * second}, s.hook(start))
		go peer.Write([]byte("x"))
		c.Read(make([]byte, 1))
		time.Sleep(30 * second)
		_, err := c.Write([]byte("x"))
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 40*second, time.Since(start))
	})
}

// A direction that is finished has no limit.
func TestHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			name   string
			limits Limits
			finish func(c *Conn, inner *halfConn)
			at     time.Duration // 0: never
		}{
			{"Read after the end was read", Limits{ReadIdle: 10 * second}, func(c *Conn, inner *halfConn) { c.Read(nil) }, 0},
			{"Read after CloseRead", Limits{ReadIdle: 10 * second}, func(c *Conn, inner *halfConn) { c.CloseRead() }, 0},
			{"Write after CloseWrite", Limits{WriteIdle: 10 * second}, func(c *Conn, inner *halfConn) { c.CloseWrite() }, 0},
			{"Write after the end was read", Limits{WriteIdle: 10 * second}, func(c *Conn, inner *halfConn) { c.Read(nil) }, 10 * second},
			{"Read after CloseWrite", Limits{ReadIdle: 10 * second}, func(c *Conn, inner *halfConn) { c.CloseWrite() }, 10 * second},
			{"Lifetime", Limits{ReadIdle: 10 * second, Lifetime: 20 * second}, func(c *Conn, inner *halfConn) { c.Read(nil); c.CloseWrite() }, 20 * second},
			{"Idle while one is open", Limits{Idle: 10 * second}, func(c *Conn, inner *halfConn) { c.Read(nil) }, 10 * second},
			{"Idle when both are finished", Limits{Idle: 10 * second}, func(c *Conn, inner *halfConn) { c.Read(nil); c.CloseWrite() }, 10 * second},
			{"a CloseWrite that fails", Limits{WriteIdle: 10 * second}, func(c *Conn, inner *halfConn) { inner.err = errors.New("no"); c.CloseWrite() }, 10 * second},
		} {
			start := time.Now()
			var s struck
			tw := timingwheel.New()
			inner := &halfConn{fakeConn: fakeConn{read: func([]byte) (int, error) { return 0, io.EOF }}}
			c := NewConn(inner, tw, test.limits, s.hook(start))
			test.finish(c, inner)
			time.Sleep(time.Hour)
			_, at := s.list()
			if test.at == 0 {
				require.Empty(t, at, test.name)
				require.Zero(t, tw.Len(), test.name)
			} else {
				require.Equal(t, []time.Duration{test.at}, at, test.name)
			}
			c.Close()
		}
	})
}

type halfConn struct {
	fakeConn
	err error
}

func (c *halfConn) CloseRead() error  { return c.err }
func (c *halfConn) CloseWrite() error { return c.err }

// The end that a copy meets finishes the reading, by each way a copy goes.
func TestHalfCloseOfCopies(t *testing.T) {
	const limit = 50 * time.Millisecond
	for name, to := range map[string]func(t *testing.T) io.Writer{
		"spliced": func(t *testing.T) io.Writer {
			a, b := tcpPair(t)
			t.Cleanup(func() { a.Close(); b.Close() })
			go io.Copy(io.Discard, b)
			return a
		},
		"buffered": func(t *testing.T) io.Writer { return new(bytes.Buffer) },
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := pair(t, newWheel(t), Limits{ReadIdle: limit})
			peer.Write([]byte("request"))
			peer.CloseWrite()
			_, err := io.Copy(to(t), c)
			require.NoError(t, err)
			time.Sleep(4 * limit)
			_, err = c.Write([]byte("answer"))
			require.NoError(t, err)
			require.Zero(t, c.Reason())
		})
	}
}

// Accept calls nothing of the connection that may block, however its methods do.
func TestAcceptDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		inner := &silentConn{closed: make(chan struct{})}
		l := NewListener(oneConn{inner}, tw, Limits{Idle: 10 * second})
		start := time.Now()
		c, err := l.Accept()
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		_, err = c.Write(make([]byte, 1<<20)) // this may wait
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 10*second, time.Since(start), "limited by then")
	})
}

type oneConn struct{ c net.Conn }

func (l oneConn) Accept() (net.Conn, error) { return l.c, nil }
func (l oneConn) Close() error              { return nil }
func (l oneConn) Addr() net.Addr            { return fakeAddr("tcp") }

// silentConn waits for a header that never comes, whatever is asked of it.
type silentConn struct {
	closed chan struct{}
}

func (c *silentConn) wait()                            { <-c.closed }
func (c *silentConn) Read([]byte) (int, error)         { c.wait(); return 0, net.ErrClosed }
func (c *silentConn) Write([]byte) (int, error)        { c.wait(); return 0, net.ErrClosed }
func (c *silentConn) LocalAddr() net.Addr              { c.wait(); return fakeAddr("tcp") }
func (c *silentConn) RemoteAddr() net.Addr             { c.wait(); return fakeAddr("tcp") }
func (c *silentConn) SetDeadline(time.Time) error      { c.wait(); return nil }
func (c *silentConn) SetReadDeadline(time.Time) error  { c.wait(); return nil }
func (c *silentConn) SetWriteDeadline(time.Time) error { c.wait(); return nil }
func (c *silentConn) Close() error                     { close(c.closed); return nil }

// Connections that fall silent at any moment are closed on time, although bytes are often not
// acknowledged yet when their Timers fire.
func TestEchoIsClosedOnTime(t *testing.T) {
	const limit = 400 * time.Millisecond
	var all sync.WaitGroup
	tw := newWheel(t)
	late := make(chan time.Duration, 100)
	for i := range cap(late) {
		all.Go(func() {
			var last, closed time.Time
			hooked := make(chan struct{})
			c, peer := pair(t, tw, Limits{Idle: limit}, WithOnTimeout(func(*Conn, Reason) { closed = time.Now(); close(hooked) }))
			all.Go(func() {
				p := make([]byte, 100)
				for stop := time.Now().Add(limit + time.Duration(i)*limit/50); time.Now().Before(stop); {
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
		require.Greater(t, l, -10*time.Millisecond) // last is taken a little after the touch
		longest = max(longest, l)
	}
	t.Log("latest", longest)
	require.Less(t, longest, 20*time.Second)
}

// A peer that takes some of what is sent now and then is not idle, whatever is around the
// socket: by the kernel's account and not by when a Write wakes.
func TestSlowPeerBehindWrapper(t *testing.T) {
	if !canAskTCP {
		t.Skip("the kernel cannot be asked")
	}
	const perStep = 4 << 10
	for name, wrap := range map[string]func(c net.Conn) (net.Conn, []Option){
		"embedded": func(c net.Conn) (net.Conn, []Option) { return &limited{Conn: c}, nil },
		"named": func(c net.Conn) (net.Conn, []Option) {
			return opaque{c}, []Option{WithSocket(func(inner net.Conn) net.Conn { return inner.(opaque).inner })}
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
				go func() { sent <- second2(c.Write(data)) }()
				slowly(sink, len(data), perStep, step)
				err := <-sent
				c.Close()
				sink.Close()
				return err
			})
		})
	}
}

func TestFindThroughWrappers(t *testing.T) {
	c, _ := pair(t, newWheel(t), Limits{})
	for _, outer := range []net.Conn{c, &limited{Conn: c}, outerConn{&limited{Conn: c}}, struct{ *Conn }{c}, tls.Server(&limited{Conn: c}, nil)} {
		found, ok := Find(outer)
		require.True(t, ok)
		require.Same(t, c, found)
	}
	for _, other := range []net.Conn{nil, &limited{}, struct{ *Conn }{}, opaque{c}, (*limited)(nil)} {
		_, ok := Find(other)
		require.False(t, ok)
	}
}

// What the kernel reports becomes what counts.
func TestLook(t *testing.T) {
	const s = int64(time.Second)
	step := int64(kernelStep)
	ago := func(at int64) time.Duration { return time.Duration(100*s - at) } // asked at 100 s
	for name, test := range map[string]struct {
		reports     []report
		read, write int64 // 0: no later than 10 s, the last touch of each
	}{
		"nothing since":                 {[]report{{received: ago(9 * s), sent: ago(10 * s), answered: ago(10*s + 4*step)}}, 0, 0},
		"unread":                        {[]report{{unread: true, received: ago(9 * s), sent: ago(9 * s), answered: ago(9 * s)}}, 100 * s, 0},
		"taken, and not touched yet":    {[]report{{received: ago(70 * s), sent: ago(9 * s), answered: ago(9 * s)}}, 70*s + step, 0},
		"the same jiffy":                {[]report{{received: ago(10*s + 2*step), sent: ago(10*s + 2*step), answered: ago(10*s + 2*step)}}, 0, 0},
		"acknowledged late":             {[]report{{received: ago(9 * s), sent: ago(10 * s), answered: ago(11 * s)}}, 0, 0},
		"sent by and by":                {[]report{{received: ago(9 * s), sent: ago(40 * s), answered: ago(40*s + step), rto: time.Second}}, 0, 40*s + 2*step},
		"and kept alive since":          {[]report{{received: ago(9 * s), sent: ago(40 * s), answered: ago(90 * s), rto: time.Second}}, 0, 42*s + step},
		"a peer that is gone":           {[]report{{queued: 5, received: ago(9 * s), sent: ago(80 * s), answered: ago(9 * s)}}, 0, 0},
		"a peer that takes a little":    {[]report{{queued: 5, received: ago(9 * s), sent: ago(80 * s), answered: ago(80 * s), acked: 7}}, 0, 80*s + step},
		"a peer that takes no more":     {[]report{{queued: 5, received: ago(9 * s), sent: ago(20 * s), answered: ago(20 * s), acked: 7}, {queued: 5, received: ago(9 * s), sent: ago(95 * s), answered: ago(95 * s), acked: 7}}, 0, 20*s + step},
		"a closed window that is asked": {[]report{{queued: 5, received: ago(9 * s), sent: ago(20 * s), answered: ago(99 * s), rto: time.Second / 5, acked: 7}}, 0, 20*s + 2*s/5 + step},
		"an answer that is no later":    {[]report{{queued: 5, received: ago(9 * s), sent: ago(20 * s), answered: ago(8 * s), rto: time.Second / 5, acked: 7}}, 0, 0},
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

// A reset comes as package net's error, as without a Conn.
func TestResetDuringCopy(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		from, peer := tcpPair(t)
		to, sink := tcpPair(t)
		defer sink.Close()
		defer to.Close()
		var src net.Conn = from
		if wrapped {
			src = NewConn(from, newWheel(t), Limits{Idle: time.Minute})
		}
		copied := make(chan error)
		go func() { copied <- second2(io.Copy(to, src)) }()
		time.Sleep(10 * time.Millisecond)
		peer.SetLinger(0)
		peer.Close()
		err := <-copied
		require.ErrorIs(t, err, syscall.ECONNRESET)
		op, ok := err.(*net.OpError)
		require.True(t, ok, "%T", err)
		require.Equal(t, "tcp", op.Net)
		if wrapped {
			require.Equal(t, "read", op.Op)
			require.IsType(t, new(os.SyscallError), op.Err)
		}
		src.Close()
	}
}

func TestDeadlineDuringCopy(t *testing.T) {
	from, _ := pair(t, newWheel(t), Limits{Idle: time.Minute})
	to, _ := pair(t, newWheel(t), Limits{})
	from.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	_, err := io.Copy(to, from)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	op, ok := err.(*net.OpError)
	require.True(t, ok)
	require.Equal(t, "read", op.Op)
}

// After the owner's own Close no error claims to be one after which to try again.
func TestErrorsAfterExpireAndClose(t *testing.T) {
	c, _ := pair(t, newWheel(t), Limits{Idle: 5 * time.Millisecond}, WithExpire())
	_, err := c.Read(make([]byte, 1))
	var netErr net.Error
	require.ErrorAs(t, err, &netErr)
	require.True(t, netErr.Timeout())
	require.NoError(t, c.Close())
	_, readErr := c.Read(make([]byte, 1))
	_, writeErr := c.Write(make([]byte, 1))
	for _, err := range []error{readErr, writeErr, c.SetDeadline(time.Time{}), c.Close()} {
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorAs(t, err, &netErr)
		require.False(t, netErr.Timeout())
	}
}

// With WithExpire and Limits.ReadIdle, or around TLS, package tls says goodbye to a peer that fell
// silent.
func TestTLSGoodbye(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	server.TLS.MaxVersion = tls.VersionTLS12 // which shows alerts from outside
	for _, test := range []struct {
		opts          []Option
		around, alert bool
	}{
		{[]Option{WithExpire()}, false, true},
		{nil, false, false},
		{nil, true, true},
	} {
		tw := newWheel(t)
		a, b := tcpPair(t)
		var conn net.Conn
		if test.around {
			conn = NewConn(tls.Server(a, server.TLS), tw, Limits{}, test.opts...)
		} else {
			conn = tls.Server(NewConn(a, tw, Limits{}, test.opts...), server.TLS)
		}
		served := make(chan error, 1)
		go func() {
			p := make([]byte, 1)
			_, err := conn.Read(p) // with the handshake
			if err == nil {
				c, _ := Find(conn)
				c.SetLimits(Limits{ReadIdle: 20 * time.Millisecond})
				_, err = conn.Read(p)
			}
			conn.Close()
			served <- err
		}()
		var received bytes.Buffer
		client := tls.Client(&teeConn{b, &received}, &tls.Config{InsecureSkipVerify: true})
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		_, err = client.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.ErrorIs(t, <-served, ErrTimeout) // before the client's goodbye can arrive
		client.Close()
		var last byte
		for p := received.Bytes(); len(p) > 0; p = p[5+int(p[3])<<8+int(p[4]):] { // records
			last = p[0]
		}
		const alert = 21
		require.Equal(t, test.alert, last == alert)
	}
}

// teeConn keeps what is read.
type teeConn struct {
	net.Conn
	read *bytes.Buffer
}

func (c *teeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Write(p[:n])
	return n, err
}

// The owner sees the timeout's error after the hook has returned, and no hook begins after a
// Close that came by itself.
func TestHookIsOverBeforeTheOwnerKnows(t *testing.T) {
	tw := newWheel(t)
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			var over atomic.Bool
			c, _ := pair(t, tw, Limits{Idle: 3 * time.Millisecond}, WithOnTimeout(func(*Conn, Reason) {
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
	c, _ := pair(t, tw, Limits{Idle: time.Millisecond}, WithOnTimeout(func(*Conn, Reason) { panic("hook") }))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.Equal(t, "hook", <-recovered)
}

func TestWriteBuffers(t *testing.T) {
	for name, layer := range layers {
		c, peer := tcpPair(t)
		guarded := NewConn(layer(c), newWheel(t), Limits{WriteIdle: time.Minute})
		received := make(chan []byte)
		go func() {
			got, _ := io.ReadAll(peer)
			received <- got
		}()
		buffers := net.Buffers{[]byte("a"), []byte("b"), make([]byte, 100<<10)}
		before := guarded.lastWrite()
		n, err := guarded.WriteBuffers(&buffers)
		require.NoError(t, err, name)
		require.EqualValues(t, 2+100<<10, n)
		require.Empty(t, buffers)
		require.Greater(t, guarded.lastWrite(), before)
		guarded.Close()
		require.Len(t, <-received, 2+100<<10)
		peer.Close()
		_, err = guarded.WriteBuffers(&net.Buffers{[]byte("x")})
		require.ErrorIs(t, err, net.ErrClosed)
	}
}

// What a plain connection with one limit takes stays small: a Conn is one cache line, and 128
// bytes in all, with its Timer and the Timer's callback.
func TestSize(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Conn{}), uintptr(64))
	require.LessOrEqual(t, unsafe.Sizeof(Conn{})+unsafe.Sizeof(timingwheel.Timer{})+2*unsafe.Sizeof(uintptr(0)), uintptr(128))
	l := NewListener(oneConn{fakeTCP(t)}, newWheel(t), Limits{Idle: time.Hour, Lifetime: time.Hour})
	conns := make([]net.Conn, 0, 1001)
	allocs := testing.AllocsPerRun(1000, func() {
		c, _ := l.Accept()
		conns = append(conns, c)
	})
	for _, c := range conns {
		c.Close()
	}
	require.EqualValues(t, 3, allocs)
}

// fakeTCP returns a closed TCP connection.
func fakeTCP(t *testing.T) *net.TCPConn {
	a, b := tcpPair(t)
	a.Close()
	b.Close()
	return a
}
