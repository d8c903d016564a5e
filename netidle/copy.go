package netidle

import (
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"reflect"
	"sync"
	"syscall"
)

// This file keeps io.Copy on sendfile and splice, in pieces small enough that progress
// is seen. Its loops hold no lock.
//
// The fast ways are taken only for what package net would take them for itself, a
// regular file or a socket at the other end. With any other reader the inner
// connection's ReadFrom would hide progress until the reader has filled the piece,
// and any other type that has a SyscallConn may keep data in a buffer of its own,
// which asking the kernel does not show.

const (
	// filePiece is how much of a file goes by one ReadFrom of the inner connection.
	// The cost of a piece, a few small system calls, must not show beside sending it, and
	// a peer that takes less within a limit counts as idle where the kernel cannot be
	// asked. On loopback the processor time of sending 64 MiB was that of sending it in
	// one, with any size from 64 KiB to 1 MiB.
	filePiece = 256 << 10

	// splicePiece is the most that goes from socket to socket at once. Usually it is
	// what has arrived, which is less.
	splicePiece = 256 << 10

	// smallPiece is the size of the buffer by which small pieces go from socket to socket.
	smallPiece = 16 << 10
)

// way is how a copy goes.
type way uint8

const (
	buffered way = iota // read and written
	byFile              // ReadFrom of the inner connection from a file: sendfile
	bySplice            // from socket to socket or file in the kernel
)

// ReadFrom copies from r until its end. Regular files go by the inner connection's
// ReadFrom, which knows sendfile; sockets of package net on Linux go to TCP by splice;
// everything else is read and written through a buffer. Each piece touches.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	switch way, s := c.wayFrom(r); way {
	case byFile:
		return c.sendFile(r)
	case bySplice:
		return splice(c.inner.(io.ReaderFrom), c, r, s)
	}
	return io.Copy(writerOnly{c}, r)
}

func (c *Conn) wayFrom(r io.Reader) (way, socket) {
	to, ok := c.inner.(io.ReaderFrom)
	if !ok {
		return buffered, socket{}
	}
	source, _ := unlimit(r)
	if isRegularFile(source) {
		return byFile, socket{}
	}
	return wayTo(to, source)
}

// WriteTo copies to w until the end of what can be read: by splice on Linux if w is a
// TCP connection, in a Conn or not, or a file; else through a buffer.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*Conn); ok {
		return to.ReadFrom(c)
	}
	if way, s := wayTo(w, c); way == bySplice {
		return splice(w.(io.ReaderFrom), nil, c, s)
	}
	return io.Copy(w, readerOnly{c})
}

// wayTo returns bySplice if that leads from source to the inner connection or file to.
func wayTo(to any, source io.Reader) (way, socket) {
	switch to.(type) {
	case *net.TCPConn, *os.File:
		if s, ok := socketOf(source); ok {
			return bySplice, s
		}
	}
	return buffered, socket{}
}

// writerOnly and readerOnly hide ReadFrom and WriteTo from io.Copy.
type (
	writerOnly struct{ io.Writer }
	readerOnly struct{ io.Reader }
)

// unlimit returns what is inside the LimitedReaders around r, and how much of it they
// let through. http.Server passes a file in one.
func unlimit(r io.Reader) (source io.Reader, limit int64) {
	limit = math.MaxInt64
	for {
		l, ok := r.(*io.LimitedReader)
		if !ok {
			return r, limit
		}
		limit = min(limit, max(l.N, 0))
		r = l.R
	}
}

// consume takes n from the LimitedReaders around r.
func consume(r io.Reader, n int64) {
	for {
		l, ok := r.(*io.LimitedReader)
		if !ok {
			return
		}
		l.N -= n
		r = l.R
	}
}

