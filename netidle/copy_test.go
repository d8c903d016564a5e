package netidle

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This file tests that io.Copy uses sendfile and splice, that what arrives is what was sent, and
// that a connection does not count as idle while data moves. It uses real sockets.

// recorder is an inner connection that records the arguments of its ReadFrom.
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

// The inner connection gets a file in pieces, in a form that package net can send by sendfile.
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
		{"limited", func(f *os.File) io.Reader { return io.LimitReader(f, filePiece+7) },
			filePiece + 7, 0, 2},
		{"limited twice",
			func(f *os.File) io.Reader { return io.LimitReader(io.LimitReader(f, 1000), 2000) },
			1000, 1000, 1},
		{"limited beyond its end",
			func(f *os.File) io.Reader { return io.LimitReader(f, size+filePiece) }, size,
			filePiece, 3},
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

// Readers other than regular files and sockets of package net must not reach the inner connection's
// ReadFrom, which would hide progress.
func TestOtherReadersAreBuffered(t *testing.T) {
	tw := newWheel(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	c, peer := pair(t, tw, Limits{})
	type embedded struct{ *net.TCPConn } // might have a buffer
	unix, _ := unixPair(t)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer udp.Close()
	for name, source := range map[string]io.Reader{
		"pipe": r, "strings": strings.NewReader("x"), "embedded": embedded{peer},
		"conn around another": NewConn(c, tw, Limits{}),
		"datagrams":           udp.(*net.UDPConn),
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

// Copies from each kind of source to each kind of destination go the right way and arrive complete.
func TestCopies(t *testing.T) {
	tw := newWheel(t)
	limits := Limits{ReadIdle: time.Minute, WriteIdle: time.Minute}
	tcp := func(t *testing.T) (net.Conn, net.Conn) {
		a, b := tcpPair(t)
		t.Cleanup(func() { a.Close(); b.Close() })
		return a, b
	}
	unix := func(t *testing.T) (net.Conn, net.Conn) { return unixPair(t) }
	type opener func(*testing.T) (net.Conn, net.Conn)
	wrapped := func(open opener) opener {
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
	n, err := io.CopyN(f, c, 1<<19) // File.ReadFrom, which must not reach the socket
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

// A copy that waits for its source returns ErrTimeout when the source reaches its limit.
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

// An interactive session over a proxy is not idle: it is a few bytes now and then.
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
