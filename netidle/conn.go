package netidle

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/survive"
)

// # How it keeps time
//
// A Conn has one Timer, embedded, and two instants: of the last read and the last
// write. A touch is a clock reading and an atomic maximum of one of the instants; it
// does not touch the Timer. When the Timer fires, check computes from the instants
// when the first limit will be reached; if that is still ahead, it arms the Timer for
// it and is done. So a busy connection's Timer fires about once per limit, not once per
// packet.
//
// Pushing the Timer on with every touch was rejected. Several goroutines touch, and
// one that is preempted between its clock reading and Timer.ResetAt would move the
// deadline back to an earlier instant: the connection would be closed early. And one
// Timer would be needed for each limit. For the same reason a touch is a maximum and
// no plain store.
//
// # Locking
//
// mu guards what is below it and all arming of the Timer; it is held while the inner
// connection's send queue is looked at, but not while it is closed, its deadlines are
// set, or the hook runs. Read and Write do not take it. writing is taken before
// anything else and never together with mu.

// A Conn is a connection with limits, made by NewConn or Listener.Accept. All its
// methods may be called from any goroutine.
type Conn struct {
	// What Read and Write need comes first, in 64 bytes: among a thousand connections a
	// second cache line costs more than the clock.
	inner net.Conn  // fixed from construction on
	start time.Time // instant 0; fixed

	lastRead, lastWrite atomic.Int64 // nanoseconds since start; they only grow

	// touches says whether Read and Write touch: not for the other direction's limits or
	// Life, as the clock reading is most of the cost. Changed under mu. SetLimits changes
	// it before it reads the clock for readFrom and the others, so a Read that finds
	// nothing to do was over before that instant, and is not missed.
	touches atomic.Uint32 // touchReads and touchWrites
	pieces  bool          // Write goes in pieces, under writing; fixed

	opts *options        // fixed
	raw  syscall.RawConn // to look at the send queue; nil if that cannot be done; fixed

	// Why a direction is over; 0 while it is not. first is the reason of the first
	// that was. Written once each, under mu.
	readWhy, writeWhy, first atomic.Uint32

	writing sync.Mutex // keeps the pieces of one Write together

	mu     sync.Mutex
	closed bool
	limits Limits
	// A limit that was off counts from the SetLimits that set it, not from before.
	readFrom, writeFrom, idleFrom int64
	queue                         sendQueue // as last seen
	moved                         int64     // when the send queue was last known to move
	timer                         timingwheel.Timer
	backup                        *time.Timer // in place of timer if the wheel is stopped
}

const (
	// writePiece is how much Write hands to the inner connection at once where the
	// kernel cannot be asked how far it is. A peer that takes less than this within a
	// limit counts as idle, and a call for each must not be felt: a call costs a
	// microsecond or two, copying 64 KiB ten times that.
	writePiece = 64 << 10

	forever = math.MaxInt64

	touchReads, touchWrites = 1, 2 // bits of Conn.touches
)

// NewConn returns inner with limits, which count from now, on the wheel. It panics if
// inner or tw is nil or a limit negative. The Conn takes inner over: close the Conn.
//
// If the wheel has been stopped, or is while the connection lives, package time takes
// its place, so that no connection goes unguarded.
func NewConn(inner net.Conn, tw *timingwheel.TimingWheel, limits Limits, opts ...Option) *Conn {
	if inner == nil {
		panic("netidle: nil connection")
	}
	if tw == nil {
		panic("netidle: nil TimingWheel")
	}
	limits.check()
	return newConn(inner, tw, limits, newOptions(opts))
}

