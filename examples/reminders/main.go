// Reminders is an HTTP service for what is due in hours and days: a calendar that sends a reminder
// half an hour before a meeting, also when the meeting is moved; tickets that escalate after 24
// hours without an answer, and again a day later; and messages that are pushed to all subscribers
// at one instant.
//
// The program plays two days with clients of its own, over real connections, and checks that each
// of them gets what it should, no more, and not early.
//
//	go run ./examples/reminders                         two days in eight seconds
//	go run ./examples/reminders -scale 7200             the same in 25
//	go run ./examples/reminders -addr 127.0.0.1:8080    a service to try by hand
//
//	curl -N '127.0.0.1:8080/events?name=anna' &
//	curl 127.0.0.1:8080/meetings -d '{"text":"review", "with":["anna"], "at":"2030-01-31T10:00:00+01:00"}'
//	curl 127.0.0.1:8080/meetings/1/move -d '{"at":"2030-01-31T15:00:00+01:00"}'
//	curl -X POST 127.0.0.1:8080/meetings/1/cancel
//	curl 127.0.0.1:8080/tickets -d '{"text":"printer on fire"}'
//	curl -X POST 127.0.0.1:8080/tickets/1/answer
//	curl 127.0.0.1:8080/pushes -d '{"text":"lunch", "at":"2030-01-31T12:00:00+01:00"}'
//
// Files calendar.go, desk.go and hub.go are the parts to copy.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

const (
	reminderLead = 30 * time.Minute
	patience     = 24 * time.Hour
	writeWithin  = 10 * time.Second // in real time: it depends on the network and not on the story
)

// escalatesTo names who is told of a ticket at levels 1 and 2.
var escalatesTo = [topLevel]string{"lead", "head"}

// on returns a time of the story. Day 0 is a Monday.
func on(day, hour, minute int) time.Time {
	return time.Date(2027, time.March, 1+day, hour, minute, 0, 0, time.UTC)
}

func main() {
	var subscribers int
	story.Program{
		Name: "reminders",
		About: "Reminders is a service for what is due in hours and days: meetings with reminders,\n" +
			"tickets that escalate, and messages that are pushed to all.",
		Passed:   "the right people got every event, none early, none missing, none twice",
		Scale:    24000,
		MaxScale: 1e6,
		Opening:  on(0, 6, 0), // the subscribers have until eight to connect
		Layout:   "Mon 15:04",
		Serves:   true,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&subscribers, "subscribers", 300, "`n` streams are open when the message is pushed")
		},
		Play: func(ctx context.Context, r *story.Run) error {
			if subscribers < 4 || subscribers > 5000 {
				return story.Misuse("-subscribers %d: must be between 4 and 5000", subscribers)
			}
			s := &service{Run: r, tw: timingwheel.New(), hub: &hub{all: make(map[*subscriber]bool)}}
			s.calendar = newCalendar(s.tw, r.Real(reminderLead), func(m meeting) {
				r.Printf("reminder to %s: %q begins at %s", strings.Join(m.With, " and "), m.Title,
					r.StoryAt(m.Start).Format("15:04"))
				s.hub.send(event{"reminder", m.Title}, m.With...)
			})
			s.desk = newDesk(s.tw, r.Real(patience), func(t ticket) {
				to := escalatesTo[t.Level-1]
				r.Printf("escalation to the %s: no answer to %q, now at level %d", to, t.Subject, t.Level)
				s.hub.send(event{"escalation", t.Subject}, to)
			})
			st := &days{Run: r, subscribers: subscribers}
			return errors.Join(r.Serve(ctx, s.tw, s.handler(), st.play), story.Within(s.tw.Shutdown))
		},
	}.Main()
}

// A service offers calendar, desk and hub over HTTP. Times in requests and answers are those of
// the story.
type service struct {
	*story.Run
	tw       *timingwheel.TimingWheel
	hub      *hub
	calendar *calendar
	desk     *desk
}

