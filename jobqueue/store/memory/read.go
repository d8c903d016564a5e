package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file has what reads and changes nothing, apart from jobs that were kept long enough.

// Get implements store.Store.
func (s *Store) Get(_ context.Context, queue string, ref store.Ref) (store.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.Job{}, store.ErrClosed
	}
	j := s.find(queue, ref)
	if j == nil {
		return store.Job{}, store.ErrNotFound
	}
	return j.copy(s.now()), nil
}

// List implements store.Store. A Cursor is the sort key of the last job.
func (s *Store) List(
	_ context.Context, queue string, state store.State, after store.Cursor, limit int,
) ([]store.Job, store.Cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, "", store.ErrClosed
	}
	q := s.queues[queue]
	if q == nil {
		return nil, "", nil
	}
	now := s.now()
	s.expire(q, now)
	var jobs []store.Job
	for _, j := range q.in(state, now) {
		if after != "" && j.cursor() <= after {
			continue
		}
		if len(jobs) == limit {
			return jobs, s.jobs[jobs[limit-1].ID].cursor(), nil
		}
		jobs = append(jobs, j.copy(now))
	}
	return jobs, "", nil
}

// Queues implements store.Store.
func (s *Store) Queues(context.Context) ([]store.QueueInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	now := s.now()
	var infos []store.QueueInfo
	for name, q := range s.queues {
		s.expire(q, now)
		held := q.live + len(q.dead.jobs) + len(q.done.jobs)
		if held == 0 && !q.paused && q.limits == (store.Limits{}) {
			continue
		}
		info := store.QueueInfo{
			Name:    name,
			Paused:  q.paused,
			Limits:  q.limits,
			Delayed: len(q.in(store.Delayed, now)),
			Ready:   len(q.in(store.Ready, now)),
			Leased:  len(q.leased.jobs),
			Dead:    len(q.dead.jobs),
			Done:    len(q.done.jobs),
			Bytes:   q.bytes,
			Next:    s.next(q, now),
		}
		if info.Ready > 0 {
			info.Oldest = now.Sub(q.pending.jobs[0].Due)
		}
		infos = append(infos, info)
	}
	for name, limits := range s.limits {
		if limits != (store.Limits{}) {
			infos = append(infos, store.QueueInfo{Name: name, Limits: limits, Next: -1})
		}
	}
	slices.SortFunc(infos, func(a, b store.QueueInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos, nil
}

// Due implements store.Store.
func (s *Store) Due(_ context.Context, queue string, ends []time.Duration) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	counts := make([]int, len(ends))
	q := s.queues[queue]
	if q == nil {
		return counts, nil
	}
	now := s.now()
	for _, j := range q.pending.jobs {
		for i, end := range ends {
			if !j.Due.After(now.Add(end)) {
				counts[i]++
				break
			}
		}
	}
	return counts, nil
}

// cursor returns a text that sorts as the job does among those of its state.
func (j *job) cursor() store.Cursor {
	at, priority := j.Due, j.Priority
	if j.State == store.Dead || j.State == store.Done {
		at, priority = j.Finished, 0
	}
	return store.Cursor(fmt.Sprintf("%020d.%09d.%03d.%020d.%020d",
		at.Unix(), at.Nanosecond(), priority, j.seq, uint64(j.ID)))
}

func (j *job) copy(now time.Time) store.Job {
	c := j.Job
	c.Body = slices.Clone(c.Body)
	c.Repeat = slices.Clone(c.Repeat)
	if c.State == store.Delayed && !c.Due.After(now) {
		c.State = store.Ready
	}
	return c
}
