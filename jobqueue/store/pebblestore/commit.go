package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// A group is what a call of Do writes. It is applied in parts if an operation has to read what an
// earlier one of the group wrote; most are one part. Nothing is taken back from a part: an
// operation reads what it needs, and fails if it must, before it writes. Guarded by Store.mu.
type group struct {
	now     moment
	batch   *pebble.Batch
	part    uint32 // the number of the part being built
	stamps  [1 << 16]uint32
	meta    bool   // the record s has changed
	first   uint64 // the sequence number of the first of places
	places  []byte // of jobs added, for i
	durable bool   // someone waits for the group to be synced
	applied bool   // a part was applied
	queues  []*queue
	woken   []*queue
	ahead   *lookup // for the operation under way, or nil
}

// touch remembers that the part writes what belongs to a hash or a sequence number. touched may say
// so without reason, which costs one part more.
func (g *group) touch(h uint64)        { g.stamps[h&0xffff] = g.part }
func (g *group) touched(h uint64) bool { return g.stamps[h&0xffff] == g.part }

// Do implements store.Store.
func (s *Store) Do(_ context.Context, ops []store.Op) error {
	if err := s.room(); err != nil {
		return err
	}
	s.mu.Lock()
	if err := s.useLocked(); err != nil {
		s.mu.Unlock()
		return err
	}
	defer s.users.Done()
	ahead := s.lookupsLocked(ops)
	if len(ahead) > 0 {
		s.mu.Unlock()
		s.readAhead(ahead)
		s.mu.Lock()
	}
	s.begin()
	s.expire(expireMost)
	for i, op := range ops {
		if len(ahead) > 0 && ahead[0].op == i {
			s.group.ahead, ahead = &ahead[0], ahead[1:]
		}
		op.Outcome().Err = s.carryOut(op)
		s.group.ahead = nil
	}
	return s.commit()
}

func (s *Store) carryOut(op store.Op) error {
	g := &s.group
	switch op := op.(type) {
	case *store.Claim:
		return s.claim(op)
	case *store.Extend:
		return s.extend(op)
	case *store.Finish:
		g.durable = g.durable || !op.Lazy
		return s.finish(op)
	}
	g.durable = true
	switch op := op.(type) {
	case *store.Add:
		return s.add(op)
	case *store.Cancel:
		return s.cancel(op)
	case *store.Reschedule:
		return s.reschedule(op)
	case *store.Update:
		return s.update(op)
	case *store.Requeue:
		return s.requeue(op)
	case *store.Purge:
		return s.purge(op)
	case *store.Configure:
		return s.configure(op)
	}
	return fmt.Errorf("unknown operation %T", op)
}

// begin starts a group. mu is locked, and commit unlocks it.
func (s *Store) begin() {
	g := &s.group
	g.batch = s.db.NewBatch()
	g.part++
	g.durable, g.applied = false, false
	if g.now, g.meta = s.clock.read(); g.meta {
		for _, q := range s.numbered {
			q.counted[1], q.fresh[1] = counted{}, place{} // it may have been stepped back
			q.announced = never
			s.wake(q, g.now.store)
		}
	}
}

// flush applies what the group has written so far, so that it can be read.
func (s *Store) flush() error {
	g := &s.group
	s.finishPart()
	if g.batch.Empty() {
		return nil
	}
	g.applied = true
	err := s.apply(g.batch, false)
	g.batch.Reset()
	g.part++
	return err
}

