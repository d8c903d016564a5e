package pebblestore

import (
	"errors"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// What callers do to jobs, apart from working on them. mu is locked in all of it.

func (s *Store) add(op *store.Add) error {
	op.ID, op.Kept = 0, false
	j := &op.Job
	if len(j.Body) > maxSize || len(j.Key) > maxSize || len(j.Repeat) > maxSize {
		return store.ErrTooLarge
	}
	if j.ID != 0 {
		if again, err := s.choose(op); again || err != nil {
			return err
		}
	}
	q := s.queue(j.Queue)
	old, err := s.byKey(q, j.Key)
	if err != nil {
		return err
	}
	if old != nil {
		switch op.On {
		case store.Keep:
			op.ID, op.Kept = old.id(), true
			s.confirm()
			return nil
		case store.Fail:
			return store.ErrKeyExists
		}
	}
	victims, err := s.makeRoom(q, old, len(j.Body)+len(j.Key))
	if err != nil {
		return err
	}
	e := &entry{queue: q}
	e.place.space, e.place.at = s.group.now.due(op.When)
	e.place.priority = j.Priority
	e.record = record{
		id:     j.ID,
		most:   max(j.MaxAttempts, 0),
		added:  s.group.now.ms(),
		retain: j.Retain,
		key:    j.Key,
		repeat: j.Repeat,
		body:   j.Body,
	}
	if err := s.newSeq(&e.place); err != nil {
		return err
	}
	for _, v := range victims {
		s.bury(v, "dropped to make room")
	}
	if old != nil {
		s.cancelEntry(old)
	}
	s.put(e)
	op.ID = e.id()
	if j.ID != 0 {
		s.set1(seqKey(s.keys[:0], keyChosen, uint64(j.ID)), append64(s.values[:0], e.place.seq))
		s.group.touch(uint64(j.ID))
		s.hasChosen = true
	}
	return nil
}

// maxSize is what a batch of Pebble bears with ease. Package jobqueue has a limit of its own.
const maxSize = 256 << 20

// choose says whether an Add with a chosen ID was carried out before.
func (s *Store) choose(op *store.Add) (again bool, err error) {
	if err := s.flush(); err != nil {
		return false, err
	}
	if s.hasChosen {
		seq, err := s.chosen(op.Job.ID)
		if err != nil {
			return false, err
		}
		if seq != 0 && op.Retry {
			op.ID = op.Job.ID
			s.confirm()
			return true, nil
		}
	}
	for _, q := range s.numbered {
		switch _, err := s.byID(q, op.Job.ID); {
		case err == nil:
			return false, store.ErrKeyExists
		case err != store.ErrNotFound:
			return false, err
		}
	}
	return false, nil
}

// confirm has the group synced although it may write nothing: what was found must be durable.
func (s *Store) confirm() { _ = s.group.batch.LogData(nil, nil) }

func (s *Store) cancel(op *store.Cancel) error {
	e, err := s.find(s.queues[op.Queue], op.Ref)
	if err != nil {
		return err
	}
	if e.place.space == done {
		return store.ErrNotFound
	}
	op.ID = e.id()
	op.Running = s.cancelEntry(e)
	return nil
}

// cancelEntry removes a job, and says whether it was leased.
func (s *Store) cancelEntry(e *entry) (leased bool) {
	if l := s.leases[e.place.seq]; l != nil {
		s.unlease(l)
		leased = true
	}
	s.remove(e)
	return leased
}

// pending returns a job that is Delayed or Ready, with its record.
func (s *Store) pending(name string, ref store.Ref) (*entry, error) {
	e, err := s.find(s.queues[name], ref)
	switch {
	case err != nil:
		return nil, err
	case !e.place.space.live():
		return nil, store.ErrNotFound
	case s.leases[e.place.seq] != nil:
		return nil, store.ErrLeased
	}
	return e, s.load(e)
}

func (s *Store) reschedule(op *store.Reschedule) error {
	e, err := s.pending(op.Queue, op.Ref)
	if err == nil {
		s.moveTo(e, op.When)
	}
	return err
}

// moveTo makes a job due at another time.
func (s *Store) moveTo(e *entry, w store.When) {
	to := place{priority: e.place.priority}
	if !e.place.space.live() {
		to.priority = e.record.was.priority
		e.record.was = place{}
	}
	to.space, to.at = s.group.now.due(w)
	s.move(e, to)
}

// bury makes a job Dead.
func (s *Store) bury(e *entry, why string) {
	e.record.err = why
	s.end(e, dead)
}

// end makes a live job Dead or Done.
func (s *Store) end(e *entry, as space) {
	e.record.was = e.place
	s.move(e, place{space: as, at: s.group.now.ms()})
}

func (s *Store) update(op *store.Update) error {
	if len(op.Body) > maxSize {
		return store.ErrTooLarge
	}
	e, err := s.pending(op.Queue, op.Ref)
	if err != nil {
		return err
	}
	if grown := int64(len(op.Body) - len(e.record.body)); grown > 0 {
		for _, sc := range e.queue.scopes() {
			if sc.limits.Bytes > 0 && sc.bytes+grown > sc.limits.Bytes {
				return store.ErrFull
			}
		}
	}
	e.record.body = op.Body
	s.rewrite(e)
	return nil
}

// rewrite writes another record of a job to the same place.
func (s *Store) rewrite(e *entry) { s.move(e, e.place) }

func (s *Store) requeue(op *store.Requeue) error {
	op.N = 0
	q := s.queues[op.Queue]
	if op.Ref != (store.Ref{}) {
		e, err := s.find(q, op.Ref)
		if err == nil && e.place.space != dead {
			err = store.ErrNotFound
		}
		if err == nil {
			err = s.revive(e)
		}
		if err == nil {
			op.N = 1
		}
		return err
	}
	return s.each(q, dead, func(e *entry) (more bool, err error) {
		if op.N >= op.Max {
			return false, nil
		}
		if err := s.revive(e); err == nil {
			op.N++
		} else if err != store.ErrKeyExists {
			return false, err
		}
		return true, nil
	})
}

// revive makes a dead job ready.
func (s *Store) revive(e *entry) error {
	other, err := s.byKey(e.queue, e.record.key)
	if err != nil {
		return err
	}
	if other != nil {
		return store.ErrKeyExists
	}
	e.record.attempts = 0
	s.moveTo(e, store.When{})
	return nil
}

func (s *Store) purge(op *store.Purge) error {
	op.N = 0
	q := s.queues[op.Queue]
	remove := func(e *entry) (more bool, err error) {
		if op.N >= op.Max {
			return false, nil
		}
		s.remove(e)
		op.N++
		return true, nil
	}
	switch op.State {
	case store.Dead:
		return s.each(q, dead, remove)
	case store.Done:
		return s.each(q, done, remove)
	case store.Delayed, store.Ready:
		return s.eachPending(q, op.State == store.Ready, remove)
	}
	return nil
}

// each calls f for the jobs of a queue that are Dead or Done, by when they ended.
func (s *Store) each(q *queue, sp space, f func(*entry) (more bool, err error)) error {
	if q == nil {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	c, err := s.newScan(bounds(q, sp))
	if err != nil {
		return err
	}
	more := true
	for ok := c.first(); ok && more && err == nil; ok = c.next() {
		e := &entry{queue: q}
		var v []byte
		if e.place, err = placeOf(c.last); err == nil {
			v, err = c.copied()
		}
		if err == nil {
			err = e.decode(v)
		}
		if err != nil {
			s.report(e.place, err)
			err = nil
			continue
		}
		more, err = f(e)
	}
	return errors.Join(err, c.close())
}

// bounds returns where the keys of a queue in a space begin and end.
func bounds(q *queue, sp space) (lower, upper []byte) {
	return prefix(nil, byte(sp), q.number), place{space: sp, at: maxAt, priority: 255,
		seq: 1<<64 - 1}.key(nil, q.number)
}

// eachPending calls f for the jobs of a queue that are Ready or Delayed, in the order of claims.
func (s *Store) eachPending(q *queue, ready bool, f func(*entry) (more bool, err error)) error {
	if q == nil {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	w, err := s.walk(q)
	if err != nil {
		return err
	}
	defer w.close()
	more := true
	for h := w.head(); h != nil && more && err == nil; h = w.head() {
		isReady := s.group.now.until(h.place) == 0
		if ready && !isReady {
			break
		}
		if isReady == ready {
			e, bad := h.entry()
			if bad != nil {
				s.report(h.place, bad)
			} else {
				more, err = f(e)
			}
		}
		h.next()
	}
	return errors.Join(err, w.err)
}
