package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is the part to copy: it finds clients that are silent. While a client is well, a
// heartbeat takes no lock: it notes the time and moves the deadline of a pending timer later.

// A verdict says that a client is suspected, or no longer suspected.
type verdict struct {
	client  int
	suspect bool
	heard   time.Time // the last heartbeat
	at      time.Time // when this was found
}

// A detector suspects clients that have been silent for the limit. Clients are numbered from 0 and
// watched from their first heartbeat on. It tells the verdicts on one client in order and under
// the client's lock, so tell must not call beat.
type detector struct {
	start   time.Time
	limit   time.Duration
	tell    func(verdict)
	clients []client
}

type client struct {
	heard   atomic.Int64 // nanoseconds after the detector's start
	silence timingwheel.Timer

	mu        sync.Mutex // taken when the client arrives, is suspected or returns
	suspected bool
}

func newDetector(tw *timingwheel.TimingWheel, clients int, limit time.Duration,
	tell func(verdict)) *detector {
	d := &detector{start: time.Now(), limit: limit, tell: tell, clients: make([]client, clients)}
	for i := range d.clients {
		tw.Init(&d.clients[i].silence, func() { d.silent(i) })
	}
	return d
}

// beat notes a heartbeat of client i that arrived at now. A packet with many heartbeats needs a
// single clock reading.
func (d *detector) beat(i int, now time.Time) {
	c := &d.clients[i]
	at := int64(now.Sub(d.start))
	for last := c.heard.Load(); last < at && !c.heard.CompareAndSwap(last, at); {
		last = c.heard.Load() // heartbeats from several readers may arrive out of order
	}
	if c.silence.ResetAt(now.Add(d.limit)) {
		return // the client is well, and was
	}
	// The timer was not pending: this is the first heartbeat, or the client is suspected or about
	// to be. In the last case silent finds out, under the lock, that it was heard.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspected {
		c.suspected = false
		d.tell(verdict{i, false, now, now})
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
		// The client was heard after all. The heartbeat armed the timer again, perhaps for an
		// earlier time if a later heartbeat had overtaken it.
		c.silence.ResetAt(end)
		return
	}
	if !c.suspected {
		c.suspected = true
		d.tell(verdict{i, true, heard, now})
	}
}