// An item is a meeting, a ticket or a message, in requests and answers.
type item struct {
	ID        int       `json:"id,omitempty"`
	Text      string    `json:"text,omitempty"`
	With      []string  `json:"with,omitempty"`
	At        time.Time `json:"at,omitzero"`
	Reminders int       `json:"reminders,omitempty"`
	Level     int       `json:"level,omitempty"`
}

func (s *service) handler() *http.ServeMux {
	ofMeeting := func(m meeting, err error) (item, error) {
		return item{ID: m.ID, Text: m.Title, With: m.With, At: s.StoryAt(m.Start), Reminders: m.Reminders}, err
	}
	ofTicket := func(t ticket, err error) (item, error) {
		return item{ID: t.ID, Text: t.Subject, At: s.StoryAt(t.Opened), Level: t.Level}, err
	}
	mux := http.NewServeMux()
	for pattern, f := range map[string]func(id int, in item) (item, error){
		"POST /meetings": func(_ int, in item) (item, error) {
			return ofMeeting(s.calendar.add(in.Text, s.RealAt(in.At), in.With))
		},
		"POST /meetings/{id}/move":   func(id int, in item) (item, error) { return ofMeeting(s.calendar.move(id, s.RealAt(in.At))) },
		"POST /meetings/{id}/cancel": func(id int, _ item) (item, error) { return ofMeeting(s.calendar.cancel(id)) },
		"POST /tickets":              func(_ int, in item) (item, error) { return ofTicket(s.desk.add(in.Text), nil) },
		"POST /tickets/{id}/answer":  func(id int, _ item) (item, error) { return ofTicket(s.desk.answer(id)) },
		"POST /pushes":               func(_ int, in item) (item, error) { return in, s.hub.plan(s.tw, s.RealAt(in.At), in.Text) },
	} {
		mux.Handle(pattern, story.Handle(func(r *http.Request, in item) (item, error) {
			return f(story.ID(r), in)
		}))
	}
	mux.HandleFunc("GET /events", s.events)
	return mux
}

// events streams server-sent events until the client hangs up or the hub drops it.
func (s *service) events(w http.ResponseWriter, r *http.Request) {
	sub := s.hub.join(r.FormValue("name"))
	defer s.hub.leave(sub)
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	for text, open := ": welcome\n\n", true; open; {
		stream.SetWriteDeadline(time.Now().Add(writeWithin))
		if _, err := fmt.Fprint(w, text); err != nil || stream.Flush() != nil {
			return
		}
		select {
		case e, ok := <-sub.events:
			data, _ := json.Marshal(e)
			text, open = fmt.Sprintf("data: %s\n\n", data), ok
		case <-r.Context().Done():
			return
		}
	}
}

// days is the story. What each subscriber must get follows from the answers of the service and not
// from the clock: if a busy machine moves a meeting after its reminder was sent, the answer says so.
type days struct {
	*story.Run
	subscribers int
	names       []string // of the subscribers
	client      *story.Client
	ids         map[string]int // of meetings and tickets
	reading     sync.WaitGroup
}

