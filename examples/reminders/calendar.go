package main

import (
	"errors"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds the meetings. calendar.mu guards every field of every one of
// them, and is not held while remind runs.

var (
	errUnknown = errors.New("no such thing here, or it is over")
	errPast    = errors.New("the time has gone by")
)

// A meeting as the calendar hands it out: a copy.
type meeting struct {
	ID        int
	Title     string
	With      []string // never changed, so copies may share it
	Start     time.Time
	Reminders int // how many have been sent
}

// A calendar reminds of its meetings some time before they start: at once, if
// that is nearer already. A meeting that starts is forgotten.
type calendar struct {
	wheel  *timingwheel.TimingWheel
	lead   time.Duration // how long before the start
	remind func(meeting)

	mu       sync.Mutex
	lastID   int
	meetings map[int]*entry
}

// An entry is a meeting with the timer for what it waits for: its reminder, or
// its start when the reminder has been sent.
type entry struct {
	meeting
	timer *timingwheel.Timer
	moves int // see remindOf
}

func newCalendar(wheel *timingwheel.TimingWheel, lead time.Duration, remind func(meeting)) *calendar {
	return &calendar{wheel: wheel, lead: lead, remind: remind, meetings: map[int]*entry{}}
}

func (c *calendar) add(title string, start time.Time, with []string) (meeting, error) {
	if !start.After(time.Now()) {
		return meeting{}, errPast
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	e := &entry{meeting: meeting{ID: c.lastID, Title: title, With: with}}
	c.meetings[e.ID] = e
	c.armLocked(e, start)
	return e.meeting, nil
}

// move gives the meeting another start. Whoever was reminded of the old one is
// reminded of the new one as well.
func (c *calendar) move(id int, start time.Time) (meeting, error) {
	if !start.After(time.Now()) {
		return meeting{}, errPast
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.meetings[id]
	if e == nil {
		return meeting{}, errUnknown
	}
	// A new timer: Reset would count on the monotonic clock, but a meeting moves
	// with the wall clock when that is set.
	e.timer.Stop()
	e.moves++
	c.armLocked(e, start)
	return e.meeting, nil
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

// armLocked sets the timer for the reminder. Round(0) takes away the monotonic
// reading, which a time that came as text does not have anyway, so that AtFunc
// follows the wall clock.
func (c *calendar) armLocked(e *entry, start time.Time) {
	e.Start = start.Round(0)
	id, moves := e.ID, e.moves
	e.timer = c.wheel.AtFunc(e.Start.Add(-c.lead), func() { c.remindOf(id, moves) })
}

// remindOf sends the reminder, unless the meeting was moved or cancelled after
// the timer had handed this call over: Stop came too late then. The start would
// not tell, as a meeting may be moved away and back.
func (c *calendar) remindOf(id, moves int) {
	c.mu.Lock()
	e := c.meetings[id]
	if e == nil || e.moves != moves {
		c.mu.Unlock()
		return
	}
	e.Reminders++
	e.timer = c.wheel.AtFunc(e.Start, func() { c.forget(id, moves) })
	m := e.meeting
	c.mu.Unlock()
	c.remind(m)
}

// forget drops a meeting that has started. One that was moved at the last moment
// stays.
func (c *calendar) forget(id, moves int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.meetings[id]; e != nil && e.moves == moves {
		delete(c.meetings, id)
	}
}
