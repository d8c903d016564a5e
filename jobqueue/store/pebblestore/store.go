// Package pebblestore keeps the jobs of a job queue in a directory of files, by way of
// github.com/cockroachdb/pebble. Programs open it with jobqueue.Open.
//
// One mutex guards the state in memory and the building of groups; it is free while a group is
// synced, so the next one is built meanwhile. What is in the file is described in layout.go. Memory
// holds the settings and counts of queues, the leases, and a filter of the live keys, and nothing
// else for each job.
package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Store is a store.Store in a directory. It is made by Open.
type Store struct {
	set    settings
	disk   *disk
	lock   *pebble.Lock
	db     *pebble.DB
	stall  stall
	failed atomic.Pointer[error] // set once
	ending chan struct{}         // closed by Close
	users  sync.WaitGroup        // calls and goroutines that use db; added to with mu locked

	mu     sync.Mutex
	closed bool
	clock  clock
	watch  func(queue string, in time.Duration)
	group  group

	queues     map[string]*queue
	numbered   map[uint32]*queue
	namespaces map[string]*namespace
	lastQueue  uint32
	leases     map[uint64]*lease // by sequence number
	claims     uint64            // the last one's number
	seq        counter           // of jobs
	tokens     counter
	filter     filter
	ranges     ranges
	hasChosen  bool   // there may be jobs whose ids callers chose
	expiry     uint64 // no Done job goes before, in milliseconds
	keys       []byte // room for a key and a value that are being written
	values     []byte
	log        []byte // room for the entry of a claim
}

// A counter hands out numbers that are not handed out again after a crash, as those below reserved
// are skipped then.
type counter struct{ last, reserved uint64 }

// An Option changes what Open makes.
type Option func(*settings)

type settings struct {
	fs    vfs.FS
	log   *slog.Logger
	every time.Duration
	wall  func() time.Time
	mono  func() time.Duration
}

// WithSyncEvery has groups synced together, d after the first of them, instead of each before Do
// returns. A power loss then costs what was done in that time; kill -9 costs nothing all the same.
func WithSyncEvery(d time.Duration) Option {
	if d <= 0 {
		panic("pebblestore: WithSyncEvery of a duration that is not positive")
	}
	return func(s *settings) { s.every = d }
}

// WithLogger has damage that is found in the file logged to log instead of slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(s *settings) { s.log = log }
}

// WithClock has the Store read the time of the wall clock from wall, and the time that passes from
// mono, as the time since any fixed moment. Both must be safe for concurrent use.
func WithClock(wall func() time.Time, mono func() time.Duration) Option {
	return func(s *settings) { s.wall, s.mono = wall, mono }
}

// WithFS has the Store keep its files in fs, for tests.
func WithFS(fs vfs.FS) Option {
	return func(s *settings) { s.fs = fs }
}

func newSettings(opts []Option) settings {
	start := time.Now()
	set := settings{
		fs:   vfs.Default,
		log:  slog.Default(),
		wall: time.Now,
		mono: func() time.Duration { return time.Since(start) },
	}
	for _, opt := range opts {
		opt(&set)
	}
	return set
}

// Watch implements store.Store.
func (s *Store) Watch(f func(queue string, in time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = f
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	s.closed = true
	close(s.ending)
	s.mu.Unlock()
	s.stall.wake()
	s.users.Wait()
	return s.release()
}

// release closes the files. Pebble panics if a log cannot be written any more.
func (s *Store) release() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("closing the store: %v", r)
		}
		err = errors.Join(err, s.lock.Close())
		if f := s.failed.Load(); f != nil {
			err = *f
		}
	}()
	if s.failed.Load() == nil {
		s.syncNow()
	}
	return s.db.Close()
}

// useLocked returns why the store cannot be used, or counts a user, who calls users.Done.
func (s *Store) useLocked() error {
	if s.closed {
		return store.ErrClosed
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	s.users.Add(1)
	return nil
}

// fail makes the store refuse further work. What is on disk stays as it is.
func (s *Store) fail(err error) {
	err = fmt.Errorf("%w: %w", store.ErrFailed, err)
	s.failed.CompareAndSwap(nil, &err)
	s.stall.wake()
}

// get returns what is stored under a key, or nil.
func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, readError(err)
	}
	v = append(make([]byte, 0, len(v)), v...)
	return v, closer.Close()
}

// readError says that an error of reading is damage, if it is.
func readError(err error) error {
	if err != nil && pebble.IsCorruptionError(err) && !errors.Is(err, store.ErrCorrupt) {
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return err
}

// A clock has the two times of the store; see layout.go.
type clock struct {
	wall   func() time.Time
	mono   func() time.Duration
	base   int64 // the store's time at mono 0, in nanoseconds
	offset int64 // of the wall clock, in milliseconds
}

// A moment is a reading of both clocks, in nanoseconds.
type moment struct{ store, wall int64 }

// maxDrift is how far the offset may be from the truth. It is what shown times and the order of
// jobs that are due by instants and of those that are due by durations may be wrong by; whether a
// job is due does not depend on it. It is well above what two readings in a row differ by.
const maxDrift = 10 * time.Millisecond

func (c *clock) now() moment { return moment{c.base + int64(c.mono()), c.wall().UnixNano()} }

// read returns the time, and whether the wall clock was stepped.
func (c *clock) read() (now moment, stepped bool) {
	now = c.now()
	if drift := now.wall - now.store - c.offset*1e6; drift > int64(maxDrift) ||
		drift < -int64(maxDrift) {
		c.offset = (now.wall - now.store) / 1e6
		stepped = true
	}
	return now, stepped
}

// start sets the store's time to go on from the wall clock's, but not back behind last.
func (c *clock) start(last uint64) {
	wall := c.wall().UnixNano()
	now := max(wall-c.offset*1e6, int64(last)*1e6)
	c.base = now - int64(c.mono())
	c.read()
}

// ms returns the store's time in milliseconds, rounded down.
func (m moment) ms() uint64 { return uint64(max(m.store, 0)) / 1e6 }

// fresh returns the place of a space before which no job is fresh.
func (m moment) fresh(sp space) place {
	const most = uint64(store.FreshTime / time.Millisecond)
	return place{space: sp, at: max(m.in(sp)+1, most) - most}
}

// until returns how long it is until a live place is due.
func (m moment) until(p place) time.Duration {
	at := m.store
	if p.space == instant {
		at = m.wall
	}
	return time.Duration(max(int64(min(p.at, uint64(1<<63-1)/1e6))*1e6-at, 0))
}

// due returns the space and the time of a When.
func (m moment) due(w store.When) (space, uint64) {
	if !w.At.IsZero() {
		ms := w.At.UnixMilli() // rounds down
		if w.At.Nanosecond()%1e6 != 0 {
			ms++
		}
		return instant, uint64(min(max(ms, 0), maxAt))
	}
	if w.In <= 0 {
		return elapsed, m.ms()
	}
	rest := (uint64(m.store)%1e6 + uint64(w.In)%1e6 + 1e6 - 1) / 1e6
	return elapsed, m.ms() + uint64(w.In)/1e6 + rest
}

// inWall returns a time of a space by the wall clock, which is so much ahead of the store's.
func (s space) inWall(at uint64, offset int64) int64 {
	if s == instant {
		return int64(at)
	}
	return int64(at) + offset
}

// shown returns a time of a space for people.
func (c *clock) shown(s space, at uint64) time.Time {
	return time.UnixMilli(s.inWall(at, c.offset)).UTC()
}
