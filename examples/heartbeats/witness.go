package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file judges the detector. witness.mu guards what is below it.

// A witness sees the heartbeats, each before the detector does, and the verdicts.
type witness struct {
	limit time.Duration
	dead  []atomic.Bool // for each client

	mu      sync.Mutex
	seen    []sight // for each client
	beats   int     // heartbeats of all
	starved int     // suspicions of clients that were not dead
	delays  []time.Duration
	wrong   error // the first verdict that was
}

// A sight is what the witness knows of a client.
type sight struct {
	last, before time.Time // the last two heartbeats
	suspected    bool
}

func newWitness(clients int, limit time.Duration) *witness {
	return &witness{limit: limit, dead: make([]atomic.Bool, clients), seen: make([]sight, clients)}
}

func (w *witness) heard(clients []int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats += len(clients)
	for _, i := range clients {
		s := &w.seen[i]
		s.last, s.before = at, s.last
	}
}

// judge sees a verdict. The heartbeat that a suspicion counts from is the last, or
// the one before if the last is between the witness and the detector.
func (w *witness) judge(v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.seen[v.client]
	if s.suspected == v.suspect {
		w.blameLocked("client %d: the same verdict twice, suspect %t", v.client, v.suspect)
		return
	}
	s.suspected = v.suspect
	if !v.suspect {
		return
	}
	delay := v.at.Sub(v.heard) - w.limit
	switch {
	case delay < 0:
		w.blameLocked("client %d was suspected %v early", v.client, -delay)
	case !v.heard.Equal(s.last) && !v.heard.Equal(s.before):
		w.blameLocked("client %d was suspected although it was heard", v.client)
	}
	if w.dead[v.client].Load() {
		w.delays = append(w.delays, delay)
	} else {
		w.starved++
	}
}

func (w *witness) blameLocked(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

// mark has these clients be dead from now on, or not any more.
func (w *witness) mark(clients []int, dead bool) {
	for _, i := range clients {
		w.dead[i].Store(dead)
	}
}

// agreed reports nil if nothing was wrong, everybody has been heard, and exactly the
// dead are suspected.
func (w *witness) agreed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong != nil {
		return w.wrong
	}
	for i, s := range w.seen {
		if s.last.IsZero() {
			return fmt.Errorf("client %d has not been heard", i)
		}
		if dead := w.dead[i].Load(); dead != s.suspected {
			return fmt.Errorf("client %d: dead %t, suspected %t", i, dead, s.suspected)
		}
	}
	return nil
}

// summary returns by how much more than the limit the dead were silent before they were
// suspected, half of them and all, the number of heartbeats, and how often others were
// suspected.
func (w *witness) summary() (half, most time.Duration, beats, starved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.delays); n > 0 {
		slices.Sort(w.delays)
		half, most = w.delays[n/2].Round(10*time.Microsecond), w.delays[n-1].Round(10*time.Microsecond)
	}
	return half, most, w.beats, w.starved
}
