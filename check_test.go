package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// verify walks every list and heap and returns the first thing that breaks an invariant. quiet says
// that no callback or driver is at work, so that Len must agree with the lists.
func (tw *TimingWheel) verify(quiet bool) error {
	earliest := unset
	for i := range tw.shards {
		first, err := tw.shards[i].verify(quiet)
		if err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
		earliest = min(earliest, first)
	}
	a := &tw.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	runs := tw.started.Load() && !tw.stopped.Load()
	// Callers that have filed a timer and not come to the alarm yet are not quiet.
	if armed := a.armed.Load(); quiet && runs && !a.driving && armed > earliest {
		return fmt.Errorf("the alarm is set for %d, a timer waits at %d", armed, earliest)
	}
	if a.armed.Load() == awake && runs && !a.driving {
		return fmt.Errorf("armed says that a driver is at work")
	}
	if a.ringing < 0 || tw.executor.inflight.Load() < 0 {
		return fmt.Errorf("ringing %d, in flight %d", a.ringing, tw.executor.inflight.Load())
	}
	return nil
}

// verify returns the tick at which the shard wants the driver.
func (s *shard) verify(quiet bool) (earliest int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	linked := int64(0)
	earliest = unset

	count := func(in *list) (n int64, err error) {
		if in.root == (link{}) {
			return 0, nil // never used
		}
		for prev, l := &in.root, in.root.next; ; prev, l = l, l.next {
			if l == nil || l.prev != prev {
				return n, fmt.Errorf("list broken after %d timers", n)
			}
			if l == &in.root {
				return n, nil
			}
			if !isPending(l.timer().word.Load()) {
				return n, fmt.Errorf("a timer in a bucket is not pending")
			}
			if l.timer().shard != s {
				return n, fmt.Errorf("a timer in a bucket belongs to another shard")
			}
			n++
		}
	}

	queued := map[*bucket]bool{}
	heap := s.queue.buckets
	for i, b := range heap {
		if queued[b] {
			return 0, fmt.Errorf("a bucket is in the delay queue twice")
		}
		if queued[b] = true; !b.queued {
			return 0, fmt.Errorf("a bucket in the delay queue is not marked")
		}
		if i > 0 && heap[(i-1)/2].attention > b.attention {
			return 0, fmt.Errorf("the delay queue is not a heap at %d", i)
		}
	}

	found := 0
	tick := int64(1)
	for level, w := 0, s.wheel; w != nil; level, w = level+1, w.overflow {
		if int(w.level) != level || w.tick != tick || w.size != s.wheel.size ||
			w.buckets != nil && (len(w.buckets) < 2*w.size || len(w.buckets) >= 4*w.size) {
			return 0, fmt.Errorf("level %d has tick %d and %d slots", level, w.tick, len(w.buckets))
		}
		tick = w.interval
		if w.now%w.tick != 0 || w.now > s.wheel.now || s.wheel.now-w.now >= w.tick {
			return 0, fmt.Errorf("level %d stands at %d, the lowest at %d", level, w.now,
				s.wheel.now)
		}
		for slot := range w.buckets {
			b := &w.buckets[slot]
			n := int64(0)
			for i := range b.lists {
				some, err := count(&b.lists[i])
				if err != nil {
					return 0, fmt.Errorf("level %d slot %d list %d: %w", level, slot, i, err)
				}
				n += some
			}
			linked += n
			if b.queued {
				found++
			}
			if b.queued != queued[b] || n > 0 && !b.queued || b.opened && !b.queued {
				return 0, fmt.Errorf("level %d slot %d: %d timers, marked %t, in the queue %t",
					level, slot, n, b.queued, queued[b])
			}
			if n == 0 {
				continue
			}
			earliest = min(earliest, b.attention)
			if b.opened && quiet && s.engine.started.Load() && !s.engine.stopped.Load() {
				return 0, fmt.Errorf("level %d slot %d: %d timers are left in an opened bucket",
					level, slot, n)
			}
			e := w.expiration(b)
			if e%w.tick != 0 || e/w.tick%int64(len(w.buckets)) != int64(slot) {
				return 0, fmt.Errorf("level %d slot %d: expiration %d is of another slot", level,
					slot, e)
			}
			if e < w.now || e-w.now >= w.span ||
				quiet && s.engine.started.Load() && b.attention <= s.wheel.now {
				return 0, fmt.Errorf("level %d slot %d: expiration %d is beyond %d from %d",
					level, slot, e, w.span, w.now)
			}
			for i := range b.lists {
				root := &b.lists[i].root
				for l := root.next; l != root; l = l.next {
					if due := s.engine.tickOf(deadlineOf(l.timer().word.Load())); due < e {
						return 0, fmt.Errorf("level %d slot %d: a timer for %d in a bucket for %d",
							level, slot, due, e)
					}
				}
			}
		}
	}
	if found != len(heap) {
		return 0, fmt.Errorf("%d of %d buckets in the delay queue belong to the wheel", found,
			len(heap))
	}

	for _, l := range []*list{&s.due, &s.batch, &s.beyond} {
		n, err := count(l)
		if err != nil {
			return 0, err
		}
		linked += n
		if n > 0 && l != &s.beyond {
			earliest = min(earliest, s.wheel.now)
		}
	}
	for l := s.beyond.root.next; l != &s.beyond.root; l = l.next {
		if deadlineOf(l.timer().word.Load()) != never {
			return 0, fmt.Errorf("a timer with a deadline is beyond")
		}
	}

	// A driver in an inline callback has not come to settle, which lets go of the wheel.
	settled := s.engine.alarm.armed.Load() != awake || s.engine.stopped.Load() ||
		!s.engine.started.Load()
	if anchored := s.anchor.engine == s.engine; earliest != unset && !anchored ||
		linked == 0 && anchored && quiet && settled {
		return 0, fmt.Errorf("%d timers, earliest at %d: keeps the wheel: %t", linked, earliest,
			anchored)
	}
	if next := s.next.Load(); next > earliest {
		return 0, fmt.Errorf("wants the driver at %d, a timer waits at %d", next, earliest)
	}
	if linked != s.count.pending() && quiet {
		return 0, fmt.Errorf("%d timers are linked, %d are pending", linked, s.count.pending())
	}
	return earliest, nil
}

