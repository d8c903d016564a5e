package main

import (
	"net"
	"net/http"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// A reaper closes the connections of an http.Server whose clients let it wait too long, and
// those that live too long. This file is what a service would copy.
type reaper struct {
	tw     *timingwheel.TimingWheel
	limits netidle.HTTPLimits
	reaped func(c *netidle.Conn, why netidle.Reason)
}

// serve is server.Serve, with the reaper's limits on every connection.
func (r *reaper) serve(server *http.Server, l net.Listener) error {
	l = netidle.HTTPListener(server, l, r.tw, r.limits, netidle.WithOnTimeout(r.reaped))
	return server.Serve(l)
}
