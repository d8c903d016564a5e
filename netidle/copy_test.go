package netidle

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests that io.Copy takes the fast ways, that what arrives is what was sent,
// and that nothing is taken for idle while it moves. It uses real sockets.

// newWheel returns a wheel on which nothing may be pending at the end.
func newWheel(t testing.TB) *timingwheel.TimingWheel {
	tw := timingwheel.New()
	t.Cleanup(func() {
		require.Zero(t, tw.Len())
		tw.Stop()
	})
	return tw
}

// pair returns a Conn and its peer, both closed at the end of the test.
func pair(t testing.TB, tw *timingwheel.TimingWheel, limits Limits, opts ...Option) (*Conn, *net.TCPConn) {
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

// recorder is an inner connection that sees what its ReadFrom is given.
type recorder struct {
	*net.TCPConn
	mu    sync.Mutex
	calls []string
}

func (c *recorder) ReadFrom(r io.Reader) (int64, error) {
	l, ok := r.(*io.LimitedReader)
	call := fmt.Sprintf("%T", r)
	if ok {
		call = fmt.Sprintf("%d bytes of %T", l.N, l.R)
	}
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	return c.TCPConn.ReadFrom(r)
}

// A file reaches the inner connection as what package net knows how to send, in pieces.
func TestFileToInner(t *testing.T) {
	tw := newWheel(t)
	const size = 2*filePiece + 1000
	for _, test := range []struct {
		name   string
		source func(f *os.File) io.Reader
		want   int
		left   int64 // of the outer LimitedReader
		pieces int
	}{
		{"file", func(f *os.File) io.Reader { return f }, size, -1, 3},
		{"limited", func(f *os.File) io.Reader { return io.LimitReader(f, filePiece+7) }, filePiece + 7, 0, 2},
		{"limited twice", func(f *os.File) io.Reader { return io.LimitReader(io.LimitReader(f, 1000), 2000) }, 1000, 1000, 1},
		{"limited beyond its end", func(f *os.File) io.Reader { return io.LimitReader(f, size+filePiece) }, size, filePiece, 3},
		{"limited to nothing", func(f *os.File) io.Reader { return io.LimitReader(f, 0) }, 0, 0, 0},
		{"limited to less", func(f *os.File) io.Reader { return io.LimitReader(f, -1) }, 0, -1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, data := randomFile(t, size)
			a, b := tcpPair(t)
			inner := &recorder{TCPConn: a}
			c := NewConn(inner, tw, Limits{WriteIdle: time.Minute})
			received := make(chan []byte)
			go func() {
				got, _ := io.ReadAll(b)
				received <- got
			}()
			source := test.source(f)
			before := c.lastWrite()
			n, err := io.Copy(c, source)
			require.NoError(t, err)
			require.EqualValues(t, test.want, n)
			c.Close()
			require.True(t, bytes.Equal(data[:test.want], <-received))
			b.Close()
			require.Len(t, inner.calls, test.pieces)
			for _, call := range inner.calls {
				require.Regexp(t, `^\d+ bytes of (\*os\.File|os\.fileWithoutWriteTo)$`, call)
			}
			require.Equal(t, test.pieces > 0, c.lastWrite() > before)
			if l, ok := source.(*io.LimitedReader); ok && test.left >= 0 {
				require.Equal(t, test.left, l.N)
			}
		})
	}
}

