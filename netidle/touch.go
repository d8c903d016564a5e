package netidle

import (
	"sync/atomic"
	"time"
)

// This file records when something was read or written. It takes no lock, as Read and Write touch:
// an instant only grows, by an atomic maximum.

// TouchRead records a read at the given time. It is for callers that have just read the clock, or
// that read from the inner connection directly. It costs one atomic operation. The time should
// come from time.Now; a time without a monotonic reading follows the wall clock. A time before the
// last read changes nothing. With a time in the future, limits count from then.
func (c *Conn) TouchRead(at time.Time) {
	c.touchAt(touchReads, int64(at.Sub(c.config.Load().epoch)))
}

// TouchWrite records a write at the given time, as TouchRead does for a read.
func (c *Conn) TouchWrite(at time.Time) {
	c.touchAt(touchWrites, int64(at.Sub(c.config.Load().epoch)))
}

// LastRead returns the time of the last read. With some limits, it is the time when bytes are
// known to have arrived, if that is later. Before the first read it is the time when the Conn was
// made. LastRead returns the zero time without WithActivity.
func (c *Conn) LastRead() time.Time { return c.instant(c.lastRead()) }

// LastWrite returns the time of the last write. With some limits, it is the time when the peer is
// known to have taken bytes, if that is later. Before the first write it is the time when the Conn
// was made. LastWrite returns the zero time without WithActivity.
func (c *Conn) LastWrite() time.Time { return c.instant(c.lastWrite()) }

func (c *Conn) instant(at int64) time.Time {
	opts := c.config.Load().options
	if !opts.activity {
		return time.Time{}
	}
	return opts.epoch.Add(time.Duration(at))
}

// now returns the current instant, by the monotonic clock.
func (o *options) now() int64 { return int64(time.Since(o.epoch)) }

func (c *Conn) now() int64 { return c.config.Load().now() }

// touch records a read or a write if a limit depends on it. which is touchReads or touchWrites.
func (c *Conn) touch(which uint32) {
	if c.has(which) {
		c.touchAt(which, c.now())
	}
}

// touchAt records a read or a write at an instant. It loads the state after the instant was taken,
// and config has more before the state has apart.
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

// raise makes *last at least at. Goroutines touch in any order, and one that was preempted after
// its clock reading must not undo what others have recorded since.
func raise(last *atomic.Int64, at int64) {
	for {
		old := last.Load()
		if at <= old || last.CompareAndSwap(old, at) {
			return
		}
	}
}

// lastRead returns the instant of the last read. If no limit depends on reads, it is the instant
// of something else.
func (c *Conn) lastRead() int64 {
	if m := c.config.Load().more; m != nil {
		return max(c.last.Load(), m.lastRead.Load())
	}
	return c.last.Load()
}

// lastWrite returns the instant of the last write, as lastRead does for reads.
func (c *Conn) lastWrite() int64 {
	if m := c.config.Load().more; m != nil {
		return max(c.last.Load(), m.lastWrite.Load())
	}
	return c.last.Load()
}
