package main

import (
	"errors"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is the part to copy: a calendar, a desk for tickets, and a hub that pushes messages.

var (
	errUnknown = errors.New("there is no such item")
	errPast    = errors.New("the time has passed")
)

// A meeting has a timer until its reminder. The calendar hands out copies.
type meeting struct {
	ID        int
	Title     string
	With      []string // does not change, so copies may share it
	Start     time.Time
	Reminders int // sent so far

	timer *timingwheel.Timer
	moves int // see remindOf
}

// A calendar sends a reminder some time before a meeting starts, or at once if the start is nearer
// than that.
type calendar struct {
	tw     *timingwheel.TimingWheel
	lead   time.Duration // from the reminder to the start
	remind func(meeting) // called without mu

	mu       sync.Mutex // guards what follows and all meetings
	lastID   int
	meetings map[int]*meeting // a real calendar has a database
}

func newCalendar(tw *timingwheel.TimingWheel, lead time.Duration, remind func(meeting)) *calendar {
	return &calendar{tw: tw, lead: lead, remind: remind, meetings: make(map[int]*meeting)}
}

func (c *calendar) add(title string, start time.Time, with ...string) (meeting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	m := &meeting{ID: c.lastID, Title: title, With: with}
	if err := c.armLocked(m, start); err != nil {
		return meeting{}, err
	}
	c.meetings[m.ID] = m
	return *m, nil
}

// move gives a meeting another start. If a reminder of the old one was sent, another follows.
func (c *calendar) move(id int, start time.Time) (meeting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.meetings[id]
	if m == nil {
		return meeting{}, errUnknown
	}
	err := c.armLocked(m, start)
	return *m, err
}

func (c *calendar) cancel(id int) (meeting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.meetings[id]
	if m == nil {
		return meeting{}, errUnknown
	}
	m.timer.Stop()
	delete(c.meetings, id)
	return *m, nil
}

// armLocked makes a new timer, because a meeting follows the wall clock and Reset counts on the
// monotonic clock. AtFunc follows the wall clock if its time has no monotonic reading, such as a
// parsed one; Round(0) removes the reading.
func (c *calendar) armLocked(m *meeting, start time.Time) error {
	if !start.After(time.Now()) {
		return errPast
	}
	if m.timer != nil {
		m.timer.Stop()
	}
	m.moves++
	m.Start = start.Round(0)
	id, moves := m.ID, m.moves
	m.timer = c.tw.AtFunc(m.Start.Add(-c.lead), func() { c.remindOf(id, moves) })
	return nil
}

// remindOf sends the reminder, unless the meeting was moved or cancelled after the wheel had handed
// over this call and Stop came too late. To compare starts would not do: a meeting may be moved
// away and back.
func (c *calendar) remindOf(id, moves int) {
	c.mu.Lock()
	m := c.meetings[id]
	if m == nil || m.moves != moves {
		c.mu.Unlock()
		return
	}
	m.Reminders++
	reminded := *m
	c.mu.Unlock()
	c.remind(reminded)
}

const topLevel = 2 // as high as a ticket rises

// A ticket has a timer until it is answered or at the top. The timer counts on the monotonic clock:
// a day remains a day if the wall clock is set. The desk hands out copies.
type ticket struct {
	ID      int
	Subject string
	Opened  time.Time
	Level   int // 0 until it escalates

	timer *timingwheel.Timer
}

// A desk raises a ticket by a level each time it has waited that long again for an answer.
type desk struct {
	tw       *timingwheel.TimingWheel
	patience time.Duration
	escalate func(ticket) // called without mu

	mu     sync.Mutex // guards what follows and all open tickets
	lastID int
	open   map[int]*ticket
}

func newDesk(tw *timingwheel.TimingWheel, patience time.Duration, escalate func(ticket)) *desk {
	return &desk{tw: tw, patience: patience, escalate: escalate, open: make(map[int]*ticket)}
}

func (d *desk) add(subject string) ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastID++
	t := &ticket{ID: d.lastID, Subject: subject, Opened: time.Now()}
	t.timer = d.tw.AfterFunc(d.patience, func() { d.raise(t) })
	d.open[t.ID] = t
	return *t
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
	return *t, nil
}

// raise takes the ticket to the next level, unless it was answered after the wheel had handed over
// this call: the first to take the lock wins.
func (d *desk) raise(t *ticket) {
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
	raised := *t
	d.mu.Unlock()
	d.escalate(raised)
}

// An event is what subscribers get.
type event struct{ kind, text string } // of kind reminder, escalation or push

// A hub has a channel for each subscriber, by name. It does not change, so it needs no lock.
type hub map[string]chan event

func (h hub) send(e event, names ...string) {
	for _, name := range names {
		h[name] <- e
	}
}

// plan pushes a message to all subscribers at an instant. One timer serves them all: with a timer
// each, every subscriber would cost a goroutine that says the same.
func (h hub) plan(tw *timingwheel.TimingWheel, at time.Time, text string) {
	tw.AtFunc(at.Round(0), func() {
		for _, events := range h {
			events <- event{"push", text}
		}
	})
}
