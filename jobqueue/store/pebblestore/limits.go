package pebblestore

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// A queue is what is in memory of a queue. Guarded by Store.mu.
type queue struct {
	number uint32
	name   string
	space  *namespace // nil for a name without a slash
	paused bool
	limits store.Limits

	live, dead, done int
	instants         int   // of live: those in the space instant
	bytes            int64 // of live
	changed          bool  // the counts have to be written

	leases leaseHeap
	// All live jobs before cursor are leased, so claims begin there: not at what they took, of
	// which many tombstones may be left. So are those that are fresh and before fresh.
	cursor    [2]place
	fresh     [2]place
	unapplied uint32 // the part that wrote a live job
	announced int64  // what the last Claim, or the watcher, was told: the store's time, or never
	soonest   int64  // of the jobs that the group wrote, or never
	counted   [2]counted
}

// A namespace has the limits and the sums of its queues.
type namespace struct {
	limits store.Limits
	live   int
	bytes  int64
	queues []*queue
}

// A counted is how many jobs of a live space come before a bound. It lets Queues tell Ready from
// Delayed by reading only what has come due since it was called last.
type counted struct {
	bound [orderSize]byte
	n     int
}

const never = math.MaxInt64

// of returns the index of a live space in arrays of a queue.
func (s space) of() int {
	if s == instant {
		return 1
	}
	return 0
}

// queue returns a queue, which is made if there is none.
func (s *Store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		s.lastQueue++
		q = s.newQueue(s.lastQueue, name)
		s.saveQueue(q)
	}
	return q
}

func (s *Store) newQueue(number uint32, name string) *queue {
	q := &queue{number: number, name: name, announced: never, soonest: never}
	s.queues[name] = q
	s.numbered[number] = q
	if i := strings.IndexByte(name, '/'); i >= 0 {
		q.space = s.namespace(name[:i+1])
		q.space.queues = append(q.space.queues, q)
	}
	return q
}

func (s *Store) namespace(name string) *namespace {
	n := s.namespaces[name]
	if n == nil {
		n = &namespace{}
		s.namespaces[name] = n
	}
	return n
}

func (s *Store) saveQueue(q *queue) {
	var flags byte
	if q.paused {
		flags = 1
	}
	s.set1(prefix(s.keys[:0], keyQueue, q.number),
		append(encodeLimits(append(s.values[:0], flags), q.limits), q.name...))
}

func (s *Store) configure(op *store.Configure) error {
	if strings.HasSuffix(op.Queue, "/") {
		if op.Limits != nil {
			s.namespace(op.Queue).limits = *op.Limits
			s.set1(append(append(s.keys[:0], keyLimits), op.Queue...),
				encodeLimits(s.values[:0], *op.Limits))
		}
		return nil
	}
	q := s.queue(op.Queue)
	if op.Paused != nil {
		q.paused = *op.Paused
		q.announced = never
		s.wake(q, s.group.now.store) // a Claim finds out whether there is something
	}
	if op.Limits != nil {
		q.limits = *op.Limits
	}
	s.saveQueue(q)
	return nil
}

// wake notes that a queue may have something to claim at a time of the store's.
func (s *Store) wake(q *queue, at int64) {
	if q.soonest == never {
		s.group.woken = append(s.group.woken, q)
	}
	q.soonest = min(q.soonest, at)
}

// count counts a job of a queue, or with n = -1 discounts it.
func (s *Store) count(q *queue, p place, size, n int) {
	switch p.space {
	case dead:
		q.dead += n
	case done:
		q.done += n
	default:
		q.live += n
		q.bytes += int64(size * n)
		if q.space != nil {
			q.space.live += n
			q.space.bytes += int64(size * n)
		}
		if p.space == instant {
			q.instants += n
		}
		c := &q.counted[p.space.of()]
		if c.n += n; !c.covers(p) {
			c.n -= n
		}
	}
	if !q.changed {
		q.changed = true
		s.group.queues = append(s.group.queues, q)
	}
}

