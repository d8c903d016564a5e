package main

import (
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds the tickets. desk.mu guards every field of every one of them,
// and is not held while escalate runs.

// topLevel is as high as a ticket goes.
const topLevel = 2

// A ticket as the desk hands it out: a copy.
type ticket struct {
	ID      int
	Subject string
	Opened  time.Time
	Level   int // 0 until it escalates
}

// A desk has tickets rise a level whenever they have gone without an answer for
// so long again, up to topLevel.
type desk struct {
	wheel    *timingwheel.TimingWheel
	patience time.Duration
	escalate func(ticket)

	mu     sync.Mutex
	lastID int
	open   map[int]*openTicket
}

// An openTicket is a ticket that has no answer yet. Its timer is a part of it, so
// the second level costs no allocation. It counts on the monotonic clock: a day
// stays a day, whatever is done to the wall clock.
type openTicket struct {
	ticket
	due   time.Time // when it rises next
	timer timingwheel.Timer
}

func newDesk(wheel *timingwheel.TimingWheel, patience time.Duration, escalate func(ticket)) *desk {
	return &desk{wheel: wheel, patience: patience, escalate: escalate, open: map[int]*openTicket{}}
}

func (d *desk) add(subject string) ticket {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastID++
	t := &openTicket{ticket: ticket{ID: d.lastID, Subject: subject, Opened: now}, due: now.Add(d.patience)}
	d.open[t.ID] = t
	d.wheel.Init(&t.timer, func() { d.rise(t) })
	t.timer.ResetAt(t.due)
	return t.ticket
}

// answer closes the ticket and returns it with the level it had got to.
func (d *desk) answer(id int) (ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.open[id]
	if t == nil {
		return ticket{}, errUnknown
	}
	t.timer.Stop()
	delete(d.open, id)
	return t.ticket, nil
}

// rise takes the ticket to the next level, unless it was answered after the
// timer had handed this call over: under the lock one of the two comes first.
func (d *desk) rise(t *openTicket) {
	d.mu.Lock()
	if d.open[t.ID] != t {
		d.mu.Unlock()
		return
	}
	t.Level++
	if t.Level < topLevel {
		// Counted from the last deadline and not from now: lateness does not add up.
		t.due = t.due.Add(d.patience)
		t.timer.ResetAt(t.due)
	}
	c := t.ticket
	d.mu.Unlock()
	d.escalate(c)
}
