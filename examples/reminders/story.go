package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"
)

// This file plays the story and judges it. What everybody has to get is taken
// from the service's answers and not from the clock: where a slow machine lets a
// meeting be moved after its reminder has gone out, the answer says so.

// opening is when the story begins: a Monday, two hours before its first event,
// in which the subscribers connect.
var opening = on(0, 6, 0)

// on returns a time of the story, day 0 being the Monday.
func on(day, hour, minute int) time.Time {
	return time.Date(2027, time.March, 1+day, hour, minute, 0, 0, time.UTC)
}

// awaitWithin is how long after the last event of the story what is still missing
// may take to arrive. The wheel and the loopback interface need milliseconds; the
// rest is for a machine that has better things to do.
const awaitWithin = 10 * time.Second

// A demand is an event that somebody has to get: so many times, and the last not
// before a time of the story. What is not demanded nobody may get.
type demand struct {
	name      string
	event     event
	times     int
	notBefore time.Time
}

type story struct {
	clock   storyClock
	lines   *log.Logger
	url     string
	http    http.Client
	crowd   *crowd
	demands []demand
	failed  error // the first request that went wrong
}

// run plays the story, and returns an error if somebody did not get what was due.
func run(out io.Writer, scale float64, subscribers int) (err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	st := &story{
		clock: newStoryClock(opening, scale),
		lines: log.New(out, "", 0),
		url:   "http://" + ln.Addr().String(),
		http:  http.Client{Transport: &http.Transport{}},
	}
	defer st.http.CloseIdleConnections()
	fmt.Fprintf(out, "An hour of the story takes %v, so a millisecond of lateness shows as %v.\n",
		st.clock.duration(time.Hour).Round(time.Microsecond), time.Duration(scale*float64(time.Millisecond)).Round(time.Second))
	fmt.Fprintf(out, "Lines with > are requests; what the service does of its own accord has none.\n\n")

	service := start(ln, st.clock, st.say)
	st.crowd = newCrowd(st.url)
	defer func() { // also if the story breaks off
		err = errors.Join(err, service.shutdown())
		st.crowd.leave()
	}()
	if err := st.crowd.join(subscribers); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	st.say("> %d subscribers are connected, anna, ben, the lead and the head among them", subscribers)
	st.play()
	if st.failed != nil {
		return st.failed
	}
	for deadline := time.Now().Add(awaitWithin); st.judge() != nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := st.judge(); err != nil {
		return err
	}
	st.report(out)
	return nil
}

// play is the story: who asks the service for what, and when.
func (st *story) play() {
	st.wait(on(0, 8, 0))
	review := st.ask("anna plans the review with ben for Tue 10:00", "POST", "/meetings",
		body{Title: "review", With: []string{"anna", "ben"}, Start: on(1, 10, 0)})
	retro := st.ask("anna plans the retro with ben for Tue 09:00", "POST", "/meetings",
		body{Title: "retro", With: []string{"anna", "ben"}, Start: on(1, 9, 0)})
	st.ask("ben plans the night shift for Mon 22:00", "POST", "/meetings",
		body{Title: "night shift", With: []string{"ben"}, Start: on(0, 22, 0)})
	st.demand("reminder", "night shift", 1, on(0, 21, 30), "ben")

	const lunch = "lunch is in the garden today"
	st.ask("a message to everybody is planned for Tue 12:00", "POST", "/pushes", body{At: on(1, 12, 0), Text: lunch})
	st.demand("push", lunch, 1, on(1, 12, 0), st.crowd.names...)

	st.wait(on(0, 9, 0))
	printer := st.ask("a customer opens the ticket \"printer on fire\"", "POST", "/tickets", body{Subject: "printer on fire"})
	password := st.ask("a customer opens the ticket \"password lost\"", "POST", "/tickets", body{Subject: "password lost"})
	screen := st.ask("a customer opens the ticket \"screen flickers\"", "POST", "/tickets", body{Subject: "screen flickers"})

	st.wait(on(0, 17, 0))
	moved := st.ask("anna moves the review to Tue 15:00", "POST", fmt.Sprintf("/meetings/%d/move", review.ID), body{Start: on(1, 15, 0)})
	st.demand("reminder", "review", moved.Reminders+1, on(1, 14, 30), "anna", "ben")

	st.wait(on(0, 17, 30))
	gone := st.ask("anna cancels the retro", "DELETE", fmt.Sprintf("/meetings/%d", retro.ID), body{})
	st.demand("reminder", "retro", gone.Reminders, on(1, 8, 30), "anna", "ben")

	st.wait(on(0, 18, 0))
	st.demandLevels("password lost", st.ask("ben answers \"password lost\"", "POST", fmt.Sprintf("/tickets/%d/answer", password.ID), body{}))

	st.wait(on(1, 19, 0))
	st.demandLevels("screen flickers", st.ask("ben answers \"screen flickers\"", "POST", fmt.Sprintf("/tickets/%d/answer", screen.ID), body{}))

	st.wait(on(2, 10, 0))
	st.say("> nobody has answered \"printer on fire\"; the story ends")
	printer.Level = topLevel // nobody answered, so nobody says it
	st.demandLevels("printer on fire", printer)
}

