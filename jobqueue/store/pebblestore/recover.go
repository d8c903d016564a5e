package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Open opens the store in the directory path, which is made if there is none. It returns an error
// that matches store.ErrLocked, store.ErrNewer or store.ErrCorrupt with errors.Is if that is why it
// cannot. Leases that were held when it was closed, or when its process ended, are over, and their
// attempts count.
func Open(path string, opts ...Option) (*Store, error) {
	s, err := open(path, newSettings(opts))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

func newStore(set settings) *Store {
	s := &Store{
		set:        set,
		ending:     make(chan struct{}),
		clock:      clock{wall: set.wall, mono: set.mono},
		queues:     map[string]*queue{},
		numbered:   map[uint32]*queue{},
		namespaces: map[string]*namespace{},
		leases:     map[uint64]*lease{},
		ranges:     ranges{counts: map[uint64]int{}},
	}
	s.disk = &disk{FS: set.fs, s: s, ending: s.ending}
	return s
}

func open(path string, set settings) (_ *Store, err error) {
	s := newStore(set)
	if err := set.fs.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	if s.lock, err = lockDirectory(path, set.fs); err != nil {
		return nil, err
	}
	if err = s.restoreManifest(path); err == nil {
		if s.db, err = pebble.Open(path, s.options()); err != nil {
			err = openError(err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	if f := s.failed.Load(); f != nil {
		err = *f
	}
	if err == nil {
		err = s.recover()
	}
	if err != nil {
		close(s.ending)
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// lockDirectory locks a directory for this process.
func lockDirectory(path string, in vfs.FS) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(path, in)
	if noFile := (*fs.PathError)(nil); err != nil && !errors.As(err, &noFile) {
		err = fmt.Errorf("%w: %w", store.ErrLocked, err)
	}
	return lock, err
}

func openError(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "unknown format major version"):
		return fmt.Errorf("%w: %w", store.ErrNewer, err)
	case strings.Contains(text, "no longer supported"):
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrCorrupt, readError(err))
}

// recover reads what is held in memory.
func (s *Store) recover() error {
	s.mu.Lock()
	locked := true
	defer func() {
		if locked {
			s.mu.Unlock()
		}
	}()
	if err := s.checkVersion(); err != nil {
		return err
	}
	if v, err := s.get([]byte{keyMeta}); err != nil {
		return err
	} else if v != nil {
		d := decoder{b: v}
		for _, n := range []*uint64{&s.seq.reserved, &s.tokens.reserved} {
			*n = binary.BigEndian.Uint64(d.bytes(8))
		}
		s.clock.offset = int64(binary.BigEndian.Uint64(d.bytes(8)))
		if d.short {
			return fmt.Errorf("%w: the record s is too short", store.ErrCorrupt)
		}
		s.seq.last, s.tokens.last = s.seq.reserved, s.tokens.reserved
	}
	last, err := s.readQueues()
	if err != nil {
		return err
	}
	s.clock.start(last)
	s.begin()
	s.group.durable = true
	if s.clock.offset != 0 {
		s.group.meta = true
	}
	err = errors.Join(s.foldClaims(), s.dropQueues())
	if err == nil {
		s.hasChosen, err = s.has(keyChosen)
	}
	if err != nil {
		s.group.batch.Close()
		return err
	}
	live := 0
	for _, q := range s.numbered {
		live += q.live
	}
	s.filter = newFilter(live + live/4)
	locked = false
	if err := s.commit(); err != nil {
		return err
	}
	return s.rebuild()
}

func (s *Store) checkVersion() error {
	v, err := s.get([]byte{keyVersion})
	if err != nil {
		return err
	}
	if v == nil {
		it, err := s.db.NewIter(nil)
		if err != nil {
			return readError(err)
		}
		foreign := it.First()
		if err := it.Close(); err != nil || foreign {
			return errors.Join(readError(err), fmt.Errorf("%w: not a job queue", store.ErrCorrupt))
		}
		return s.db.Set([]byte{keyVersion}, append([]byte(magic), version), pebble.Sync)
	}
	n := len(magic)
	switch {
	case len(v) != n+1 || string(v[:n]) != magic:
		return fmt.Errorf("%w: not a job queue", store.ErrCorrupt)
	case v[n] > version:
		return fmt.Errorf("%w: version %d, and %d is the newest known", store.ErrNewer, v[n],
			version)
	}
	return nil
}

var errEnough = errors.New("enough")

// scan calls f for the keys of a kind until it returns an error.
func (s *Store) scan(kind byte, f func(k, v []byte) error) error {
	c, err := s.scanKind(kind)
	if err != nil {
		return err
	}
	for ok := c.first(); ok && err == nil; ok = c.next() {
		var v []byte
		if v, err = c.ValueAndErr(); err == nil {
			err = f(c.last, v)
		}
	}
	if err == errEnough {
		err = nil
	}
	return readError(errors.Join(err, c.close()))
}

// has says whether there is a key of a kind.
func (s *Store) has(kind byte) (yes bool, err error) {
	return yes, s.scan(kind, func(_, _ []byte) error {
		yes = true
		return errEnough
	})
}

// readQueues returns when the store was written last.
func (s *Store) readQueues() (last uint64, err error) {
	err = s.scan(keyLimits, func(k, v []byte) error {
		d := decoder{b: v}
		s.namespace(string(k[1:])).limits = d.limits()
		return nil
	})
	err = errors.Join(err, s.scan(keyQueue, func(k, v []byte) error {
		d := decoder{b: v}
		flags, limits := d.byte(), d.limits()
		if d.short || len(k) != 5 {
			return fmt.Errorf("%w: the record of a queue", store.ErrCorrupt)
		}
		q := s.newQueue(binary.BigEndian.Uint32(k[1:]), string(d.b))
		q.paused, q.limits = flags&1 != 0, limits
		s.lastQueue = max(s.lastQueue, q.number)
		return nil
	}))
	return last, errors.Join(err, s.scan(keyCounts, func(k, v []byte) error {
		if len(k) != 5 || s.numbered[binary.BigEndian.Uint32(k[1:])] == nil {
			return nil
		}
		q := s.numbered[binary.BigEndian.Uint32(k[1:])]
		at, ok := q.decodeCounts(v)
		if !ok {
			return fmt.Errorf("%w: the counts of a queue", store.ErrCorrupt)
		}
		last = max(last, at)
		if q.space != nil {
			q.space.live += q.live
			q.space.bytes += q.bytes
		}
		return nil
	}))
}

// foldClaims counts the attempts of leases that were held into the records.
func (s *Store) foldClaims() error {
	return s.scan(keyClaim, func(k, v []byte) error {
		s.claims = binary.BigEndian.Uint64(k[1:])
		s.delete1(k)
		d := decoder{b: v}
		number := binary.BigEndian.Uint32(d.bytes(4))
		for len(d.b) > 0 {
			p := decodePlace(d.bytes(placeSize))
			revision := d.uvarint()
			q := s.numbered[number]
			if d.short || q == nil {
				return fmt.Errorf("%w: the record of a claim", store.ErrCorrupt)
			}
			key := p.key(nil, number)
			v, err := s.get(key)
			if v == nil && err == nil {
				continue
			}
			e := &entry{queue: q, place: p}
			if err == nil {
				err = e.decode(v)
			}
			if err != nil {
				s.report(p, err)
				continue
			}
			if r := &e.record; r.revision == revision {
				r.attempts++
				r.revision++
				s.delete1(key)
				s.set1(key, r.encode(nil))
			}
		}
		return nil
	})
}

// dropQueues forgets queues that hold nothing.
func (s *Store) dropQueues() error {
	for _, q := range s.sortedQueues() {
		if q.live+q.dead+q.done > 0 || q.paused || q.limits != (store.Limits{}) {
			continue
		}
		delete(s.queues, q.name)
		delete(s.numbered, q.number)
		if n := q.space; n != nil {
			n.queues = slices.DeleteFunc(n.queues, func(o *queue) bool { return o == q })
		}
		err := errors.Join(
			s.group.batch.Delete(prefix(nil, keyQueue, q.number), nil),
			s.group.batch.Delete(prefix(nil, keyCounts, q.number), nil))
		if err != nil {
			return err
		}
	}
	return nil
}

// ranges counts the jobs of each range of sequence numbers, so that their entries in i go when the
// last job of a range has gone. Guarded by Store.mu.
type ranges struct {
	exact  bool
	counts map[uint64]int
}

const rangeSize = 4096 // sequence numbers

func (r *ranges) add(seq uint64) { r.counts[seq/rangeSize]++ }

// remove says whether none is left.
func (r *ranges) remove(seq uint64) bool {
	n := seq / rangeSize
	r.counts[n]--
	return r.exact && r.counts[n] == 0
}

// dropRange deletes the entries of the range of a sequence number, unless it is still being filled.
func (s *Store) dropRange(seq uint64) {
	n := seq / rangeSize
	if n < s.seq.last/rangeSize && s.ranges.exact && s.ranges.counts[n] == 0 {
		delete(s.ranges.counts, n)
		_ = s.group.batch.DeleteRange(seqKey(nil, keyIDs, n*rangeSize),
			seqKey(nil, keyIDs, (n+1)*rangeSize), nil)
	}
}

// rebuild fills the filter and the ranges in the background, from the file as it is now.
func (s *Store) rebuild() error {
	var scans []*scan
	for _, kind := range []byte{keyKey, byte(elapsed), byte(instant), byte(dead), byte(done),
		keyIDs} {
		c, err := s.scanKind(kind)
		if err != nil {
			for _, c := range scans {
				c.close()
			}
			return err
		}
		scans = append(scans, c)
	}
	s.users.Add(1)
	go func() {
		defer s.users.Done()
		s.rebuildFrom(scans)
	}()
	return nil
}

func (s *Store) rebuildFrom(scans []*scan) {
	defer func() {
		for _, c := range scans {
			c.close()
		}
	}()
	last := len(scans) - 1
	for i, c := range scans[:last] {
		for ok := c.first(); ok; {
			s.mu.Lock()
			if s.closed {
				s.mu.Unlock()
				return
			}
			for n := 0; ok && n < rebuildStep; n++ {
				switch k := c.last; {
				case i == 0 && len(k) > 5:
					if q := s.numbered[binary.BigEndian.Uint32(k[1:])]; q != nil {
						s.filter.add(hash(q, string(k[5:])))
					}
				case i > 0:
					if p, err := placeOf(k); err == nil {
						s.ranges.add(p.seq)
					}
				}
				ok = c.next()
			}
			s.mu.Unlock()
		}
		if c.Error() != nil || c.damaged {
			return // the filter and the ranges stay without effect
		}
		if i == 0 {
			s.mu.Lock()
			s.filter.exact = true
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	s.ranges.exact = true
	if err := s.useLocked(); err != nil {
		s.mu.Unlock()
		return
	}
	defer s.users.Done()
	s.begin()
	for ok := scans[last].first(); ok; ok = scans[last].next() {
		s.dropRange(binary.BigEndian.Uint64(scans[last].last[1:]))
	}
	s.commit()
}

// rebuildStep is how many keys are read with mu locked at a time.
const rebuildStep = 1000

// report logs damage that was found in the place of a job, which is passed over.
func (s *Store) report(p place, err error) {
	s.set.log.Error("jobqueue: a job cannot be read", "id", store.ID(p.seq), "error", err)
}