func newConn(inner net.Conn, tw *timingwheel.TimingWheel, limits Limits, opts *options) *Conn {
	c := &Conn{inner: inner, opts: opts, start: time.Now()}
	socket, isTCP := socketUnder(inner)
	if canLook && socket != nil {
		if raw, err := socket.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.pieces = !(c.raw != nil && isTCP) && isStream(inner)
	tw.Init(&c.timer, c.check)
	survive.Mark(&c.timer)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLimitsLocked(limits)
	c.armLocked()
	return c
}

// socketUnder returns the socket that inner writes to, if it is known.
func socketUnder(inner net.Conn) (socket syscall.Conn, isTCP bool) {
	switch inner := inner.(type) {
	case *tls.Conn:
		return socketUnder(inner.NetConn())
	case *Conn:
		return socketUnder(inner.inner)
	case *net.TCPConn:
		return inner, true
	case syscall.Conn:
		return inner, false
	}
	return nil, false
}

// isStream reports that what is written to inner may be split. Where writes are
// messages it must not be.
func isStream(inner net.Conn) bool {
	addr := inner.LocalAddr()
	if addr == nil {
		return true
	}
	network := addr.Network()
	return network != "unixgram" && network != "unixpacket" &&
		!strings.HasPrefix(network, "udp") && !strings.HasPrefix(network, "ip")
}

// Find returns the Conn that c is, or that lies under it: under a *tls.Conn, or
// whatever else has a NetConn method.
func Find(c net.Conn) (*Conn, bool) {
	for c != nil {
		if found, ok := c.(*Conn); ok {
			return found, true
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return nil, false
}

// NetConn returns the inner connection. Whoever reads or writes around the Conn
// calls TouchRead and TouchWrite.
func (c *Conn) NetConn() net.Conn { return c.inner }

// Reason returns the limit that was reached first, or 0 if none was.
func (c *Conn) Reason() Reason { return Reason(c.first.Load()) }

// now returns the monotonic instant.
func (c *Conn) now() int64 { return int64(time.Since(c.start)) }

// raise makes *last at least at. Goroutines touch in any order, and one that was
// preempted after its clock reading must not take back what others have seen since.
func raise(last *atomic.Int64, at int64) {
	for {
		old := last.Load()
		if at <= old || last.CompareAndSwap(old, at) {
			return
		}
	}
}

// TouchRead counts as a read at the given time: for callers that have read the clock
// already, or that read around the Conn. Cost: an atomic operation. The time is best
// one from time.Now; one without monotonic reading follows the wall clock. One in
// the past changes nothing if something was read since, and one in the future keeps
// the connection alive until then.
func (c *Conn) TouchRead(at time.Time) { raise(&c.lastRead, int64(at.Sub(c.start))) }

// TouchWrite is TouchRead for a write.
func (c *Conn) TouchWrite(at time.Time) { raise(&c.lastWrite, int64(at.Sub(c.start))) }

func (c *Conn) touchRead() {
	if c.touches.Load()&touchReads != 0 {
		raise(&c.lastRead, c.now())
	}
}

func (c *Conn) touchWrite() {
	if c.touches.Load()&touchWrites != 0 {
		raise(&c.lastWrite, c.now())
	}
}

// Read reads from the inner connection. It touches if it read anything.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.inner.Read(p)
	if n > 0 {
		c.touchRead()
	}
	if err != nil {
		err = c.explain(err, &c.readWhy)
	}
	return n, err
}

// Write writes to the inner connection. It touches if it wrote anything.
//
// A large Write to a slow peer must not look idle. For TCP on Linux check asks the
// kernel how far it is. Everywhere else Write goes in pieces and touches after each;
// a lock then keeps the pieces together, as writes of a net.Conn do not mix.
func (c *Conn) Write(p []byte) (int, error) {
	if c.pieces {
		return c.writePieces(p)
	}
	return c.write(p)
}

func (c *Conn) write(p []byte) (int, error) {
	n, err := c.inner.Write(p)
	if n > 0 {
		c.touchWrite()
	}
	if err != nil {
		err = c.explain(err, &c.writeWhy)
	}
	return n, err
}

func (c *Conn) writePieces(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(p) > writePiece {
		m, err := c.write(p[:writePiece])
		n += m
		if err != nil {
			return n, err
		}
		if m < writePiece {
			return n, io.ErrShortWrite
		}
		p = p[writePiece:]
	}
	m, err := c.write(p)
	return n + m, err
}

// Close closes the inner connection and ends the limits. It may be called again as
// far as that of the inner connection may.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.disarmLocked()
	c.mu.Unlock()
	return c.explain(c.inner.Close(), &c.first)
}

// LocalAddr returns the inner connection's.
func (c *Conn) LocalAddr() net.Addr { return c.inner.LocalAddr() }

// RemoteAddr returns the inner connection's.
func (c *Conn) RemoteAddr() net.Addr { return c.inner.RemoteAddr() }

// The deadlines are the inner connection's, and independent of the limits.
//
// With WithExpire a direction that is over has to stay over, whatever the owner sets:
// http.Server sets deadlines all the time. check publishes the reason before it sets
// the past deadline, and the owner looks for a reason after it has set its own. So if
// the owner's deadline comes last at the inner connection, the reason was published
// before it, and the owner finds it and sets the past one again:
//
//	check                      owner
//	publishes the reason
//	                           sets its deadline
//	sets the past deadline
//	                           finds the reason, sets the past deadline
//
// Without a reason found, the owner looked before it was published, so check's past
// deadline comes after the owner's.

// SetDeadline sets the inner connection's deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.inner.SetDeadline(t)
	c.keepRead()
	c.keepWrite()
	return c.explain(err, &c.first)
}

