package netidle

import (
	"net"
	"sync/atomic"
	"time"
)

// This file holds the options of NewConn, NewListener and HTTPListener. It has no lock: options
// are fixed once the Conn or Listener is made. WithExtend is in extend.go.

// An Option sets up a Conn, or all connections of a Listener.
type Option func(*options)

// options are shared by all connections of a Listener. All fields but configs are fixed.
type options struct {
	epoch    time.Time // instant 0
	expire   bool
	reset    bool
	activity bool // Read and Write touch whatever the limits
	hook     func(c *Conn, why Reason)
	extend   func(c *Conn, why Reason, n int) time.Duration
	socket   func(net.Conn) net.Conn

	configs atomic.Pointer[[]*config] // those that connections share
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

// WithExpire keeps a connection that has reached a limit open and sets a deadline in the past: for
// reads after ReadIdle, for writes after WriteIdle, and for both after any other limit. The owner
// sees an error from Read or Write, can still say goodbye in the other direction, and then closes
// the connection. Deadlines that the owner sets afterwards do not revive an expired direction. The
// limits of the other direction still hold, so the hook may be called once more.
//
// Use it if only one goroutine may close a connection. A connection whose owner calls neither Read
// nor Write stays open until the owner does.
func WithExpire() Option { return func(o *options) { o.expire = true } }

// WithReset resets a TCP connection that reaches a limit, so that the kernel frees at once what
// the peer has not taken. Without it the kernel may try for minutes to deliver the rest. The peer
// may lose bytes that have arrived but that it has not read. WithReset finds the socket as
// WithSocket describes. It has no effect on other kinds of connections, nor with WithExpire, which
// closes nothing.
func WithReset() Option { return func(o *options) { o.reset = true } }

// WithActivity records the times that LastRead and LastWrite return. It costs Read and Write a
// clock reading and an atomic operation even if no limit needs them, and each connection some 300
// bytes.
func WithActivity() Option { return func(o *options) { o.activity = true } }

// WithOnTimeout sets a hook that is called when a connection has reached a limit, before the
// connection is closed or, with WithExpire, its deadline is set. The owner sees the error of the
// limit only after the hook has returned, so the hook should be quick. It runs where callbacks of
// the wheel run, by default on its own goroutine.
//
// If the owner calls Close at the same time, either Close comes first and the hook is not called,
// or the hook has already begun. Close does not wait for the hook, because a hook may call Close
// or take a lock that the caller of Close holds. WithOnTimeout panics if hook is nil.
func WithOnTimeout(hook func(c *Conn, why Reason)) Option {
	if hook == nil {
		panic("netidle: nil hook")
	}
	return func(o *options) { o.hook = hook }
}

// WithSocket sets a function that returns the socket underneath an inner connection, or nil if
// there is none. The package asks the kernel about this socket. WithSocket is needed if the
// package cannot look through a layer by itself. It does look through a *tls.Conn, through any
// other type with a NetConn method, and through a struct that embeds a net.Conn, as the
// connections of netutil.LimitListener do. NewConn and Accept call find at most once for each
// connection, so find must not block. WithSocket panics if find is nil.
func WithSocket(find func(inner net.Conn) net.Conn) Option {
	if find == nil {
		panic("netidle: nil function for the socket")
	}
	return func(o *options) { o.socket = find }
}
