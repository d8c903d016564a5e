package netidle

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// This file holds the Conn and the methods of a net.Conn.
//
// # How it keeps time
//
// A Conn has one Timer and the instant of its last read or write. A touch reads the clock and
// raises that instant by an atomic maximum; it leaves the Timer alone. When the Timer fires, check
// computes from the instants when the first limit will be reached. If that is in the future, check
// arms the Timer for it and returns. So the Timer of a busy connection fires about once per limit,
// not once per packet.
//
// Extending the Timer with every touch was rejected. Several goroutines touch. One that is
// preempted between its clock reading and Timer.ResetAt would move the deadline back to an earlier
// instant, and the connection would be closed early. Each limit would also need its own Timer. A
// touch is a maximum and not a plain store for the same reason.
//
// # Memory
//
// A thousand connections do not fit into the processor's caches, so all that Read and Write use
// must lie in one cache line. A Conn is 64 bytes, which the allocator aligns to 64, and the Timer
// is an object of its own. A connection with one limit shares its config with others of its
// Listener. What only some connections need is in more.
//
// # Locking
//
// mu guards the fields that say so, and all arming of the Timer. It is held while the kernel is
// asked about the socket. It is not held while the inner connection is closed, while its deadlines
// are set, or while the hook runs. Read and Write take it only if the Conn is tracked. more.writing
// comes before all other locks and is never held together with mu.

// A Conn is a connection with limits. NewConn and Listener.Accept make one. Multiple goroutines may
// invoke methods on a Conn simultaneously.
type Conn struct {
	inner  net.Conn               // fixed
	config atomic.Pointer[config] // replaced under mu
	state  atomic.Uint32          // changed under mu, one bit or reason at a time

	// last is the instant of the last read or write that a limit depends on, in nanoseconds since
	// options.epoch. With Limits.Due alone it is the instant of SetLimits. It only grows. If state
	// has apart, more has two instants that replace it.
	last atomic.Int64

	mu    sync.Mutex
	born  int64              // fixed
	timer *timingwheel.Timer // fixed
}

// NewConn returns a Conn on top of inner with the given limits, which count from now. Its timer is
// on tw. The caller must close the Conn instead of inner. NewConn calls no method of inner that may
// block. It panics if inner or tw is nil or if a limit is negative.
//
// If the wheel is stopped, before or afterwards, package time takes over, and the limits still
// hold.
func NewConn(inner net.Conn, tw *timingwheel.TimingWheel, limits Limits, opts ...Option) *Conn {
	if inner == nil {
		panic("netidle: nil connection")
	}
	if tw == nil {
		panic("netidle: nil TimingWheel")
	}
	limits.check()
	return newConn(inner, tw, &config{options: newOptions(opts), limits: limits})
}

func newConn(inner net.Conn, tw *timingwheel.TimingWheel, shared *config) *Conn {
	c := &Conn{inner: inner, timer: new(timingwheel.Timer), born: shared.now()}
	c.last.Store(c.born)
	c.config.Store(shared)
	tw.Init(c.timer, c.check)
	inside.Hooks.Outlive(c.timer)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(abilities(inner) | shared.touches())
	if c.has(tracked) {
		socket := inner
		if shared.socket != nil {
			socket = shared.socket(inner)
		}
		socket = socketUnder(socket)
		c.moreLocked().socket = socket
		c.addLocked(apart | sendAbilities(socket)&(asksTCP|samples))
		if canAskReads && socket != nil {
			c.addLocked(asksReads)
		}
	}
	if c.has(pieces) {
		c.moreLocked()
	}
	if shared.limits.several() || shared.activity {
		c.moreLocked()
		c.addLocked(apart)
	}
	c.armLocked()
	return c
}

// NetConn returns the inner connection. Callers that read or write on it directly should call
// TouchRead and TouchWrite.
func (c *Conn) NetConn() net.Conn { return c.inner }

// Reason returns the limit that was reached first, or 0 if none was.
func (c *Conn) Reason() Reason { return c.why(either) }

// Read reads from the inner connection. It counts as a read if it returns any bytes.
func (c *Conn) Read(p []byte) (int, error) {
	if c.has(tracked | counted) {
		return c.readTracked(p)
	}
	n, err := c.inner.Read(p)
	if n > 0 {
		c.touch(touchReads)
	}
	if err != nil {
		err = c.readFailed(err)
	}
	return n, err
}

// readFailed explains an error of Read. The end of the stream finishes reading.
func (c *Conn) readFailed(err error) error {
	if err == io.EOF {
		c.finish(readDone)
		return err
	}
	return c.explain(err, reading)
}

// Write writes to the inner connection. It counts as a write if it writes any bytes.
//
// A large Write to a slow peer does not look idle. For TCP on Linux, the kernel knows how much the
// peer has taken. Elsewhere Write splits p into pieces, each of which counts as a write, and holds
// a lock so that those of two goroutines do not mix.
func (c *Conn) Write(p []byte) (int, error) {
	if c.has(tracked | pieces) {
		return c.writeTracked(p)
	}
	return c.write(p)
}

