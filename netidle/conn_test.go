package netidle

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests how a Conn and a Listener treat the inner connection: how they close it as a
// whole and by halves, split writes, and find a Conn under layers.

var _ interface {
	net.Conn
	syscall.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
} = (*Conn)(nil)

func TestInnerAbilities(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	a, b := tcpPair(t)
	defer b.Close()
	c := NewConn(a, tw, Limits{Idle: time.Minute})
	defer c.Close()
	require.Same(t, a, c.NetConn())
	require.Equal(t, a.LocalAddr(), c.LocalAddr())
	require.Equal(t, a.RemoteAddr(), c.RemoteAddr())
	require.NoError(t, c.CloseWrite())
	_, err := b.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(uintptr) {}))
	require.NoError(t, c.CloseRead())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(-1)))
	found, ok := Find(outerConn{c})
	require.True(t, ok)
	require.Same(t, c, found)
	_, ok = Find(a)
	require.False(t, ok)
}

func TestUnsupported(t *testing.T) {
	tw := timingwheel.New()
	c := NewConn(&fakeConn{}, tw, Limits{})
	_, err := c.SyscallConn()
	for _, err := range []error{err, c.CloseWrite(), c.CloseRead()} {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s timeouts
		c, _, tw := pipe(t, Limits{Idle: second}, s.hook(time.Now()))
		require.Equal(t, 1, tw.Len())
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.Zero(t, tw.Len())
		c.SetLimits(Limits{ReadIdle: second})
		c.TouchRead(time.Now())
		require.Zero(t, tw.Len())
		time.Sleep(time.Hour)
		require.Zero(t, c.Reason())
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, io.ErrClosedPipe, err, "as it is")
	})
}

