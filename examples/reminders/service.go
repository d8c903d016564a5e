package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file puts calendar, desk and hub behind HTTP. It holds nothing of its own;
// the times in requests and answers are those of the clocks in the story.

const (
	reminderLead = 30 * time.Minute
	patience     = 24 * time.Hour

	// writeWithin is how long a subscriber's connection may be full before it is
	// given up. A real network, not the story, decides.
	writeWithin = 10 * time.Second

	// shutdownWithin is how long requests and callbacks under way get at the end.
	shutdownWithin = 10 * time.Second

	maxBody = 1 << 16 // far more than a meeting takes
)

// escalatesTo names who hears of a ticket at levels 1 and 2.
var escalatesTo = [topLevel]string{"lead", "head"}

type service struct {
	clock    storyClock
	say      func(format string, args ...any)
	wheel    *timingwheel.TimingWheel
	hub      *hub
	calendar *calendar
	desk     *desk
	http     *http.Server
	served   chan error
}

// start serves at ln. say logs what the service does of its own accord.
func start(ln net.Listener, clock storyClock, say func(format string, args ...any)) *service {
	s := &service{clock: clock, say: say, wheel: timingwheel.New(), hub: newHub(), served: make(chan error, 1)}
	s.calendar = newCalendar(s.wheel, clock.duration(reminderLead), s.remind)
	s.desk = newDesk(s.wheel, clock.duration(patience), s.escalate)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /meetings", handle(s.addMeeting))
	mux.HandleFunc("POST /meetings/{id}/move", handle(s.moveMeeting))
	mux.HandleFunc("DELETE /meetings/{id}", handle(s.cancelMeeting))
	mux.HandleFunc("POST /tickets", handle(s.openTicket))
	mux.HandleFunc("POST /tickets/{id}/answer", handle(s.answerTicket))
	mux.HandleFunc("POST /pushes", handle(s.planPush))
	mux.HandleFunc("GET /events", s.events)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(ln) }()
	return s
}

// shutdown ends the service. The wheel goes first, so that nothing is sent to
// subscribers that are being dropped; the streams would never end by themselves.
func (s *service) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	err := s.wheel.Shutdown(ctx)
	s.hub.close()
	err = errors.Join(err, s.http.Shutdown(ctx))
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (s *service) remind(m meeting) {
	start := s.clock.story(m.Start)
	s.say("reminder to %s: %q begins at %s", strings.Join(m.With, " and "), m.Title, start.Format("15:04"))
	s.hub.send(event{Kind: "reminder", Text: m.Title}, m.With...)
}

func (s *service) escalate(t ticket) {
	to := escalatesTo[t.Level-1]
	s.say("escalation to the %s: no answer to %q, now at level %d", to, t.Subject, t.Level)
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

func (s *service) addMeeting(_ int, b body) (answer, error) {
	if b.Title == "" || len(b.With) == 0 {
		return answer{}, errors.New("a meeting needs a title, a start, and people to meet with")
	}
	m, err := s.calendar.add(b.Title, s.clock.real(b.Start), b.With)
	return s.ofMeeting(m), err
}

func (s *service) moveMeeting(id int, b body) (answer, error) {
	m, err := s.calendar.move(id, s.clock.real(b.Start))
	return s.ofMeeting(m), err
}

func (s *service) cancelMeeting(id int, _ body) (answer, error) {
	m, err := s.calendar.cancel(id)
	return s.ofMeeting(m), err
}

func (s *service) ofMeeting(m meeting) answer {
	return answer{ID: m.ID, Start: s.clock.story(m.Start), Reminders: m.Reminders}
}

func (s *service) openTicket(_ int, b body) (answer, error) {
	if b.Subject == "" {
		return answer{}, errors.New("a ticket needs a subject")
	}
	return s.ofTicket(s.desk.add(b.Subject)), nil
}

func (s *service) answerTicket(id int, _ body) (answer, error) {
	t, err := s.desk.answer(id)
	return s.ofTicket(t), err
}

func (s *service) ofTicket(t ticket) answer {
	return answer{ID: t.ID, Opened: s.clock.story(t.Opened), Level: t.Level}
}

func (s *service) planPush(_ int, b body) (answer, error) {
	if b.Text == "" {
		return answer{}, errors.New("a push needs a text and a time")
	}
	return answer{}, s.hub.plan(s.wheel, s.clock.real(b.At), b.Text)
}

// handle wraps f with the reading of the request and the writing of the answer.
func handle(f func(id int, b body) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var b body
		if r.Method == http.MethodPost && r.ContentLength != 0 {
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&b); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		id := 0
		if text := r.PathValue("id"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				http.Error(w, errUnknown.Error(), http.StatusNotFound)
				return
			}
			id = n
		}
		a, err := f(id, b)
		switch {
		case errors.Is(err, errUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
		case errors.Is(err, errPast):
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(a)
		}
	}
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
	if !write(": welcome\n\n") {
		return
	}
	for {
		select {
		case e, ok := <-sub.events:
			if !ok {
				return
			}
			data, err := json.Marshal(e)
			if err != nil || !write("data: %s\n\n", data) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