// isRegularFile recognises an *os.File and the type that package os puts around it
// when File.WriteTo hands it on.
func isRegularFile(r io.Reader) bool {
	f, ok := r.(interface {
		syscall.Conn
		Stat() (fs.FileInfo, error)
	})
	if !ok || !isOf("os", r) {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// isOf reports that the type of v, or what it points to, is one of the package's own.
func isOf(pkg string, v any) bool {
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == pkg
}

func (c *Conn) sendFile(r io.Reader) (n int64, err error) {
	if c.has(tracked) {
		defer c.begin(false)()
	}
	to := c.inner.(io.ReaderFrom)
	source, limit := unlimit(r)
	for limit > 0 {
		size := min(limit, filePiece)
		piece := io.LimitedReader{R: source, N: size}
		m, err := to.ReadFrom(&piece)
		if m > 0 {
			c.touch(touchWrites)
		}
		n, limit = n+m, limit-(size-piece.N)
		consume(r, size-piece.N)
		if err != nil {
			return n, c.explain(err, writing)
		}
		if m < size { // the end of the file
			break
		}
	}
	return n, nil
}

// A socket is a stream socket of package net, on a platform where the kernel can be
// asked what has arrived.
type socket struct {
	reader io.Reader // the net.Conn, or what package net puts around it
	raw    syscall.RawConn
	conn   *Conn // around it, or nil
}

// socketOf returns the socket that r is, if it is one.
func socketOf(r io.Reader) (s socket, ok bool) {
	if !canSplice {
		return s, false
	}
	s.reader = r
	if c, ok := r.(*Conn); ok {
		s.conn, s.reader = c, c.inner
	}
	sc, ok := s.reader.(syscall.Conn)
	if !ok || !isOf("net", s.reader) {
		return s, false
	}
	conn, ok := s.reader.(net.Conn)
	if !ok {
		return s, false
	}
	switch conn.LocalAddr().Network() {
	case "tcp", "unix":
	default:
		return s, false
	}
	raw, err := sc.SyscallConn()
	s.raw = raw
	return s, err == nil
}

// splice copies from r, in which there is the socket s, to a connection or file of package net
// or os, which c is around if it is not nil.
//
// Given a piece of N bytes, package net's splice returns only when N bytes have come, and a
// session in which 40 bytes come every ten seconds would look idle for any N. So what comes in
// small pieces is read and written, by as few system calls as splice makes. Once a piece fills
// the buffer the kernel is asked how much more has arrived, and exactly that is let through.
func splice(to io.ReaderFrom, c *Conn, r io.Reader, s socket) (n int64, err error) {
	var w io.Writer = to.(io.Writer)
	if c != nil {
		w = c
	}
	_, limit := unlimit(r)
	for large := false; limit > 0; {
		var moved int64
		if size := min(limit, splicePiece); large {
			size = min(size, int64(unread(s.raw)))
			if large = size >= smallPiece; !large {
				continue
			}
			piece := io.LimitedReader{R: s.reader, N: size}
			_, err = to.ReadFrom(&piece)
			moved = size - piece.N
			if moved > 0 && s.conn != nil {
				s.conn.received(moved)
			}
			if moved > 0 && c != nil {
				c.touch(touchWrites)
			}
			if err != nil {
				err = explainCopy(err, c, s.conn)
			}
		} else {
			moved, err = s.copySmall(w, min(limit, smallPiece))
			large = moved == smallPiece
		}
		if moved > 0 && s.conn != nil {
			s.conn.touch(touchReads)
		}
		n, limit = n+moved, limit-moved
		consume(r, moved)
		if err == io.EOF {
			if s.conn != nil {
				s.conn.finish(readDone)
			}
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// smallBuffers holds buffers for copySmall, which has one only while it has bytes: a proxy has
// many connections that wait.
var smallBuffers = sync.Pool{New: func() any { return new([smallPiece]byte) }}

// copySmall waits for bytes, at most limit, and writes them to w. The error is io.EOF at the end
// of what can be read.
func (s *socket) copySmall(w io.Writer, limit int64) (n int64, err error) {
	buffer := smallBuffers.Get().(*[smallPiece]byte)
	defer func() {
		if buffer != nil {
			smallBuffers.Put(buffer)
		}
	}()
	size := 0
	var failed error
	err = s.raw.Read(func(fd uintptr) bool {
		if buffer == nil {
			buffer = smallBuffers.Get().(*[smallPiece]byte)
		}
		size, failed = readRaw(fd, buffer[:limit])
		if failed == errWouldBlock {
			smallBuffers.Put(buffer)
			buffer = nil
			return false
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, s.explain(err)
	}
	if size == 0 {
		return 0, io.EOF
	}
	if s.conn != nil {
		s.conn.received(int64(size))
	}
	written, err := w.Write(buffer[:size])
	if err == nil && written < size {
		err = io.ErrShortWrite
	}
	return int64(written), err
}

// explain makes of an error of the system call what package net makes of it.
func (s *socket) explain(err error) error {
	conn := s.reader.(net.Conn)
	local := conn.LocalAddr()
	outer := &net.OpError{Op: "read", Net: local.Network(), Source: local, Addr: conn.RemoteAddr()}
	outer.Err = err
	switch err := err.(type) {
	case *net.OpError: // from package net's RawConn
		outer.Err = err.Err
	case syscall.Errno:
		outer.Err = os.NewSyscallError("read", err)
	}
	if s.conn != nil {
		return s.conn.explain(outer, reading)
	}
	return outer
}

// explainCopy explains an error that may be of either end; an end that is not a Conn is nil.
func explainCopy(err error, to, from *Conn) error {
	if from != nil && from.why(reading) != 0 {
		return from.explain(err, reading)
	}
	if to != nil {
		return to.explain(err, writing)
	}
	return err
}
