package main

import (
	"net"
	"net/http"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// A reaper closes the connections of an http.Server whose clients keep it waiting too long, and
// those that are too old. This file is the part to copy.
type reaper struct {
	tw     *timingwheel.TimingWheel
	limits netidle.HTTPLimits
	reaped func(c *netidle.Conn, why netidle.Reason)
}

// serve is server.Serve with the limits on every connection. A handler may compute for longer.
func (r *reaper) serve(server *http.Server, l net.Listener) error {
	return server.Serve(netidle.HTTPListener(server, l, r.tw, r.limits, netidle.WithOnTimeout(r.reaped)))
}
