package oldstory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// This file judges the outcome of a story. A program says which events it wants and notes
// those that it sees. An event is a sentence, such as "order 3 is cancelled".

// patience is how much longer than planned something may take before it must be wrong. A busy
// machine makes a story late, but nothing early, lost or twice.
const patience = 30 * time.Second

type event struct {
	seen        []time.Time
	least, most int       // how often it must be seen
	earliest    time.Time // the last time is not before
}

func (r *Run) eventLocked(name string) *event {
	if r.events == nil {
		r.events = make(map[string]*event)
	}
	if r.events[name] == nil {
		r.events[name] = &event{}
	}
	return r.events[name]
}

// Want says how often an event must be seen, and the earliest instant for the last time. It
// replaces what an earlier call said. An event that no call wants must not be seen at all.
func (r *Run) Want(least, most int, earliest time.Time, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.eventLocked(fmt.Sprintf(format, args...))
	e.least, e.most, e.earliest = least, most, earliest
}

// See notes that an event happened at the instant at.
func (r *Run) See(at time.Time, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.eventLocked(fmt.Sprintf(format, args...))
	e.seen = append(e.seen, at)
}

// Seen returns the instants at which an event happened.
func (r *Run) Seen(format string, args ...any) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.eventLocked(fmt.Sprintf(format, args...)).seen
}

// Check notes a fault unless ok.
func (r *Run) Check(ok bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok {
		r.faults = append(r.faults, fmt.Errorf(format, args...))
	}
}

// Verdict returns everything that is wrong as one error, or nil.
func (r *Run) Verdict() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	faults := r.faults[:len(r.faults):len(r.faults)]
	for name, e := range r.events {
		n := len(e.seen)
		if n < e.least || n > e.most {
			faults = append(faults, fmt.Errorf("%s: seen %d times, wanted %d to %d times", name, n, e.least, e.most))
		} else if n > 0 && e.seen[n-1].Before(e.earliest) {
			faults = append(faults, fmt.Errorf("%s: %v early", name, e.earliest.Sub(e.seen[n-1])))
		}
	}
	return errors.Join(faults...)
}

// Await calls done until it returns nil, and gives up with its last error.
func (r *Run) Await(ctx context.Context, planned time.Duration, done func() error) error {
	for end := time.Now().Add(planned + patience); ; {
		err := done()
		if err == nil || time.Now().After(end) {
			return err
		}
		if ended := Sleep(ctx, 5*time.Millisecond); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// Together calls f for 0 to n-1 at the same time and returns all errors.
func Together(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// Notes are what a test sees happen on the fake clock, each with the time since the start. Notes
// of the same instant are in alphabetical order.
type Notes struct {
	start time.Time
	mu    sync.Mutex
	notes []note
}

type note struct {
	at   time.Duration
	text string
}

// NewNotes returns notes that start now.
func NewNotes() *Notes { return &Notes{start: time.Now()} }

// Add notes that something happens now.
func (n *Notes) Add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, note{time.Since(n.start), fmt.Sprintf(format, args...)})
}

// Lines returns nil or lines such as "20m0s ben is reminded".
func (n *Notes) Lines() (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.SortFunc(n.notes, func(a, b note) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text))
	})
	for _, note := range n.notes {
		lines = append(lines, fmt.Sprint(note.at, " ", note.text))
	}
	return lines
}
