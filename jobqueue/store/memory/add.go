package memory

import (
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file adds jobs and keeps queues and namespaces within their limits.

func (s *Store) add(op *store.Add, now time.Time) error {
	op.ID, op.Kept = 0, false
	if op.Retry && op.Job.ID != 0 && s.chosen[op.Job.ID] {
		op.ID = op.Job.ID
		return nil
	}
	if op.Job.ID != 0 && s.jobs[op.Job.ID] != nil {
		return store.ErrKeyExists
	}
	q := s.queue(op.Job.Queue)
	old := q.keys[op.Job.Key]
	if old != nil {
		switch op.On {
		case store.Keep:
			op.ID, op.Kept = old.ID, true
			return nil
		case store.Fail:
			return store.ErrKeyExists
		}
	}
	n := int64(len(op.Job.Body) + len(op.Job.Key))
	if err := s.makeRoom(op.Job.Queue, old, n, now); err != nil {
		return err
	}
	if old != nil {
		s.remove(old)
	}
	s.seq++
	j := &job{seq: s.seq, Job: store.Job{
		ID:          op.Job.ID,
		Queue:       op.Job.Queue,
		Key:         op.Job.Key,
		Body:        slices.Clone(op.Job.Body),
		Due:         due(op.When, now),
		Priority:    op.Job.Priority,
		MaxAttempts: op.Job.MaxAttempts,
		Added:       now,
		Retain:      op.Job.Retain,
		Repeat:      slices.Clone(op.Job.Repeat),
	}}
	if j.ID == 0 {
		for s.ids++; s.jobs[s.ids] != nil; s.ids++ {
		}
		j.ID = s.ids
	} else {
		s.chosen[j.ID] = true
	}
	op.ID = j.ID
	s.jobs[j.ID] = j
	s.enlist(j, store.Delayed)
	return nil
}

// makeRoom refuses a job of n more bytes, or buries the oldest jobs, as the limits say. The job
// old, if there is one, is about to be replaced and counts no longer.
func (s *Store) makeRoom(name string, old *job, n int64, now time.Time) error {
	var victims []*job // buried only if they make room enough
	for _, scope := range []string{name, namespace(name)} {
		limits := s.limitsOf(scope)
		jobs, bytes := s.held(scope)
		for _, gone := range append(victims, old) {
			if gone != nil {
				jobs--
				bytes -= size(gone)
			}
		}
		for limits.Jobs > 0 && jobs >= limits.Jobs || limits.Bytes > 0 && bytes+n > limits.Bytes {
			victim := s.oldest(scope, append(victims, old))
			if !limits.DropOldest || victim == nil {
				return store.ErrFull
			}
			victims = append(victims, victim)
			jobs--
			bytes -= size(victim)
		}
	}
	for _, victim := range victims {
		s.bury(victim, "dropped to make room", now)
	}
	return nil
}

// limitsOf returns the limits of a queue or of a namespace.
func (s *Store) limitsOf(scope string) store.Limits {
	if q := s.queues[scope]; q != nil {
		return q.limits
	}
	return s.limits[scope]
}

// held returns what a queue or a namespace holds of live jobs.
func (s *Store) held(scope string) (jobs int, bytes int64) {
	for name, q := range s.queues {
		if name == scope || namespace(name) == scope {
			jobs += q.live
			bytes += q.bytes
		}
	}
	return jobs, bytes
}

// oldest returns the pending job of a queue or a namespace that is due first, other than those
// given.
func (s *Store) oldest(scope string, except []*job) (first *job) {
	for name, q := range s.queues {
		if name != scope && namespace(name) != scope {
			continue
		}
		for _, j := range q.pending.jobs {
			if slices.Contains(except, j) {
				continue
			}
			if first == nil || byDue(j, first) < 0 {
				first = j
			}
			break
		}
	}
	return first
}

// due returns the time that a When says, with the store's resolution of a millisecond.
func due(w store.When, now time.Time) time.Time {
	if w.At.IsZero() {
		if w.In <= 0 {
			return now.Truncate(time.Millisecond)
		}
		w.At = now.Add(w.In)
	}
	at := w.At.Round(0).UTC()
	if down := at.Truncate(time.Millisecond); !down.Equal(at) {
		at = down.Add(time.Millisecond)
	}
	return at
}
