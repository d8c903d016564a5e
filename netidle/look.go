package netidle

import (
	"net"
	"time"
)

// This file holds what check concludes from the kernel's reports. All of it runs under Conn.mu.
//
// check looks when a limit would be reached by the touches alone, so about once per limit at most.
// It looks more often at connections whose send queue must be sampled.

// kernelStep is the longest step of the kernel's clock, by which it reports when data arrived, was
// sent or was acknowledged: that of a kernel with 100 timer interrupts a second. Two readings less
// than two steps apart may be of the same instant.
const kernelStep = 10 * time.Millisecond

// lookLocked raises the instants of the last read and write to what the kernel knows.
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
		case c.has(asksTCP) && r.queued > 0: // a kernel that reports less
			c.addLocked(samples)
			c.touchAt(touchWrites, c.now())
		}
	}
}

// lookAtReadsLocked keeps a connection alive if the peer has sent bytes that are still unread: the
// peer waits for the program then. Time counts again from now, or from a later touch. If the Conn
// is tracked, this concerns a Read that waits but has not been scheduled yet.
//
// An empty queue is not enough to close. A Read that has just taken bytes which arrived long ago
// may not have touched yet:
//
//	a Read                          check
//	takes the bytes
//	                                finds the queue empty, and no touch
//	touches
//
// So bytes that arrived after the last touch count, too. Bytes that arrived within two steps of
// the kernel's clock are taken for those that were touched for.
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
// slow download may continue for minutes while no Write returns. Bytes that were sent within two
// steps of the last Write, and are acknowledged by now, belong to that Write.
//
// The kernel does not report exactly when the peer last took bytes, but two of its reports bound
// that from above. It is no later than the last acknowledgement, which may also have been for a
// probe, either a keep-alive or one of a closed window. And it is not long after data was last
// sent, because TCP sends again what is not acknowledged within its retransmission timeout; twice
// that timeout leaves room for a peer that has become slower. If no more bytes were acknowledged
// than at the last look, the peer has taken nothing.
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

// queueSample is a send queue at the time of a look.
type queueSample struct {
	bytes int
	acked uint64
	at    int64
}

// minLook is the shortest time between samples, so that a short limit does not sample all the
// time: ten ticks of a default wheel.
const minLook = 10 * time.Millisecond

// lookEvery returns the time between samples of a send queue. It is a quarter of the limit, which
// is then how late the end of a transfer is noticed at most.
func (l Limits) lookEvery() int64 {
	limit := l.WriteIdle
	if limit == 0 || l.Idle > 0 && l.Idle < limit {
		limit = l.Idle
	}
	return int64(max(limit/4, minLook))
}

// samplesLocked reports whether the send queue must be sampled.
func (c *Conn) samplesLocked() bool {
	return c.has(samples) && c.has(touchWrites) && c.why(writing) == 0
}

// sampleLocked counts a change of the send queue if the kernel does not report when it changed.
// The first sample with bytes is not a change. Bytes that no sample saw were taken soon after their
// Write.
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
