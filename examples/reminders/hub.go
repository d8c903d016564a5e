package main

import (
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds the subscribers. hub.mu guards the set of them, and the closing
// of their channels.

// backlog is how many events may wait for a subscriber. There are a few a day;
// one who lets so many lie does not read any more.
const backlog = 16

// An event is what subscribers get.
type event struct {
	Kind string `json:"kind"` // reminder, escalation or push
	Text string `json:"text"`
}

type subscriber struct {
	name   string
	events chan event // closed when the hub lets go of the subscriber
}

type hub struct {
	mu  sync.Mutex
	all map[*subscriber]struct{}
}

func newHub() *hub { return &hub{all: map[*subscriber]struct{}{}} }

func (h *hub) join(name string) *subscriber {
	s := &subscriber{name: name, events: make(chan event, backlog)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[s] = struct{}{}
	return s
}

func (h *hub) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(s)
}

func (h *hub) dropLocked(s *subscriber) {
	if _, in := h.all[s]; in {
		delete(h.all, s)
		close(s.events)
	}
}

// send hands e to the subscribers of these names, or to all if there is none. It
// waits for nobody: each subscriber has a goroutine that writes.
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

// plan has a message sent to everybody who is subscribed at the time at. One
// timer serves them all: a timer each would be due in the same tick too, but
// would start a goroutine each to say the same thing.
func (h *hub) plan(wheel *timingwheel.TimingWheel, at time.Time, text string) error {
	if !at.After(time.Now()) {
		return errPast
	}
	wheel.AtFunc(at.Round(0), func() { h.send(event{Kind: "push", Text: text}) })
	return nil
}
