package memory

import (
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file has what workers do: claim jobs, extend their leases, and end them.

func (s *Store) claim(op *store.Claim, now time.Time) error {
	op.Jobs, op.Buried, op.Next = op.Jobs[:0], 0, -1
	q := s.queues[op.Queue]
	if q == nil {
		return nil
	}
	for _, j := range slices.Clone(q.leased.jobs) {
		if !j.LeaseEnd.After(now) {
			s.enlist(j, store.Delayed)
		}
	}
	if !q.paused {
		fresh, _ := slices.BinarySearchFunc(q.pending.jobs, now.Add(-store.FreshTime), dueAfter)
		s.take(op, q, fresh, min(op.Fresh, op.Max), now)
		s.take(op, q, 0, op.Max, now)
		store.SortJobs(op.Jobs)
	}
	op.Next = s.next(q, now)
	return nil
}

// take claims ready jobs, from an index on, until op has so many.
func (s *Store) take(op *store.Claim, q *queue, from, most int, now time.Time) {
	for len(op.Jobs) < most && from < len(q.pending.jobs) {
		j := q.pending.jobs[from]
		if j.Due.After(now) {
			break
		}
		attempts := j.MaxAttempts
		if attempts == 0 {
			attempts = op.MaxAttempts
		}
		if attempts > 0 && j.Attempts >= attempts && len(j.Repeat) == 0 {
			message := "the lease of the last attempt ended"
			if j.LastError != "" {
				message += "; before: " + j.LastError
			}
			s.bury(j, message, now)
			op.Buried++
			continue
		}
		if attempts > 0 && j.Attempts+1 >= attempts && len(op.Jobs) >= op.Max-op.Ahead {
			break
		}
		s.tokens++
		j.Attempts++
		j.Token = s.tokens
		j.LeaseEnd = now.Add(op.Lease)
		s.enlist(j, store.Leased)
		op.Jobs = append(op.Jobs, j.copy(now))
	}
}

// next returns how long it is until q may have something to claim, negative if never.
func (s *Store) next(q *queue, now time.Time) time.Duration {
	if q == nil || q.paused {
		return -1
	}
	next := time.Duration(-1)
	earlier := func(at time.Time) {
		if d := max(at.Sub(now), 0); next < 0 || d < next {
			next = d
		}
	}
	if len(q.pending.jobs) > 0 {
		earlier(q.pending.jobs[0].Due)
	}
	for _, j := range q.leased.jobs {
		earlier(j.LeaseEnd)
	}
	return next
}

func (s *Store) finish(op *store.Finish, now time.Time) error {
	j, err := s.leased(op.Queue, op.ID, op.Token)
	if err != nil {
		return err
	}
	s.delist(j)
	switch op.Verdict {
	case store.Ack:
		if j.Retain <= 0 {
			s.remove(j)
			break
		}
		j.Finished = now
		s.enlist(j, store.Done)
	case store.Retry:
		j.LastError = op.Error
		j.Due = due(op.When, now)
		s.enlist(j, store.Delayed)
	case store.Snooze:
		j.Attempts--
		j.Due = due(op.When, now)
		s.enlist(j, store.Delayed)
	case store.Bury:
		s.bury(j, op.Error, now)
	case store.Again:
		if op.Failed {
			s.seq++
			dead := &job{seq: s.seq, Job: j.Job}
			for s.ids++; s.jobs[s.ids] != nil; s.ids++ {
			}
			dead.ID, dead.Key, dead.Repeat, dead.State = s.ids, "", nil, 0
			s.jobs[dead.ID] = dead
			s.bury(dead, op.Error, now)
		}
		j.LastError = op.Error
		j.Attempts = 0
		j.Repeat = slices.Clone(op.Repeat)
		j.Due = due(op.When, now)
		s.enlist(j, store.Delayed)
	}
	return nil
}

func (s *Store) extend(op *store.Extend, now time.Time) error {
	j, err := s.leased(op.Queue, op.ID, op.Token)
	if err == nil {
		j.LeaseEnd = now.Add(op.Lease)
	}
	return err
}

// leased returns the job whose lease the token is.
func (s *Store) leased(name string, id store.ID, token uint64) (*job, error) {
	j := s.jobs[id]
	if j == nil || j.Queue != name || j.State != store.Leased || j.Token != token {
		return nil, store.ErrLeaseLost
	}
	return j, nil
}
