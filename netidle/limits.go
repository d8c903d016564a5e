package netidle

import (
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// This file holds what a caller sets: limits, what happens when one is reached, and
// the names of the reasons. Nothing here has a lock: all of it is fixed once a Conn
// is made, but for the Limits, which Conn.mu guards.

// Limits says how long a connection may be idle, and how long it may live. Zero
// means no limit. Several may be set; the first to be reached counts.
type Limits struct {
	ReadIdle  time.Duration // nothing was read
	WriteIdle time.Duration // nothing was written
	Idle      time.Duration // neither was anything read nor written
	Lifetime  time.Duration // since NewConn or Accept, whatever happened

	// Due is how long these limits may last, whatever happens: since NewConn, Accept or the
	// SetLimits that set it. It is for a step that has to end, such as a handshake, a login or
	// the header of a request. When that is done, SetLimits sets other limits.
	Due time.Duration

	// MinRate keeps a peer from trickling: Due is longer by the time that the bytes read since
	// then take at MinRate bytes per second. It is for what has no fixed size; with a Due of
	// 10 s and a MinRate of 500, 20 s later at least 5000 bytes must have come. It costs Read an
	// atomic operation. Zero means that Due is fixed; without Due MinRate has no effect.
	MinRate int

	// Spread makes Lifetime longer by a random time below it, a different one for each connection,
	// so that those which came together do not leave together.
	Spread time.Duration
}

// check panics if a limit is negative.
func (l Limits) check() {
	for _, limit := range [...]struct {
		name string
		d    time.Duration
	}{
		{"ReadIdle", l.ReadIdle}, {"WriteIdle", l.WriteIdle}, {"Idle", l.Idle}, {"Lifetime", l.Lifetime}, {"Due", l.Due},
		{"Spread", l.Spread},
	} {
		if limit.d < 0 {
			panic("netidle: negative " + limit.name + " limit " + limit.d.String())
		}
	}
	if l.MinRate < 0 {
		panic("netidle: negative MinRate " + strconv.Itoa(l.MinRate))
	}
}

// Reason names the limit that was reached.
type Reason uint32

const (
	ReadIdle  Reason = iota + 1 // Limits.ReadIdle
	WriteIdle                   // Limits.WriteIdle
	Idle                        // Limits.Idle
	Lifetime                    // Limits.Lifetime
	Overdue                     // Limits.Due
)

// String returns "read idle", "write idle", "idle", "lifetime" or "overdue"; for the zero
// Reason, which stands for no limit, "none".
func (r Reason) String() string {
	names := [...]string{"none", "read idle", "write idle", "idle", "lifetime", "overdue"}
	if int(r) < len(names) {
		return names[r]
	}
	return "Reason(" + strconv.FormatUint(uint64(r), 10) + ")"
}

// reads and writes report which direction a limit stands for.
func (r Reason) reads() bool  { return r != WriteIdle }
func (r Reason) writes() bool { return r != ReadIdle }

// touches returns touchReads if a limit asks for reads, touchWrites if one asks for writes, and
// counted if one asks how many bytes were read.
func (l Limits) touches() (bits uint32) {
	if l.ReadIdle > 0 || l.Idle > 0 {
		bits |= touchReads
	}
	if l.WriteIdle > 0 || l.Idle > 0 {
		bits |= touchWrites
	}
	if l.counts() {
		bits |= counted
	}
	return bits
}

// touches returns what Read and Write touch.
func (c *config) touches() uint32 {
	bits := c.limits.touches()
	if c.keeps {
		bits |= touchReads | touchWrites
	}
	return bits
}

// several reports that one instant is not enough for these limits.
func (l Limits) several() bool {
	n := 0
	for _, limit := range [...]time.Duration{l.ReadIdle, l.WriteIdle, l.Idle, l.Due} {
		if limit > 0 {
			n++
		}
	}
	return n > 1 || l.counts()
}

// counts reports that the bytes read have to be counted.
func (l Limits) counts() bool { return l.Due > 0 && l.MinRate > 0 }

// options are shared by all connections of a Listener. All but configs is fixed.
type options struct {
	epoch  time.Time // instant 0
	expire bool
	reset  bool
	keeps  bool // the instants of reads and writes
	hook   func(c *Conn, why Reason)
	extend func(c *Conn, why Reason, n int) time.Duration
	socket func(net.Conn) net.Conn

	configs atomic.Pointer[[]*config] // those that connections share
}

// maxConfigs is how many different limits of a Listener's connections are shared: more than a
// server has phases, few enough to search.
const maxConfigs = 16

// with returns a config with the limits, shared if there are not too many of them.
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

// WithReset has a TCP connection that is closed by a limit reset, so that the kernel frees at
// once what the peer has not taken. Otherwise it tries to deliver that for minutes. The peer may
// lose bytes that have arrived but that it has not read. The socket is found as for WithSocket;
// of other kinds of connections, and with WithExpire, which closes nothing, it has no effect.
func WithReset() Option { return func(o *options) { o.reset = true } }

// WithActivity keeps the instants for LastRead and LastWrite. Cost: a clock reading and an atomic
// operation for each Read and Write, whether a limit asks for them or not, and some 300 bytes for
// a connection.
func WithActivity() Option { return func(o *options) { o.keeps = true } }

// WithOnTimeout has hook called when a connection has reached a limit, before it is closed (or
// its deadline is set, with WithExpire): a hook should be quick. So the owner, who learns of
// the limit by an error, sees that error after the hook has returned. If the owner calls Close
// before that by itself, either Close comes first and no hook is called, or the hook has begun;
// Close does not wait for it, as hooks may call Close and take locks under which others do. The
// hook runs where callbacks of the wheel run, by default on a goroutine of its own.
// WithOnTimeout panics if hook is nil.
func WithOnTimeout(hook func(c *Conn, why Reason)) Option {
	if hook == nil {
		panic("netidle: nil hook")
	}
	return func(o *options) { o.hook = hook }
}

// WithSocket names the socket underneath an inner connection, about which the kernel can be
// asked what is under way: find returns it, or nil if there is none. It is needed where package
// netidle cannot see through a layer by itself. It looks through a *tls.Conn, whatever has a
// NetConn method, and a struct with an embedded net.Conn, as netutil.LimitListener's. The call
// is made when a limit would be reached or something large is written, at most once for each
// connection. WithSocket panics if find is nil.
func WithSocket(find func(inner net.Conn) net.Conn) Option {
	if find == nil {
		panic("netidle: nil function for the socket")
	}
	return func(o *options) { o.socket = find }
}

func newOptions(opts []Option) *options {
	o := &options{epoch: time.Now()}
	for _, opt := range opts {
		if opt == nil {
			panic("netidle: nil Option")
		}
		opt(o)
	}
	return o
}