// What is no regular file and no socket of package net must not go to the inner
// connection's ReadFrom, which would hide its progress.
func TestOtherReadersAreBuffered(t *testing.T) {
	tw := newWheel(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	c, peer := pair(t, tw, Limits{})
	type embedded struct{ *net.TCPConn } // might keep a buffer
	unix, _ := unixPair(t)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer udp.Close()
	for name, source := range map[string]io.Reader{
		"pipe": r, "strings": strings.NewReader("x"), "embedded": embedded{peer}, "conn around another": NewConn(c, tw, Limits{}),
		"datagrams": udp.(*net.UDPConn),
	} {
		way, _ := c.wayFrom(source)
		require.Equal(t, buffered, way, name)
	}
	unixConn := NewConn(unix, tw, Limits{})
	way, _ := unixConn.wayFrom(peer)
	require.Equal(t, buffered, way, "package net knows no splice to a unix socket in pieces")
	way, _ = wayTo(unix, c)
	require.Equal(t, buffered, way)
	way, _ = wayTo(new(bytes.Buffer), c)
	require.Equal(t, buffered, way)
}

// Every source to every destination: the way it goes, and that all of it arrives.
func TestCopies(t *testing.T) {
	tw := newWheel(t)
	limits := Limits{ReadIdle: time.Minute, WriteIdle: time.Minute}
	tcp := func(t *testing.T) (net.Conn, net.Conn) {
		a, b := tcpPair(t)
		t.Cleanup(func() { a.Close(); b.Close() })
		return a, b
	}
	unix := func(t *testing.T) (net.Conn, net.Conn) { return unixPair(t) }
	wrapped := func(open func(*testing.T) (net.Conn, net.Conn)) func(*testing.T) (net.Conn, net.Conn) {
		return func(t *testing.T) (net.Conn, net.Conn) {
			a, b := open(t)
			c := NewConn(a, tw, limits)
			t.Cleanup(func() { c.Close() })
			return c, b
		}
	}
	ends := []struct {
		name string
		open func(*testing.T) (net.Conn, net.Conn)
	}{{"tcp", tcp}, {"unix", unix}, {"wrapped tcp", wrapped(tcp)}, {"wrapped unix", wrapped(unix)}}
	for _, from := range ends {
		for _, to := range ends {
			if !strings.HasPrefix(from.name, "w") && !strings.HasPrefix(to.name, "w") {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				const size = 3<<20 + 11
				src, feed := from.open(t)
				dst, sink := to.open(t)
				wantWay := buffered
				if strings.HasSuffix(to.name, "tcp") && canSplice {
					wantWay = bySplice
				}
				if c, ok := dst.(*Conn); ok {
					way, _ := c.wayFrom(src)
					require.Equal(t, wantWay, way)
				} else {
					way, _ := wayTo(dst, src)
					require.Equal(t, wantWay, way)
				}
				data := make([]byte, size)
				rand.Read(data)
				received := make(chan []byte)
				go func() {
					got, _ := io.ReadAll(sink)
					received <- got
				}()
				go func() {
					feed.Write(data)
					feed.(interface{ CloseWrite() error }).CloseWrite()
				}()
				limited := &io.LimitedReader{R: src, N: 1 << 20}
				n, err := io.Copy(dst, limited)
				require.NoError(t, err)
				require.EqualValues(t, 1<<20, n)
				require.Zero(t, limited.N)
				n, err = io.Copy(dst, src)
				require.NoError(t, err)
				require.EqualValues(t, size-1<<20, n)
				dst.Close()
				require.True(t, bytes.Equal(data, <-received))
				if c, ok := src.(*Conn); ok {
					require.Greater(t, c.config.Load().more.lastRead.Load(), c.born)
					require.Zero(t, c.config.Load().more.lastWrite.Load())
				}
				if c, ok := dst.(*Conn); ok {
					require.Greater(t, c.config.Load().more.lastWrite.Load(), c.born)
					require.Zero(t, c.config.Load().more.lastRead.Load())
				}
			})
		}
	}
}

func TestCopyToFile(t *testing.T) {
	tw := newWheel(t)
	c, peer := pair(t, tw, Limits{ReadIdle: time.Minute})
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close()
	data := make([]byte, 1<<20)
	rand.Read(data)
	go func() {
		peer.Write(data)
		peer.CloseWrite()
	}()
	n, err := io.CopyN(f, c, 1<<19) // File.ReadFrom, which must not get hold of the socket
	require.NoError(t, err)
	require.EqualValues(t, 1<<19, n)
	touched := c.lastRead()
	require.Positive(t, touched)
	n, err = io.Copy(f, c)
	require.NoError(t, err)
	require.EqualValues(t, len(data)-1<<19, n)
	require.Greater(t, c.lastRead(), touched)
	got, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// A copy that waits for its source ends when the source's limit is reached, and says so.
func TestCopyEndsWithItsSource(t *testing.T) {
	tw := newWheel(t)
	for _, opts := range [][]Option{nil, {WithExpire()}} {
		from, _ := pair(t, tw, Limits{ReadIdle: 20 * time.Millisecond}, opts...)
		to, _ := pair(t, tw, Limits{})
		_, err := io.Copy(to, from)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "read idle")
	}
}

