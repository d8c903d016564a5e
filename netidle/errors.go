package netidle

import (
	"errors"
	"io"
	"net"
)

// ErrTimeout is what errors.Is finds in the errors of a connection that reached a
// limit.
var ErrTimeout = errors.New("netidle: timeout")

// TimeoutError is what Read, Write and the others return once a limit was reached:
// the error of the inner connection with the reason in front of it. errors.Is finds
// ErrTimeout in it and, if the connection was closed, net.ErrClosed. If it comes
// inside a *net.OpError it is returned inside one. io.EOF is never wrapped.
//
// It is a net.Error. Timeout is true if the deadline was set (WithExpire), false if the
// connection was closed, by the limit or meanwhile by its owner: a loop that goes on reading
// after a timeout, as many do, would otherwise spin on a closed connection.
type TimeoutError struct {
	Reason Reason
	Err    error // of the inner connection

	closed bool
}

func (e *TimeoutError) Error() string { return "netidle: " + e.Reason.String() + ": " + e.Err.Error() }

func (e *TimeoutError) Unwrap() error { return e.Err }

func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimeout || e.closed && target == net.ErrClosed
}

func (e *TimeoutError) Timeout() bool { return !e.closed }

// Temporary returns false. It is there for net.Error, and keeps package tls from
// reading on.
func (e *TimeoutError) Temporary() bool { return false }

// explain adds the reason to an error of the inner connection. The direction's reason is set
// before the connection is closed or its deadline is, so an error that comes of that finds it.
func (c *Conn) explain(err error, d direction) error {
	if err == nil || err == io.EOF {
		return err
	}
	reason := c.why(d)
	if reason == 0 {
		return err
	}
	over := c.has(closed) || !c.config.Load().expire
	timeout := &TimeoutError{Reason: reason, Err: err, closed: over}
	op, ok := err.(*net.OpError)
	if !ok {
		return timeout
	}
	outer := *op // net/http and others look for the type
	timeout.Err, outer.Err = op.Err, timeout
	return &outer
}
