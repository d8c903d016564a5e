package netidle

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// # How it keeps time
//
// A Conn has one Timer and the instant of its last read or write. A touch is a clock reading
// and an atomic maximum of that instant; it leaves the Timer alone. When the Timer fires, check
// computes from the instants when the first limit will be reached. If that is still ahead,
// check arms the Timer for it and returns. So the Timer of a busy connection fires about once
// per limit, not once per packet.
//
// Extending the Timer with every touch was rejected. Several goroutines touch, and one that is
// preempted between its clock reading and Timer.ResetAt would move the deadline back to an
// earlier instant: the connection would be closed early. And each limit would need a Timer. For
// the same reason a touch is a maximum and not a plain store.
//
// # Memory
//
// A thousand connections do not fit into the processor's caches, so what Read and Write use
// must lie in one cache line. A Conn is 64 bytes, which the allocator aligns to 64; the Timer is
// an object of its own. A connection with one limit shares its config with the others of its
// Listener. What only some connections need is in more.
//
// # Locking
//
// mu guards what is marked so, and all arming of the Timer. It is held while the kernel is
// asked about the socket, but not while the inner connection is closed or its deadlines are
// set, nor while the hook runs. Read and Write take it only if they are tracked. more.writing
// is taken before anything else and never together with mu.

// A Conn is a connection with limits, made by NewConn or Listener.Accept. All its methods may
// be called from any goroutine.
type Conn struct {
	inner  net.Conn               // fixed
	config atomic.Pointer[config] // replaced under mu
	state  atomic.Uint32          // changed under mu, one bit or reason at a time

	// last is the instant of the last read or write that a limit asks for, in nanoseconds
	// since options.epoch, or, with Limits.Due alone, of SetLimits. It only grows. If state has
	// apart, more has others in its place.
	last atomic.Int64

	mu    sync.Mutex
	born  int64              // fixed
	timer *timingwheel.Timer // fixed
}

// A config is shared by the connections of a Listener that have the same limits, as long as
// they need nothing of their own.
type config struct {
	*options        // fixed
	limits   Limits // guarded by Conn.mu if more is not nil, fixed otherwise
	more     *more  // what one connection has for itself, or nil; fixed
}

// more is what most connections do not need.
type more struct {
	// In place of Conn.last if several limits ask for different instants. Conn.last stays
	// valid as a lower bound of both: a touch that began before they were parted may still
	// raise it.
	lastRead, lastWrite atomic.Int64

	socket  net.Conn   // what the kernel is asked about if the Conn is tracked, or nil; fixed
	writing sync.Mutex // keeps the pieces of one Write together

	// The rest is guarded by Conn.mu.

	// A limit that was off counts from the SetLimits that set it, not from before.
	readFrom, writeFrom, idleFrom int64

	reads, calls waiting // if tracked: calls of Read, and of Read and Write
	parked       bool    // the Timer leaves out a limit until a call waits again

	rare   *rare // what even fewer need, or nil
	queue  queueSample
	backup *time.Timer // in place of timer if the wheel has been stopped
}

// rare is guarded by Conn.mu but for received.
type rare struct {
	dueFrom  int64        // of the SetLimits that set Limits.Due
	received atomic.Int64 // bytes read since, if state has counted
	extended extensions
}

// rareLocked returns what hardly any connection needs.
func (c *Conn) rareLocked() *rare {
	m := c.moreLocked()
	if m.rare == nil {
		m.rare = new(rare)
	}
	return m.rare
}

// The bits of Conn.state. Above them are three reasons of four bits each.
const (
	touchReads  uint32 = 1 << iota // Read touches; not for the other direction's limits or Lifetime
	touchWrites                    // Write touches
	apart                          // more has the instants of reads and writes
	readDone                       // the end was read, or CloseRead has been called
	writeDone                      // CloseWrite has been called
	closed                         // Close has been called

	// What is known about the inner connection.
	asksReads // the kernel knows whether bytes are unread; all of them unless tracked
	asksTCP   // the kernel knows when the peer acknowledged bytes
	samples   // the kernel knows how long the send queue is, but not when that changed
	tracked   // calls that wait are counted, as bytes may be unread that the kernel does not know
	counted   // more.received counts what is read
	pieces    // a large Write goes in pieces
	whole     // it does not; with neither bit this has to be found out
)

// A direction is where its reason lies in Conn.state. A reason is set once, under mu.
type direction uint

const (
	either  direction = 20 // the limit that was reached first
	reading direction = 24
	writing direction = 28
)