func (st *story) say(format string, args ...any) {
	st.lines.Printf("%s  %s", st.clock.story(time.Now()).Format("Mon 15:04"), fmt.Sprintf(format, args...))
}

func (st *story) wait(until time.Time) {
	if st.failed == nil {
		time.Sleep(time.Until(st.clock.real(until)))
	}
}

// ask sends a request. After one that failed it does nothing, so that play reads
// as a story.
func (st *story) ask(what, method, path string, b body) (a answer) {
	if st.failed != nil {
		return a
	}
	st.say("> %s", what)
	defer func() {
		if st.failed != nil {
			st.failed = fmt.Errorf("%s: %w", what, st.failed)
		}
	}()
	sent, err := json.Marshal(b)
	if err != nil {
		st.failed = err
		return a
	}
	request, err := http.NewRequest(method, st.url+path, bytes.NewReader(sent))
	if err != nil {
		st.failed = err
		return a
	}
	response, err := st.http.Do(request)
	if err != nil {
		st.failed = err
		return a
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		st.failed = err
	case response.StatusCode != http.StatusOK:
		st.failed = fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(got))
	default:
		st.failed = json.Unmarshal(got, &a)
	}
	return a
}

func (st *story) demand(kind, text string, times int, notBefore time.Time, names ...string) {
	for _, name := range names {
		st.demands = append(st.demands, demand{name, event{kind, text}, times, notBefore})
	}
}

// demandLevels demands the escalations of a ticket up to the level that it had
// got to when it was answered.
func (st *story) demandLevels(subject string, a answer) {
	for i := range a.Level {
		st.demand("escalation", subject, 1, a.Opened.Add(time.Duration(i+1)*patience), escalatesTo[i])
	}
}

// judge compares what arrived with what was demanded.
func (st *story) judge() error {
	got := st.crowd.receipts()
	demanded := map[string]int{}
	for _, d := range st.demands {
		demanded[d.name] += d.times
		times := 0
		var last time.Time
		for _, r := range got[d.name] {
			if r.event == d.event {
				times++
				last = r.at
			}
		}
		switch {
		case times != d.times:
			return fmt.Errorf("%s got the %s %q %d times and not %d times", d.name, d.event.Kind, d.event.Text, times, d.times)
		case times > 0 && last.Before(st.clock.real(d.notBefore)):
			return fmt.Errorf("%s got the %s %q before its time, on %s", d.name, d.event.Kind, d.event.Text, st.clock.story(last))
		}
	}
	for _, name := range st.crowd.names {
		if len(got[name]) != demanded[name] {
			return fmt.Errorf("%s got %d events and not %d", name, len(got[name]), demanded[name])
		}
	}
	return nil
}

// report tells how the push spread, in real time.
func (st *story) report(out io.Writer) {
	events := 0
	var pushes []time.Time
	for _, receipts := range st.crowd.receipts() {
		events += len(receipts)
		for _, r := range receipts {
			if r.event.Kind == "push" {
				pushes = append(pushes, r.at)
			}
		}
	}
	slices.SortFunc(pushes, time.Time.Compare)
	first, last := pushes[0], pushes[len(pushes)-1]
	fmt.Fprintf(out, "\nAll is well: %d events reached the right people, none early, none missing, none twice.\n", events)
	fmt.Fprintf(out, "The push, in real time: the first of %d subscribers had it %v after its instant,\nthe last %v after the first.\n",
		len(pushes), first.Sub(st.clock.real(on(1, 12, 0))).Round(10*time.Microsecond), last.Sub(first).Round(10*time.Microsecond))
}
