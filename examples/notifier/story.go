package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// This file plays the story, in which notifications are sent over HTTP, and judges it.

// An outcome is how a notification ends.
type outcome string

const (
	delivered   outcome = "delivered"
	givenUp     outcome = "given up"
	undelivered outcome = "listed by stop"
)

// A record is what happened to one notification, at instants of the machine.
type record struct {
	status
	want    outcome
	sending time.Time // just before it was sent
	results []result
}

// Deliveries are all of them; mu guards the records.
type deliveries struct {
	*story.Diary
	mu      sync.Mutex
	records map[int]*record
}

func (s *deliveries) note(id int, change func(*record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[id] == nil { // told of its first attempt before send has its answer
		s.records[id] = &record{}
	}
	change(s.records[id])
}

func (s *deliveries) told(r result) {
	s.note(r.ID, func(rec *record) { rec.results = append(rec.results, r) })
	what := "delivered"
	if r.err != nil {
		what = r.err.Error()
	}
	var net net.Error
	if errors.As(r.err, &net) && net.Timeout() {
		what = "no answer in time"
	}
	if r.last && r.err != nil {
		what += ", which was the last"
	}
	s.Printf("%s, attempt %d: %s", title(r.status), r.Attempts, what)
}

func title(s status) string {
	path := s.URL
	if u, err := url.Parse(s.URL); err == nil && len(u.Path) > 1 {
		path = u.Path
	}
	return fmt.Sprintf("#%d to %s (%s)", s.ID, path, s.Policy)
}

func (s *deliveries) play(ctx context.Context, service *story.Client) error {
	send := func(path, policy string, want outcome) func(context.Context) error {
		return func(ctx context.Context) error {
			sending := time.Now()
			var got status
			err := service.Call(ctx, http.MethodPost, "/notifications", order{service.URL + path, policy, json.RawMessage(`"hello"`)}, &got)
			if err == nil {
				s.note(got.ID, func(r *record) { r.status, r.want, r.sending = got, want, sending })
			}
			return err
		}
	}
	return s.Play(ctx,
		story.At(0, send("/fails/3", "every", delivered)),
		story.At(0, send("/hangs/2", "every", delivered)),
		story.At(0, send("/fails/2", "steps", delivered)),
		story.At(0, send("/fails/99", "steps", givenUp)),
		story.At(time.Hour, send("/fails/99", "every", undelivered)),
		story.At(73*time.Minute, func(ctx context.Context) error {
			// On a machine with better things to do the last of the steps may be to come.
			return story.Await(ctx, s.Real(time.Hour), func() error {
				var open []status
				err := service.Call(ctx, http.MethodGet, "/notifications", nil, &open)
				if err == nil && (len(open) != 1 || open[0].Attempts == 0) {
					err = fmt.Errorf("still open: %v", open)
				}
				return err
			})
		}))
}

// judge says what is wrong with the outcome, if anything is. listed are those that stop
// returned.
func judge(records map[int]*record, listed []status, policies map[string]policy) error {
	var j story.Judge
	ends := map[int][]outcome{}
	for _, s := range listed {
		ends[s.ID] = append(ends[s.ID], undelivered)
	}
	for id, r := range records {
		name, p := title(r.status), policies[r.Policy]
		before := r.sending
		var last time.Time // when the attempt before ended
		for i, a := range r.results {
			gap, ok := p.gap(i)
			early := before.Add(gap).Sub(a.began)
			j.Check(early <= 0, "%s was tried %v early, attempt %d", name, early, i+1)
			j.Check(!a.began.Before(last), "%s was tried twice at once, attempts %d and %d", name, i, i+1)
			j.Check(ok && a.Attempts == i+1, "%s was tried too often: attempt %d", name, a.Attempts)
			before, last = a.began, a.ended
			if _, more := p.gap(i + 1); a.err == nil {
				ends[id] = append(ends[id], delivered)
			} else if !more {
				ends[id] = append(ends[id], givenUp)
			}
		}
		j.Check(len(r.results) > 0, "%s was never tried", name)
		j.Check(len(ends[id]) == 1 && ends[id][0] == r.want, "%s was %q instead of %q", name, ends[id], r.want)
	}
	return j.Err()
}
