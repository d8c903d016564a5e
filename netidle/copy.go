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

// This file keeps io.Copy on sendfile and splice, in pieces small enough that progress is seen. Its
// loops hold no lock.
//
// They take these ways only where package net would: from a regular file, or between sockets. With
// any other reader, the inner connection's ReadFrom would hide progress until the reader has filled
// the piece. And any other type that has a SyscallConn may keep data in a buffer of its own, which
// the kernel does not know about.

const (
	// filePiece is how much of a file one ReadFrom of the inner connection sends. A peer that
	// takes less within a limit counts as idle if the kernel cannot be asked, so it should be
	// small. The cost of a piece, a few small system calls, must not show beside sending it. On
	// loopback, 64 MiB took the same processor time in one piece and in pieces of any size from
	// 64 KiB to 1 MiB.
	filePiece = 256 << 10

	// splicePiece is the most that goes from socket to socket at once. Usually less has arrived.
	splicePiece = 256 << 10

	// smallPiece is the size of the buffer for small pieces that go from socket to socket.
	smallPiece = 16 << 10
)

// way is how data is copied.
type way uint8

const (
	buffered way = iota // through a buffer
	byFile              // by ReadFrom of the inner connection, which uses sendfile
	bySplice            // in the kernel, from a socket to a socket or file
)

// ReadFrom copies from r to the connection until the end of r. It sends regular files with the
// inner connection's ReadFrom, which uses sendfile. On Linux, it copies from sockets of package net
// to TCP by splice. All else goes through a buffer. Each piece counts as a write.
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

// WriteTo copies from the connection to w until the end of the stream. On Linux, it uses splice if
// w is a file or a TCP connection, also one in a Conn. Otherwise the data goes through a buffer.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*Conn); ok {
		return to.ReadFrom(c)
	}
	if way, s := wayTo(w, c); way == bySplice {
		return splice(w.(io.ReaderFrom), nil, c, s)
	}
	return io.Copy(w, readerOnly{c})
}

// wayTo returns bySplice if data can go that way from source to the inner connection or file to.
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

// unlimit returns the reader inside the LimitedReaders around r, and how much they let through.
// http.Server passes a file in a LimitedReader.
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

// isRegularFile reports whether r is a regular file: an *os.File, or the type in which File.WriteTo
// passes one on.
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

// isOf reports whether the package declares the type of v, or the type that v points to.
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

// A socket is a stream socket of package net, on a system that can tell how much has arrived.
type socket struct {
	reader io.Reader // the net.Conn, or the type in which package net passes one on
	raw    syscall.RawConn
	conn   *Conn // the Conn on top of it, or nil
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

// splice copies from r, which contains the socket s, to a connection or file of package net or os.
// c is the Conn on top of that connection, or nil.
//
// Package net's splice of N bytes returns only when N bytes have arrived. For any N, a session with
// 40 bytes every ten seconds would look idle. So small pieces are read and written, with as few
// system calls as splice makes. Once a piece fills the buffer, splice asks the kernel how much more
// has arrived and lets exactly that through.
func splice(to io.ReaderFrom, c *Conn, r io.Reader, s socket) (n int64, err error) {
	var w io.Writer = to.(io.Writer)
	if c != nil {
		w = c
	}
	_, limit := unlimit(r)
	for large := false; limit > 0; {
		var moved int64
		if large {
			size := min(limit, splicePiece, int64(unread(s.raw)))
			if size < smallPiece {
				large = false
				continue
			}
			moved, err = s.spliceOnce(to, c, size)
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

// spliceOnce moves size bytes, which have arrived, in the kernel.
func (s *socket) spliceOnce(to io.ReaderFrom, c *Conn, size int64) (moved int64, err error) {
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
	return moved, err
}

// smallBuffers holds buffers for copySmall. It uses one only while it has bytes, because most
// connections of a proxy wait for some.
var smallBuffers = sync.Pool{New: func() any { return new([smallPiece]byte) }}

// copySmall waits for bytes, at most limit, and writes them to w. At the end of the stream the
// error is io.EOF.
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

// explain turns an error of the system call into the error that package net would return.
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

// explainCopy explains an error that may come from either end. An end that is not a Conn is nil.
func explainCopy(err error, to, from *Conn) error {
	if from != nil && from.why(reading) != 0 {
		return from.explain(err, reading)
	}
	if to != nil {
		return to.explain(err, writing)
	}
	return err
}
