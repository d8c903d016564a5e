package main

import (
	"errors"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

var (
	errUnknown = errors.New("there is no such item, or it is over")
	errPast    = errors.New("the time has passed")
)

// A meeting as the calendar hands it out: a copy.
type meeting struct {
	ID        int
	Title     string
	With      []string // does not change, so copies may share it
	Start     time.Time
	Reminders int // sent so far
}

// A calendar sends a reminder some time before a meeting starts, or at once if the start is nearer
// than that. A meeting that has started is forgotten.
type calendar struct {
	tw     *timingwheel.TimingWheel
	lead   time.Duration // from the reminder to the start
	remind func(meeting) // called without the lock

	mu       sync.Mutex // guards all below it, and all entries
	lastID   int
	meetings map[int]*entry
}

type entry struct {
	meeting
	timer *timingwheel.Timer // until the reminder, and then until the start
	moves int                // see remindOf
}

func newCalendar(tw *timingwheel.TimingWheel, lead time.Duration, remind func(meeting)) *calendar {
	return &calendar{tw: tw, lead: lead, remind: remind, meetings: make(map[int]*entry)}
}

func (c *calendar) add(title string, start time.Time, with []string) (meeting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	e := &entry{meeting: meeting{ID: c.lastID, Title: title, With: with}}
	if err := c.armLocked(e, start); err != nil {
		return meeting{}, err
	}
	c.meetings[e.ID] = e
	return e.meeting, nil
}

// move gives a meeting another start. If a reminder of the old one was sent, another follows.
func (c *calendar) move(id int, start time.Time) (meeting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.meetings[id]
	if e == nil {
		return meeting{}, errUnknown
	}
	err := c.armLocked(e, start)
	return e.meeting, err
}

func (c *calendar) cancel(id int) (meeting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.meetings[id]
	if e == nil {
		return meeting{}, errUnknown
	}
	e.timer.Stop()
	delete(c.meetings, id)
	return e.meeting, nil
}

// armLocked makes a new timer, because a meeting follows the wall clock and Reset counts on the
// monotonic clock. AtFunc follows the wall clock for a time without a monotonic reading, such as
// a parsed one; Round(0) removes the reading.
func (c *calendar) armLocked(e *entry, start time.Time) error {
	if !start.After(time.Now()) {
		return errPast
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.moves++
	e.Start = start.Round(0)
	id, moves := e.ID, e.moves
	e.timer = c.tw.AtFunc(e.Start.Add(-c.lead), func() { c.remindOf(id, moves) })
	return nil
}

// remindOf sends the reminder, unless the meeting was moved or cancelled after the wheel had handed
// over this call and Stop came too late. The start does not tell, as a meeting may be moved away
// and back.
func (c *calendar) remindOf(id, moves int) {
	c.mu.Lock()
	e := c.meetings[id]
	if e == nil || e.moves != moves {
		c.mu.Unlock()
		return
	}
	e.Reminders++
	e.timer = c.tw.AtFunc(e.Start, func() { c.forget(id, moves) })
	m := e.meeting
	c.mu.Unlock()
	c.remind(m)
}

func (c *calendar) forget(id, moves int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.meetings[id]; e != nil && e.moves == moves {
		delete(c.meetings, id)
	}
}
