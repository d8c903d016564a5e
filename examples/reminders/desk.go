package main

import (
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// topLevel is as high as a ticket rises.
const topLevel = 2

// ticket is the part of an open ticket that may be copied.
type ticket struct {
	ID      int
	Subject string
	Opened  time.Time
	Level   int // 0 until it escalates
}

// An openTicket contains its timer, so the second level does not allocate. The timer counts on the
// monotonic clock: a day remains a day if the wall clock is set.
type openTicket struct {
	ticket
	timer timingwheel.Timer
}

// A desk raises a ticket by a level each time it has waited that long again for an answer.
type desk struct {
	tw       *timingwheel.TimingWheel
	patience time.Duration
	escalate func(ticket) // called without mu

	mu     sync.Mutex // guards what follows and all open tickets
	lastID int
	open   map[int]*openTicket
}

func (d *desk) add(subject string) ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastID++
	t := &openTicket{ticket: ticket{ID: d.lastID, Subject: subject, Opened: time.Now()}}
	d.open[t.ID] = t
	d.tw.Init(&t.timer, func() { d.raise(t) })
	t.timer.ResetAt(t.Opened.Add(d.patience))
	return t.ticket
}

// answer closes the ticket and returns it with the level it has reached.
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

// raise takes the ticket to the next level, unless it was answered after the wheel had handed over
// this call: the first to take the lock wins.
func (d *desk) raise(t *openTicket) {
	d.mu.Lock()
	if d.open[t.ID] != t {
		d.mu.Unlock()
		return
	}
	t.Level++
	if t.Level < topLevel {
		// Counted from the opening and not from now, so that lateness does not add up.
		t.timer.ResetAt(t.Opened.Add(time.Duration(t.Level+1) * d.patience))
	}
	raised := t.ticket
	d.mu.Unlock()
	d.escalate(raised)
}
