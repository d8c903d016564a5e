package netidle

import "time"

// This file holds what the Timer does when it fires, and how it is armed. All of it
// runs under Conn.mu, but for the closing, the deadlines and the hook. Nothing here is
// called by Read or Write.

// SetLimits replaces the limits. Read, Write and Idle go on counting from the last
// read or write; one that was zero counts from now if that is later. Life always
// counts from the beginning. It panics if a limit is negative. A limit that was
// reached already stays so. After Close it does nothing.
//
// Cost: two mutexes, a clock reading.
func (c *Conn) SetLimits(limits Limits) {
	limits.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLimitsLocked(limits)
	c.armLocked()
}

func (c *Conn) setLimitsLocked(limits Limits) {
	var touches uint32
	if limits.Read > 0 || limits.Idle > 0 {
		touches |= touchReads
	}
	if limits.Write > 0 || limits.Idle > 0 {
		touches |= touchWrites
	}
	c.touches.Store(touches)
	now := c.now()
	for _, l := range [...]struct {
		was, is time.Duration
		from    *int64
	}{
		{c.limits.Read, limits.Read, &c.readFrom},
		{c.limits.Write, limits.Write, &c.writeFrom},
		{c.limits.Idle, limits.Idle, &c.idleFrom},
	} {
		if l.was == 0 && l.is > 0 {
			*l.from = now
		}
	}
	c.limits = limits
}

// check is the Timer's callback. It may be called when nothing is due, any number of
// times: only what it finds under mu counts.
//
// The clock is read before the instants are loaded, so a touch that was made before
// the limit was reached is seen. The other way round it would be early:
//
//	check                                 a Read
//	loads the instants: due at 60.000 s
//	                                      touches at 59.999 s
//	reads the clock: 60.001 s, closes
//
// A read or write between the loading and the closing comes too late, as one just
// after the closing would.
func (c *Conn) check() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.lookLocked()
	now := c.now() // before the instants are loaded
	at, why := c.nextLocked()
	if why == 0 || at > now {
		c.armLocked()
		c.mu.Unlock()
		return
	}
	c.first.CompareAndSwap(0, uint32(why))
	if why.reads() || !c.opts.expire {
		c.readWhy.CompareAndSwap(0, uint32(why))
	}
	if why.writes() || !c.opts.expire {
		c.writeWhy.CompareAndSwap(0, uint32(why))
	}
	c.armLocked() // for what limits the other direction, if that is not over
	c.mu.Unlock()

	if c.opts.expire {
		c.keepRead()
		c.keepWrite()
	} else {
		c.inner.Close()
	}
	if c.opts.hook != nil {
		c.opts.hook(c, why)
	}
}

// nextLocked returns when the first limit will be reached, and which; 0 if none can
// be any more.
func (c *Conn) nextLocked() (at int64, why Reason) {
	read, write := c.lastRead.Load(), max(c.lastWrite.Load(), c.moved)
	reading, writing := c.readWhy.Load() == 0, c.writeWhy.Load() == 0
	at = forever
	for _, l := range [...]struct {
		holds bool
		limit time.Duration
		from  int64
		why   Reason
	}{
		{reading, c.limits.Read, max(read, c.readFrom), ReadIdle},
		{writing, c.limits.Write, max(write, c.writeFrom), WriteIdle},
		{reading || writing, c.limits.Idle, max(read, write, c.idleFrom), Idle},
		{reading || writing, c.limits.Life, 0, Lifetime},
	} {
		// What overflows is beyond 292 years.
		if reached := l.from + int64(l.limit); l.holds && l.limit > 0 && reached >= l.from && reached < at {
			at, why = reached, l.why
		}
	}
	return at, why
}

// armLocked arms the Timer for the next limit or look at the send queue.
func (c *Conn) armLocked() {
	at, why := c.nextLocked()
	if c.closed || why == 0 {
		c.disarmLocked()
		return
	}
	if c.queue.bytes > 0 && c.looksLocked() {
		at = min(at, c.now()+c.lookEvery())
	}
	instant := c.start.Add(time.Duration(at))
	c.timer.ResetAt(instant)
	if c.timer.Pending() {
		return
	}
	// Either it has fired already and a check is on its way, and one more does no
	// harm; or the wheel has been stopped, and none ever comes.
	if c.backup == nil {
		c.backup = time.AfterFunc(time.Until(instant), c.check)
	} else {
		c.backup.Reset(time.Until(instant))
	}
}

func (c *Conn) disarmLocked() {
	c.timer.Stop()
	if c.backup != nil {
		c.backup.Stop()
	}
}

// sendQueue is what the kernel says about the bytes that were written and that the
// peer has not acknowledged. If it differs from what it was, bytes have moved.
type sendQueue struct {
	bytes int    // how many they are
	acked uint64 // how many were acknowledged in the connection's life; 0 if unknown
}

// minLook keeps a short limit from looking all the time: ten ticks of a default wheel.
const minLook = 10 * time.Millisecond

// lookEvery is how long it takes until the send queue is looked at again: a quarter
// of the limit, so that a transfer's end is seen at most that late.
func (c *Conn) lookEvery() int64 {
	limit := c.limits.Write
	if limit == 0 || c.limits.Idle > 0 && c.limits.Idle < limit {
		limit = c.limits.Idle
	}
	return int64(max(limit/4, minLook))
}

// looksLocked reports whether the send queue matters and can be looked at.
func (c *Conn) looksLocked() bool {
	return c.raw != nil && (c.limits.Write > 0 || c.limits.Idle > 0) && c.writeWhy.Load() == 0
}

// lookLocked looks whether bytes moved in the send queue, which counts as a write.
//
// The kernel buffers megabytes and wakes a writer only when a third of the buffer is
// free, so a slow download can go on for minutes without a Write that returns. While
// bytes are queued they are looked at every quarter of the limit. When they are first
// seen nobody knows when they moved last: it may have been just now, so that is what
// counts. Closing already if nothing moved for a quarter of the limit was rejected:
// it would be early for a transfer that pauses, as a video player does whose buffer
// is full. The price is that a peer that takes nothing is closed late: a quarter of
// the limit if the queue was seen soon after the last write, as it is in a long
// transfer, and at most one limit.
func (c *Conn) lookLocked() {
	if !c.looksLocked() {
		c.queue = sendQueue{}
		return
	}
	queue, ok := look(c.raw)
	if !ok {
		queue = sendQueue{}
	}
	if (c.queue.bytes > 0 || queue.bytes > 0) && queue != c.queue {
		c.moved = c.now()
	}
	c.queue = queue
}
