package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// This file has what calls tell of the server's health. No call is made to find out.

const (
	// warnAfter is how long calls fail before that is logged. A failover or a slot that moves takes
	// less now and then.
	warnAfter = time.Second

	// forgetAfter is when a part of a Cluster is forgotten that no call has met since.
	forgetAfter = time.Minute
)

// A place is where calls fail: at a tag, which on one server stands for all, or at something that
// other calls there do not need.
type place struct {
	tag
	about string
}

// What not all calls need.
const (
	aboutReads    = "reads"
	aboutMemory   = "memory"
	aboutReplicas = "replicas"
)

type trouble struct {
	err  error
	last time.Time // when a call met it
}

// health is what calls have met last.
type health struct {
	ill atomic.Bool // there are troubles; changed with mu locked

	mu       sync.Mutex
	troubles map[place]*trouble
	since    time.Time // of the first of them, ever since there were none
	warned   bool
}

// WithLogger has the Store log to log instead of slog.Default(): a warning when calls begin to
// fail, and an info when they succeed again.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("redisstore: WithLogger of nil")
	}
	return func(s *settings) { s.log = log }
}

// Health returns the error that calls meet at the moment, and since when they meet errors, or nil.
// It says what the last calls have met, and sends nothing. Calls that are being tried again count
// too.
func (s *Store) Health() (since time.Time, err error) {
	h := &s.health
	if !h.ill.Load() {
		return time.Time{}, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var last time.Time
	for _, t := range h.troubles {
		if !t.last.Before(last) {
			last, err = t.last, t.err
		}
	}
	return h.since, err
}

func (s *Store) placeOf(t tag, about string) place {
	if !s.clustered() {
		t = tag{}
	}
	return place{t, about}
}

// met notes that a call has failed. If it was given up, that is logged at once.
func (s *Store) met(ctx context.Context, p place, err error, gaveUp bool) {
	if ctx.Err() != nil { // then the error is the caller's
		return
	}
	if errors.Is(err, ErrReplicas) {
		p.about = aboutReplicas
	}
	now := time.Now()
	h := &s.health
	h.mu.Lock()
	if len(h.troubles) == 0 {
		h.troubles, h.since, h.warned = map[place]*trouble{}, now, false
		h.ill.Store(true)
	}
	t := h.troubles[p]
	if t == nil {
		t = &trouble{}
		h.troubles[p] = t
	}
	t.err, t.last = err, now
	warn := !h.warned && (gaveUp || now.Sub(h.since) >= warnAfter)
	h.warned = h.warned || warn
	h.mu.Unlock()
	if warn {
		s.set.log.Warn("redisstore: redis fails", "error", err)
	}
}

// well notes that calls succeed.
func (s *Store) well(places ...place) {
	h := &s.health
	if !h.ill.Load() {
		return
	}
	now := time.Now()
	h.mu.Lock()
	for _, p := range places {
		delete(h.troubles, p)
	}
	for p, t := range h.troubles {
		if now.Sub(t.last) > forgetAfter && s.clustered() {
			delete(h.troubles, p)
		}
	}
	back := false
	if len(h.troubles) == 0 {
		back = h.warned
		h.warned = false
		h.ill.Store(false)
	}
	since := h.since
	h.mu.Unlock()
	if back {
		s.set.log.Info("redisstore: redis is back", "after", now.Sub(since))
	}
}

// note takes what a call of do.lua met.
func (s *Store) note(ctx context.Context, c *call, m meaning) {
	switch m {
	case noScript, noMemory:
	case carriedOut:
		if !s.health.ill.Load() {
			return
		}
		list := []place{s.placeOf(c.tag, ""), s.placeOf(tag{}, aboutReads)}
		if c.lasts {
			list = append(list, s.placeOf(c.tag, aboutReplicas))
		}
		if c.grows {
			list = append(list, s.placeOf(c.tag, aboutMemory))
		}
		s.well(list...)
	default:
		s.met(ctx, s.placeOf(c.tag, ""), named(c.err), false)
	}
}
