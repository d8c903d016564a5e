package main

import (
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// backlog is how many events may wait for a subscriber. There are a few a day; a subscriber with
// so many no longer reads.
const backlog = 16

// An event is what subscribers get.
type event struct {
	Kind string `json:"kind"` // reminder, escalation or push
	Text string `json:"text"`
}

type subscriber struct {
	name   string
	events chan event // closed when the hub drops the subscriber
}

// A hub passes events to its subscribers. mu guards the set, and the closing of channels.
type hub struct {
	mu  sync.Mutex
	all map[*subscriber]bool
}

func (h *hub) join(name string) *subscriber {
	s := &subscriber{name, make(chan event, backlog)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[s] = true
	return s
}

func (h *hub) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(s)
}

func (h *hub) dropLocked(s *subscriber) {
	if h.all[s] {
		delete(h.all, s)
		close(s.events)
	}
}

// send passes e to the subscribers of these names, or to all if there are none. It does not wait:
// each subscriber has a goroutine that writes.
func (h *hub) send(e event, names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.all {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		select {
		case s.events <- e:
		default:
			h.dropLocked(s)
		}
	}
}

// plan sends a message to everyone who is subscribed at a time. One timer serves them all: with
// one for each, every subscriber would cost a goroutine that says the same.
func (h *hub) plan(tw *timingwheel.TimingWheel, at time.Time, text string) error {
	if !at.After(time.Now()) {
		return errPast
	}
	tw.AtFunc(at.Round(0), func() { h.send(event{"push", text}) })
	return nil
}
