package netidle

import (
	"math/bits"
	"net"
	"time"
	"unsafe"
)

// This file holds what the Timer does when it fires, and how it is armed. All of it runs under
// Conn.mu, except the hook, the closing and the deadlines. Read and Write call none of it unless
// the Conn is tracked.

// SetLimits replaces the limits. ReadIdle, WriteIdle and Idle continue to count from the last read
// or write, but one that was zero counts from now if that is later. Lifetime always counts from
// the beginning, and Due from this call. A limit that was already reached stays reached. After
// Close, SetLimits does nothing. It panics if a limit is negative.
//
// SetLimits costs two mutexes and a clock reading. The connections of a Listener share up to 16
// different Limits; with more of them, each call allocates.
func (c *Conn) SetLimits(limits Limits) {
	limits.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLimitsLocked(limits)
	c.armLocked()
}

// setLimitsLocked changes what Read and Write touch before it reads the clock. So a Read that did
// not touch had returned before that instant, and is not missed.
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
	// At most one limit counts from last.
	from := int64(0)
	set(old.ReadIdle, limits.ReadIdle, &from)
	set(old.WriteIdle, limits.WriteIdle, &from)
	set(old.Idle, limits.Idle, &from)
	set(0, limits.Due, &from)
	raise(&c.last, from)
}

// check is the Timer's callback. It may be called at any time and any number of times: only what
// it finds under mu counts.
//
// It reads the clock before it loads the instants, so it sees each touch that was made before the
// limit was reached. In the other order it would close early:
//
//	check                                 a Read
//	loads the instants: due at 60.000 s
//	                                      touches at 59.999 s
//	reads the clock: 60.001 s, closes
//
// A read or write between the loading and the closing is too late, like one just after the
// closing.
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
	c.armLocked() // for limits of the other direction
	c.mu.Unlock()

	defer func() { // even if the hook panics
		if opts.expire {
			c.keepReadExpired()
			c.keepWriteExpired()
		} else {
			c.abort()
		}
	}()
	if opts.hook != nil {
		opts.hook(c, why)
	}
}

// abort closes the inner connection because a limit was reached. With WithReset it closes the
// socket first: a layer such as TLS would wait to say goodbye to a peer that takes nothing.
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

// nextLocked returns when the first limit will be reached, and which one that is. It returns 0 if
// no limit can be reached, or none before a call waits again.
//
// A finished direction has no limit of its own. Idle still holds when both are finished: it closes
// a connection that its owner forgot to close.
func (c *Conn) nextLocked() (at int64, why Reason) {
	shared := c.config.Load()
	m, limits := shared.more, shared.limits
	state := c.state.Load()
	reads, writes := state>>reading&15 == 0, state>>writing&15 == 0
	idles := reads || writes
	at = forever
	consider := func(holds bool, limit time.Duration, from int64, reason Reason) {
		if !holds || limit <= 0 {
			return
		}
		reached := plus(from, int64(limit))
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

// lifetimeOf returns Lifetime plus this connection's part of Spread.
func (c *Conn) lifetimeOf(limits Limits) time.Duration {
	if limits.Lifetime == 0 || limits.Spread == 0 {
		return limits.Lifetime
	}
	// The part is a hash of the Conn's address, so it takes no memory and no two live connections
	// share their input. The mixing is that of SplitMix64 (Steele, Lea and Flood 2014). A single
	// multiplication would leave the addresses of one size class evenly spaced.
	x := uint64(uintptr(unsafe.Pointer(c)))
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	part, _ := bits.Mul64(x^x>>31, uint64(limits.Spread))
	return plus(limits.Lifetime, time.Duration(part))
}

// dueOf returns Due plus the time that MinRate grants for the bytes read.
func (r *rare) dueOf(limits Limits) time.Duration {
	if !limits.counts() {
		return limits.Due
	}
	return atRate(limits.Due, r.received.Load(), limits.MinRate)
}

// armLocked arms the Timer for the next limit or the next look at the send queue.
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
	c.timer.ResetAt(shared.epoch.Add(time.Duration(at)))
}

func (c *Conn) disarmLocked() { c.timer.Stop() }