// verify waits until the bubble is at rest and checks the structure.
func verify(t *testing.T, tw *TimingWheel) {
	t.Helper()
	synctest.Wait()
	require.NoError(t, tw.verify(true))
}

// pass lets d go by in a bubble and checks the structure. What the test wrote
// before is seen by the callbacks that run meanwhile, as both take the lock.
func pass(t *testing.T, tw *TimingWheel, d time.Duration) {
	t.Helper()
	verify(t, tw)
	time.Sleep(d)
	verify(t, tw)
}

// bubble runs f on the fake clock.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// suspend makes the monotonic clock jump ahead without the alarm ringing, as if
// the process had not been given the processor for d. The bubble is at rest.
func (tw *TimingWheel) suspend(d time.Duration) {
	for i := range tw.shards { // for the race detector: later calls come after
		tw.shards[i].mu.Lock()
		defer tw.shards[i].mu.Unlock()
	}
	tw.alarm.mu.Lock()
	defer tw.alarm.mu.Unlock()
	tw.start = tw.start.Add(-d)
}

// withShards sets how many shards a wheel has, whatever the machine.
func withShards(n int) Option { return func(c *config) { c.shards = n } }

// wallStep is a wall clock that can be stepped away from the monotonic one.
type wallStep struct{ offset time.Duration }

func (w *wallStep) now() time.Time { return time.Now().Round(0).Add(w.offset) }

func (tw *TimingWheel) withWall() *wallStep {
	w := &wallStep{}
	tw.wall = w.now
	return w
}

// recorder notes when callbacks ran, relative to its making.
type recorder struct {
	start time.Time
	at    []time.Duration
}

func newRecorder() *recorder { return &recorder{start: time.Now()} }

// hit is for callbacks that do not overlap.
func (r *recorder) hit() { r.at = append(r.at, time.Since(r.start)) }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
