package netidle

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// This file holds what a Conn knows about itself: the bits of its state, and its config, which it
// shares with other connections as long as it needs nothing of its own. Conn.mu guards both.

// The bits of Conn.state. Above them are three reasons of four bits each.
const (
	touchReads  uint32 = 1 << iota // Read touches, as a limit depends on it
	touchWrites                    // Write touches
	apart                          // more has the instants of reads and writes
	readDone                       // the end was read, or CloseRead has been called
	writeDone                      // CloseWrite has been called
	closed                         // Close has been called

	// What is known about the inner connection.
	asksReads // the kernel knows whether bytes are unread; of all bytes unless tracked
	asksTCP   // the kernel knows when the peer acknowledged bytes
	samples   // the kernel knows how long the send queue is, but not when that changed
	tracked   // calls that wait are counted, as the kernel may not know of all unread bytes
	counted   // more.received counts the bytes read
	pieces    // Write splits large data into pieces
	whole     // Write does not; if neither bit is set, it has to find out
)

// A direction is the position of its reason in Conn.state. A reason is set once, under mu.
type direction uint

const (
	either  direction = 20 // the limit that was reached first
	reading direction = 24
	writing direction = 28
)

func (c *Conn) has(bits uint32) bool { return c.state.Load()&bits != 0 }

// addLocked ignores the result of Or, so that it compiles to one instruction.
func (c *Conn) addLocked(bits uint32) { c.state.Or(bits) }

// why returns the limit that ended the direction, or 0 if none has.
func (c *Conn) why(d direction) Reason { return Reason(c.state.Load() >> d & 15) }

// setLocked sets the direction's reason unless it has one.
func (c *Conn) setLocked(d direction, why Reason) {
	if c.why(d) == 0 {
		c.state.Or(uint32(why) << d)
	}
}

// config is shared by the connections of a Listener that have the same limits, unless a connection
// needs fields of its own.
type config struct {
	*options        // fixed
	limits   Limits // guarded by Conn.mu if more is not nil, fixed otherwise
	more     *more  // what one connection has for itself, or nil; fixed
}

// more holds what most connections do not need.
type more struct {
	// They replace Conn.last if several limits need different instants. Conn.last remains a lower
	// bound of both, as a touch that began before the change may still raise it.
	lastRead, lastWrite atomic.Int64

	socket  net.Conn   // what the kernel is asked about if the Conn is tracked, or nil; fixed
	writing sync.Mutex // keeps the pieces of one Write together

	// The fields below are guarded by Conn.mu.

	// A limit that was off counts from the SetLimits that set it, not from before.
	readFrom, writeFrom, idleFrom int64

	reads, calls waiting // if tracked: calls of Read, and of Read and Write
	parked       bool    // the Timer leaves out a limit until a call waits again

	rare  *rare // what even fewer connections need, or nil
	queue queueSample
}

// rare is guarded by Conn.mu, except for received.
type rare struct {
	dueFrom  int64        // when SetLimits set Limits.Due
	received atomic.Int64 // the bytes read since then, if counted
	extended extensions
}

// moreLocked returns the connection's more, and makes one if there is none.
func (c *Conn) moreLocked() *more {
	shared := c.config.Load()
	if shared.more == nil {
		own := &struct {
			config
			more
		}{config: *shared}
		own.config.more = &own.more
		if shared.limits.Due > 0 {
			own.rare = &rare{dueFrom: c.last.Load()}
		}
		c.config.Store(&own.config)
		return &own.more
	}
	return shared.more
}

// rareLocked returns the connection's rare, and makes one if there is none.
func (c *Conn) rareLocked() *rare {
	m := c.moreLocked()
	if m.rare == nil {
		m.rare = new(rare)
	}
	return m.rare
}

// ownLimits makes SetLimits neither share configs nor allocate. It is for a connection whose
// limits are almost never the same twice.
func (c *Conn) ownLimits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moreLocked()
}

// touches returns which of Read and Write touch.
func (c *config) touches() uint32 {
	bits := c.limits.touches()
	if c.activity {
		bits |= touchReads | touchWrites
	}
	return bits
}

// maxConfigs is how many different limits the connections of a Listener share. It is more than the
// phases of a server, and few enough to search.
const maxConfigs = 16

// with returns a config with the limits. It is shared unless there are too many.
func (o *options) with(limits Limits) *config {
	for {
		known := o.configs.Load()
		var list []*config
		if known != nil {
			list = *known
		}
		for _, shared := range list {
			if shared.limits == limits {
				return shared
			}
		}
		shared := &config{options: o, limits: limits}
		if len(list) == maxConfigs {
			return shared
		}
		more := append(slices.Clip(list), shared) // its own variable, as its address is taken
		if o.configs.CompareAndSwap(known, &more) {
			return shared
		}
	}
}
