package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// This file has the lists that jobs move between. mu is held by all callers.

// A queue's live jobs are in pending or leased, the others in dead or done.
type queue struct {
	paused  bool
	limits  store.Limits
	keys    map[string]*job
	pending list // Delayed and Ready
	leased  list
	dead    list
	done    list
	live    int
	bytes   int64
}

type job struct {
	store.Job
	seq uint64
}

// A list is a sorted slice: in the order of claims, or by when the jobs finished.
type list struct {
	jobs  []*job
	byDue bool
}

func (s *Store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{keys: map[string]*job{}}
		q.pending.byDue, q.leased.byDue = true, true
		s.queues[name] = q
	}
	return q
}

func (s *Store) find(name string, ref store.Ref) *job {
	q := s.queues[name]
	if q == nil {
		return nil
	}
	s.expire(q, s.now())
	if ref.ID == 0 {
		return q.keys[ref.Key]
	}
	if j := s.jobs[ref.ID]; j != nil && j.Queue == name {
		return j
	}
	return nil
}

// expire removes jobs that are Done and were kept long enough.
func (s *Store) expire(q *queue, now time.Time) {
	for _, j := range slices.Clone(q.done.jobs) {
		if !j.Finished.Add(j.Retain).After(now) {
			s.remove(j)
		}
	}
}

func (s *Store) bury(j *job, message string, now time.Time) {
	s.delist(j)
	j.LastError = message
	j.Finished = now
	s.enlist(j, store.Dead)
}

// remove forgets a job.
func (s *Store) remove(j *job) {
	s.delist(j)
	delete(s.jobs, j.ID)
}

// enlist puts a job in the list of a state, Delayed standing for Ready too. It leaves the list that
// it is in. A caller that changes what that list is sorted by has to call delist first.
func (s *Store) enlist(j *job, state store.State) {
	s.delist(j)
	q := s.queue(j.Queue)
	if state != store.Leased {
		j.Token, j.LeaseEnd = 0, time.Time{}
	}
	j.State = state
	q.list(state).insert(j)
	if state == store.Delayed || state == store.Leased {
		q.live++
		q.bytes += size(j)
		if j.Key != "" {
			q.keys[j.Key] = j
		}
	}
}

func (s *Store) delist(j *job) {
	if j.State == 0 {
		return
	}
	q := s.queues[j.Queue]
	q.list(j.State).remove(j)
	if j.State == store.Delayed || j.State == store.Leased {
		q.live--
		q.bytes -= size(j)
		delete(q.keys, j.Key)
	}
	j.State = 0
}

func (q *queue) list(state store.State) *list {
	switch state {
	case store.Leased:
		return &q.leased
	case store.Dead:
		return &q.dead
	case store.Done:
		return &q.done
	}
	return &q.pending
}

// in returns the jobs in a state.
func (q *queue) in(state store.State, now time.Time) []*job {
	jobs := q.list(state).jobs
	if state != store.Delayed && state != store.Ready {
		return jobs
	}
	ready, _ := slices.BinarySearchFunc(jobs, now, dueAfter)
	if state == store.Ready {
		return jobs[:ready]
	}
	return jobs[ready:]
}

// dueAfter is for finding the first job that is due after a time.
func dueAfter(j *job, t time.Time) int {
	if j.Due.After(t) {
		return 1
	}
	return -1
}

func (l *list) insert(j *job) {
	i, _ := slices.BinarySearchFunc(l.jobs, j, l.compare)
	l.jobs = slices.Insert(l.jobs, i, j)
}

func (l *list) remove(j *job) {
	i, _ := slices.BinarySearchFunc(l.jobs, j, l.compare)
	if i == 0 { // what claims take, without moving all the others
		l.jobs[0] = nil
		l.jobs = l.jobs[1:]
		return
	}
	l.jobs = slices.Delete(l.jobs, i, i+1)
}

func (l *list) compare(a, b *job) int {
	if l.byDue {
		return byDue(a, b)
	}
	return byEnd(a, b)
}

// byDue is the order of claims.
func byDue(a, b *job) int {
	return cmp.Or(
		a.Due.Compare(b.Due),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.seq, b.seq),
		cmp.Compare(a.ID, b.ID),
	)
}

func byEnd(a, b *job) int {
	return cmp.Or(
		a.Finished.Compare(b.Finished),
		cmp.Compare(a.seq, b.seq),
		cmp.Compare(a.ID, b.ID),
	)
}

func size(j *job) int64 { return int64(len(j.Body) + len(j.Key)) }

// namespace returns the part of a queue's name up to its first slash, or nothing.
func namespace(name string) string {
	if i := strings.IndexByte(name, '/'); i >= 0 {
		return name[:i+1]
	}
	return ""
}
