package page

import (
	"context"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
)

// This file bounds what looking at the page costs, however many people look: requests share
// readings. Nothing is read while no one looks.

const (
	// shared is how long a reading serves all requests, at least.
	shared = 50 * time.Millisecond

	// restFactor is the ratio of how long a reading serves all requests to how long it took. So
	// readings use at most one part in restFactor of one processor. Counting what is due takes long
	// when millions of jobs are due within a day.
	restFactor = 50

	// rateOver is over how long rates are taken, at least, if someone has looked for as long.
	rateOver = 10 * time.Second

	// ratePast is the age beyond which a reading is of no use for a rate.
	ratePast = time.Minute
)

// A reader reads the store for all requests.
type reader struct {
	service manage.Local

	mu     sync.Mutex
	latest *manage.Overview // nil for none; does not change
	until  time.Time        // until when latest serves
	past   []*manage.Overview
	dues   map[string]*counted // by queue, "" for all
}

// counted is what is due in a queue. Its lock is held while it is being counted.
type counted struct {
	mu    sync.Mutex
	due   *manage.Due
	until time.Time
}

func newReader(s manage.Local) *reader { return &reader{service: s, dues: map[string]*counted{}} }

// overview returns the latest reading of all queues, or a new one if that is no longer shared. The
// caller must not change it.
func (r *reader) overview(ctx context.Context) (*manage.Overview, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began := time.Now()
	if r.latest != nil && began.Before(r.until) {
		return r.latest, nil
	}
	o, err := r.service.Overview(ctx, "")
	if err != nil {
		return nil, err
	}
	r.rate(o)
	r.latest = o
	now := time.Now()
	r.until = now.Add(sharedFor(now.Sub(began)))
	return o, nil
}

func sharedFor(took time.Duration) time.Duration { return max(shared, restFactor*took) }

// rate sets the rates of a reading, and keeps it for those of later ones.
func (r *reader) rate(o *manage.Overview) {
	for len(r.past) > 0 && r.past[0].Time.Before(o.Time.Add(-ratePast)) ||
		len(r.past) > 1 && !r.past[1].Time.After(o.Time.Add(-rateOver)) {
		r.past = r.past[1:]
	}
	if len(r.past) > 0 {
		before := map[string]*manage.Counters{}
		for i := range r.past[0].Queues {
			before[r.past[0].Queues[i].Name] = &r.past[0].Queues[i].Counters
		}
		over := o.Time.Sub(r.past[0].Time)
		for i := range o.Queues {
			q := &o.Queues[i]
			if b := before[q.Name]; b != nil && over > 0 {
				per := func(now, before int64) float64 {
					return float64(now-before) / over.Seconds()
				}
				q.Rate = &manage.Rate{
					Over:      over,
					Added:     per(q.Counters.Added, b.Added),
					Delivered: per(q.Counters.Delivered, b.Delivered),
					Acked:     per(q.Counters.Acked, b.Acked),
					Retried:   per(q.Counters.Retried, b.Retried),
					Buried:    per(q.Counters.Buried, b.Buried),
				}
			}
		}
	}
	if n := len(r.past); n == 0 || o.Time.Sub(r.past[n-1].Time) >= time.Second {
		r.past = append(r.past, o)
	}
}

// forget has the next request read anew, because something was changed.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Time{}
	// What is due is not counted anew: that may take long.
}

// due returns what is due in a queue, or in all.
func (r *reader) due(ctx context.Context, queue string) (*manage.Due, error) {
	r.mu.Lock()
	c := r.dues[queue]
	if c == nil {
		if len(r.dues) >= 1000 { // queues come and go
			clear(r.dues)
		}
		c = &counted{}
		r.dues[queue] = c
	}
	r.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	if c.due != nil && began.Before(c.until) {
		return c.due, nil
	}
	due, err := r.service.Due(ctx, queue)
	if err != nil {
		return nil, err
	}
	c.due = due
	now := time.Now()
	c.until = now.Add(sharedFor(now.Sub(began)))
	return due, nil
}
