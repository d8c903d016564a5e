package pebblestore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Backup makes a copy of the store in the directory path, which must not exist, as it is at one
// moment. The store goes on meanwhile. What was handed to Do before Backup is in the copy. On the
// same file system most of it is links, so it takes little time. Restoring it is opening it, or a
// copy.
func (s *Store) Backup(_ context.Context, path string) error {
	s.mu.Lock()
	err := s.useLocked()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer s.users.Done()
	s.disk.waiting.Add(1)
	defer s.disk.waiting.Add(-1)
	if err := s.db.Checkpoint(path, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("backup to %s: %w", path, readError(err))
	}
	return nil
}

// A Report is what Verify found.
type Report struct {
	Queues, Live, Dead, Done int
	Problems                 []string // what is wrong; the first hundred
}

func (r *Report) add(format string, args ...any) {
	if len(r.Problems) < 100 {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Verify reads all of the store in the directory path, which no process may have open, and reports
// what is damaged and what does not agree. It changes nothing. It returns an error if the store
// cannot be opened at all.
func Verify(path string, opts ...Option) (Report, error) {
	set := newSettings(opts)
	var r Report
	if _, err := set.fs.Stat(path); err != nil {
		return r, err
	}
	set.log = slog.New(slog.DiscardHandler)
	s := newStore(set)
	var err error
	if s.lock, err = lockDirectory(path, set.fs); err != nil {
		return r, err
	}
	if name, better := betterManifest(path, set.fs); better != nil {
		r.add("%s ends before its copy, which Open takes", name)
	}
	o := s.options()
	o.ReadOnly = true
	o.EventListener.DataCorruption = nil
	if s.db, err = pebble.Open(path, o); err != nil {
		return r, errors.Join(openError(err), s.lock.Close())
	}
	err = s.verify(&r)
	return r, errors.Join(err, s.db.Close(), s.lock.Close())
}

// A crossCheck tells whether two parts of the file name the same things: it sums the hashes of
// those in one and subtracts those in the other.
type crossCheck struct {
	what string
	n    int
	sum  uint64
}

func (c *crossCheck) count(sign int, parts ...[]byte) {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, p := range parts {
		h.Write(p)
		h.WriteByte(0)
	}
	c.n += sign
	c.sum += uint64(sign) * h.Sum64()
}

// An origin is where a job that was not moved should be according to i.
type origin struct {
	seq   uint64
	place [idsEntry]byte
}

func (s *Store) verify(r *Report) error {
	if err := s.checkVersion(); err != nil {
		return err
	}
	if _, err := s.readQueues(); err != nil {
		return err
	}
	if err := s.db.CheckLevels(nil); err != nil {
		r.add("the files: %v", err)
	}
	keys := crossCheck{what: "the index of keys"}
	moves := crossCheck{what: "the places of jobs that were moved"}
	expiries := crossCheck{what: "the index of expiries"}
	var origins []origin
	found := map[uint32]*queue{}
	for _, sp := range []space{elapsed, instant, dead, done} {
		err := s.verifyKind(r, byte(sp), func(k, v []byte) error {
			p, err := placeOf(k)
			if err != nil {
				return err
			}
			number := binary.BigEndian.Uint32(k[1:])
			q := found[number]
			if q == nil {
				q = &queue{}
				found[number] = q
			}
			e := entry{queue: q, place: p}
			if err := e.decode(v); err != nil {
				return err
			}
			switch sp {
			case dead:
				q.dead++
				r.Dead++
			case done:
				q.done++
				r.Done++
				expiries.count(1, expiryKey(nil, number, p, e.record.retain))
			default:
				q.live++
				q.bytes += int64(e.size)
				r.Live++
				if sp == instant {
					q.instants++
				}
				if e.record.key != "" {
					keys.count(1, keyOf(nil, number, e.record.key), p.encode(nil))
				}
			}
			if e.record.moved {
				moves.count(1, seqKey(nil, keyMoved, p.seq), p.encode(nil))
			} else {
				o := origin{seq: p.seq}
				copy(o.place[:], p.encode(nil))
				origins = append(origins, o)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	err := errors.Join(
		s.verifyKind(r, keyKey, func(k, v []byte) error {
			entry, err := decodeKeyed(v)
			keys.count(-1, k, entry.place.encode(nil))
			return err
		}),
		s.verifyKind(r, keyMoved, func(k, v []byte) error { moves.count(-1, k, v); return nil }),
		s.verifyKind(r, keyExpiry, func(k, _ []byte) error { expiries.count(-1, k); return nil }),
		s.verifyOrigins(r, origins))
	for _, c := range []crossCheck{keys, moves, expiries} {
		if c.n != 0 || c.sum != 0 {
			r.add("%s and the jobs do not agree: %d jobs more", c.what, c.n)
		}
	}
	r.Queues = len(s.numbered)
	for number, q := range s.numbered {
		f := found[number]
		if f == nil {
			f = &queue{}
		}
		delete(found, number)
		if f.live != q.live || f.dead != q.dead || f.done != q.done || f.bytes != q.bytes ||
			f.instants != q.instants {
			r.add("queue %s: counted %d live, %d dead and %d done, found %d, %d and %d",
				q.name, q.live, q.dead, q.done, f.live, f.dead, f.done)
		}
	}
	for number := range found {
		r.add("jobs of queue number %d, whose name is not known", number)
	}
	return err
}

// verifyOrigins looks for jobs that cannot be found by their IDs.
func (s *Store) verifyOrigins(r *Report, origins []origin) error {
	slices.SortFunc(origins, func(a, b origin) int { return cmp.Compare(a.seq, b.seq) })
	err := s.verifyKind(r, keyIDs, func(k, v []byte) error {
		first := binary.BigEndian.Uint64(k[1:])
		for len(origins) > 0 && origins[0].seq < first+uint64(len(v))/idsEntry {
			o := origins[0]
			origins = origins[1:]
			if o.seq < first || [idsEntry]byte(v[(o.seq-first)*idsEntry:]) != o.place {
				r.add("job %v is not found by its id", store.ID(o.seq))
			}
		}
		return nil
	})
	for _, o := range origins {
		r.add("job %v is not found by its id", store.ID(o.seq))
	}
	return err
}

// verifyKind calls f for all keys of a kind that can be read, and reports its errors.
func (s *Store) verifyKind(r *Report, kind byte, f func(k, v []byte) error) error {
	c, err := s.scanKind(kind)
	if err != nil {
		return err
	}
	for ok := c.first(); ok; ok = c.next() {
		v, err := c.copied()
		if err == nil {
			err = f(c.last, v)
		}
		if err != nil {
			r.add("%q: %v", c.last, err)
		}
	}
	if c.damaged {
		r.add("some of the entries of kind %q cannot be read", kind)
	}
	return c.close()
}