// SetReadDeadline sets the inner connection's deadline for reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.inner.SetReadDeadline(t)
	c.keepRead()
	return c.explain(err, &c.readWhy)
}

// SetWriteDeadline sets the inner connection's deadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	err := c.inner.SetWriteDeadline(t)
	c.keepWrite()
	return c.explain(err, &c.writeWhy)
}

// past is long ago. It is not the zero time, which means no deadline.
var past = time.Unix(1, 0)

func (c *Conn) keepRead() {
	if c.opts.expire && c.readWhy.Load() != 0 {
		c.inner.SetReadDeadline(past)
	}
}

func (c *Conn) keepWrite() {
	if c.opts.expire && c.writeWhy.Load() != 0 {
		c.inner.SetWriteDeadline(past)
	}
}

// CloseWrite shuts down the writing side of the inner connection. The error of one
// that cannot wraps errors.ErrUnsupported.
func (c *Conn) CloseWrite() error {
	inner, ok := c.inner.(interface{ CloseWrite() error })
	if !ok {
		return c.unsupported("CloseWrite")
	}
	return c.explain(inner.CloseWrite(), &c.writeWhy)
}

// CloseRead shuts down the reading side of the inner connection. The error of one
// that cannot wraps errors.ErrUnsupported.
func (c *Conn) CloseRead() error {
	inner, ok := c.inner.(interface{ CloseRead() error })
	if !ok {
		return c.unsupported("CloseRead")
	}
	return c.explain(inner.CloseRead(), &c.readWhy)
}

// SyscallConn returns the inner connection's. What is read and written by it does not
// touch. Package os cannot use it to send a file behind the Conn's back. The error of an inner connection that has none wraps errors.ErrUnsupported.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	inner, ok := c.inner.(syscall.Conn)
	if !ok {
		return nil, c.unsupported("SyscallConn")
	}
	raw, err := inner.SyscallConn()
	if err != nil {
		return nil, c.explain(err, &c.first)
	}
	return rawConn{raw}, nil
}

// rawConn has the methods of a syscall.RawConn and no others. That of package net has one
// more, by which File.WriteTo and File.ReadFrom get hold of the socket and send or
// receive a whole file around the Conn: no touch would be made, and the connection would
// be closed early.
type rawConn struct{ syscall.RawConn }

func (c *Conn) unsupported(what string) error {
	return fmt.Errorf("netidle: %s of a %T: %w", what, c.inner, errors.ErrUnsupported)
}
