// Package memory keeps the jobs of a job queue in memory. It is the model that the other stores are
// compared with, and a store for tests: jobs end with the process. One mutex guards everything, and
// a queue is a sorted slice for each state.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Store is a store.Store in memory. It is made by New.
type Store struct {
	now func() time.Time

	mu     sync.Mutex
	watch  func(queue string, in time.Duration)
	closed bool
	ids    store.ID // the last one given
	seq    uint64   // of the last Add
	tokens uint64   // the last one given
	jobs   map[store.ID]*job
	queues map[string]*queue
	limits map[string]store.Limits // of namespaces, by name with the slash
	chosen map[store.ID]bool       // ids that callers chose, for Add.Retry
}

// New returns an empty Store. Its clock is that of package time; inside a testing/synctest bubble
// that is the bubble's.
func New(opts ...Option) *Store {
	start := time.Now()
	s := &Store{
		// A step of the wall clock does not move it, as both readings are monotonic.
		now:    func() time.Time { return start.Add(time.Since(start)).Round(0) },
		jobs:   map[store.ID]*job{},
		queues: map[string]*queue{},
		limits: map[string]store.Limits{},
		chosen: map[store.ID]bool{},
	}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// An Option changes what New makes.
type Option func(*Store)

// WithClock has the Store read the time from now, which must be safe for concurrent use.
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.now = now }
}

// Do implements store.Store.
func (s *Store) Do(_ context.Context, ops []store.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	now := s.now()
	touched := map[string]bool{}
	for _, op := range ops {
		var name string
		var err error
		switch op := op.(type) {
		case *store.Add:
			name, err = op.Job.Queue, s.add(op, now)
		case *store.Claim:
			err = s.claim(op, now)
		case *store.Finish:
			name, err = op.Queue, s.finish(op, now)
		case *store.Extend:
			name, err = op.Queue, s.extend(op, now)
		case *store.Cancel:
			name, err = op.Queue, s.cancel(op)
		case *store.Reschedule:
			name, err = op.Queue, s.reschedule(op, now)
		case *store.Update:
			name, err = op.Queue, s.update(op)
		case *store.Requeue:
			name, err = op.Queue, s.requeue(op, now)
		case *store.Purge:
			name, err = op.Queue, s.purge(op, now)
		case *store.Configure:
			name, err = op.Queue, s.configure(op)
		default:
			err = fmt.Errorf("unknown operation %T", op)
		}
		op.Outcome().Err = err
		if name != "" && err == nil {
			touched[name] = true
		}
	}
	if s.watch != nil {
		for name := range touched {
			if next := s.next(s.queues[name], now); next >= 0 {
				s.watch(name, next)
			}
		}
	}
	return nil
}

// Watch implements store.Store. It calls f more often than it must: after every group, with the
// time until the first job.
func (s *Store) Watch(f func(queue string, in time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = f
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
