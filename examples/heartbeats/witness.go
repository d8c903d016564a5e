package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// This file judges the detector. witness.mu guards everything in it.

// A witness sees the heartbeats, each before the detector does, and the verdicts.
type witness struct {
	limit   time.Duration
	patient time.Duration // how much later than the limit a verdict may be

	mu        sync.Mutex
	seen      []sight // for each client
	unheard   int     // clients that have never been heard
	suspected int     // clients that are suspected now
	starved   int     // suspicions of clients that were not dead
	delays    []time.Duration
	wrong     error // the first verdict that was
}

// A sight is what the witness knows of a client.
type sight struct {
	last, before time.Time // the last two heartbeats
	suspected    bool
	dead         bool
}

func newWitness(clients int, limit, patient time.Duration) *witness {
	return &witness{limit: limit, patient: patient, seen: make([]sight, clients), unheard: clients}
}

func (w *witness) heard(clients []int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range clients {
		s := &w.seen[i]
		if s.last.IsZero() {
			w.unheard--
		} else if gap := at.Sub(s.last); gap > w.limit+w.patient && !s.suspected {
			w.blameLocked("client %d was silent for %v and not suspected", i, gap)
		}
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
		w.suspected--
		return
	}
	w.suspected++
	delay := v.at.Sub(v.heard) - w.limit
	switch {
	case delay < 0:
		w.blameLocked("client %d was suspected %v early", v.client, -delay)
	case !v.heard.Equal(s.last) && !v.heard.Equal(s.before):
		w.blameLocked("client %d was suspected although it was heard", v.client)
	}
	if s.dead {
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

// mark says that these clients are dead from now on, or not any more.
func (w *witness) mark(clients []int, dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range clients {
		w.seen[i].dead = dead
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
	if w.unheard > 0 {
		return fmt.Errorf("%d clients have not been heard", w.unheard)
	}
	for i, s := range w.seen {
		if s.dead != s.suspected {
			return fmt.Errorf("client %d: dead %t, suspected %t", i, s.dead, s.suspected)
		}
	}
	return nil
}

// summary returns by how much more than the limit the dead were silent before they
// were suspected, as percentiles, and how often others were.
func (w *witness) summary() (half, most, all time.Duration, starved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.delays); n > 0 {
		slices.Sort(w.delays)
		half, most, all = w.delays[n/2], w.delays[n*99/100], w.delays[n-1]
	}
	return half, most, all, w.starved
}
