package netidle

import (
	"math/bits"
	"net"
	"time"
	"unsafe"
)

// This file holds what the Timer does when it fires, and how it is armed. All of it runs under
// Conn.mu, but for the hook, the closing and the deadlines. Read and Write call none of it
// unless they are tracked.

// SetLimits replaces the limits. Read, Write and Idle go on counting from the last read or
// write; one that was zero counts from now if that is later. Lifetime always counts from the
// beginning, and Due from each call. It panics if a limit is negative. A limit that was reached
// already stays so. After Close it does nothing.
//
// Cost: two mutexes, a clock reading. Listener's connections share up to 16 different Limits;
// beyond those each call allocates.
func (c *Conn) SetLimits(limits Limits) {
	limits.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLimitsLocked(limits)
	c.armLocked()
}

// setLimitsLocked changes what Read and Write touch before it reads the clock: a Read that found
// nothing to do was over before that instant, and is not missed.
func (c *Conn) setLimitsLocked(limits Limits) {
	if limits.several() {
		c.moreLocked()
		c.addLocked(apart)
	}
	if limits.Due > 0 && c.config.Load().more != nil {
		c.rareLocked()
	}
	shared := c.config.Load()
	old := shared.limits
	if shared.more != nil {
		shared.limits = limits
	} else {
		c.config.Store(shared.with(limits))
	}
	touches := c.config.Load().touches()
	c.addLocked(touches)
	c.state.And(^(touchReads | touchWrites | counted) | touches)

	now := c.now()
	set := func(was, is time.Duration, from *int64) {
		if was == 0 && is > 0 {
			*from = now
		}
	}
	if m := shared.more; m != nil {
		set(old.ReadIdle, limits.ReadIdle, &m.readFrom)
		set(old.WriteIdle, limits.WriteIdle, &m.writeFrom)
		set(old.Idle, limits.Idle, &m.idleFrom)
		if limits.Due > 0 {
			m.rare.dueFrom = now
			m.rare.received.Store(0)
		}
		return
	}
	// There is one limit at most that counts from last.
	from := int64(0)
	set(old.ReadIdle, limits.ReadIdle, &from)
	set(old.WriteIdle, limits.WriteIdle, &from)
	set(old.Idle, limits.Idle, &from)
	set(0, limits.Due, &from)
	raise(&c.last, from)
}

// check is the Timer's callback. It may be called when nothing is due, any number of times: only
// what it finds under mu counts.
//
// The clock is read before the instants are loaded, so a touch that was made before the limit
// was reached is seen. The other way round it would be early:
//
//	check                                 a Read
//	loads the instants: due at 60.000 s
//	                                      touches at 59.999 s
//	reads the clock: 60.001 s, closes
//
// A read or write between the loading and the closing comes too late, as one just after the
// closing would.
func (c *Conn) check() {
	c.mu.Lock()
	if c.has(closed) {
		c.mu.Unlock()
		return
	}
	now := c.now() // before the instants are loaded
	at, why := c.nextLocked()
	if why != 0 && at <= now || c.has(samples) {
		c.lookLocked()
		at, why = c.nextLocked()
	}
	if why == 0 || at > now {
		c.armLocked()
		c.mu.Unlock()
		return
	}
	if c.askUnlocked(why) {
		return
	}
	opts := c.config.Load().options
	c.setLocked(either, why)
	if why.reads() || !opts.expire {
		c.setLocked(reading, why)
	}
	if why.writes() || !opts.expire {
		c.setLocked(writing, why)
	}
	c.armLocked() // for what limits the other direction, if that is not over
	c.mu.Unlock()

	defer func() { // whatever the hook does
		if opts.expire {
			c.keepRead()
			c.keepWrite()
		} else {
			c.abort()
		}
	}()
	if opts.hook != nil {
		opts.hook(c, why)
	}
}

// abort closes the inner connection for a limit. With WithReset the socket goes first: a layer
// such as TLS would wait until it has said goodbye to a peer that takes nothing.
func (c *Conn) abort() {
	if shared := c.config.Load(); shared.reset {
		socket := c.inner
		if c.has(tracked) {
			socket = shared.more.socket
		}
		if tcp, ok := socket.(*net.TCPConn); ok {
			tcp.SetLinger(0)
			tcp.Close()
		}
	}
	c.inner.Close()
}