func (c *Conn) write(p []byte) (int, error) {
	n, err := c.inner.Write(p)
	if n > 0 {
		c.touch(touchWrites)
	}
	if err != nil {
		err = c.explain(err, writing)
	}
	return n, err
}

// WriteBuffers writes v as v.WriteTo(c.NetConn()) does: with one system call for many buffers, if
// the inner connection can. It counts as a write if it writes any bytes. In contrast, v.WriteTo(c)
// calls Write for each buffer, because package net uses writev for its own types only.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	if c.has(tracked | pieces) {
		return v.WriteTo(writerOnly{c})
	}
	n, err := v.WriteTo(c.inner)
	if n > 0 {
		c.touch(touchWrites)
	}
	if err != nil {
		err = c.explain(err, writing)
	}
	return n, err
}

// Close closes the inner connection and ends the limits. No hook begins after Close has returned,
// but Close does not wait for a hook that is running. Calling Close again closes the inner
// connection again.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.addLocked(closed)
	c.disarmLocked()
	c.mu.Unlock()
	return c.explain(c.inner.Close(), either)
}

// LocalAddr returns the inner connection's local address.
func (c *Conn) LocalAddr() net.Addr { return c.inner.LocalAddr() }

// RemoteAddr returns the inner connection's remote address.
func (c *Conn) RemoteAddr() net.Addr { return c.inner.RemoteAddr() }

// The deadlines are those of the inner connection, and independent of the limits.
//
// With WithExpire a direction that has reached a limit must stay expired whatever deadlines the
// owner sets: http.Server sets many. check publishes the reason before it sets the past deadline,
// and the owner looks for a reason after it has set its own. If the owner's deadline arrives last
// at the inner connection, the reason was published before, so the owner finds it and sets the
// past deadline again:
//
//	check                      owner
//	publishes the reason
//	                           sets its deadline
//	sets the past deadline
//	                           finds the reason, sets the past deadline
//
// If the owner finds no reason, it looked before the reason was published, so check's past
// deadline arrives after the owner's.

// SetDeadline sets the read and write deadlines of the inner connection.
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.inner.SetDeadline(t)
	c.keepReadExpired()
	c.keepWriteExpired()
	return c.explain(err, either)
}

// SetReadDeadline sets the read deadline of the inner connection.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.inner.SetReadDeadline(t)
	c.keepReadExpired()
	return c.explain(err, reading)
}

// SetWriteDeadline sets the write deadline of the inner connection.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	err := c.inner.SetWriteDeadline(t)
	c.keepWriteExpired()
	return c.explain(err, writing)
}

// past is long ago. It is not the zero time, which means no deadline.
var past = time.Unix(1, 0)

func (c *Conn) keepReadExpired() {
	if c.why(reading) != 0 && c.config.Load().expire {
		c.inner.SetReadDeadline(past)
	}
}

func (c *Conn) keepWriteExpired() {
	if c.why(writing) != 0 && c.config.Load().expire {
		c.inner.SetWriteDeadline(past)
	}
}

// CloseWrite shuts down the writing side of the inner connection. Writing then has no limit. If
// the inner connection has no CloseWrite, the error wraps errors.ErrUnsupported.
func (c *Conn) CloseWrite() error {
	inner, ok := c.inner.(interface{ CloseWrite() error })
	if !ok {
		return c.unsupported("CloseWrite")
	}
	err := inner.CloseWrite()
	if err == nil {
		c.finish(writeDone)
	}
	return c.explain(err, writing)
}

// CloseRead shuts down the reading side of the inner connection. Reading then has no limit. If the
// inner connection has no CloseRead, the error wraps errors.ErrUnsupported.
func (c *Conn) CloseRead() error {
	inner, ok := c.inner.(interface{ CloseRead() error })
	if !ok {
		return c.unsupported("CloseRead")
	}
	err := inner.CloseRead()
	if err == nil {
		c.finish(readDone)
	}
	return c.explain(err, reading)
}

// finish records that a direction is finished. which is readDone or writeDone.
func (c *Conn) finish(which uint32) {
	if c.has(which) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(which)
	c.armLocked()
}

// SyscallConn returns a raw connection of the inner connection. Reads and writes through it do not
// count. Package os does not use it to send files past the Conn. If the inner connection has no
// SyscallConn, the error wraps errors.ErrUnsupported.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	inner, ok := c.inner.(syscall.Conn)
	if !ok {
		return nil, c.unsupported("SyscallConn")
	}
	raw, err := inner.SyscallConn()
	if err != nil {
		return nil, c.explain(err, either)
	}
	return rawConn{raw}, nil
}

// rawConn has the methods of a syscall.RawConn and no others. Package net's has one more, with
// which File.WriteTo and File.ReadFrom would send or receive a whole file past the Conn. Nothing
// would touch, and the connection would be closed early.
type rawConn struct{ syscall.RawConn }

func (c *Conn) unsupported(what string) error {
	return fmt.Errorf("netidle: %s of a %T: %w", what, c.inner, errors.ErrUnsupported)
}
