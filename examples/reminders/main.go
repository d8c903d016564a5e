// Reminders is a service for what is due in hours and days: a calendar that sends a reminder half
// an hour before a meeting, also when the meeting is moved; tickets that escalate after 24 hours
// without an answer, and again a day later; and messages that are pushed to all subscribers at one
// instant. The program plays two days, and checks that each subscriber gets the right events.
//
//	go run ./examples/reminders    two days in eight seconds
//
// File reminders.go is the part to copy.
package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	reminderLead = 30 * time.Minute
	patience     = 24 * time.Hour
	subscribers  = 300
)

// escalatesTo names who is told of a ticket at levels 1 and 2.
var escalatesTo = [topLevel]string{"lead", "head"}

// on returns a time of the story. Day 0 is a Monday.
func on(day, hour, minute int) time.Time {
	return time.Date(2027, time.March, 1+day, hour, minute, 0, 0, time.UTC)
}

var opening = on(0, 7, 30)

func main() {
	story.Program{
		Scale:   24000,
		Opening: opening,
		Layout:  "Mon 15:04",
		Play:    play,
		Passed:  "each got the right events, none early, missing or twice",
	}.Main()
}

// days is the story. What each subscriber must get follows from the answers of the service, not
// from the clock. If a busy machine moves a meeting after its reminder was sent, the answers say
// so.
type days struct {
	*story.Run
	ids map[string]int // of meetings and tickets
}

func play(r *story.Run) {
	tw, s, h := timingwheel.New(), &days{r, make(map[string]int)}, make(hub)
	c := newCalendar(tw, r.Real(reminderLead), func(m meeting) {
		to, start := strings.Join(m.With, " and "), r.StoryAt(m.Start).Format("15:04")
		r.Printf("reminder to %s: %q begins at %s", to, m.Title, start)
		h.send(event{"reminder", m.Title}, m.With...)
	})
	d := newDesk(tw, r.Real(patience), func(t ticket) {
		to := escalatesTo[t.Level-1]
		r.Printf("escalation to the %s: no answer to %q", to, t.Subject)
		h.send(event{"escalation", t.Subject}, to)
	})
	names := []string{"anna", "ben", "lead", "head"}
	for i := len(names); i < subscribers; i++ {
		names = append(names, fmt.Sprint("viewer ", i))
	}
	for _, name := range names {
		events := make(chan event, 1)
		h[name] = events
		go func() {
			for e := range events {
				r.See(time.Now(), "%s gets the %s %q", name, e.kind, e.text)
			}
		}()
	}
	r.Printf("%d subscribers, among them anna, ben, the lead and the head", len(names))
	r.Printf("> marks requests; the other lines are what the service does by itself")
	lunch, push := r.RealAt(on(1, 12, 0)), event{"push", "lunch is in the garden today"}
	s.at(0, 8, 0, "anna plans the review with ben for Tue 10:00")
	s.planned(c.add("review", r.RealAt(on(1, 10, 0)), "anna", "ben"))
	s.at(0, 8, 0, "anna plans the retro with ben for Tue 09:00")
	s.planned(c.add("retro", r.RealAt(on(1, 9, 0)), "anna", "ben"))
	s.at(0, 8, 0, "ben plans the night shift for Mon 22:00")
	s.planned(c.add("night shift", r.RealAt(on(0, 22, 0)), "ben"))
	s.at(0, 8, 0, "a message to everyone is planned for Tue 12:00")
	h.plan(tw, lunch, push.text)
	s.want(nil, 1, lunch, push, names...)
	s.at(0, 9, 0, `a customer opens the ticket "printer on fire"`)
	s.rises(topLevel, d.add("printer on fire"), nil)
	s.at(0, 9, 0, `a customer opens the ticket "password lost"`)
	s.rises(topLevel, d.add("password lost"), nil)
	s.at(0, 17, 0, "anna moves the review to Tue 15:00")
	s.planned(c.move(s.ids["review"], r.RealAt(on(1, 15, 0))))
	s.at(0, 17, 30, "anna cancels the retro")
	m, err := c.cancel(s.ids["retro"])
	s.want(err, m.Reminders, time.Time{}, event{"reminder", m.Title}, m.With...)
	s.at(1, 10, 0, `ben answers "password lost"`)
	t, err := d.answer(s.ids["password lost"])
	s.rises(t.Level, t, err)
	s.at(2, 10, 0, "the story ends")
	story.Must(r.Await(0, r.Verdict))
	var late []time.Duration
	for _, name := range names {
		for _, at := range r.Seen("%s gets the %s %q", name, push.kind, push.text) {
			late = append(late, at.Sub(lunch))
		}
	}
	r.Printf("lateness of the push in real time:\n%s", story.Percentiles(late))
	story.Within(tw.Shutdown)
	for _, events := range h {
		close(events)
	}
}

// at waits for the time of a request.
func (s *days) at(day, hour, minute int, what string) {
	s.Until(on(day, hour, minute).Sub(opening))
	s.Printf("> %s", what)
}

// want says how often subscribers must get an event, unless the request was refused.
func (s *days) want(refused error, times int, earliest time.Time, e event, names ...string) {
	if refused != nil { // as may happen on a busy machine
		s.Printf("  but %v", refused)
		return
	}
	for _, name := range names {
		s.Want(times, times, earliest, "%s gets the %s %q", name, e.kind, e.text)
	}
}

// planned wants one more reminder of a meeting than were sent so far.
func (s *days) planned(m meeting, err error) {
	s.ids[m.Title] = m.ID
	due := m.Start.Add(-s.Real(reminderLead))
	s.want(err, m.Reminders+1, due, event{"reminder", m.Title}, m.With...)
}

// rises wants a ticket to escalate to a level and no further.
func (s *days) rises(level int, t ticket, err error) {
	s.ids[t.Subject] = t.ID
	for i, name := range escalatesTo {
		due := t.Opened.Add(time.Duration(i+1) * s.Real(patience))
		s.want(err, min(1, max(0, level-i)), due, event{"escalation", t.Subject}, name)
	}
}
