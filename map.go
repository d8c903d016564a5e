package timingwheel

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"
)

// This file holds maps whose keys expire. Each Set makes one entry, which never changes: its Timer
// is its first field, and the state word of that Timer alone says whether the entry lives. The
// goroutine that swaps the word from pending to idle decides what becomes of the entry:
//
//	the driver                      expired; the callback is called
//	Set                             replaced
//	Delete, Expire, Map.Drain       deleted, expired, handed back
//	TimingWheel.Stop and Drain      dropped, handed back
//
// So the outcomes of an entry are those of an arming, and exact for the same reason. An entry that
// has ended leaves the table a moment later: a reader may still find it there, sees that it is not
// pending, and looks again under the lock. An entry is never armed twice, so nothing that comes
// late, neither a callback nor a reader, can mistake one Set for another.
//
// Get, Touch and Reset find a key without a lock (see maptable.go). The locks are those of the
// table's shards; a shard of the wheel is locked under them and never the other way round.

// A Map holds values by key, each until it expires. NewMap makes one. A Map suits sessions, leases,
// presence, retries and debouncing: values that a program keeps for as long as it uses them, and
// must handle when it no longer does. Its methods may be called from any goroutine, also from its
// callback.
//
// Each Set ends in exactly one way: the value expires and the callback is called with it, once; a
// Delete returns it; a later Set of the same key returns it; Drain returns it; or the wheel is
// stopped. A stopped wheel drops what its Maps hold, or returns it from its own Drain. From that
// moment on the key is gone, though the callback may not have begun. If Touch returns true, the
// value does not expire before the time that the call asked for, unless Reset or Expire brings it
// forward.
//
// A value expires no earlier than its time, and later by at most a tick and what the platform takes
// to wake up. On a stopped wheel a Map is empty, and stays so.
//
// A key that is not equal to itself, such as a NaN, can be set. It expires, and All and Drain find
// it, but no other call can.
//
// Cost: Get, Touch and Reset take no lock and allocate nothing, unless Reset brings a time forward;
// Touch and Reset read the clock. Set makes one allocation, and takes a lock of the Map and one of
// the wheel; so does Delete, without the allocation. An entry takes 72 bytes more than its key and
// its value, rounded up to a size class, and 8 to 16 bytes in the table: 104 to 112 for a string
// and a pointer. The table shrinks as keys go. No call takes longer because there are many keys.
type Map[K comparable, V any] struct {
	tw      *TimingWheel
	expired func(K, V)
	owner   owner
	seed    maphash.Seed
	shift   uint8 // from a hash to its shard
	stopped atomic.Bool
	shards  []mapShard[K, V]
}

// NewMap returns an empty Map whose values expire on tw. When a value expires, expired is called
// with its key and value on the executor of tw, by default on a goroutine of its own, and without
// any lock. By then the key is gone from the Map. expired may be nil if there is nothing to do.
//
// A Map has no goroutine, so it need not be stopped. tw keeps a Map that holds values alive.
func NewMap[K comparable, V any](tw *TimingWheel, expired func(key K, value V)) *Map[K, V] {
	tw.check("NewMap")
	n := mapShardsFor(runtime.GOMAXPROCS(0))
	m := &Map[K, V]{
		tw:      tw,
		expired: expired,
		seed:    maphash.MakeSeed(),
		shift:   uint8(64 - bits.Len(uint(n-1))),
		shards:  make([]mapShard[K, V], n),
	}
	m.owner = owner{take: m.take, call: m.call}
	if expired != nil {
		m.owner.named = *(*func())(unsafe.Pointer(&m.expired))
	}
	for i := range m.shards {
		m.shards[i].init()
	}
	return m
}