func (c *counted) covers(p place) bool {
	return bytes.Compare(p.order(make([]byte, 0, orderSize)), c.bound[:]) < 0
}

func (q *queue) encodeCounts(b []byte, now uint64) []byte {
	for _, n := range []int{q.live, q.dead, q.done, q.instants, int(q.bytes)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return append48(b, now)
}

// decodeCounts returns when the counts were written.
func (q *queue) decodeCounts(b []byte) (at uint64, ok bool) {
	d := decoder{b: b}
	for _, n := range []*int{&q.live, &q.dead, &q.done, &q.instants} {
		*n = int(d.uvarint())
	}
	q.bytes = int64(d.uvarint())
	at = get48(d.bytes(6))
	return at, !d.short
}

// countStep is how many jobs are counted with mu locked at a time.
const countStep = 10_000

// countReady goes on counting the jobs that are due, and returns whether all are.
func (s *Store) countReady(q *queue, now moment) (all bool, err error) {
	for i, sp := range []space{elapsed, instant} {
		c := &q.counted[i]
		end := place{space: sp, at: now.ms() + 1}
		if sp == instant {
			end.at = uint64(max(now.wall, 0))/1e6 + 1
		}
		upper := end.key(nil, q.number)
		if bytes.Compare(upper[5:], c.bound[:]) <= 0 {
			continue
		}
		it, err := s.newScan(append(prefix(nil, byte(sp), q.number), c.bound[:]...), upper)
		if err != nil {
			return false, err
		}
		n := 0
		ok := it.first()
		for ; ok && n < countStep; ok = it.next() {
			n++
		}
		c.n += n
		if ok {
			copy(c.bound[:], it.last[5:])
		} else {
			copy(c.bound[:], upper[5:])
		}
		if err := it.close(); err != nil {
			return false, err
		}
		if ok {
			return false, nil
		}
	}
	return true, nil
}

// A scope is a queue or a namespace, with its limits.
type scope struct {
	limits store.Limits
	live   int
	bytes  int64
	queues []*queue
}

func (q *queue) scopes() []scope {
	var list []scope
	if q.limits != (store.Limits{}) {
		list = append(list, scope{q.limits, q.live, q.bytes, []*queue{q}})
	}
	if n := q.space; n != nil && n.limits != (store.Limits{}) {
		list = append(list, scope{n.limits, n.live, n.bytes, n.queues})
	}
	return list
}

// makeRoom refuses a job of n more bytes, or returns the jobs that have to be buried to make room,
// as the limits say. The job old, if there is one, is about to be replaced and counts no longer.
func (s *Store) makeRoom(q *queue, old *entry, n int) (victims []*entry, err error) {
	for _, sc := range q.scopes() {
		discount := func(e *entry) {
			if slices.Contains(sc.queues, e.queue) {
				sc.live--
				sc.bytes -= int64(e.size)
			}
		}
		if old != nil {
			discount(old)
		}
		for _, v := range victims {
			discount(v)
		}
		over := func() bool {
			return sc.limits.Jobs > 0 && sc.live >= sc.limits.Jobs || sc.limits.Bytes > 0 &&
				sc.bytes+int64(n) > sc.limits.Bytes
		}
		if !over() {
			continue
		}
		if !sc.limits.DropOldest {
			return nil, store.ErrFull
		}
		if err := s.flush(); err != nil {
			return nil, err
		}
		w, err := s.walk(sc.queues...)
		if err != nil {
			return nil, err
		}
		for _, e := range append(victims, old) {
			if e != nil {
				w.pass(e.place)
			}
		}
		for over() && err == nil {
			h := w.head()
			if h == nil {
				err = store.ErrFull
				break
			}
			var e *entry
			if e, err = h.entry(); err == nil {
				victims = append(victims, e)
				discount(e)
			}
			h.next()
		}
		w.close()
		if err != nil {
			return nil, err
		}
	}
	return victims, nil
}
