package netidle

import (
	"io"
)

// This file holds what Read and Write do for connections that are tracked or whose writes go in
// pieces: those of which the kernel does not know everything.
//
// A limit measures how long the peer keeps us waiting. Where bytes may be unread that the kernel
// does not know, time counts only while a call waits: for Limits.ReadIdle a Read, for Limits.Idle
// one of Read and Write. Until the first Read has begun, and after the end was read, it counts
// always, so that a connection that its owner has forgotten is closed.

// waiting is a clock that runs only while calls wait. It is guarded by Conn.mu.
type waiting struct {
	calls int   // how many wait
	began bool  // a Read has begun
	ended int64 // when the last call returned, if none waits
	from  int64 // since when the peer has kept us waiting, without the time in between
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

// rests reports that the clock stands still.
func (w *waiting) rests() bool { return w.began && w.calls == 0 }

// begin counts a call that waits, of Read or of another, until the function it returns is called.
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

// readTracked is Read for connections that are tracked, or whose bytes are counted.
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

// received touches for a read of n bytes, and counts them if a limit asks for that.
func (c *Conn) received(n int64) {
	if c.has(counted) {
		c.config.Load().more.rare.received.Add(n)
	}
	c.touch(touchReads)
}

// writeTracked is Write for connections that are tracked, or whose large writes go in pieces.
func (c *Conn) writeTracked(p []byte) (int, error) {
	if c.has(tracked) {
		defer c.begin(false)()
	}
	split := len(p) > writePiece && c.splits()
	if c.has(whole) {
		return c.write(p)
	}
	// A small Write takes the lock, too, or it might come between the pieces of another.
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
