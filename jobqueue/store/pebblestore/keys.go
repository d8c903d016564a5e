package pebblestore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// An entry is a job on its way from one place to another. Unless it is loaded, of its record only
// key, moved and id are known.
type entry struct {
	queue  *queue
	place  place
	record record
	size   int // of body and key
	loaded bool
}

// decode sets the record, which shares the memory of v.
func (e *entry) decode(v []byte) (err error) {
	e.record, err = decodeRecord(v, e.place)
	e.size = e.record.size()
	e.loaded = true
	return err
}

// load reads the record of a job unless it is known.
func (s *Store) load(e *entry) error {
	if e.loaded {
		return nil
	}
	v, err := s.get(e.place.key(make([]byte, 0, 32), e.queue.number))
	if err != nil {
		return err
	}
	if v == nil {
		return fmt.Errorf("%w: the record of job %v is missing", store.ErrCorrupt, e.id())
	}
	return e.decode(v)
}

// find returns the job of a Ref, or ErrNotFound.
func (s *Store) find(q *queue, ref store.Ref) (*entry, error) {
	if q == nil {
		return nil, store.ErrNotFound
	}
	if l := s.group.ahead; l != nil && !s.hasChosen && l.queue == q && l.ref == ref &&
		s.group.current(l) {
		return l.entry, l.err
	}
	if ref.ID != 0 {
		return s.byID(q, ref.ID)
	}
	e, err := s.byKey(q, ref.Key)
	if e == nil && err == nil {
		err = store.ErrNotFound
	}
	return e, err
}

// byKey returns the live job with a key, or nil. Its record is not read.
func (s *Store) byKey(q *queue, key string) (*entry, error) {
	h := hash(q, key)
	if key == "" || !s.filter.has(h) {
		return nil, nil
	}
	if err := s.flushIf(h); err != nil {
		return nil, err
	}
	return s.readKey(q, key)
}

// byID returns the job with an ID, with its record.
func (s *Store) byID(q *queue, id store.ID) (*entry, error) {
	seq, err := s.seqOf(id)
	if err != nil {
		return nil, err
	}
	if err := s.flushIf(seq); err != nil {
		return nil, err
	}
	return s.readID(q, id, seq)
}

// readKey is byKey without a look at the filter and the group. mu need not be locked.
func (s *Store) readKey(q *queue, key string) (*entry, error) {
	v, err := s.get(keyOf(make([]byte, 0, 64), q.number, key))
	if v == nil || err != nil {
		return nil, err
	}
	k, err := decodeKeyed(v)
	if err != nil {
		return nil, err
	}
	e := &entry{queue: q, place: k.place, size: k.size}
	e.record.key = key
	e.record.moved = k.moved
	if k.chosen {
		return e, s.load(e)
	}
	return e, nil
}

// readID is byID of a job whose sequence number is known. mu need not be locked.
func (s *Store) readID(q *queue, id store.ID, seq uint64) (*entry, error) {
	p, ok, err := s.placeAdded(seq)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 0, 32)
	var v []byte
	if ok {
		v, err = s.get(p.key(buf, q.number))
	}
	if v == nil && err == nil {
		if v, err = s.get(seqKey(buf, keyMoved, seq)); len(v) == placeSize {
			p = decodePlace(v)
			v, err = s.get(p.key(buf, q.number))
		}
	}
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, store.ErrNotFound
	}
	e := &entry{queue: q, place: p}
	if err := e.decode(v); err != nil {
		return nil, err
	}
	if e.id() != id || e.expired(s.clock.now()) {
		return nil, store.ErrNotFound
	}
	return e, nil
}

// seqOf returns the sequence number of the job that has an ID, if there is one.
func (s *Store) seqOf(id store.ID) (uint64, error) {
	if s.hasChosen {
		if err := s.flushIf(uint64(id)); err != nil {
			return 0, err
		}
		v, err := s.chosen(id)
		if err != nil || v != 0 {
			return v, err
		}
	}
	return uint64(id), nil
}