// nextLocked returns when the first limit will be reached, and which; 0 if none can be any more,
// or not before a call waits again.
//
// A direction that is finished has no limit. Idle holds until both are over: it is what closes a
// connection that its owner forgot to close.
func (c *Conn) nextLocked() (at int64, why Reason) {
	shared := c.config.Load()
	m, limits := shared.more, shared.limits
	state := c.state.Load()
	reads, writes := state>>reading&15 == 0, state>>writing&15 == 0
	idles := reads || writes
	at = forever
	consider := func(holds bool, limit time.Duration, from int64, reason Reason) {
		reached := from + int64(limit)
		if !holds || limit <= 0 || reached < from { // what overflows is beyond 292 years
			return
		}
		if m != nil && m.rare != nil {
			reached = c.extendedLocked(reason, limit, reached)
		}
		if reached < at {
			at, why = reached, reason
		}
	}
	consider(idles, c.lifetimeOf(limits), c.born, Lifetime)
	reads, writes = reads && state&readDone == 0, writes && state&writeDone == 0
	last := c.last.Load()
	if m == nil {
		consider(reads, limits.ReadIdle, last, ReadIdle)
		consider(writes, limits.WriteIdle, last, WriteIdle)
		consider(idles, limits.Idle, last, Idle)
		consider(idles, limits.Due, last, Overdue)
		return at, why
	}
	if limits.Due > 0 {
		consider(idles, m.rare.dueOf(limits), m.rare.dueFrom, Overdue)
	}
	read, write := max(last, m.lastRead.Load()), max(last, m.lastWrite.Load())
	readFrom, idleFrom := max(read, m.readFrom), max(read, write, m.idleFrom)
	if state&tracked != 0 && state&readDone == 0 {
		readFrom, idleFrom = max(readFrom, m.reads.from), max(idleFrom, m.calls.from)
		m.parked = reads && limits.ReadIdle > 0 && m.reads.rests() ||
			idles && limits.Idle > 0 && m.calls.rests()
		reads, idles = reads && !m.reads.rests(), idles && !m.calls.rests()
	}
	consider(reads, limits.ReadIdle, readFrom, ReadIdle)
	consider(writes, limits.WriteIdle, max(write, m.writeFrom), WriteIdle)
	consider(idles, limits.Idle, idleFrom, Idle)
	return at, why
}

// lifetimeOf returns Lifetime with this connection's part of Spread.
func (c *Conn) lifetimeOf(limits Limits) time.Duration {
	if limits.Lifetime == 0 || limits.Spread == 0 {
		return limits.Lifetime
	}
	// A hash of the address, which no other connection has now, takes no room. The mixing is that of
	// SplitMix64 (Steele, Lea and Flood 2014): a single multiplication leaves the addresses of one
	// size class in step.
	x := uint64(uintptr(unsafe.Pointer(c)))
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	part, _ := bits.Mul64(x^x>>31, uint64(limits.Spread))
	return limits.Lifetime + min(time.Duration(part), forever-limits.Lifetime)
}

// dueOf returns Due with the time that MinRate grants for what was read.
func (r *rare) dueOf(limits Limits) time.Duration {
	if !limits.counts() {
		return limits.Due
	}
	granted := float64(r.received.Load()) / float64(limits.MinRate) * float64(time.Second)
	if granted >= float64(forever-limits.Due) {
		return forever
	}
	return limits.Due + time.Duration(granted)
}

// armLocked arms the Timer for the next limit or look at the send queue.
func (c *Conn) armLocked() {
	at, why := c.nextLocked()
	if why == 0 || c.has(closed) {
		c.disarmLocked()
		return
	}
	shared := c.config.Load()
	if c.samplesLocked() {
		at = min(at, c.now()+shared.limits.lookEvery())
	}
	instant := shared.epoch.Add(time.Duration(at))
	c.timer.ResetAt(instant)
	if c.timer.Pending() {
		return
	}
	// Either it has fired already and a check is on its way, and one more does no harm; or the
	// wheel has been stopped, and none ever comes.
	if m := c.moreLocked(); m.backup == nil {
		m.backup = time.AfterFunc(time.Until(instant), c.check)
	} else {
		m.backup.Reset(time.Until(instant))
	}
}

func (c *Conn) disarmLocked() {
	c.timer.Stop()
	if m := c.config.Load().more; m != nil && m.backup != nil {
		m.backup.Stop()
	}
}
