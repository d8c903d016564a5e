package memory

import (
	"slices"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file has what is done to jobs that no one works on, and to queues.

func (s *Store) cancel(op *store.Cancel) error {
	j := s.find(op.Queue, op.Ref)
	if j == nil || j.State == store.Done {
		return store.ErrNotFound
	}
	op.ID = j.ID
	op.Running = j.State == store.Leased
	s.remove(j)
	return nil
}

func (s *Store) reschedule(op *store.Reschedule, now time.Time) error {
	j, err := s.pending(op.Queue, op.Ref)
	if err != nil {
		return err
	}
	s.delist(j)
	j.Due = due(op.When, now)
	s.enlist(j, store.Delayed)
	return nil
}

func (s *Store) update(op *store.Update) error {
	j, err := s.pending(op.Queue, op.Ref)
	if err != nil {
		return err
	}
	grown := int64(len(op.Body) - len(j.Body))
	for _, scope := range []string{op.Queue, namespace(op.Queue)} {
		limits := s.limitsOf(scope)
		if _, bytes := s.held(scope); grown > 0 && limits.Bytes > 0 && bytes+grown > limits.Bytes {
			return store.ErrFull
		}
	}
	j.Body = slices.Clone(op.Body)
	s.queues[op.Queue].bytes += grown
	return nil
}

// pending returns a job that is Delayed or Ready.
func (s *Store) pending(name string, ref store.Ref) (*job, error) {
	j := s.find(name, ref)
	switch {
	case j == nil || j.State == store.Dead || j.State == store.Done:
		return nil, store.ErrNotFound
	case j.State == store.Leased:
		return nil, store.ErrLeased
	}
	return j, nil
}

func (s *Store) requeue(op *store.Requeue, now time.Time) error {
	revive := func(j *job) {
		s.delist(j)
		j.Attempts = 0
		j.Finished = time.Time{}
		j.Due = due(store.When{}, now)
		s.enlist(j, store.Delayed)
		op.N++
	}
	op.N = 0
	if op.Ref != (store.Ref{}) {
		j := s.find(op.Queue, op.Ref)
		if j == nil || j.State != store.Dead {
			return store.ErrNotFound
		}
		if j.Key != "" && s.queues[op.Queue].keys[j.Key] != nil {
			return store.ErrKeyExists
		}
		revive(j)
		return nil
	}
	q := s.queues[op.Queue]
	if q == nil {
		return nil
	}
	for _, j := range slices.Clone(q.dead.jobs) {
		if op.N < op.Max && (j.Key == "" || q.keys[j.Key] == nil) {
			revive(j)
		}
	}
	return nil
}

func (s *Store) purge(op *store.Purge, now time.Time) error {
	op.N = 0
	q := s.queues[op.Queue]
	if q == nil {
		return nil
	}
	s.expire(q, now)
	for _, j := range slices.Clone(q.in(op.State, now)) {
		if op.N < op.Max && op.State != store.Leased {
			s.remove(j)
			op.N++
		}
	}
	return nil
}

func (s *Store) configure(op *store.Configure) error {
	if strings.HasSuffix(op.Queue, "/") {
		if op.Limits != nil {
			s.limits[op.Queue] = *op.Limits
		}
		return nil
	}
	q := s.queue(op.Queue)
	if op.Paused != nil {
		q.paused = *op.Paused
	}
	if op.Limits != nil {
		q.limits = *op.Limits
	}
	return nil
}