// commit applies the group, unlocks mu, and waits until the group is stored.
func (s *Store) commit() error {
	g := &s.group
	s.finishPart()
	if g.applied && g.batch.Empty() {
		s.confirm() // the earlier parts have to be synced
	}
	b, durable := g.batch, g.durable && s.set.every == 0
	g.batch = nil
	g.part++ // what the group wrote is read from the database from now on
	var err error
	if f := s.failed.Load(); f != nil {
		err = *f
	} else if !b.Empty() {
		g.applied = true
		if durable {
			s.disk.waiting.Add(1)
			defer s.disk.waiting.Add(-1)
		}
		err = s.apply(b, true)
	}
	applied := g.applied
	wake, woken := s.watch, s.wakesLocked()
	s.mu.Unlock()

	if wake != nil && err == nil {
		for _, w := range woken {
			wake(w.queue, w.in)
		}
	}
	if err == nil && !b.Empty() {
		err = b.SyncWait()
		if f := s.failed.Load(); f != nil {
			err = *f
		} else if err != nil {
			s.fail(err)
		}
	}
	b.Close()
	if err != nil && applied {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	if applied && s.set.every > 0 {
		s.syncLater()
	}
	return err
}

// finishPart writes what is written once for the part.
func (s *Store) finishPart() {
	g := &s.group
	s.endPlaces()
	for _, q := range g.queues {
		q.changed = false
		s.set1(prefix(s.keys[:0], keyCounts, q.number), q.encodeCounts(s.values[:0], g.now.ms()))
	}
	g.queues = g.queues[:0]
	if g.meta {
		g.meta = false
		v := append64(append64(s.values[:0], s.seq.reserved), s.tokens.reserved)
		s.set1(append(s.keys[:0], keyMeta), append64(v, uint64(s.clock.offset)))
	}
}

// apply turns what Pebble answers to a broken log with, a panic or Logger.Fatalf, into an error.
func (s *Store) apply(b *pebble.Batch, sync bool) (err error) {
	if f := s.failed.Load(); f != nil {
		return *f
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			s.fail(err)
			err = *s.failed.Load()
		}
	}()
	if sync {
		return s.db.ApplyNoSyncWait(b, pebble.Sync)
	}
	return s.db.Apply(b, pebble.NoSync)
}

// set1 and delete1 write to the batch what was encoded in keys and values. Their errors are those
// of a batch that was closed.
func (s *Store) set1(key, value []byte) {
	_ = s.group.batch.Set(key, value, nil)
	s.keep(key, value)
}

func (s *Store) delete1(key []byte) {
	_ = s.group.batch.SingleDelete(key, nil)
	s.keep(key, nil)
}

// keep keeps buffers that have grown, unless they have grown a lot.
func (s *Store) keep(key, value []byte) {
	if cap(key) > cap(s.keys) && cap(key) < 1<<16 {
		s.keys = key
	}
	if cap(value) > cap(s.values) && cap(value) < 1<<16 {
		s.values = value
	}
}

// next returns the next number.
func (s *Store) next(c *counter) uint64 {
	c.last++
	if c.last > c.reserved {
		c.reserved = c.last + reserve
		s.group.meta = true
	}
	return c.last
}

// reserve is how many numbers are reserved at a time: so many that it costs nothing, so few that
// ids stay short for those who open and close a store often.
const reserve = 4096

// newSeq returns the sequence number of a job that is added at a place, which it completes, and
// notes it for i.
func (s *Store) newSeq(p *place) error {
	seq := s.next(&s.seq)
	for s.hasChosen {
		taken, err := s.get(seqKey(s.keys[:0], keyChosen, seq))
		if err != nil {
			return err
		}
		if taken == nil {
			break
		}
		seq = s.next(&s.seq)
	}
	p.seq = seq
	g := &s.group
	n := uint64(len(g.places)) / idsEntry
	if n == idsMost || n > 0 && (seq != g.first+n || seq%rangeSize == 0) {
		s.endPlaces()
	}
	if len(g.places) == 0 {
		g.first = seq
	}
	g.places = append(append48(append(g.places, byte(p.space)), p.at), p.priority)
	s.ranges.add(seq)
	return nil
}

const (
	idsEntry = 8   // bytes of a job in i
	idsMost  = 256 // jobs of an entry in i: what one lookup has to read at most
)

