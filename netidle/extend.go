package netidle

import "time"

// This file extends limits that were reached. The record of extensions is made when one is first
// asked for.

// WithExtend has extend called when a connection has reached a limit. It returns for how long
// the limit is extended; if that is zero or negative, the connection times out. If something is
// read or written meanwhile that the limit counts, it counts from then, whatever extend
// returned. n is how many times extend was called before for the same limit, since something
// moved or, for Lifetime and Due, at all.
//
// So a server may ping a silent client, and time out if no answer comes. A ping that is written
// counts as a write, so the limit should be ReadIdle:
//
//	netidle.WithExtend(func(c *netidle.Conn, why netidle.Reason, n int) time.Duration {
//		if why != netidle.ReadIdle || n == 2 {
//			return 0 // close
//		}
//		ping(c)
//		return 10 * time.Second
//	})
//
// For Lifetime it may begin to say goodbye, and grant the time for that.
//
// extend runs where callbacks of the wheel run, by default on a goroutine of its own, and
// without a lock: it may call all methods of c. While it runs its limit does not hold, so it must
// not block: a ping is best written with a deadline. For one connection and one limit there is
// one call at a time. If extend panics, the connection times out. WithExtend panics if extend is
// nil.
//
// Cost: nothing until a limit is reached; then some 500 bytes for the connection.
func WithExtend(extend func(c *Conn, why Reason, n int) time.Duration) Option {
	if extend == nil {
		panic("netidle: nil function to extend limits")
	}
	return func(o *options) { o.extend = extend }
}

// extensions has one for each Reason. It is guarded by Conn.mu.
type extensions [Overdue + 1]extension

// An extension is what extend was asked and has answered. It is out of date once anything has
// moved since, unless extend is still running.
type extension struct {
	asking  bool
	refused bool
	calls   int   // for the same seen
	seen    int64 // when something last moved that the limit counts
	until   int64 // if neither asking nor refused
}

// extendedLocked returns when a limit is reached, given when it would be without an extension. It
// may return an earlier instant that is still ahead: what moves during an extension that is
// longer than the limit has to be found in time.
func (c *Conn) extendedLocked(why Reason, limit time.Duration, reached int64) int64 {
	e := &c.config.Load().more.rare.extended[why]
	if e.asking {
		return forever
	}
	if e.calls == 0 || e.refused || e.seen != c.seenLocked(why) {
		return reached
	}
	until := e.until
	if now := c.now(); until-now > int64(limit) {
		until = now + int64(limit)
	}
	return max(reached, until)
}

// seenLocked returns when something last moved that the limit counts, or when the limit was set
// if that is later.
func (c *Conn) seenLocked(why Reason) int64 {
	m := c.config.Load().more
	switch why {
	case ReadIdle:
		return max(c.lastRead(), m.readFrom)
	case WriteIdle:
		return max(c.lastWrite(), m.writeFrom)
	case Idle:
		return max(c.lastRead(), c.lastWrite(), m.idleFrom)
	case Overdue:
		return m.rare.dueFrom
	}
	return 0
}

// askUnlocked asks whether the limit, which was reached, is extended, and returns true; or false
// if that has been refused or cannot be asked. It releases c.mu, and has it still if it returns
// false.
func (c *Conn) askUnlocked(why Reason) bool {
	extend := c.config.Load().extend
	if extend == nil {
		return false
	}
	e, seen := &c.rareLocked().extended[why], c.seenLocked(why)
	if e.seen != seen {
		*e = extension{seen: seen}
	}
	if e.refused {
		return false
	}
	n := e.calls
	e.calls++
	e.asking = true
	c.armLocked() // for other limits
	c.mu.Unlock()

	by := time.Duration(0)
	defer func() { c.answer(e, by) }() // whatever extend does
	by = extend(c, why, n)
	return true
}

// answer notes by how much a limit is extended. If it is not, a check finds what moved while
// extend was running; if nothing did, the connection times out. If it is, a check must not follow
// at once, as one that extends by a nanosecond would call itself.
func (c *Conn) answer(e *extension, by time.Duration) {
	c.mu.Lock()
	e.asking, e.refused = false, by <= 0
	if e.refused {
		c.mu.Unlock()
		c.check()
		return
	}
	defer c.mu.Unlock()
	now := c.now()
	if e.until = now + int64(by); e.until < now {
		e.until = forever
	}
	c.armLocked()
}
