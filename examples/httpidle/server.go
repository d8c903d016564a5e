package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// This file is the part to copy: an http.Server with limits on its connections.

// serve answers requests on l until ctx ends. It closes connections that keep the server waiting
// for longer than the limits, and those that are too old. A handler may compute for longer.
func serve(ctx context.Context, server *http.Server, l net.Listener, limits netidle.HTTPLimits,
	closed func(*netidle.Conn, netidle.Reason)) error {
	tw := timingwheel.New()
	guarded := netidle.HTTPListener(server, l, tw, limits, netidle.WithOnTimeout(closed))
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		// The connections end before the wheel, which holds their limits.
		ended <- errors.Join(server.Shutdown(ctx), tw.Shutdown(ctx))
	}()
	if err := server.Serve(guarded); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}