func (s *Store) endPlaces() {
	g := &s.group
	if len(g.places) > 0 {
		_ = g.batch.Set(seqKey(s.keys[:0], keyIDs, g.first), g.places, nil)
		g.places = g.places[:0]
	}
}

// placeAdded returns where a job was added, by its entry in i.
func (s *Store) placeAdded(seq uint64) (p place, ok bool, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: seqKey(nil, keyIDs, seq-min(seq, idsMost-1)),
		UpperBound: seqKey(nil, keyIDs, seq+1),
	})
	if err != nil {
		return p, false, readError(err)
	}
	if it.Last() {
		v, _ := it.ValueAndErr()
		at := (seq - binary.BigEndian.Uint64(it.Key()[1:])) * idsEntry
		if ok = at+idsEntry <= uint64(len(v)); ok {
			v = v[at:]
			p = place{space(v[0]), get48(v[1:]), v[7], seq}
		}
	}
	return p, ok, readError(it.Close())
}

// A woken queue is told to the watcher.
type woken struct {
	queue string
	in    time.Duration
}

// wakesLocked returns what the watcher has to be told.
func (s *Store) wakesLocked() (list []woken) {
	g := &s.group
	for _, q := range g.woken {
		if q.soonest < q.announced && !q.paused {
			q.announced = q.soonest
			list = append(list, woken{q.name, time.Duration(max(q.soonest-g.now.store, 0))})
		}
		q.soonest = never
	}
	g.woken = g.woken[:0]
	return list
}

// A stall holds callers back while more memtables wait to be written than memory should hold.
type stall struct {
	tables    atomic.Int64          // memtables that are not written, roughly
	flushed   atomic.Bool           // one was written since sublevels was read
	sublevels atomic.Int64          // tables of level 0 that lie over each other
	failing   atomic.Pointer[error] // writing one failed; Pebble tries again
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced when something changes
}

func (t *stall) wait() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

func (t *stall) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// calmSublevels is how many tables may lie over each other before groups are slowed down, a quarter
// of a millisecond for each more. Reads have to look into all of them.
const calmSublevels = 24

// room waits while more than a few memtables are being written. Pebble would have callers wait for
// ever if that fails; here they get the error. Pebble's own measure is not enough: small memtables
// are not written before there is half a full one.
func (s *Store) room() error {
	t := &s.stall
	for {
		changed := t.wait()
		if err := s.failed.Load(); err != nil {
			return *err
		}
		if t.flushed.Swap(false) {
			t.sublevels.Store(int64(s.metrics().Levels[0].Sublevels))
		}
		if n := t.sublevels.Load() - calmSublevels; n > 0 {
			time.Sleep(time.Duration(min(n, 20)) * time.Millisecond / 4)
		}
		if t.tables.Load() <= mostTables || s.metrics().MemTable.Size <= mostTables*memtableSize {
			return nil
		}
		if err := t.failing.Load(); err != nil {
			return *err
		}
		select {
		case <-changed:
		case <-s.ending:
			return store.ErrClosed
		}
	}
}

func (s *Store) metrics() *pebble.Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &pebble.Metrics{}
	}
	return s.db.Metrics()
}

// syncLater syncs what was written once WithSyncEvery's time is over.
func (s *Store) syncLater() {
	if s.disk.later.Swap(true) {
		return
	}
	time.AfterFunc(s.set.every, func() {
		s.mu.Lock()
		err := s.useLocked()
		s.mu.Unlock()
		if err == nil {
			defer s.users.Done()
			s.syncNow()
		}
	})
}

// syncNow syncs what was written without.
func (s *Store) syncNow() {
	s.disk.later.Store(false)
	s.disk.waiting.Add(1)
	defer s.disk.waiting.Add(-1)
	defer func() {
		if r := recover(); r != nil {
			s.fail(fmt.Errorf("%v", r))
		}
	}()
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		s.fail(err)
	}
}