// Set holds value under key for d, and returns the value that it replaces, which then does not
// expire. A zero or negative d is due at once; one beyond 146 years never comes. If the wheel or
// the Map has been stopped, the value is dropped.
func (m *Map[K, V]) Set(key K, value V, d time.Duration) (old V, replaced bool) {
	s, hash := m.home("Set", key)
	now := m.tw.now()
	e := m.newEntry(hash, key, value)
	s.mu.Lock()
	at := s.atLocked(hash, key)
	if was := at.Load(); was != nil && was.timer.Stop() {
		old, replaced = was.value, true
	}
	m.putAndUnlock(s, at, e, deadlineAfter(now, d), now)
	return old, replaced
}

// TouchOrSet is Touch if the key is there, and Set if it is not, in one step. It returns the value
// that is there afterwards, and whether it was there before. A debounce needs nothing else: each
// event is one call, and expired is called once there was no event for d.
func (m *Map[K, V]) TouchOrSet(key K, value V, d time.Duration) (actual V, touched bool) {
	s, hash := m.home("TouchOrSet", key)
	now := m.tw.now()
	deadline := deadlineAfter(now, d)
	if e, _ := s.find(hash, key); e != nil && e.timer.keep(deadline) {
		return e.value, true
	}
	e := m.newEntry(hash, key, value)
	s.mu.Lock()
	at := s.atLocked(hash, key)
	if there := at.Load(); there != nil && there.timer.keep(deadline) {
		s.mu.Unlock()
		return there.value, true
	}
	m.putAndUnlock(s, at, e, deadline, now)
	return value, false
}

// Get returns the value of the key, and whether there is one. It does not change when the value
// expires; Touch does.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	s, hash := m.home("Get", key)
	if e := s.lookUp(hash, key, func(t *Timer) bool { return isPending(t.word.Load()) }); e != nil {
		return e.value, true
	}
	return value, false
}

// Touch keeps the value of the key for at least d from now, and returns it. It never brings the
// time forward: of two concurrent calls, the later time holds. It returns false if there is no such
// key or if it has just expired; the value then does not come back.
func (m *Map[K, V]) Touch(key K, d time.Duration) (value V, ok bool) {
	s, hash := m.home("Touch", key)
	deadline := deadlineAfter(m.tw.now(), d)
	if e := s.lookUp(hash, key, func(t *Timer) bool { return t.keep(deadline) }); e != nil {
		return e.value, true
	}
	return value, false
}

// Reset makes the value of the key expire d from now, sooner or later than it would have. It
// returns false if there is no such key. A zero or negative d is due at once.
func (m *Map[K, V]) Reset(key K, d time.Duration) bool {
	s, hash := m.home("Reset", key)
	return s.lookUp(hash, key, func(t *Timer) bool { return t.Reset(d) }) != nil
}

// Expire makes the value of the key expire now, whatever its time. When Expire returns the key is
// gone, and expired is called as if the time had come. Expire returns false if there is no such
// key.
func (m *Map[K, V]) Expire(key K) bool {
	return m.remove("Expire", key, m.bringForward) != nil
}

// Delete removes the key and returns its value, which then does not expire. It returns false if
// there is no such key or if it has just expired.
func (m *Map[K, V]) Delete(key K) (value V, ok bool) {
	if e := m.remove("Delete", key, func(e *entry[K, V]) bool { return e.timer.Stop() }); e != nil {
		return e.value, true
	}
	return value, false
}

// Len returns the number of keys. A key whose value has just expired may be counted until its
// callback begins. Cost: a lock for each of a few shards.
func (m *Map[K, V]) Len() (n int) {
	m.check("Len")
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += s.n
		s.mu.Unlock()
	}
	return n
}

// All returns an iterator over the keys and values, in no order and with each key at most once. It
// finds every key that is there during the whole loop, and may or may not find a key that comes or
// goes meanwhile. No lock is held while the loop's body runs, so the body may call every method of
// the Map.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	m.check("All")
	return func(yield func(K, V) bool) {
		var some []*entry[K, V]
		for i := range m.shards {
			s := &m.shards[i]
			for w := s.walk(); !w.done; {
				some = w.next(some[:0])
				for _, e := range some {
					value, ok := e.value, e.timer.Pending()
					if !ok {
						value, ok = m.Get(e.key) // unless another has taken its place
					}
					if ok && !yield(e.key, value) {
						return
					}
				}
				clear(some) // the body may run for long
			}
		}
	}
}

