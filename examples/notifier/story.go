package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// This file plays the story: it sends notifications over HTTP, keeps a ledger of what
// the notifier tells. ledger.mu guards the records, diary.mu the output.

// patience is how much longer than planned the story may take before something must be
// wrong.
const patience = 30 * time.Second

// A clock is where durations of the story become real ones.
type clock struct {
	start time.Time
	scale float64
}

func (c clock) real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.scale) }

// wait sleeps until the story has reached at.
func (c clock) wait(ctx context.Context, at time.Duration) error {
	return sleep(ctx, time.Until(c.start.Add(c.real(at))))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A diary prints lines with the time of the story in front, in its order.
type diary struct {
	clock
	mu  sync.Mutex
	out io.Writer
}

func (y *diary) line(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	s := int(time.Since(y.start).Seconds() * y.scale)
	fmt.Fprintf(y.out, "%02d:%02d:%02d  %s\n", s/3600, s/60%60, s%60, fmt.Sprintf(format, args...))
}

// An outcome is how a notification ends.
type outcome string

const (
	delivered outcome = "delivered"
	givenUp   outcome = "given up"
	listed    outcome = "listed by stop"
)

// A record is what happened to one notification, at real instants.
type record struct {
	status
	want    outcome
	sending time.Time // just before it was sent
	results []result
	listed  int // times that stop listed it
}

type ledger struct {
	mu      sync.Mutex
	records map[int]*record
}

func (l *ledger) note(id int, change func(*record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records[id] == nil {
		l.records[id] = &record{}
	}
	change(l.records[id])
}

type story struct {
	*diary
	seen        *ledger
	here, there string // the URLs of the notifier and of the receivers
	client      *http.Client
}

func play(ctx context.Context, says *diary, seen *ledger, here, there string) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s := &story{says, seen, here, there, &http.Client{Transport: transport, Timeout: stopWithin}}
	ctx, cancel := context.WithTimeout(ctx, s.real(2*time.Hour)+patience)
	defer cancel()

	if err := errors.Join(
		s.send(ctx, "/fails/3", "every", delivered),
		s.send(ctx, "/hangs/2", "every", delivered),
		s.send(ctx, "/fails/2", "steps", delivered),
		s.send(ctx, "/fails/99", "steps", givenUp),
		s.wait(ctx, time.Hour),
		s.send(ctx, "/fails/99", "every", listed),
		s.wait(ctx, 73*time.Minute),
	); err != nil {
		return err
	}
	// On a machine with better things to do the last of the steps may be still to
	// come.
	for {
		var open []status
		if err := s.call(ctx, http.MethodGet, nil, &open); err != nil {
			return err
		}
		if len(open) == 1 && open[0].Attempts > 0 {
			return nil
		}
		if err := sleep(ctx, s.real(time.Minute)); err != nil {
			return fmt.Errorf("still open: %v: %w", open, err)
		}
	}
}

func (s *story) send(ctx context.Context, path, policy string, want outcome) error {
	sending := time.Now()
	var got status
	err := s.call(ctx, http.MethodPost, map[string]string{"url": s.there + path, "policy": policy, "body": "hello"}, &got)
	if err == nil {
		s.seen.note(got.ID, func(r *record) { r.status, r.want, r.sending = got, want, sending })
	}
	return err
}

func (s *story) call(ctx context.Context, method string, in, out any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.here+"/notifications", &body)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode > 299 {
		return fmt.Errorf("%s: %s", method, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