// moving runs transfer, in which steps are made every so often, and expects that no
// connection reaches its limit meanwhile. If this machine stalls so long that one may
// have, it tries again.
func moving(t *testing.T, limit time.Duration, transfer func(t *testing.T, opt Option, step func()) error) {
	t.Helper()
	t.Parallel()
	for range 5 {
		var s struck
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

// An interactive session over a proxy: a few bytes now and then.
func TestTrickleOverSplice(t *testing.T) {
	tw := newWheel(t)
	moving(t, movingLimit, func(t *testing.T, opt Option, step func()) error {
		from, feed := pair(t, tw, Limits{ReadIdle: movingLimit}, opt)
		to, sink := pair(t, tw, Limits{WriteIdle: movingLimit}, opt)
		go io.Copy(io.Discard, sink)
		copied := make(chan error)
		go func() {
			_, err := io.Copy(to, from)
			copied <- err
		}()
		for range 3 * movingLimit / movingStep {
			time.Sleep(movingStep)
			feed.Write(make([]byte, 40))
			step()
		}
		feed.CloseWrite()
		err := <-copied
		from.Close()
		to.Close()
		return err
	})
}

// slowly reads n bytes, so many a step.
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

// A download by a slow client, for which the kernel buffers much and wakes the writer
// seldom: once for 100 KB or so, which take longer than the limit.
func TestSlowReceiver(t *testing.T) {
	if !canAskTCP {
		t.Skip("the kernel cannot be asked")
	}
	const (
		buffers = 450 << 10 // more than goes into the buffers below
		perStep = 4 << 10
	)
	for name, send := range map[string]func(c *Conn, data []byte, f *os.File) error{
		"Write": func(c *Conn, data []byte, _ *os.File) error { return second2(c.Write(data)) },
		"file":  func(c *Conn, _ []byte, f *os.File) error { return second2(io.Copy(c, f)) },
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

// A peer that takes nothing is closed, bytes under way or not.
func TestStuckReceiver(t *testing.T) {
	for name, wrap := range map[string]func(t *testing.T) net.Conn{
		"tcp":  func(t *testing.T) net.Conn { a, b := tcpPair(t); t.Cleanup(func() { b.Close() }); return a },
		"unix": func(t *testing.T) net.Conn { a, _ := unixPair(t); return a },
		"pipe": func(t *testing.T) net.Conn { a, b := net.Pipe(); t.Cleanup(func() { b.Close() }); return a },
	} {
		for _, limits := range []Limits{{WriteIdle: 50 * time.Millisecond}, {Idle: 50 * time.Millisecond}} {
			t.Run(name, func(t *testing.T) {
				start := time.Now()
				var s struck
				c := NewConn(wrap(t), newWheel(t), limits, s.hook(start))
				var err error
				for err == nil {
					_, err = c.Write(make([]byte, 1<<20))
				}
				require.ErrorIs(t, err, ErrTimeout)
				require.ErrorIs(t, err, net.ErrClosed)
				require.Eventually(t, func() bool { whys, _ := s.list(); return len(whys) == 1 }, 10*time.Second, time.Millisecond)
				_, at := s.list()
				require.GreaterOrEqual(t, at[0], 50*time.Millisecond)
			})
		}
	}
}

// Looking ends when the limit is lifted, and when it was reached.
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
			tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { checks.Add(1); go f() }))
			a, b := tcpPair(t)
			defer b.Close()
			c := NewConn(a, tw, Limits{Lifetime: time.Hour}, WithExpire())
			defer c.Close()
			written := make(chan error, 1)
			go func() {
				_, err := c.Write(make([]byte, 64<<20)) // more than the buffers take
				written <- err
			}()
			require.Eventually(t, func() bool { queue, _ := ask(c.inner); return queue.queued > 0 }, 30*time.Second, time.Millisecond)
			c.SetLimits(Limits{WriteIdle: 100 * time.Millisecond, Lifetime: time.Hour})
			require.Eventually(t, func() bool { return checks.Load() > 1 }, 30*time.Second, time.Millisecond)
			end(c, written)
			time.Sleep(20 * time.Millisecond)
			before := checks.Load()
			time.Sleep(300 * time.Millisecond)
			require.LessOrEqual(t, checks.Load()-before, int64(1))
		})
	}
}
