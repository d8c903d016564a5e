package pebblestore

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// A lease is in memory, and in its claim's entry in the file. Guarded by Store.mu.
type lease struct {
	entry    // not loaded, so that a body does not stay in memory
	token    uint64
	end      int64 // the store's time
	attempts int   // this one counted
	claim    *claim
	index    int // in the queue's heap
}

// A claim is one entry in c.
type claim struct {
	number uint64
	open   int // leases that have not ended
}

// A leaseHeap has the leases of a queue, by their ends.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].end < h[j].end }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *leaseHeap) Push(x any) {
	l := x.(*lease)
	l.index = len(*h)
	*h = append(*h, l)
}
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return l
}

func (s *Store) claim(op *store.Claim) error {
	op.Jobs, op.Buried, op.Next = op.Jobs[:0], 0, -1
	q := s.queues[op.Queue]
	if q == nil {
		return nil
	}
	if err := s.returnEnded(q); err != nil || q.paused {
		return err
	}
	g := &s.group
	if q.unapplied == g.part {
		if err := s.flush(); err != nil {
			return err
		}
	}
	w, err := s.walk(q)
	if err != nil {
		return err
	}
	defer w.close()
	c := &claim{}
	s.log = append32(s.log[:0], q.number)
	if h := w.head(); op.Fresh > 0 && h != nil && h.place.before(g.now.fresh(h.space)) {
		for _, h := range w.heads {
			i := h.space.of()
			h.seek(last(g.now.fresh(h.space), q.fresh[i])) // not before cursor
		}
		s.take(op, c, w, min(op.Fresh, op.Max))
		for _, h := range w.heads {
			i := h.space.of()
			q.fresh[i] = h.place
			h.seek(q.cursor[i])
		}
	}
	fresh := len(op.Jobs)
	s.take(op, c, w, op.Max)
	if fresh > 0 {
		store.SortJobs(op.Jobs)
	}
	if c.open > 0 {
		s.claims++
		c.number = s.claims
		_ = g.batch.Set(seqKey(s.keys[:0], keyClaim, c.number), s.log, nil)
	}
	op.Next = s.nextOf(q, w, g.now)
	q.announced, q.soonest = never, never
	if op.Next >= 0 {
		q.announced = later(g.now.store, op.Next)
	}
	for _, h := range w.heads {
		q.cursor[h.space.of()] = h.place
	}
	return w.err
}

// take claims ready jobs, from where a walk stands, until op has so many. It writes to log, as bury
// uses values.
func (s *Store) take(op *store.Claim, c *claim, w *walk, most int) {
	now := s.group.now
	for h := w.head(); h != nil && len(op.Jobs) < most && now.until(h.place) == 0; h = w.head() {
		switch e, err := h.entry(); {
		case err != nil:
			s.report(h.place, err)
		case e.record.exhausted(op.MaxAttempts):
			why := "the lease of the last attempt ended"
			if e.record.err != "" {
				why += "; before: " + e.record.err
			}
			w.pass(h.place)
			s.bury(e, why)
			op.Buried++
		case len(op.Jobs) >= op.Max-op.Ahead && e.record.isOnLast(op.MaxAttempts):
			return
		default:
			s.log = binary.AppendUvarint(h.place.encode(s.log), e.record.revision)
			op.Jobs = append(op.Jobs, s.lease(e, c, op.Lease))
		}
		h.next()
	}
}

// exhausted says whether a job has had all its attempts.
func (r *record) exhausted(most int) bool {
	most = cmp.Or(r.most, most)
	return most > 0 && r.attempts >= most && len(r.repeat) == 0
}

// isOnLast says whether a job has no attempt left after the next.
func (r *record) isOnLast(most int) bool {
	most = cmp.Or(r.most, most)
	return most > 0 && r.attempts+1 >= most
}