// chosen returns the sequence number of the job whose ID was chosen by a caller, or 0.
func (s *Store) chosen(id store.ID) (uint64, error) {
	v, err := s.get(seqKey(s.keys[:0], keyChosen, uint64(id)))
	if len(v) != 8 || err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

func (e *entry) id() store.ID {
	if e.record.id != 0 {
		return e.record.id
	}
	return store.ID(e.place.seq)
}

// flushIf makes what the group wrote of a hash or a sequence number readable.
func (s *Store) flushIf(h uint64) error {
	if !s.group.touched(h) {
		return nil
	}
	return s.flush()
}

var seed = maphash.MakeSeed()

func hash(q *queue, key string) uint64 {
	return maphash.String(seed, key) ^ uint64(q.number)*0x9e3779b97f4a7c15
}

// move takes a job from its place to another one, or to the same with another record.
func (s *Store) move(e *entry, to place) {
	to.seq = e.place.seq
	s.drop(e)
	e.record.moved = e.record.moved || to != e.place
	e.record.revision++
	e.place = to
	s.put(e)
}

// remove forgets a job.
func (s *Store) remove(e *entry) {
	s.drop(e)
	if s.ranges.remove(e.place.seq) {
		s.dropRange(e.place.seq)
	}
}

// put writes the record of a job that was dropped, or is new.
func (s *Store) put(e *entry) {
	g, q, p, r := &s.group, e.queue, e.place, &e.record
	e.size = r.size()
	s.set1(p.key(s.keys[:0], q.number), r.encode(s.values[:0]))
	if r.moved {
		s.set1(seqKey(s.keys[:0], keyMoved, p.seq), p.encode(s.values[:0]))
	}
	g.touch(p.seq)
	s.count(q, p, e.size, 1)
	if p.space == done {
		s.set1(expiryKey(s.keys[:0], q.number, p, r.retain), nil)
		s.expiry = min(s.expiry, endOf(p, r.retain))
	}
	if !p.space.live() {
		return
	}
	if r.key != "" {
		h := hash(q, r.key)
		s.filter.add(h)
		g.touch(h)
		k := keyed{chosen: r.id != 0, moved: r.moved, size: e.size, place: p}
		s.set1(keyOf(s.keys[:0], q.number, r.key), k.encode(s.values[:0]))
	}
	q.unapplied = g.part
	i := p.space.of()
	q.cursor[i], q.fresh[i] = first(q.cursor[i], p), first(q.fresh[i], p)
	s.wake(q, g.now.store+int64(g.now.until(p)))
}

// drop deletes a job from where it is. The record of one that is Done has to be loaded.
func (s *Store) drop(e *entry) {
	g, q, p, r := &s.group, e.queue, e.place, &e.record
	s.delete1(p.key(s.keys[:0], q.number))
	if r.moved {
		s.delete1(seqKey(s.keys[:0], keyMoved, p.seq))
	}
	g.touch(p.seq)
	s.count(q, p, e.size, -1)
	if p.space == done {
		s.delete1(expiryKey(s.keys[:0], q.number, p, r.retain))
	}
	if !p.space.live() {
		return
	}
	if r.key != "" {
		h := hash(q, r.key)
		s.filter.remove(h)
		g.touch(h)
		s.delete1(keyOf(s.keys[:0], q.number, r.key))
	}
	if !p.before(q.cursor[p.space.of()]) {
		q.unapplied = g.part // a claim must not find it
	}
}

// before says whether a place comes before another of its space.
func (p place) before(o place) bool {
	return cmp.Or(cmp.Compare(p.at, o.at), cmp.Compare(p.priority, o.priority),
		cmp.Compare(p.seq, o.seq)) < 0
}

func first(p, o place) place {
	if o.before(p) {
		return o
	}
	return p
}

func last(p, o place) place {
	if p.before(o) {
		return o
	}
	return p
}
