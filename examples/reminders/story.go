package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// This file plays the story and judges it. What everybody has to get is taken from the
// service's answers and not from the clock: where a slow machine lets a meeting be moved
// after its reminder has gone out, the answer says so.

// on returns a time of the story, day 0 being a Monday.
func on(day, hour, minute int) time.Time {
	return time.Date(2027, time.March, 1+day, hour, minute, 0, 0, time.UTC)
}

var (
	opening = on(0, 6, 0) // the subscribers have until eight to connect
	lunch   = on(1, 12, 0)
)

// A delivery is an event that somebody gets.
type delivery struct {
	name string
	event
}

// A demand says how often that has to be, and the last time not before a time of the
// story. What is not demanded nobody may get.
type demand struct {
	times     int
	notBefore time.Time
}

type days struct {
	*story.Diary
	subscribers int
	client      *story.Client
	names       []string       // of the subscribers
	ids         map[string]int // of meetings and tickets
	demands     map[delivery]demand
	reading     sync.WaitGroup

	mu      sync.Mutex
	arrived int
	got     map[delivery][]time.Time
}

func (s *days) play(ctx context.Context, client *story.Client) error {
	s.client, s.ids, s.demands, s.got = client, map[string]int{}, map[delivery]demand{}, map[delivery][]time.Time{}
	streams, hangUp := context.WithCancel(ctx)
	defer s.reading.Wait()
	defer hangUp()
	s.names = []string{"anna", "ben", "lead", "head"}
	for i := range s.subscribers {
		if i >= len(s.names) {
			s.names = append(s.names, fmt.Sprintf("viewer %d", i))
		}
		if err := s.subscribe(streams, s.names[i]); err != nil {
			return fmt.Errorf("subscribing: %w", err)
		}
	}
	s.Printf("> %d subscribers are connected, anna, ben, the lead and the head among them", s.subscribers)
	s.Printf("> marks requests; what the service does of its own accord has no mark")

	at := func(t time.Time, do func(context.Context) error) story.Scene { return story.At(t.Sub(opening), do) }
	if err := s.Play(ctx,
		at(on(0, 8, 0), s.meeting("anna plans the review with ben for Tue 10:00", "POST", "/meetings", "review", on(1, 10, 0), "anna", "ben")),
		at(on(0, 8, 0), s.meeting("anna plans the retro with ben for Tue 09:00", "POST", "/meetings", "retro", on(1, 9, 0), "anna", "ben")),
		at(on(0, 8, 0), s.meeting("ben plans the night shift for Mon 22:00", "POST", "/meetings", "night shift", on(0, 22, 0), "ben")),
		at(on(0, 8, 0), s.push("lunch is in the garden today", lunch)),
		at(on(0, 9, 0), s.ticket("a customer opens the ticket \"printer on fire\"", "/tickets", "printer on fire")), // which nobody answers
		at(on(0, 9, 0), s.ticket("a customer opens the ticket \"password lost\"", "/tickets", "password lost")),
		at(on(0, 17, 0), s.meeting("anna moves the review to Tue 15:00", "POST", "/meetings/{id}/move", "review", on(1, 15, 0), "anna", "ben")),
		at(on(0, 17, 30), s.meeting("anna cancels the retro", "DELETE", "/meetings/{id}", "retro", time.Time{}, "anna", "ben")),
		at(on(1, 10, 0), s.ticket("ben answers \"password lost\"", "/tickets/{id}/answer", "password lost")),
		at(on(2, 10, 0), func(context.Context) error { return nil }), // after the last that is due
	); err != nil {
		return err
	}
	total := 0
	for _, d := range s.demands {
		total += d.times
	}
	return story.Await(ctx, 0, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.arrived < total {
			return fmt.Errorf("%d events arrived and not %d", s.arrived, total)
		}
		return nil
	})
}