const (
	// writePiece is how much Write hands to the inner connection at once where the kernel
	// does not tell how far it is. A peer that takes less than this within a limit counts as
	// idle, and a call for each must not be felt: a call costs a microsecond or two, copying
	// 64 KiB ten times that.
	writePiece = 64 << 10

	forever = math.MaxInt64
)

// NewConn returns inner with limits, which count from now, on the wheel. It panics if inner or
// tw is nil or a limit negative. The Conn takes inner over: close the Conn. NewConn calls
// nothing of inner that may block.
//
// If the wheel has been stopped, or is stopped while the connection lives, package time takes
// its place, so that no connection goes unguarded.
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
	if shared.limits.several() || shared.keeps {
		c.moreLocked()
		c.addLocked(apart)
	}
	c.armLocked()
	return c
}

// moreLocked returns what c has for itself.
func (c *Conn) moreLocked() *more {
	shared := c.config.Load()
	if shared.more == nil {
		own := &struct {
			config
			more
		}{config: *shared}
		own.config.more = &own.more
		if shared.limits.Due > 0 {
			own.rare = &rare{dueFrom: c.last.Load()}
		}
		c.config.Store(&own.config)
		return &own.more
	}
	return shared.more
}

// ownLimits keeps SetLimits from sharing, and from allocating, for one that is called with
// limits that are hardly ever the same.
func (c *Conn) ownLimits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moreLocked()
}

func (c *Conn) has(bits uint32) bool { return c.state.Load()&bits != 0 }

// addLocked does not use Or's result, so that it is one instruction.
func (c *Conn) addLocked(bits uint32) { c.state.Or(bits) }

// why returns the reason for which the direction is over, or 0 if it is not.
func (c *Conn) why(d direction) Reason { return Reason(c.state.Load() >> d & 15) }

// setLocked sets the direction's reason unless it has one.
func (c *Conn) setLocked(d direction, why Reason) {
	if c.why(d) == 0 {
		c.state.Or(uint32(why) << d)
	}
}

// NetConn returns the inner connection. Callers that read or write around the Conn call
// TouchRead and TouchWrite.
func (c *Conn) NetConn() net.Conn { return c.inner }

// Reason returns the limit that was reached first, or 0 if none was.
func (c *Conn) Reason() Reason { return c.why(either) }

// now returns the monotonic instant.
func (o *options) now() int64 { return int64(time.Since(o.epoch)) }

func (c *Conn) now() int64 { return c.config.Load().now() }

// raise makes *last at least at. Goroutines touch in any order, and one that was preempted
// after its clock reading must not take back what others have seen since.
func raise(last *atomic.Int64, at int64) {
	for {
		old := last.Load()
		if at <= old || last.CompareAndSwap(old, at) {
			return
		}
	}
}

// TouchRead counts as a read at the given time. It is for callers that have read the clock
// already, or that read around the Conn. Cost: an atomic operation. The time is best one from
// time.Now; one without monotonic reading follows the wall clock. One in the past changes
// nothing if something was read since, and one in the future keeps the connection alive until
// then.
func (c *Conn) TouchRead(at time.Time) {
	c.touchAt(touchReads, int64(at.Sub(c.config.Load().epoch)))
}

// TouchWrite is TouchRead for a write.
func (c *Conn) TouchWrite(at time.Time) {
	c.touchAt(touchWrites, int64(at.Sub(c.config.Load().epoch)))
}

// touch counts a read or write, which is touchReads or touchWrites, if a limit asks for it.
func (c *Conn) touch(which uint32) {
	if c.has(which) {
		c.touchAt(which, c.now())
	}
}

// touchAt loads the state after the touch's instant was taken, and the state says apart only
// once config has more.
func (c *Conn) touchAt(which uint32, at int64) {
	switch state := c.state.Load(); {
	case state&which == 0:
	case state&apart == 0:
		raise(&c.last, at)
	case which == touchReads:
		raise(&c.config.Load().more.lastRead, at)
	default:
		raise(&c.config.Load().more.lastWrite, at)
	}
}

// lastRead returns the instant of the last read, and lastWrite that of the last write. If no
// limit asks for it, it is that of something else.
func (c *Conn) lastRead() int64 {
	if m := c.config.Load().more; m != nil {
		return max(c.last.Load(), m.lastRead.Load())
	}
	return c.last.Load()
}

func (c *Conn) lastWrite() int64 {
	if m := c.config.Load().more; m != nil {
		return max(c.last.Load(), m.lastWrite.Load())
	}
	return c.last.Load()
}

// LastRead returns when bytes were last read, or, with some limits, known to have come; before
// that, when the Conn was made. It returns the zero time without WithActivity.
func (c *Conn) LastRead() time.Time { return c.instant(c.lastRead()) }

