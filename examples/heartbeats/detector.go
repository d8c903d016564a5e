package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file tells who is silent. A heartbeat takes no lock as long as its client is
// well: it notes the time, and moves the deadline of a pending timer later. Only
// when a client comes, is suspected or comes back is its lock taken, which guards
// what is known of it.

// A verdict is that a client is suspected, or that it is not any more.
type verdict struct {
	client  int
	suspect bool
	heard   time.Time // when it was heard last
	at      time.Time // when this was found
}

// A detector suspects clients that have been silent for the limit. The clients
// are numbered from 0, and one is watched from its first heartbeat on.
//
// change is told of each verdict, of one client in their order: the client's lock
// is held, so change must not call beat.
type detector struct {
	start   time.Time
	limit   time.Duration
	change  func(verdict)
	clients []client
}

type client struct {
	heard   atomic.Int64 // nanoseconds after the detector's start
	silence timingwheel.Timer

	mu        sync.Mutex
	suspected bool
}

func newDetector(wheel *timingwheel.TimingWheel, clients int, limit time.Duration, change func(verdict)) *detector {
	d := &detector{start: time.Now(), limit: limit, change: change, clients: make([]client, clients)}
	for i := range d.clients {
		wheel.Init(&d.clients[i].silence, func() { d.silent(i) })
	}
	return d
}

// beat is a heartbeat that arrived at now. Whoever has many at once reads the clock
// once for all of them.
func (d *detector) beat(i int, now time.Time) {
	c := &d.clients[i]
	c.hear(int64(now.Sub(d.start)))
	if c.silence.ResetAt(now.Add(d.limit)) {
		return
	}
	// The timer was not pending: this is the first heartbeat, or the client is
	// suspected, or is about to be. In the last case silent finds out, under the
	// same lock, that the client has been heard.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspected {
		c.suspected = false
		d.change(verdict{i, false, now, now})
	}
}

// hear notes the latest heartbeat; with several readers they may come out of order.
func (c *client) hear(at int64) {
	for {
		last := c.heard.Load()
		if at <= last || c.heard.CompareAndSwap(last, at) {
			return
		}
	}
}

// silent is the timer's callback.
func (d *detector) silent(i int) {
	c := &d.clients[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	heard := d.start.Add(time.Duration(c.heard.Load()))
	if end := heard.Add(d.limit); end.After(now) {
		// Heard after all, by a beat that armed the timer again, or by an earlier
		// one that a later one overtook. The timer is left at what holds.
		c.silence.ResetAt(end)
		return
	}
	if !c.suspected {
		c.suspected = true
		d.change(verdict{i, true, heard, now})
	}
}