// subscribe opens a stream and returns once the service has greeted, which is when it
// will not miss anything.
func (s *days) subscribe(ctx context.Context, name string) error {
	stream, err := s.client.Stream(ctx, "/events?name="+url.QueryEscape(name))
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(stream)
	if !lines.Scan() {
		stream.Close()
		return fmt.Errorf("%s was not greeted: %v", name, lines.Err())
	}
	s.reading.Go(func() {
		defer stream.Close()
		for lines.Scan() {
			now := time.Now()
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			d := delivery{name: name}
			if err := json.Unmarshal([]byte(data), &d.event); err != nil {
				d.event = event{"unreadable", data}
			}
			s.mu.Lock()
			s.got[d] = append(s.got[d], now)
			s.arrived++
			s.mu.Unlock()
		}
	})
	return nil
}

func (s *days) demand(kind, text string, times int, notBefore time.Time, names ...string) {
	for _, name := range names {
		s.demands[delivery{name, event{kind, text}}] = demand{times, notBefore}
	}
}

// ask sends a request about the meeting or ticket of that name. Then says what it changes
// of the demands; it is left out if the request came too late, as on a machine with better
// things to do it may.
func (s *days) ask(what, method, path, name string, b body, then func(answer)) func(context.Context) error {
	return func(ctx context.Context) error {
		s.Printf("> %s", what)
		var a answer
		err := s.client.Call(ctx, method, strings.ReplaceAll(path, "{id}", strconv.Itoa(s.ids[name])), b, &a)
		switch {
		case story.Refused(err, http.StatusNotFound, http.StatusConflict):
			s.Printf("  but it is too late")
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		default:
			s.ids[name] = a.ID
			then(a)
		}
		return nil
	}
}

// meeting plans, moves or cancels one. Whoever was reminded already is reminded again,
// unless it is cancelled.
func (s *days) meeting(what, method, path, title string, start time.Time, with ...string) func(context.Context) error {
	return s.ask(what, method, path, title, body{Title: title, With: with, Start: start}, func(a answer) {
		times := a.Reminders
		if method != http.MethodDelete {
			times++
		}
		s.demand("reminder", title, times, a.Start.Add(-reminderLead), with...)
	})
}

// ticket opens or answers one, which escalates up to the level that it has got to when it
// is answered.
func (s *days) ticket(what, path, subject string) func(context.Context) error {
	return s.ask(what, http.MethodPost, path, subject, body{Subject: subject}, func(a answer) {
		for i, name := range escalatesTo {
			times := 0
			if i < a.Level || path == "/tickets" {
				times = 1
			}
			s.demand("escalation", subject, times, a.Opened.Add(time.Duration(i+1)*patience), name)
		}
	})
}

func (s *days) push(text string, at time.Time) func(context.Context) error {
	what := "a message to everybody is planned for " + at.Format("Mon 15:04")
	return s.ask(what, http.MethodPost, "/pushes", "", body{At: at, Text: text}, func(answer) {
		s.demand("push", text, 1, at, s.names...)
	})
}

// judge compares what arrived with what was demanded, and tells how the push spread.
func (s *days) judge() error {
	var j story.Judge
	var pushes []time.Time
	for d, at := range s.got {
		if d.Kind == "push" {
			pushes = append(pushes, at...)
		}
		_, demanded := s.demands[d]
		j.Check(demanded, "%s got the %s %q unasked", d.name, d.Kind, d.Text)
	}
	for d, want := range s.demands {
		at := s.got[d]
		j.Check(len(at) == want.times, "%s got the %s %q %d times and not %d times", d.name, d.Kind, d.Text, len(at), want.times)
		if len(at) > 0 {
			early := s.RealAt(want.notBefore).Sub(at[len(at)-1])
			j.Check(early <= 0, "%s got the %s %q %v early", d.name, d.Kind, d.Text, early)
		}
	}
	if err := j.Err(); err != nil || len(pushes) == 0 {
		return err
	}
	slices.SortFunc(pushes, time.Time.Compare)
	first, last := pushes[0], pushes[len(pushes)-1]
	s.Printf("the push reached the first of %d subscribers %v after its instant, and the last %v later (real time)",
		len(pushes), first.Sub(s.RealAt(lunch)).Round(10*time.Microsecond), last.Sub(first).Round(10*time.Microsecond))
	s.Printf("all is well: %d events reached the right people, none early, none missing, none twice", s.arrived)
	return nil
}