// A callback that was handed over before Close and runs after it does nothing.
func TestCheckAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := make(chan func(), 1)
		tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { checks <- f }))
		var s timeouts
		c := NewConn(&fakeConn{}, tw, Limits{Idle: second}, s.hook(time.Now()))
		check := <-checks
		c.Close()
		check()
		whys, _ := s.list()
		require.Empty(t, whys)
		require.Zero(t, c.Reason())
		require.Zero(t, tw.Len())

		c = NewConn(&fakeConn{}, tw, Limits{Idle: second}, s.hook(time.Now()))
		check = <-checks
		c.TouchRead(time.Now())
		check() // no longer due
		require.Zero(t, c.Reason())
		require.Equal(t, 1, tw.Len())
		c.Close()
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
			{"Read after the end was read", Limits{ReadIdle: 10 * second},
				func(c *Conn, inner *halfConn) { c.Read(nil) }, 0},
			{"Read after CloseRead", Limits{ReadIdle: 10 * second},
				func(c *Conn, inner *halfConn) { c.CloseRead() }, 0},
			{"Write after CloseWrite", Limits{WriteIdle: 10 * second},
				func(c *Conn, inner *halfConn) { c.CloseWrite() }, 0},
			{"Write after the end was read", Limits{WriteIdle: 10 * second},
				func(c *Conn, inner *halfConn) { c.Read(nil) }, 10 * second},
			{"Read after CloseWrite", Limits{ReadIdle: 10 * second},
				func(c *Conn, inner *halfConn) { c.CloseWrite() }, 10 * second},
			{"Lifetime", Limits{ReadIdle: 10 * second, Lifetime: 20 * second},
				func(c *Conn, inner *halfConn) { c.Read(nil); c.CloseWrite() }, 20 * second},
			{"Idle while one direction is open", Limits{Idle: 10 * second},
				func(c *Conn, inner *halfConn) { c.Read(nil) }, 10 * second},
			{"Idle when both are finished", Limits{Idle: 10 * second},
				func(c *Conn, inner *halfConn) { c.Read(nil); c.CloseWrite() }, 10 * second},
			{"a CloseWrite that fails", Limits{WriteIdle: 10 * second},
				func(c *Conn, inner *halfConn) { inner.err = errors.New("no"); c.CloseWrite() },
				10 * second},
		} {
			start := time.Now()
			var s timeouts
			tw := timingwheel.New()
			eof := func([]byte) (int, error) { return 0, io.EOF }
			inner := &halfConn{fakeConn: fakeConn{read: eof}}
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

// The end of the stream finishes reading also if io.Copy finds it, in each way of copying.
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

// Datagrams are not split.
func TestMessagesStayWhole(t *testing.T) {
	tw := timingwheel.New()
	for network, pieces := range map[string]int{
		"udp": 1, "udp4": 1, "unixpacket": 1, "unixgram": 1, "ip:1": 1, "pipe": 3, "tcp": 3,
	} {
		sizes := 0
		write := func(p []byte) (int, error) { sizes++; return len(p), nil }
		c := NewConn(&fakeConn{network: network, write: write}, tw, Limits{})
		n, err := c.Write(make([]byte, 2*writePiece+1))
		require.NoError(t, err)
		require.Equal(t, 2*writePiece+1, n)
		require.Equal(t, pieces, sizes, network)
	}
}

// The pieces of two goroutines' writes do not mix.
func TestWritesDoNotMix(t *testing.T) {
	tw := timingwheel.New()
	var got []byte
	c := NewConn(&fakeConn{write: func(p []byte) (int, error) {
		got = append(got, p[0], p[len(p)-1])
		time.Sleep(time.Millisecond)
		return len(p), nil
	}}, tw, Limits{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			p := make([]byte, 5*writePiece)
			for j := range p {
				p[j] = byte(i)
			}
			c.Write(p)
		})
	}
	wg.Wait()
	require.Len(t, got, 40)
	for i := range got {
		require.Equal(t, got[i/10*10], got[i])
	}
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

func TestFindThroughWrappers(t *testing.T) {
	c, _ := pair(t, newWheel(t), Limits{})
	for _, outer := range []net.Conn{
		c, &limited{Conn: c}, outerConn{&limited{Conn: c}}, struct{ *Conn }{c},
		tls.Server(&limited{Conn: c}, nil),
	} {
		found, ok := Find(outer)
		require.True(t, ok)
		require.Same(t, c, found)
	}
	for _, other := range []net.Conn{
		nil, &limited{}, struct{ *Conn }{}, opaque{c}, (*limited)(nil),
	} {
		_, ok := Find(other)
		require.False(t, ok)
	}
}

func TestListenerErrors(t *testing.T) {
	tw := newWheel(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := NewListener(l, tw, Limits{})
	require.Equal(t, l.Addr(), listener.Addr())
	require.NoError(t, listener.Close())
	_, err = listener.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	_, ok := err.(*net.OpError)
	require.True(t, ok, "as it is")
	_, err = NewListener(nilListener{}, tw, Limits{}).Accept()
	require.ErrorContains(t, err, "nil connection")
}

type nilListener struct{ net.Listener }

func (nilListener) Accept() (net.Conn, error) { return nil, nil }

// Accept calls no method of the connection that may block.
func TestAcceptDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		inner := &silentConn{closed: make(chan struct{})}
		l := NewListener(oneConn{inner}, tw, Limits{Idle: 10 * second})
		start := time.Now()
		c, err := l.Accept()
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		_, err = c.Write(make([]byte, 1<<20)) // may block
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 10*second, time.Since(start), "it has its limit")
	})
}

// silentConn waits for a header that never comes in all of its methods.
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

// A Conn with one limit stays small: it is one cache line, and 128 bytes with its Timer and the
// Timer's callback.
func TestSize(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Conn{}), uintptr(64))
	callback := 2 * unsafe.Sizeof(uintptr(0))
	timer := unsafe.Sizeof(timingwheel.Timer{})
	require.LessOrEqual(t, unsafe.Sizeof(Conn{})+timer+callback, uintptr(128))
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
