package pebblestore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Get implements store.Store.
func (s *Store) Get(_ context.Context, queue string, ref store.Ref) (store.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.useLocked(); err != nil {
		return store.Job{}, err
	}
	defer s.users.Done()
	e, err := s.find(s.queues[queue], ref)
	if err == nil {
		err = s.load(e)
	}
	if err != nil {
		return store.Job{}, err
	}
	return s.job(e, s.leases[e.place.seq], s.clock.now()), nil
}

// job returns a job for a caller. It shares the memory of the record.
func (s *Store) job(e *entry, l *lease, now moment) store.Job {
	r, p := &e.record, e.place
	j := store.Job{
		ID:          e.id(),
		Queue:       e.queue.name,
		Key:         r.key,
		Body:        r.body,
		State:       store.Delayed,
		Priority:    p.priority,
		Attempts:    r.attempts,
		MaxAttempts: r.most,
		Added:       s.clock.shown(elapsed, r.added),
		Retain:      r.retain,
		Repeat:      r.repeat,
		LastError:   r.err,
	}
	switch {
	case !p.space.live():
		j.Finished = s.clock.shown(p.space, p.at)
		if j.State = store.Dead; p.space == done {
			j.State = store.Done
		}
		p = r.was
		j.Priority = p.priority
	case l != nil:
		j.State = store.Leased
		j.Attempts = l.attempts
		j.Token = l.token
		j.LeaseEnd = time.Unix(0, l.end+s.clock.offset*1e6).UTC()
	case now.until(p) == 0:
		j.State = store.Ready
	}
	j.Due = s.clock.shown(p.space, p.at)
	return j
}

// A cursor is what the last job of a page sorted by: the time shown, priority and sequence number.

func cursorOf(at int64, p place) store.Cursor {
	p.at = uint64(max(at, 0))
	return store.Cursor(hex.EncodeToString(p.order(nil)))
}

// start returns the place from which a page goes on in a space.
func start(after store.Cursor, sp space, offset int64) (place, error) {
	if after == "" {
		return place{space: sp}, nil
	}
	b, err := hex.DecodeString(string(after))
	if err != nil || len(b) != orderSize {
		return place{}, fmt.Errorf("not a cursor: %q", after)
	}
	p := decodePlace(append([]byte{byte(sp)}, b...))
	if sp != instant {
		p.at = uint64(max(int64(p.at)-offset, 0))
	}
	if p.seq++; p.seq == 0 {
		p.at++
	}
	return p, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, queue string, state store.State, after store.Cursor,
	limit int) ([]store.Job, store.Cursor, error) {
	s.mu.Lock()
	if err := s.useLocked(); err != nil {
		s.mu.Unlock()
		return nil, "", err
	}
	defer s.users.Done()
	q, now := s.queues[queue], s.clock.now()
	if q == nil {
		s.mu.Unlock()
		return nil, "", nil
	}
	w := &walk{s: s, offset: s.clock.offset}
	defer w.close()
	for _, sp := range spacesOf(state) {
		from, err := start(after, sp, w.offset)
		if err != nil {
			s.mu.Unlock()
			return nil, "", err
		}
		if state == store.Delayed {
			if first := now.in(sp) + 1; from.at < first {
				from = place{space: sp, at: first}
			}
		}
		to := uint64(maxAt)
		if state == store.Ready {
			to = now.in(sp)
		}
		w.open(q, sp, from, to)
	}
	if state == store.Leased {
		defer s.mu.Unlock()
		return s.listLeased(q, after, limit, now)
	}
	s.mu.Unlock()

	var jobs []store.Job
	var last store.Cursor
	for h := w.head(); h != nil; h = w.head() {
		if len(jobs)%256 == 0 && ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		e, err := h.entry()
		if err != nil {
			s.report(h.place, err)
		} else if s.listed(e, now) {
			if len(jobs) == limit {
				return jobs, last, nil
			}
			s.mu.Lock()
			jobs = append(jobs, s.job(e, nil, now))
			s.mu.Unlock()
			last = cursorOf(h.due, h.place)
		}
		h.next()
	}
	return jobs, "", w.err
}