// LastWrite returns when bytes were last written, or, with some limits, known to have been taken
// by the peer; before that, when the Conn was made. It returns the zero time without WithActivity.
func (c *Conn) LastWrite() time.Time { return c.instant(c.lastWrite()) }

func (c *Conn) instant(at int64) time.Time {
	opts := c.config.Load().options
	if !opts.keeps {
		return time.Time{}
	}
	return opts.epoch.Add(time.Duration(at))
}

// Read reads from the inner connection. It touches if it read anything.
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

// readFailed explains an error of Read. The end of what can be read ends the limits on it.
func (c *Conn) readFailed(err error) error {
	if err == io.EOF {
		c.finish(readDone)
		return err
	}
	return c.explain(err, reading)
}

// Write writes to the inner connection. It touches if it wrote anything.
//
// A large Write to a slow peer must not look idle. For TCP on Linux check asks the kernel how
// far it is. Elsewhere Write goes in pieces and touches after each; a lock then keeps the
// pieces together, as writes of a net.Conn do not mix.
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

// WriteBuffers writes v as v.WriteTo(c.NetConn()) does, by one system call for many buffers
// where the inner connection knows how, and touches if it wrote anything. v.WriteTo(c) makes a
// Write for each buffer: package net keeps writev to its own types.
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

// Close closes the inner connection and ends the limits. It may be called again as far as that
// of the inner connection may. No hook begins after Close has returned; Close does not wait for
// one that runs.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.addLocked(closed)
	c.disarmLocked()
	c.mu.Unlock()
	return c.explain(c.inner.Close(), either)
}

// LocalAddr returns the inner connection's.
func (c *Conn) LocalAddr() net.Addr { return c.inner.LocalAddr() }

// RemoteAddr returns the inner connection's.
func (c *Conn) RemoteAddr() net.Addr { return c.inner.RemoteAddr() }

// The deadlines are the inner connection's, and independent of the limits.
//
// With WithExpire a direction that is over has to stay over, whatever the owner sets:
// http.Server sets deadlines all the time. check publishes the reason before it sets the past
// deadline, and the owner looks for a reason after it has set its own. So if the owner's
// deadline comes last at the inner connection, the reason was published before it, and the
// owner finds it and sets the past one again:
//
//	check                      owner
//	publishes the reason
//	                           sets its deadline
//	sets the past deadline
//	                           finds the reason, sets the past deadline
//
// If the owner finds no reason, it looked before the reason was published, so check's past
// deadline comes after the owner's.

// SetDeadline sets the inner connection's deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.inner.SetDeadline(t)
	c.keepRead()
	c.keepWrite()
	return c.explain(err, either)
}

// SetReadDeadline sets the inner connection's deadline for reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.inner.SetReadDeadline(t)
	c.keepRead()
	return c.explain(err, reading)
}

// SetWriteDeadline sets the inner connection's deadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	err := c.inner.SetWriteDeadline(t)
	c.keepWrite()
	return c.explain(err, writing)
}

// past is long ago. It is not the zero time, which means no deadline.
var past = time.Unix(1, 0)

func (c *Conn) keepRead() {
	if c.why(reading) != 0 && c.config.Load().expire {
		c.inner.SetReadDeadline(past)
	}
}

func (c *Conn) keepWrite() {
	if c.why(writing) != 0 && c.config.Load().expire {
		c.inner.SetWriteDeadline(past)
	}
}

// CloseWrite shuts down the writing side of the inner connection, which has no limit from then
// on. The error of one that cannot wraps errors.ErrUnsupported.
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

// CloseRead shuts down the reading side of the inner connection, which has no limit from then
// on. The error of one that cannot wraps errors.ErrUnsupported.
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

// finish notes that a direction is finished: which is readDone or writeDone.
func (c *Conn) finish(which uint32) {
	if c.has(which) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(which)
	c.armLocked()
}

// SyscallConn returns the inner connection's. What is read and written by it does not touch,
// and package os cannot use it to send a file behind the Conn's back. The error of an inner
// connection that has none wraps errors.ErrUnsupported.
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

// rawConn has the methods of a syscall.RawConn and no others. That of package net has one more,
// by which File.WriteTo and File.ReadFrom get hold of the socket and send or receive a whole
// file around the Conn: no touch would be made, and the connection would be closed early.
type rawConn struct{ syscall.RawConn }

func (c *Conn) unsupported(what string) error {
	return fmt.Errorf("netidle: %s of a %T: %w", what, c.inner, errors.ErrUnsupported)
}