// A MapEntry is what a Map held under a key when Drain stopped it.
type MapEntry[K comparable, V any] struct {
	Key      K
	Value    V
	Deadline time.Time // when it would have expired
}

// Drain stops the Map for good and returns what it held, in the order of the deadlines. None of it
// expires any more, and a later Set drops its value. Callbacks that were handed over before may
// still begin; the wheel's Shutdown waits for them. The wheel itself goes on.
func (m *Map[K, V]) Drain() []MapEntry[K, V] {
	m.check("Drain")
	left := make([]MapEntry[K, V], 0, m.Len())
	m.stopped.Store(true)
	var some []*entry[K, V]
	for i := range m.shards {
		for w := m.shards[i].walk(); !w.done; {
			some = w.next(some[:0])
			for _, e := range some {
				if word, was := e.end(); was {
					deadline := m.tw.instant(deadlineOf(word))
					left = append(left, MapEntry[K, V]{e.key, e.value, deadline})
				}
				m.take(&e.keyedTimer)
			}
		}
	}
	slices.SortStableFunc(left, func(a, b MapEntry[K, V]) int {
		return a.Deadline.Compare(b.Deadline)
	})
	return left
}

// An entry is what one Set has made. hash, value and key are fixed; next belongs to the table.
type entry[K comparable, V any] struct {
	keyedTimer // the first field: see Map.take
	hash       uint64
	next       atomic.Pointer[entry[K, V]]
	value      V
	key        K // last, so that a value of no size takes no room
}

// A keyedTimer is what the driver knows of an entry, whatever the types of its Map are. A closure
// for each entry, as Init takes one, would be another allocation.
type keyedTimer struct {
	timer Timer // the first field: see Timer.keyed
	owner *owner
}

// An owner is what the driver knows of a Map. Fixed.
type owner struct {
	take func(*keyedTimer) // takes an entry out of the table, if it is there
	call func(*keyedTimer) // calls expired, if there is one

	// named is expired, for its name alone. It is not what its type says, and must not be called.
	named func()
}

func (t *Timer) keyed() *keyedTimer { return (*keyedTimer)(unsafe.Pointer(t)) }

var ( // out of range if it is not the first
	_ = [1]struct{}{}[unsafe.Offsetof(keyedTimer{}.timer)]
	_ = [1]struct{}{}[unsafe.Offsetof(entry[int, int]{}.keyedTimer)]
)

// fire is the callback of an entry whose timer has fired.
func (k *keyedTimer) fire() {
	k.owner.take(k)
	k.owner.call(k)
}

// expired is the same for what Drain hands back, which is in no table.
func (k *keyedTimer) expired() { k.owner.call(k) }

// keyed is the kind of a Timer that is part of an entry.
var keyed = newKind(behaviour{
	name:    "a Map",
	due:     (*shard).expireLocked,
	inert:   true,
	unfired: func(t *Timer, _ uint64, u *Unfired) { u.F = t.keyed().expired },
	dropped: func(t *Timer) { k := t.keyed(); k.owner.take(k) },
})

// expireLocked claims the timer of an entry, which is due by this word, and hands over its
// callback, releasing the lock on the way.
func (s *shard) expireLocked(t *Timer, word uint64, _ int64) {
	timed, ok := s.claimLocked(t, word, makeWord(idle, 0))
	if !ok {
		return
	}
	k := t.keyed()
	named, f := k.owner.named, k.fire
	if named == nil || s.engine.executor.mode == custom {
		// The entry leaves the table here, because an executor may drop the callback or begin it
		// late.
		s.unlock()
		k.owner.take(k)
		s.lock()
		f = k.expired
	}
	if named != nil {
		s.handOverLocked(f, named, timed)
	}
}

