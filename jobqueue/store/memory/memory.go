// Package memory keeps the jobs of a job queue in memory. It is the model that the other stores are
// compared with, and a store for tests: jobs end with the process. One mutex guards everything, and
// a queue is a sorted slice for each state.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
	for !q.paused && len(op.Jobs) < op.Max && len(q.pending.jobs) > 0 {
		j := q.pending.jobs[0]
		if j.Due.After(now) {
			break
		}
		most := j.MaxAttempts
		if most == 0 {
			most = op.MaxAttempts
		}
		if most > 0 && j.Attempts >= most && len(j.Repeat) == 0 {
			message := "the lease of the last attempt ended"
			if j.LastError != "" {
				message += "; before: " + j.LastError
			}
			s.bury(j, message, now)
			op.Buried++
			continue
		}
		s.tokens++
		j.Attempts++
		j.Token = s.tokens
		j.LeaseEnd = now.Add(op.Lease)
		s.enlist(j, store.Leased)
		op.Jobs = append(op.Jobs, j.copy(now))
	}
	op.Next = s.next(q, now)
	return nil
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
	ready, _ := slices.BinarySearchFunc(jobs, now, func(j *job, now time.Time) int {
		if j.Due.After(now) {
			return 1
		}
		return -1
	})
	if state == store.Ready {
		return jobs[:ready]
	}
	return jobs[ready:]
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

func size(j *job) int64 { return int64(len(j.Body) + len(j.Key)) }

// namespace returns the part of a queue's name up to its first slash, or nothing.
func namespace(name string) string {
	if i := strings.IndexByte(name, '/'); i >= 0 {
		return name[:i+1]
	}
	return ""
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
