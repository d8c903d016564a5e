package netidle

import (
	"net"
	"time"
)

// This file holds what check concludes from the kernel's reports. All of it runs under Conn.mu.
//
// It is called when by the touches a limit would be reached, so about once per limit at most,
// but for connections whose send queue has to be sampled.

// kernelStep is the longest step of the clock by which the kernel says when data came, was sent
// or acknowledged: a kernel with 100 timer interrupts a second has it. Two readings that are
// less than two steps apart may be the same instant.
const kernelStep = 10 * time.Millisecond

// lookLocked raises the instants of the last read and write by what the kernel knows.
func (c *Conn) lookLocked() {
	var socket net.Conn = c.inner
	if c.has(tracked) {
		socket = c.config.Load().more.socket
	}
	if socket == nil || !c.has(asksReads|asksTCP|samples) {
		return
	}
	asked := c.now()
	r, ok := ask(socket)
	if !ok {
		return
	}
	if c.has(asksReads) && !c.has(readDone) && c.has(touchReads) {
		c.lookAtReadsLocked(asked, r)
	}
	if c.why(writing) == 0 && c.has(touchWrites) {
		switch {
		case r.timed:
			c.lookAtWritesLocked(asked, r)
		case c.has(samples):
			c.sampleLocked(asked, r)
		case c.has(asksTCP) && r.queued > 0: // a kernel that does not tell all
			c.addLocked(samples)
			c.touchAt(touchWrites, c.now())
		}
	}
}

// lookAtReadsLocked lets a connection live whose peer has sent what we have not read. It waits
// for us then, not we for it. Time counts again from now, or from a touch that comes later. Of a
// connection that is tracked this is seen when a Read waits that has not been scheduled yet.
//
// That there is nothing to be read is not enough. A Read that has just taken what lay there for
// long has not touched yet:
//
//	a Read                          check
//	takes the bytes
//	                                finds the queue empty, and no touch
//	touches
//
// So bytes that came after the last touch count, too. Those that came within two steps of the
// kernel's clock are the ones that were touched for.
func (c *Conn) lookAtReadsLocked(asked int64, r report) {
	switch received := asked - int64(r.received); {
	case r.unread:
		c.touchAt(touchReads, c.now())
	case r.timed && received > c.lastRead()+int64(2*kernelStep):
		c.touchAt(touchReads, min(received+int64(kernelStep), c.now()))
	}
}

// lookAtWritesLocked counts bytes that the peer took after Write had returned, or while it waits.
//
// The kernel buffers megabytes and wakes a writer only when a third of the buffer is free, so a
// slow download may go on for minutes without a Write that returns. What was sent within two
// steps of the last Write and has been acknowledged since is that Write's.
//
// When the peer last took something is not known exactly. It is not after the last
// acknowledgement, though that may have been one of a probe: of a keep-alive, or of a window
// that is closed. And it is not long after data was last sent: what is not acknowledged within
// the time that TCP grants is sent again. Twice that time leaves room for a peer that has
// become slower. If no more bytes were acknowledged than when we last looked, neither counts.
func (c *Conn) lookAtWritesLocked(asked int64, r report) {
	sent, answered := asked-int64(r.sent), asked-int64(r.answered)
	if r.queued == 0 && sent <= c.lastWrite()+int64(2*kernelStep) {
		return
	}
	m := c.moreLocked()
	if m.queue.acked == r.acked && m.queue.bytes > 0 {
		return
	}
	m.queue = queueSample{bytes: r.queued, acked: r.acked}
	taken := min(answered, sent+2*int64(r.rto)) + int64(kernelStep)
	c.touchAt(touchWrites, min(taken, c.now()))
}

// queueSample is a send queue as it was seen.
type queueSample struct {
	bytes int
	acked uint64
	at    int64
}

// minLook keeps a short limit from looking all the time: ten ticks of a default wheel.
const minLook = 10 * time.Millisecond

// lookEvery is how often a send queue is sampled: in quarters of the limit, so that a transfer's
// end is seen at most that late.
func (l Limits) lookEvery() int64 {
	limit := l.WriteIdle
	if limit == 0 || l.Idle > 0 && l.Idle < limit {
		limit = l.Idle
	}
	return int64(max(limit/4, minLook))
}

// samplesLocked reports whether the send queue has to be sampled.
func (c *Conn) samplesLocked() bool {
	return c.has(samples) && c.has(touchWrites) && c.why(writing) == 0
}

// sampleLocked counts a change of the send queue where the kernel does not say when it changed.
// When bytes are first seen nothing has changed; a queue that was never seen was empty in time.
func (c *Conn) sampleLocked(asked int64, r report) {
	m := c.moreLocked()
	before := m.queue
	m.queue = queueSample{bytes: r.queued, acked: r.acked, at: asked}
	if before.bytes == 0 || c.lastWrite() > before.at {
		return
	}
	if r.queued != before.bytes || r.acked != before.acked {
		c.touchAt(touchWrites, c.now())
	}
}
