package netidle

import (
	"errors"
	"io"
	"net"
)

// This file holds the errors of connections that have reached a limit. It takes no lock: Read and
// Write call explain.

// ErrTimeout is the error that errors.Is finds in the errors of a connection that has reached a
// limit.
var ErrTimeout = errors.New("netidle: timeout")

// TimeoutError is the error of Read, Write and other methods of a connection that has reached a
// limit. It adds the reason to the error of the inner connection. errors.Is finds ErrTimeout in it
// and, if the connection was closed, net.ErrClosed. If the inner connection returns a *net.OpError,
// the TimeoutError is inside a *net.OpError, too. io.EOF is returned as it is.
//
// TimeoutError is a net.Error. Its Timeout method returns true if a deadline was set (see
// WithExpire), and false if the connection was closed, by the limit or since then by its owner.
// Many programs read again after a timeout, and would do so forever on a closed connection.
type TimeoutError struct {
	Reason Reason
	Err    error // of the inner connection

	closed bool
}

func (e *TimeoutError) Error() string {
	return "netidle: " + e.Reason.String() + ": " + e.Err.Error()
}

func (e *TimeoutError) Unwrap() error { return e.Err }

func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimeout || e.closed && target == net.ErrClosed
}

func (e *TimeoutError) Timeout() bool { return !e.closed }

// Temporary returns false. It makes TimeoutError a net.Error and keeps package tls from reading
// again.
func (e *TimeoutError) Temporary() bool { return false }

// explain adds the reason to an error of the inner connection. A direction's reason is set before
// the connection is closed or its deadline is set, so explain finds it in the errors that follow.
func (c *Conn) explain(err error, d direction) error {
	if err == nil || err == io.EOF {
		return err
	}
	reason := c.why(d)
	if reason == 0 {
		return err
	}
	isClosed := c.has(closed) || !c.config.Load().expire
	timeout := &TimeoutError{Reason: reason, Err: err, closed: isClosed}
	op, ok := err.(*net.OpError)
	if !ok {
		return timeout
	}
	outer := *op // net/http and others look for the type
	timeout.Err, outer.Err = op.Err, timeout
	return &outer
}