func (s *days) play(ctx context.Context, client *story.Client) error {
	s.client, s.ids = client, make(map[string]int)
	streams, hangUp := context.WithCancel(ctx)
	defer s.reading.Wait()
	defer hangUp()
	s.names = []string{"anna", "ben", "lead", "head"}
	for i := range s.subscribers {
		if i >= len(s.names) {
			s.names = append(s.names, fmt.Sprint("viewer ", i))
		}
		if err := s.subscribe(streams, s.names[i]); err != nil {
			return fmt.Errorf("subscribing: %w", err)
		}
	}
	s.Printf("> %d subscribers are connected, among them anna, ben, the lead and the head", s.subscribers)
	s.Printf("> marks requests; lines without it are what the service does by itself")
	at := func(t time.Time, what, path string, in item) story.Scene {
		return story.At(t.Sub(on(0, 6, 0)), func(ctx context.Context) error { return s.ask(ctx, what, path, in) })
	}
	both, lunch := []string{"anna", "ben"}, on(1, 12, 0)
	if err := s.Play(ctx,
		at(on(0, 8, 0), "anna plans the review with ben for Tue 10:00", "/meetings",
			item{Text: "review", At: on(1, 10, 0), With: both}),
		at(on(0, 8, 0), "anna plans the retro with ben for Tue 09:00", "/meetings",
			item{Text: "retro", At: on(1, 9, 0), With: both}),
		at(on(0, 8, 0), "ben plans the night shift for Mon 22:00", "/meetings",
			item{Text: "night shift", At: on(0, 22, 0), With: both[1:]}),
		at(on(0, 8, 0), "a message to everyone is planned for Tue 12:00", "/pushes",
			item{Text: "lunch is in the garden today", At: lunch}),
		at(on(0, 9, 0), "a customer opens the ticket \"printer on fire\"", "/tickets",
			item{Text: "printer on fire"}), // without an answer
		at(on(0, 9, 0), "a customer opens the ticket \"password lost\"", "/tickets", item{Text: "password lost"}),
		at(on(0, 17, 0), "anna moves the review to Tue 15:00", "/meetings/{id}/move",
			item{Text: "review", At: on(1, 15, 0)}),
		at(on(0, 17, 30), "anna cancels the retro", "/meetings/{id}/cancel", item{Text: "retro"}),
		at(on(1, 10, 0), "ben answers \"password lost\"", "/tickets/{id}/answer", item{Text: "password lost"}),
		story.At(on(2, 10, 0).Sub(on(0, 6, 0)), func(ctx context.Context) error {
			return s.Await(ctx, 0, s.Verdict)
		}),
	); err != nil {
		return err
	}
	var pushed []time.Time
	for _, name := range s.names {
		pushed = append(pushed, s.Seen("%s gets the push \"lunch is in the garden today\"", name)...)
	}
	slices.SortFunc(pushed, time.Time.Compare)
	first, last := pushed[0], pushed[len(pushed)-1]
	s.Printf("the push reached the first of %d subscribers %v after its instant, and the last %v later (in real time)",
		len(pushed), first.Sub(s.RealAt(lunch)).Round(10*time.Microsecond), last.Sub(first).Round(10*time.Microsecond))
	return nil
}

// subscribe opens a stream, and returns after the welcome: from then on no event is missed.
func (s *days) subscribe(ctx context.Context, name string) error {
	stream, err := s.client.Stream(ctx, http.MethodGet, "/events?name="+url.QueryEscape(name), nil)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(stream)
	lines.Scan()
	s.reading.Go(func() {
		defer stream.Close()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var e event
				json.Unmarshal([]byte(data), &e)
				s.See(time.Now(), "%s gets the %s %q", name, e.Kind, e.Text)
			}
		}
	})
	return nil
}

// ask sends a request, and derives from the answer what the subscribers must get.
func (s *days) ask(ctx context.Context, what, path string, in item) error {
	s.Printf("> %s", what)
	var out item
	err := s.client.Call(ctx, http.MethodPost,
		strings.ReplaceAll(path, "{id}", fmt.Sprint(s.ids[in.Text])), in, &out)
	if errors.Is(err, story.ErrRefused) { // as may happen on a busy machine
		s.Printf("  but it is too late")
		return nil
	} else if err != nil {
		return err
	}
	if out.ID != 0 {
		s.ids[in.Text] = out.ID
	}
	want := func(name, kind string, times int, earliest time.Time) {
		s.Want(times, times, s.RealAt(earliest), "%s gets the %s %q", name, kind, in.Text)
	}
	switch path {
	case "/meetings", "/meetings/{id}/move":
		for _, name := range out.With { // reminded so far, and once more
			want(name, "reminder", out.Reminders+1, out.At.Add(-reminderLead))
		}
	case "/meetings/{id}/cancel":
		for _, name := range out.With {
			want(name, "reminder", out.Reminders, time.Time{})
		}
	case "/tickets", "/tickets/{id}/answer":
		for i, name := range escalatesTo {
			times := 0
			if path == "/tickets" || i < out.Level {
				times = 1
			}
			want(name, "escalation", times, out.At.Add(time.Duration(i+1)*patience))
		}
	case "/pushes":
		for _, name := range s.names {
			want(name, "push", 1, in.At)
		}
	}
	return nil
}
