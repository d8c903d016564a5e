package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// verify walks every list and the heap and returns the first thing that breaks
// an invariant of the house. quiet says that no callback or driver is at work,
// so that Len can be held against the lists.
func (tw *TimingWheel) verify(quiet bool) error {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	linked, earliest := int64(0), unset

	count := func(b *bucket) (n int64, err error) {
		for prev, t := &b.root, b.root.next; ; prev, t = t, t.next {
			if t == nil || t.prev != prev {
				return n, fmt.Errorf("list broken after %d timers", n)
			}
			if t == &b.root {
				return n, nil
			}
			if !isPending(t.word.Load()) {
				return n, fmt.Errorf("a timer in a bucket is not pending")
			}
			n++
		}
	}

	queued := map[*bucket]bool{}
	heap := tw.queue.buckets
	for i, b := range heap {
		if queued[b] {
			return fmt.Errorf("a bucket is in the delay queue twice")
		}
		if queued[b] = true; !b.queued {
			return fmt.Errorf("a bucket in the delay queue is not marked")
		}
		if i > 0 && heap[(i-1)/2].expiration > b.expiration {
			return fmt.Errorf("the delay queue is not a heap at %d", i)
		}
	}

	found := 0
	tick := int64(1)
	for level, w := 0, tw.wheel; w != nil; level, w = level+1, w.overflow {
		if w.tick != tick || len(w.buckets) != tw.wheelSize {
			return fmt.Errorf("level %d has tick %d and %d slots", level, w.tick, len(w.buckets))
		}
		tick = w.interval
		if w.now%w.tick != 0 || w.now > tw.wheel.now || tw.wheel.now-w.now >= w.tick {
			return fmt.Errorf("level %d stands at %d, the lowest at %d", level, w.now, tw.wheel.now)
		}
		for slot := range w.buckets {
			b := &w.buckets[slot]
			n, err := count(b)
			if err != nil {
				return fmt.Errorf("level %d slot %d: %w", level, slot, err)
			}
			linked += n
			if b.queued {
				found++
			}
			if b.queued != queued[b] || n > 0 && !b.queued {
				return fmt.Errorf("level %d slot %d: %d timers, marked %t, in the queue %t", level, slot, n, b.queued, queued[b])
			}
			if n == 0 {
				continue
			}
			earliest = min(earliest, b.expiration)
			if b.expiration%w.tick != 0 || b.expiration/w.tick%int64(len(w.buckets)) != int64(slot) {
				return fmt.Errorf("level %d slot %d: expiration %d is of another slot", level, slot, b.expiration)
			}
			if b.expiration < w.now || b.expiration-w.now >= w.interval || quiet && b.expiration <= tw.wheel.now {
				return fmt.Errorf("level %d slot %d: expiration %d outside the span at %d", level, slot, b.expiration, w.now)
			}
			for t := b.front(); t != &b.root; t = t.next {
				if e := tw.tickOf(deadlineOf(t.word.Load())); e < b.expiration {
					return fmt.Errorf("level %d slot %d: a timer for %d in a bucket for %d", level, slot, e, b.expiration)
				}
			}
		}
	}
	if found != len(heap) {
		return fmt.Errorf("%d of %d buckets in the delay queue belong to the wheel", found, len(heap))
	}

	for _, l := range []*bucket{&tw.due, &tw.batch, &tw.beyond} {
		n, err := count(l)
		if err != nil {
			return err
		}
		linked += n
		if l.queued {
			return fmt.Errorf("due, batch or beyond is in the delay queue")
		}
		if n > 0 && l != &tw.beyond {
			earliest = min(earliest, tw.wheel.now)
		}
	}
	for t := tw.beyond.front(); t != nil && t != &tw.beyond.root; t = t.next {
		if deadlineOf(t.word.Load()) != never {
			return fmt.Errorf("a timer with a deadline is beyond")
		}
	}

	if tw.started && !tw.stopped.Load() && !tw.driving && tw.armed > earliest {
		return fmt.Errorf("the alarm is set for %d, a timer waits at %d", tw.armed, earliest)
	}
	if tw.ringing < 0 || tw.inflight.Load() < 0 {
		return fmt.Errorf("ringing %d, in flight %d", tw.ringing, tw.inflight.Load())
	}
	if quiet && linked != tw.lenLocked() {
		return fmt.Errorf("%d timers are linked, Len is %d", linked, tw.lenLocked())
	}
	return nil
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
// the process had not been given the processor for d.
func (tw *TimingWheel) suspend(d time.Duration) {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	tw.start = tw.start.Add(-d)
}

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
