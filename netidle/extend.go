package netidle

import "time"

// This file extends limits that were reached. Conn.mu guards its records, which are made when
// extend is first called, and is not held while extend runs.

// WithExtend sets a function that is called when a connection reaches a limit. It returns how long
// to extend the limit; if that is zero or negative, the connection times out. If bytes that the
// limit counts move in the meantime, it counts from then, whatever extend returned. The argument n
// is the number of earlier calls for the same limit since such bytes last moved or, for Lifetime
// and Due, the number of all earlier calls.
//
// For example, a server can ping a silent client and close the connection if no answer comes. The
// ping counts as a write, so the limit should be ReadIdle:
//
//	netidle.WithExtend(func(c *netidle.Conn, why netidle.Reason, n int) time.Duration {
//		if why != netidle.ReadIdle || n == 2 {
//			return 0 // close
//		}
//		ping(c)
//		return 10 * time.Second
//	})
//
// For Lifetime, extend can begin a goodbye and grant the time for it.
//
// The function runs where callbacks of the wheel run, by default on its own goroutine. It holds no
// lock, so it may call all methods of c. While it runs, its limit does not hold, so it must not
// block: set a deadline before writing a ping. There is one call at a time for each connection and
// limit. If extend panics, the connection times out. WithExtend panics if extend is nil.
//
// WithExtend costs nothing until a limit is reached, and then some 500 bytes for the connection.
func WithExtend(extend func(c *Conn, why Reason, n int) time.Duration) Option {
	if extend == nil {
		panic("netidle: nil function to extend limits")
	}
	return func(o *options) { o.extend = extend }
}

// extensions holds one extension for each Reason. It is guarded by Conn.mu.
type extensions [Overdue + 1]extension

// An extension records the calls of extend for one limit. It is out of date once bytes have moved
// since, unless extend is still running.
type extension struct {
	asking  bool  // extend is running
	refused bool  // its last answer was no
	calls   int   // with the same seen
	seen    int64 // when bytes that the limit counts last moved
	until   int64 // its last answer, if neither asking nor refused
}

// extendedLocked returns when a limit will be reached, given when it would be without an
// extension. If the extension is longer than the limit, it may return an earlier instant that is
// still in the future, so that check sees in time what moves during the extension.
func (c *Conn) extendedLocked(why Reason, limit time.Duration, reached int64) int64 {
	e := &c.config.Load().more.rare.extended[why]
	if e.asking {
		return forever
	}
	if e.calls == 0 || e.refused || e.seen != c.seenLocked(why) {
		return reached
	}
	return max(reached, min(e.until, plus(c.now(), int64(limit))))
}

// seenLocked returns when bytes that the limit counts last moved, or when the limit was set if
// that is later.
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

// askUnlocked calls extend for a limit that was reached. It is called with c.mu held. If it calls
// extend, it releases c.mu and returns true. If there is no extend, or its answer was no, it
// returns false with c.mu still held.
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
	defer func() { c.answer(e, by) }() // even if extend panics
	by = extend(c, why, n)
	return true
}

// answer records by how much a limit is extended. If it is not extended, a check looks for bytes
// that moved while extend was running, and the connection times out if there are none. If it is
// extended, the check must wait for the Timer: an extend that always returned a nanosecond would
// otherwise recurse.
func (c *Conn) answer(e *extension, by time.Duration) {
	c.mu.Lock()
	e.asking, e.refused = false, by <= 0
	if e.refused {
		c.mu.Unlock()
		c.check()
		return
	}
	defer c.mu.Unlock()
	e.until = plus(c.now(), int64(by))
	c.armLocked()
}
