package netidle

import (
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds the wheels, connections and layers that several test files use.

const second = time.Second

// times are durations since the start of a test.
type times = []time.Duration

func errorOf[A, B any](_ A, b B) B { return b }

// timeouts records the calls of a hook.
type timeouts struct {
	mu   sync.Mutex
	whys []Reason
	at   []time.Duration // since start
}

func (s *timeouts) hook(start time.Time) Option {
	return WithOnTimeout(func(_ *Conn, why Reason) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.whys = append(s.whys, why)
		s.at = append(s.at, time.Since(start))
	})
}

func (s *timeouts) list() ([]Reason, []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whys, s.at
}

// newWheel returns a wheel on which nothing may be pending at the end of the test.
func newWheel(t testing.TB) *timingwheel.TimingWheel {
	tw := timingwheel.New()
	t.Cleanup(func() {
		require.Zero(t, tw.Len())
		tw.Stop()
	})
	return tw
}

// pipe returns a Conn, its peer and its wheel. Another goroutine reads from the peer all the time.
func pipe(t *testing.T, limits Limits, opts ...Option) (*Conn, net.Conn, *timingwheel.TimingWheel) {
	t.Helper()
	tw := timingwheel.New()
	inner, peer := net.Pipe()
	c := NewConn(inner, tw, limits, opts...)
	go io.Copy(io.Discard, peer)
	t.Cleanup(func() {
		c.Close()
		peer.Close()
		require.Zero(t, tw.Len())
		tw.Stop()
	})
	return c, peer, tw
}

// tcpPair returns both ends of a connection, which the test closes.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	return accepted.(*net.TCPConn), dialled.(*net.TCPConn)
}

// pair returns a Conn and its peer, both closed at the end of the test.
func pair(t testing.TB, tw *timingwheel.TimingWheel, limits Limits, opts ...Option) (*Conn,
	*net.TCPConn) {
	a, b := tcpPair(t)
	c := NewConn(a, tw, limits, opts...)
	t.Cleanup(func() { c.Close(); b.Close() })
	return c, b
}

func unixPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("not on Windows")
	}
	dir, err := os.MkdirTemp("", "netidle") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	defer l.Close()
	dialled, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { accepted.Close(); dialled.Close() })
	return accepted.(*net.UnixConn), dialled.(*net.UnixConn)
}

// fakeTCP returns a closed TCP connection.
func fakeTCP(t *testing.T) *net.TCPConn {
	a, b := tcpPair(t)
	a.Close()
	b.Close()
	return a
}

// fakeConn is an inner connection whose reads and writes are functions, and which has no other
// abilities.
type fakeConn struct {
	net.Conn
	network     string
	read, write func([]byte) (int, error)
}

func (c *fakeConn) Read(p []byte) (int, error)       { return c.read(p) }
func (c *fakeConn) Write(p []byte) (int, error)      { return c.write(p) }
func (c *fakeConn) Close() error                     { return nil }
func (c *fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (c *fakeConn) SetWriteDeadline(time.Time) error { return nil }
func (c *fakeConn) LocalAddr() net.Addr              { return fakeAddr(c.network) }

type fakeAddr string

func (a fakeAddr) Network() string { return string(a) }
func (a fakeAddr) String() string  { return string(a) }

type oneConn struct{ c net.Conn }

func (l oneConn) Accept() (net.Conn, error) { return l.c, nil }
func (l oneConn) Close() error              { return nil }
func (l oneConn) Addr() net.Addr            { return fakeAddr("tcp") }

var layers = map[string]func(net.Conn) net.Conn{
	"socket":  func(c net.Conn) net.Conn { return c },
	"wrapper": func(c net.Conn) net.Conn { return &limited{Conn: c} },
	"opaque":  func(c net.Conn) net.Conn { return opaque{c} },
}

// limited is a copy of the type that netutil.LimitListener puts around a connection.
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

// opaque is a layer through which netidle cannot look.
type opaque struct{ inner net.Conn }

func (c opaque) Read(p []byte) (int, error)         { return c.inner.Read(p) }
func (c opaque) Write(p []byte) (int, error)        { return c.inner.Write(p) }
func (c opaque) Close() error                       { return c.inner.Close() }
func (c opaque) LocalAddr() net.Addr                { return c.inner.LocalAddr() }
func (c opaque) RemoteAddr() net.Addr               { return c.inner.RemoteAddr() }
func (c opaque) SetDeadline(t time.Time) error      { return c.inner.SetDeadline(t) }
func (c opaque) SetReadDeadline(t time.Time) error  { return c.inner.SetReadDeadline(t) }
func (c opaque) SetWriteDeadline(t time.Time) error { return c.inner.SetWriteDeadline(t) }

type outerConn struct{ net.Conn }

func (c outerConn) NetConn() net.Conn { return c.Conn }

func randomFile(t testing.TB, size int) (*os.File, []byte) {
	t.Helper()
	data := make([]byte, size)
	rand.Read(data)
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, data, 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, data
}
