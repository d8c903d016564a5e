package main

import (
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// An event is what subscribers get.
type event struct{ kind, text string } // of kind reminder, escalation or push

// A hub passes events to its subscribers, each of which has a name and reads a channel.
type hub struct {
	mu          sync.Mutex // guards subscribers and the closing of channels
	subscribers map[chan event]string
}

func (h *hub) join(name string) chan event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := make(chan event, 16) // a subscriber with so many waiting no longer reads
	h.subscribers[events] = name
	return events
}

func (h *hub) leave(events chan event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(events)
}

func (h *hub) dropLocked(events chan event) {
	if _, ok := h.subscribers[events]; ok {
		delete(h.subscribers, events)
		close(events)
	}
}

// send passes e to the subscribers of these names, or to all if there are none. It drops a
// subscriber that does not read, rather than wait.
func (h *hub) send(e event, names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for events, name := range h.subscribers {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		select {
		case events <- e:
		default:
			h.dropLocked(events)
		}
	}
}

// plan sends a message to everyone who is subscribed at that time. One timer serves them all: with
// a timer each, every subscriber would cost a goroutine that says the same.
func (h *hub) plan(tw *timingwheel.TimingWheel, at time.Time, text string) error {
	if !at.After(time.Now()) {
		return errPast
	}
	tw.AtFunc(at.Round(0), func() { h.send(event{"push", text}) })
	return nil
}
