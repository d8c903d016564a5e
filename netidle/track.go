package netidle

import (
	"io"
)

// This file holds Read and Write for connections of which the kernel does not know everything:
// those that are tracked, and those whose large writes are split. Conn.mu guards the clocks of
// calls that wait, and more.writing keeps the pieces of a Write together.
//
// A limit measures how long the peer keeps the program waiting. If the kernel may not know of all
// unread bytes, time counts only while a call waits: a Read for Limits.ReadIdle, a Read or a Write
// for Limits.Idle. It counts all the time before the first Read begins and after the end of the
// stream was read, so that a connection is closed if its owner has forgotten it.

// writePiece is how much Write passes to the inner connection at once if the kernel does not report
// progress. A peer that takes less than this within a limit counts as idle, so it should be small.
// The cost of a call for each piece must not show: a call takes a microsecond or two, and copying
// 64 KiB takes ten times that.
const writePiece = 64 << 10

// waiting is a clock that runs only while calls wait. It is guarded by Conn.mu.
type waiting struct {
	calls int   // the number of calls that wait
	began bool  // a Read has begun
	ended int64 // when the last call returned, if none waits
	from  int64 // when the current wait began, moved later by the time between calls
}

// begin counts a call from now on. last is when bytes last moved.
func (w *waiting) begin(now, last int64) {
	if w.began && w.calls == 0 {
		from := max(w.from, last)
		w.from = from + max(now-max(w.ended, from), 0)
	}
	w.calls++
}

func (w *waiting) end(now int64) {
	w.calls--
	w.ended = now
}

// rests reports whether the clock stands still.
func (w *waiting) rests() bool { return w.began && w.calls == 0 }

// begin counts a call that waits until end is called. read says whether it is a Read.
func (c *Conn) begin(read bool) (end func()) {
	m := c.config.Load().more
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	m.calls.begin(now, max(c.lastRead(), c.lastWrite()))
	if read {
		m.reads.begin(now, c.lastRead())
		m.reads.began, m.calls.began = true, true
	}
	if m.parked {
		c.armLocked() // for a limit that the Timer leaves out while no call waits
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := c.now()
		m.calls.end(now)
		if read {
			m.reads.end(now)
		}
	}
}

// readTracked is Read if the Conn is tracked or its bytes are counted.
func (c *Conn) readTracked(p []byte) (int, error) {
	if c.has(tracked) {
		defer c.begin(true)()
	}
	n, err := c.inner.Read(p)
	if n > 0 {
		c.received(int64(n))
	}
	if err != nil {
		err = c.readFailed(err)
	}
	return n, err
}

// received touches for a read of n bytes, and counts them if a limit depends on their number.
func (c *Conn) received(n int64) {
	if c.has(counted) {
		c.config.Load().more.rare.received.Add(n)
	}
	c.touch(touchReads)
}

// writeTracked is Write if the Conn is tracked or large writes are split.
func (c *Conn) writeTracked(p []byte) (int, error) {
	if c.has(tracked) {
		defer c.begin(false)()
	}
	split := len(p) > writePiece && c.splits()
	if c.has(whole) {
		return c.write(p)
	}
	// A small Write takes the lock, too, as it must not come between the pieces of another.
	m := c.config.Load().more
	m.writing.Lock()
	defer m.writing.Unlock()
	if split {
		return c.writePieces(p)
	}
	return c.write(p)
}

func (c *Conn) writePieces(p []byte) (n int, err error) {
	for err == nil && len(p) > 0 {
		piece := p[:min(len(p), writePiece)]
		var written int
		written, err = c.write(piece)
		if err == nil && written < len(piece) {
			err = io.ErrShortWrite
		}
		n += written
		p = p[written:]
	}
	return n, err
}
