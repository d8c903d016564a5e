package main

import (
	"net"
	"net/http"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// A reaper closes the keep-alive connections of an http.Server that wait too long for a
// request, and those that live too long. This file is what a service would copy.
type reaper struct {
	tw     *timingwheel.TimingWheel
	limits netidle.Limits // of a connection that waits for a request
	reaped func(c *netidle.Conn, why netidle.Reason)
}

// serve is server.Serve, with the reaper's limits on every connection.
func (r *reaper) serve(server *http.Server, l net.Listener) error {
	server.ConnState = r.connState
	return server.Serve(netidle.NewListener(l, r.tw, r.limits, netidle.WithOnTimeout(r.reaped)))
}

// connState lifts the idle limits while a handler works: it may compute for longer than
// they are, and read or write nothing meanwhile. They count anew once the answer is out.
func (r *reaper) connState(conn net.Conn, state http.ConnState) {
	c, ok := netidle.Find(conn) // conn may be a *tls.Conn around it
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		c.SetLimits(netidle.Limits{Life: r.limits.Life})
	case http.StateIdle:
		c.SetLimits(r.limits)
	}
}
