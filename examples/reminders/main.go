// Reminders is a small HTTP service for what is due in hours and days: a calendar
// that reminds half an hour before a meeting, also when the meeting is moved;
// tickets that escalate after 24 hours without an answer, and again a day later;
// and messages that are pushed to all subscribers at one instant.
//
// It plays a story of two days with clients of its own, over real connections,
// and checks at the end that everybody got what was due, no more, and not
// early.
//
//	go run ./examples/reminders                         two days in eight seconds
//	go run ./examples/reminders -scale 7200             the same in 25
//	go run ./examples/reminders -addr 127.0.0.1:8080    a service to try by hand
//
//	curl -N '127.0.0.1:8080/events?name=anna' &
//	curl 127.0.0.1:8080/meetings -d '{"title":"review", "with":["anna"], "start":"2030-01-31T10:00:00+01:00"}'
//	curl 127.0.0.1:8080/meetings/1/move -d '{"start":"2030-01-31T15:00:00+01:00"}'
//	curl -X DELETE 127.0.0.1:8080/meetings/1
//	curl 127.0.0.1:8080/tickets -d '{"subject":"printer on fire"}'
//	curl -X POST 127.0.0.1:8080/tickets/1/answer
//	curl 127.0.0.1:8080/pushes -d '{"at":"2030-01-31T12:00:00+01:00", "text":"lunch"}'
//
// Calendar.go, desk.go and hub.go are the parts to copy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	reminderLead = 30 * time.Minute
	patience     = 24 * time.Hour

	// writeWithin is how long a subscriber's connection may be full before it is
	// given up. A real network, not the story, decides.
	writeWithin = 10 * time.Second
)

// escalatesTo names who hears of a ticket at levels 1 and 2.
var escalatesTo = [topLevel]string{"lead", "head"}

func main() { program().Main() }

func program() story.Program {
	var subscribers int
	return story.Program{
		Name: "reminders",
		About: "Reminders is a service for what is due in hours and days: meetings with reminders,\n" +
			"tickets that escalate, and messages that are pushed to all.",
		Scale:    24000,
		MaxScale: 1e6,
		Opening:  opening,
		Layout:   "Mon 15:04",
		Serves:   true,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&subscribers, "subscribers", 300, "`n` streams are open when the message is pushed")
		},
		Play: func(ctx context.Context, d *story.Diary, addr string) error {
			if subscribers < 4 || subscribers > 5000 {
				return story.Misuse("-subscribers %d: must be between 4 and 5000", subscribers)
			}
			return run(ctx, d, addr, subscribers)
		},
	}
}

func run(ctx context.Context, d *story.Diary, addr string, subscribers int) error {
	s := &service{Diary: d, wheel: timingwheel.New(), hub: newHub()}
	s.calendar = newCalendar(s.wheel, d.Real(reminderLead), s.remind)
	s.desk = newDesk(s.wheel, d.Real(patience), s.escalate)
	st := &days{Diary: d, subscribers: subscribers}
	err := d.Serve(ctx, addr, s.handler(), st.play)
	if err := errors.Join(err, story.Within(s.wheel.Shutdown)); err != nil || addr != "" {
		return err
	}
	return st.judge()
}

// A service puts calendar, desk and hub behind HTTP. The times in requests and answers
// are those of the story; what it holds has those of the machine.
type service struct {
	*story.Diary
	wheel    *timingwheel.TimingWheel
	hub      *hub
	calendar *calendar
	desk     *desk
}

func (s *service) remind(m meeting) {
	s.Printf("reminder to %s: %q begins at %s", strings.Join(m.With, " and "), m.Title, s.StoryAt(m.Start).Format("15:04"))
	s.hub.send(event{Kind: "reminder", Text: m.Title}, m.With...)
}

func (s *service) escalate(t ticket) {
	to := escalatesTo[t.Level-1]
	s.Printf("escalation to the %s: no answer to %q, now at level %d", to, t.Subject, t.Level)
	s.hub.send(event{Kind: "escalation", Text: t.Subject}, to)
}

// A body is what requests bring, each a part of it, and an answer what they get.
type body struct {
	Title   string    `json:"title"`
	With    []string  `json:"with"`
	Start   time.Time `json:"start"`
	Subject string    `json:"subject"`
	At      time.Time `json:"at"`
	Text    string    `json:"text"`
}

type answer struct {
	ID        int       `json:"id,omitempty"`
	Start     time.Time `json:"start,omitzero"`
	Opened    time.Time `json:"opened,omitzero"`
	Reminders int       `json:"reminders"`
	Level     int       `json:"level"`
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(id int, b body) (answer, error)) {
		codes := story.Codes{errUnknown: http.StatusNotFound, errPast: http.StatusConflict}
		mux.Handle(pattern, story.Handle(codes, func(r *http.Request, b body) (answer, error) { return f(story.ID(r), b) }))
	}
	ofMeeting := func(m meeting, err error) (answer, error) {
		return answer{ID: m.ID, Start: s.StoryAt(m.Start), Reminders: m.Reminders}, err
	}
	ofTicket := func(t ticket, err error) (answer, error) {
		return answer{ID: t.ID, Opened: s.StoryAt(t.Opened), Level: t.Level}, err
	}
	handle("POST /meetings", func(_ int, b body) (answer, error) {
		if b.Title == "" || len(b.With) == 0 {
			return answer{}, errors.New("a meeting needs a title, a start, and people to meet with")
		}
		return ofMeeting(s.calendar.add(b.Title, s.RealAt(b.Start), b.With))
	})
	handle("POST /meetings/{id}/move", func(id int, b body) (answer, error) {
		return ofMeeting(s.calendar.move(id, s.RealAt(b.Start)))
	})
	handle("DELETE /meetings/{id}", func(id int, _ body) (answer, error) { return ofMeeting(s.calendar.cancel(id)) })
	handle("POST /tickets", func(_ int, b body) (answer, error) { return ofTicket(s.desk.add(b.Subject), nil) })
	handle("POST /tickets/{id}/answer", func(id int, _ body) (answer, error) { return ofTicket(s.desk.answer(id)) })
	handle("POST /pushes", func(_ int, b body) (answer, error) {
		return answer{}, s.hub.plan(s.wheel, s.RealAt(b.At), b.Text)
	})
	mux.HandleFunc("GET /events", s.events)
	return mux
}

// events is the stream of a subscriber, as server-sent events, until the client
// hangs up or the hub lets go of it.
func (s *service) events(w http.ResponseWriter, r *http.Request) {
	sub := s.hub.join(r.FormValue("name"))
	defer s.hub.leave(sub)
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	write := func(format string, args ...any) bool {
		stream.SetWriteDeadline(time.Now().Add(writeWithin))
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && stream.Flush() == nil
	}
	for ok := write(": welcome\n\n"); ok; {
		select {
		case e, open := <-sub.events:
			if !open {
				return
			}
			data, err := json.Marshal(e)
			ok = err == nil && write("data: %s\n\n", data)
		case <-r.Context().Done():
			return
		}
	}
}
