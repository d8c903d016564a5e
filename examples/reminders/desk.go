package main

import (
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// topLevel is as high as a ticket rises.
const topLevel = 2

// A ticket as the desk hands it out: a copy.
type ticket struct {
	ID      int
	Subject string
	Opened  time.Time
	Level   int // 0 until it escalates
}

// A desk raises a ticket by a level whenever it has waited for an answer for so long again.
type desk struct {
	tw       *timingwheel.TimingWheel
	patience time.Duration
	escalate func(ticket) // called without the lock

	mu     sync.Mutex // guards all below it, and all open tickets
	lastID int
	open   map[int]*openTicket
}

// An openTicket contains its timer, so the second level does not allocate. The timer counts on the
// monotonic clock: a day remains a day if the wall clock is set.
type openTicket struct {
	ticket
	timer timingwheel.Timer
}

func newDesk(tw *timingwheel.TimingWheel, patience time.Duration, escalate func(ticket)) *desk {
	return &desk{tw: tw, patience: patience, escalate: escalate, open: make(map[int]*openTicket)}
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
// this call: whichever takes the lock first wins.
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
