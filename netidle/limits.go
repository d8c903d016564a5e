package netidle

import (
	"strconv"
	"time"
)

// This file holds what a caller sets: limits, what happens when one is reached, and
// the names of the reasons. Nothing here has a lock: all of it is fixed once a Conn
// is made, but for the Limits, which Conn.mu guards.

// Limits says how long a connection may be idle, and how long it may live. Zero
// means no limit. Several may be set; the first to be reached counts.
type Limits struct {
	Read  time.Duration // nothing was read
	Write time.Duration // nothing was written
	Idle  time.Duration // neither was anything read nor written
	Life  time.Duration // since NewConn or Accept, whatever happened
}

// check panics if a limit is negative.
func (l Limits) check() {
	for _, limit := range [...]struct {
		name string
		d    time.Duration
	}{{"Read", l.Read}, {"Write", l.Write}, {"Idle", l.Idle}, {"Life", l.Life}} {
		if limit.d < 0 {
			panic("netidle: negative " + limit.name + " limit " + limit.d.String())
		}
	}
}

// Reason names the limit that was reached.
type Reason uint32

const (
	ReadIdle  Reason = iota + 1 // Limits.Read
	WriteIdle                   // Limits.Write
	Idle                        // Limits.Idle
	Lifetime                    // Limits.Life
)

// String returns "read idle", "write idle", "idle" or "lifetime"; for the zero
// Reason, which stands for no limit, "none".
func (r Reason) String() string {
	names := [...]string{"none", "read idle", "write idle", "idle", "lifetime"}
	if int(r) < len(names) {
		return names[r]
	}
	return "Reason(" + strconv.FormatUint(uint64(r), 10) + ")"
}

// reads and writes report which direction a limit stands for.
func (r Reason) reads() bool  { return r != WriteIdle }
func (r Reason) writes() bool { return r != ReadIdle }

// options are shared by all connections of a Listener.
type options struct {
	expire bool
	hook   func(c *Conn, why Reason)
}

// An Option sets up a Conn, or all of a Listener.
type Option func(*options)

// WithExpire leaves a connection that reached a limit open, and sets a deadline in
// the past: for reads if nothing was read, for writes if nothing was written, for
// both on the other limits. The owner, who then sees an error from his Read or
// Write, can still say goodbye in the other direction, and closes. Deadlines that
// he sets meanwhile do not bring that direction back. The limits that stand for the
// other direction still hold, so the hook may be called once more.
//
// Use it where only one goroutine may close a connection. A connection whose owner
// has no Read or Write under way stays open until he has.
func WithExpire() Option { return func(o *options) { o.expire = true } }

// WithOnTimeout has hook called when a connection has reached a limit, once it is
// closed (or its deadline is set, with WithExpire). The hook runs where callbacks of
// the wheel run, by default on a goroutine of its own. It panics if hook is nil.
func WithOnTimeout(hook func(c *Conn, why Reason)) Option {
	if hook == nil {
		panic("netidle: nil hook")
	}
	return func(o *options) { o.hook = hook }
}

func newOptions(opts []Option) *options {
	o := new(options)
	for _, opt := range opts {
		if opt == nil {
			panic("netidle: nil Option")
		}
		opt(o)
	}
	return o
}