func (m *Map[K, V]) take(k *keyedTimer) {
	e := (*entry[K, V])(unsafe.Pointer(k))
	s := m.shard(e.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(e)
}

func (m *Map[K, V]) call(k *keyedTimer) {
	e := (*entry[K, V])(unsafe.Pointer(k))
	switch {
	case m.expired == nil:
	case m.tw.executor.observes():
		m.tw.executor.observe(m.owner.named, func() { m.expired(e.key, e.value) })
	default:
		m.expired(e.key, e.value)
	}
}

func (m *Map[K, V]) check(what string) {
	if m == nil || m.tw == nil {
		panic("timingwheel: " + what + " on a Map that NewMap did not make")
	}
}

// home returns the shard of the key, and its hash. It panics as a map does if the key cannot be
// hashed, before any lock is taken.
func (m *Map[K, V]) home(what string, key K) (s *mapShard[K, V], hash uint64) {
	m.check(what)
	hash = maphash.Comparable(m.seed, key)
	return m.shard(hash), hash
}

// shard goes by the high bits of the hash; its buckets go by the low ones.
func (m *Map[K, V]) shard(hash uint64) *mapShard[K, V] { return &m.shards[hash>>m.shift] }

func (m *Map[K, V]) newEntry(hash uint64, key K, value V) *entry[K, V] {
	e := &entry[K, V]{hash: hash, key: key, value: value}
	e.owner = &m.owner
	return e
}

// putAndUnlock arms e and puts it where at leads, in place of an entry that has ended or at the end
// of the chain. Then it releases the lock of s.
//
// The entry is armed before it can be found, as a reader that finds one that is not pending takes
// it for one that has ended. If it fires first, its callback waits for the lock to take it out.
func (m *Map[K, V]) putAndUnlock(
	s *mapShard[K, V], at *chain[K, V], e *entry[K, V], deadline, now int64,
) {
	full := false
	if !m.stopped.Load() { // under the lock, or e could slip in behind Drain
		m.tw.armNew(&e.timer, keyed, pending, deadline, now)
	}
	switch {
	case isPending(e.timer.word.Load()):
		full = s.putLocked(at, e)
	case at.Load() != nil: // the Map or the wheel is stopped, or e has fired already
		s.unlinkLocked(at)
	}
	s.mu.Unlock()
	if full {
		s.addSegment()
	}
}

// remove takes the entry of the key out of the table, once end has ended it. It returns nil if
// there is none.
func (m *Map[K, V]) remove(what string, key K, end func(*entry[K, V]) bool) *entry[K, V] {
	s, hash := m.home(what, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.atLocked(hash, key)
	e := at.Load()
	if e == nil || !end(e) {
		return nil
	}
	s.unlinkLocked(at)
	return e
}

// bringForward ends e and arms a copy of it that is due now. The copy is in no table: a Touch that
// has found e cannot put it off. Both happen in one hold of the lock of their shard, or neither
// does: so the sweep of a stopped wheel finds one of the two.
func (m *Map[K, V]) bringForward(e *entry[K, V]) bool {
	if m.expired == nil {
		return e.timer.Stop()
	}
	due, s, now := m.newEntry(e.hash, e.key, e.value), e.timer.shard, m.tw.now()
	due.timer.init(s, keyed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isPending(e.timer.word.Load()) {
		return false
	}
	s.armLocked(&due.timer, pending, now, now)
	if !isPending(due.timer.word.Load()) {
		return false // the wheel is stopped: e is the sweep's
	}
	s.stopLocked(&e.timer)
	return true
}

// end is Timer.Stop, and returns the word that the timer had.
func (k *keyedTimer) end() (word uint64, was bool) {
	s := k.timer.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopLocked(&k.timer)
}
