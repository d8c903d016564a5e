package main

import (
	"errors"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

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
// over this call and Stop came too late. The start cannot tell, as a meeting may be moved away and
// back.
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
