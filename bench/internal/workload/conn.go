package workload

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Conn is what most servers touch: the read deadline of a TCP connection, here over the loopback
// interface. A deadline is a timer of package time under the connection's own locks. It has no
// callback of the caller's, so only the touch workloads run on it.
var Conn = Impl{Name: "conn", Open: func() Instance {
	var ends []net.Conn
	return Instance{
		NewTouch: func(func()) Timer {
			a, b, err := dialLoopback()
			if err != nil {
				panic(fmt.Sprintf("bench: no connection over the loopback interface: %v", err))
			}
			ends = append(ends, a, b)
			return connTimer{a}
		},
		Close: func() {
			for _, c := range ends {
				c.Close()
			}
		},
		Silent: true,
		Max:    200, // file descriptors

		// Timers of package time stand in for the deadlines of many other connections.
		fill: func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) },
	}
}}

type connTimer struct{ net.Conn }

func (c connTimer) Stop() bool { return c.SetReadDeadline(time.Time{}) == nil }

func (c connTimer) Reset(d time.Duration) bool {
	return c.SetReadDeadline(time.Now().Add(d)) == nil
}

func (c connTimer) ResetAt(at time.Time) bool { return c.SetReadDeadline(at) == nil }

// dialLoopback returns both ends of a new connection.
func dialLoopback() (client, server net.Conn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	// The kernel completes the connection before the listener accepts it.
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	if server, err = ln.Accept(); err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return client, server, nil
}
