package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// This file plays the story: readers who talk to the server over HTTP, a ledger of what
// they and the mailer see. ledger.mu guards the records, diary.mu the
// output.

const (
	// returners is how many readers come back when their digest is due. One of them
	// alone would nearly always be before it or after; of forty, a tenth of a
	// millisecond apart, some meet it.
	returners = 40

	// patience is how much longer than planned the story may take before something
	// must be wrong.
	patience = 30 * time.Second
)

// isRegular tells the readers whose story is told line by line.
func isRegular(reader string) bool { return !strings.HasPrefix(reader, "returner-") }

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
	fmt.Fprintf(y.out, "%02d:%02d:%02d  %s\n", s/3600, s/60%60, s%60, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// A span is a request at real instants: just before it was sent, and answered.
type span struct{ before, after time.Time }

// A record is what happened to one reader.
type record struct {
	reads   []span
	digests []time.Time
	left    time.Time // when he wanted no digest; zero if he never said so
	listed  int       // times that his digest was still to come at the end
}

type ledger struct {
	mu      sync.Mutex
	records map[string]*record
}

func (l *ledger) note(reader string, change func(*record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records[reader] == nil {
		l.records[reader] = &record{}
	}
	change(l.records[reader])
}

type story struct {
	*diary
	seen   *ledger
	url    string
	client *http.Client
}

func play(ctx context.Context, says *diary, seen *ledger, url string) error {
	transport := &http.Transport{MaxIdleConnsPerHost: returners}
	defer transport.CloseIdleConnections()
	s := &story{says, seen, url, &http.Client{Transport: transport, Timeout: stopWithin}}
	ctx, cancel := context.WithTimeout(ctx, s.real(4*quiet)+patience)
	defer cancel()

	var running sync.WaitGroup
	var editing, returning error
	editCtx, stopEditing := context.WithCancel(ctx)
	s.line("an article appears every 15 minutes")
	running.Go(func() { editing = s.edit(editCtx) })
	running.Go(func() { returning = s.returners(ctx) })
	regular := s.regulars(ctx)
	if regular != nil {
		cancel()
	}
	stopEditing()
	running.Wait()
	if err := errors.Join(regular, returning, editing); err != nil {
		return err
	}

	if err := s.empty(ctx); err != nil {
		return err
	}
	return s.read(ctx, "dan")
}

// edit publishes articles until it is stopped.
func (s *story) edit(ctx context.Context) error {
	for i := 1; ; i++ {
		if err := s.call(ctx, http.MethodPost, "/articles", fmt.Sprintf(`{"title": "news %d"}`, i), nil); err != nil && ctx.Err() == nil {
			return err
		}
		if sleep(ctx, s.real(15*time.Minute)) != nil {
			return nil
		}
	}
}

func (s *story) regulars(ctx context.Context) error {
	const h = time.Hour
	for _, scene := range []struct {
		at   time.Duration
		what func(context.Context, string) error
		who  string
	}{
		{h / 60, s.read, "ada"},
		{h / 60, s.read, "ben"},
		{h / 2, s.read, "cleo"},
		{1 * h, s.read, "ada"},
		{3 * h / 2, s.leave, "cleo"},
		{2 * h, s.read, "ada"}, // ben is not here, and has his digest
		{3 * h, s.read, "ben"},
	} {
		if err := s.wait(ctx, scene.at); err != nil {
			return err
		}
		if err := scene.what(ctx, scene.who); err != nil {
			return err
		}
	}
	return s.wait(ctx, 5*h)
}

// returners all come back two hours after they read, give or take the milliseconds in
// which their digests are sent.
func (s *story) returners(ctx context.Context) error {
	var running sync.WaitGroup
	var errs [returners]error
	for i := range returners {
		running.Go(func() {
			name := fmt.Sprintf("returner-%d", i+1)
			moment := time.Now().Add(s.real(quiet) + time.Duration(i)*100*time.Microsecond)
			errs[i] = s.read(ctx, name)
			if errs[i] == nil {
				errs[i] = sleep(ctx, time.Until(moment))
			}
			if errs[i] == nil {
				errs[i] = s.read(ctx, name)
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	// Long enough for mails that were on their way.
	if err := sleep(ctx, s.real(quiet)/4); err != nil {
		return err
	}
	sent := 0
	s.seen.mu.Lock()
	for name, r := range s.seen.records {
		if !isRegular(name) {
			sent += len(r.digests)
		}
	}
	s.seen.mu.Unlock()
	s.line("%d readers came back at the moment of their digest: %d had just been sent, %d were pushed on", returners, sent, returners-sent)
	return nil
}

// empty waits until every digest has been sent.
func (s *story) empty(ctx context.Context) error {
	for {
		var waiting int
		if err := s.call(ctx, http.MethodGet, "/waiting", "", &waiting); err != nil {
			return err
		}
		if waiting == 0 {
			s.line("every digest has been sent, and nobody is left in memory")
			return nil
		}
		if err := sleep(ctx, s.real(time.Minute)); err != nil {
			return fmt.Errorf("%d digests are still to come: %w", waiting, err)
		}
	}
}

func (s *story) read(ctx context.Context, reader string) error {
	before := time.Now()
	var unread []string
	if err := s.call(ctx, http.MethodGet, "/news/"+reader, "", &unread); err != nil {
		return err
	}
	s.seen.note(reader, func(r *record) { r.reads = append(r.reads, span{before, time.Now()}) })
	if isRegular(reader) {
		s.line("%s reads, %d new", reader, len(unread))
	}
	return nil
}

func (s *story) leave(ctx context.Context, reader string) error {
	if err := s.call(ctx, http.MethodDelete, "/readers/"+reader, "", nil); err != nil {
		return err
	}
	s.seen.note(reader, func(r *record) { r.left = time.Now() })
	s.line("%s wants no digest", reader)
	return nil
}

func (s *story) call(ctx context.Context, method, path, in string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(in))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode > 299 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	if out == nil {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