// lease leases a job and returns it.
func (s *Store) lease(e *entry, c *claim, d time.Duration) store.Job {
	l := &lease{
		entry:    *e,
		token:    s.next(&s.tokens),
		end:      later(s.group.now.store, d),
		attempts: e.record.attempts + 1,
		claim:    c,
	}
	c.open++
	s.leases[e.place.seq] = l
	heap.Push(&e.queue.leases, l)
	j := s.job(e, l, s.group.now)
	l.loaded = false
	l.record = record{id: e.record.id, moved: e.record.moved, retain: e.record.retain,
		key: e.record.key}
	return j
}

func later(at int64, d time.Duration) int64 {
	if end := at + int64(d); end >= at || d < 0 {
		return end
	}
	return never
}

// nextOf returns how long it is until q may have something to claim, if w stands at the first job
// that is not leased.
func (s *Store) nextOf(q *queue, w *walk, now moment) time.Duration {
	next := time.Duration(-1)
	earlier := func(d time.Duration) {
		if next < 0 || d < next {
			next = d
		}
	}
	w.head()
	for _, h := range w.heads {
		if h.ok {
			earlier(now.until(h.place))
		}
	}
	if len(q.leases) > 0 {
		earlier(time.Duration(max(q.leases[0].end-now.store, 0)))
	}
	return next
}

// returnEnded returns jobs whose leases have ended.
func (s *Store) returnEnded(q *queue) error {
	for len(q.leases) > 0 && q.leases[0].end <= s.group.now.store {
		l := q.leases[0]
		if err := s.load(&l.entry); err != nil {
			s.unlease(l)
			return err
		}
		s.unlease(l)
		l.record.attempts = l.attempts
		s.rewrite(&l.entry)
	}
	return nil
}

// unlease ends a lease. Its job is where it was.
func (s *Store) unlease(l *lease) {
	delete(s.leases, l.place.seq)
	heap.Remove(&l.queue.leases, l.index)
	if l.claim.open--; l.claim.open == 0 {
		s.delete1(seqKey(s.keys[:0], keyClaim, l.claim.number))
	}
}

// leased returns the lease that a token is of.
func (s *Store) leased(queue string, id store.ID, token uint64) (*lease, error) {
	seq, err := s.seqOf(id)
	if err != nil {
		return nil, err
	}
	l := s.leases[seq]
	if l == nil || l.queue.name != queue || l.token != token || l.id() != id {
		return nil, store.ErrLeaseLost
	}
	return l, nil
}

func (s *Store) extend(op *store.Extend) error {
	l, err := s.leased(op.Queue, op.ID, op.Token)
	if err != nil {
		return err
	}
	l.end = later(s.group.now.store, op.Lease)
	heap.Fix(&l.queue.leases, l.index)
	s.wake(l.queue, l.end) // it may be earlier than before
	return nil
}

func (s *Store) finish(op *store.Finish) error {
	l, err := s.leased(op.Queue, op.ID, op.Token)
	if err != nil {
		return err
	}
	e := &l.entry
	if op.Verdict == store.Ack && e.record.retain <= 0 {
		s.unlease(l)
		s.remove(e)
		return nil
	}
	if err := s.load(e); err != nil {
		return err
	}
	r := &e.record
	r.attempts = l.attempts
	switch op.Verdict {
	case store.Ack:
		s.unlease(l)
		s.end(e, done)
	case store.Retry:
		s.unlease(l)
		r.err = op.Error
		s.moveTo(e, op.When)
	case store.Snooze:
		s.unlease(l)
		r.attempts--
		s.moveTo(e, op.When)
	case store.Bury:
		s.unlease(l)
		s.bury(e, op.Error)
	case store.Again:
		if op.Failed {
			copied := &entry{queue: e.queue, place: place{space: dead, at: s.group.now.ms()},
				record: *r}
			c := &copied.record
			c.id, c.moved, c.key, c.repeat = 0, false, "", nil
			c.err, c.was = op.Error, e.place
			if err := s.newSeq(&copied.place); err != nil {
				return err
			}
			s.put(copied)
		}
		s.unlease(l)
		r.err = op.Error
		r.attempts = 0
		r.repeat = op.Repeat
		s.moveTo(e, op.When)
	default:
		return errors.New("unknown verdict")
	}
	return nil
}