// listed says whether a job that a List came upon is still in the state.
func (s *Store) listed(e *entry, now moment) bool {
	if !e.place.space.live() {
		return !e.expired(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[e.place.seq] == nil
}

func spacesOf(state store.State) []space {
	switch state {
	case store.Delayed, store.Ready:
		return []space{elapsed, instant}
	case store.Dead:
		return []space{dead}
	case store.Done:
		return []space{done}
	}
	return nil
}

// in returns the time of a space's clock in milliseconds.
func (m moment) in(sp space) uint64 {
	if sp == instant {
		return uint64(max(m.wall, 0)) / 1e6
	}
	return m.ms()
}

func (s *Store) listLeased(q *queue, after store.Cursor, limit int, now moment) (jobs []store.Job,
	last store.Cursor, err error) {
	type leased struct {
		*lease
		cursor store.Cursor
	}
	var all []leased
	for _, l := range q.leases {
		c := cursorOf(l.place.space.inWall(l.place.at, s.clock.offset), l.place)
		if c > after {
			all = append(all, leased{l, c})
		}
	}
	slices.SortFunc(all, func(a, b leased) int { return cmp.Compare(a.cursor, b.cursor) })
	for i, l := range all {
		if i == limit {
			return jobs, last, nil
		}
		e := l.entry
		if err := s.load(&e); err != nil {
			return nil, "", err
		}
		jobs = append(jobs, s.job(&e, l.lease, now))
		last = l.cursor
	}
	return jobs, "", nil
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	if err := s.expireAll(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.useLocked(); err != nil {
		return nil, err
	}
	defer s.users.Done()
	now := s.clock.now()
	var infos []store.QueueInfo
	for _, q := range s.sortedQueues() {
		for all := false; !all; {
			var err error
			if all, err = s.countReady(q, now); err != nil {
				return nil, err
			}
			if !all {
				s.mu.Unlock() // a group may pass
				s.mu.Lock()
				if s.closed {
					return nil, store.ErrClosed
				}
			}
		}
		if !q.paused && q.limits == (store.Limits{}) && q.live+q.dead+q.done == 0 {
			continue
		}
		info := store.QueueInfo{
			Name:   q.name,
			Paused: q.paused,
			Limits: q.limits,
			Ready:  q.counted[0].n + q.counted[1].n - len(q.leases),
			Leased: len(q.leases),
			Dead:   q.dead,
			Done:   q.done,
			Bytes:  q.bytes,
			Next:   -1,
		}
		info.Delayed = q.live - info.Leased - info.Ready
		if err := s.addNext(q, &info, now); err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	for name, n := range s.namespaces {
		if n.limits != (store.Limits{}) {
			infos = append(infos, store.QueueInfo{Name: name, Limits: n.limits, Next: -1})
		}
	}
	slices.SortFunc(infos, func(a, b store.QueueInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos, ctx.Err()
}

func (s *Store) sortedQueues() []*queue {
	var list []*queue
	for _, q := range s.numbered {
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *queue) int { return cmp.Compare(a.number, b.number) })
	return list
}

// addNext completes Next and Oldest.
func (s *Store) addNext(q *queue, info *store.QueueInfo, now moment) error {
	w, err := s.walk(q)
	if err != nil {
		return err
	}
	defer w.close()
	info.Next = s.nextOf(q, w, now)
	if q.paused {
		info.Next = -1
	}
	if h := w.head(); h != nil && info.Ready > 0 {
		info.Oldest = time.Duration(now.wall - h.due*1e6)
	}
	return w.err
}

// Due implements store.Store. It reads the keys of all the jobs that it counts.
func (s *Store) Due(ctx context.Context, queue string, ends []time.Duration) ([]int, error) {
	counts := make([]int, len(ends))
	s.mu.Lock()
	if err := s.useLocked(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	defer s.users.Done()
	q, now := s.queues[queue], s.clock.now()
	if q == nil || len(ends) == 0 {
		s.mu.Unlock()
		return counts, nil
	}
	leased := make(map[uint64]bool, len(q.leases))
	for _, l := range q.leases {
		leased[l.place.seq] = true
	}
	var scans []*scan
	var err error
	for _, sp := range []space{elapsed, instant} {
		c, e := s.newScan(bounds(q, sp))
		if err = errors.Join(err, e); e == nil {
			scans = append(scans, c)
		}
	}
	s.mu.Unlock()
	for _, c := range scans {
		if err == nil {
			err = countDue(ctx, c, leased, now, ends, counts)
		}
		err = errors.Join(err, c.close())
	}
	return counts, err
}

func countDue(ctx context.Context, c *scan, leased map[uint64]bool, now moment,
	ends []time.Duration, counts []int) error {
	i, n := 0, 0
	for ok := c.first(); ok; ok = c.next() {
		p, err := placeOf(c.last)
		if err != nil {
			return err
		}
		if n++; n%countStep == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for now.until(p) > ends[i] {
			if i++; i == len(ends) {
				return nil
			}
		}
		if !leased[p.seq] {
			counts[i]++
		}
	}
	return nil
}
