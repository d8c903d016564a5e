package timingwheel

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// This file holds what the engine counts and measures. Each shard counts under its own lock, which
// the goroutine that counts holds anyway, so counting costs an addition. An extension, which takes
// no lock, is counted when a flush finds it.

// counters are a shard's part of Stats.
type counters struct {
	started, fired, stopped, dropped int64
	reinserted, extended             int64
	longestHold                      int
}

// pending is how many timers of the shard are armed.
func (c *counters) pending() int64 { return c.started - c.fired - c.stopped - c.dropped }

// Lateness is a histogram of how long after their deadlines timers fired or their callbacks began.
// It counts samples. The driver works in pieces of at most 64 timers, and takes the first of each
// piece and every eighth after it. Of callbacks on goroutines of their own, it takes only the first
// of each piece. Timers that were due when they were armed, and fired at once, are not counted.
type Lateness struct {
	Samples int64
	Sum     time.Duration // of the samples

	// Counts[i] is the number of samples below LatenessBound(i) and not below the bound before it.
	// The last is the number of those above all bounds.
	Counts [latenessBounds + 1]int64
}

const (
	latenessBounds = 25
	// finestBound is the exponent of the lowest bound: 2^14 ns are 16 us, less than
	// any wake-up takes. The highest is 275 s, as an executor's backlog may be minutes.
	finestBound = 14

	// sampleEvery is chosen so that the clock readings, 30 to 40 ns each, do not show
	// beside some hundred nanoseconds for each timer that fires.
	sampleEvery = 8

	// beginsPiece, as shard.skip, says that the next timer is the first of a piece. Of the
	// callbacks that get a goroutine each only these are samples of CallbackLateness: every eighth
	// would cost 4 % of what firing does. Of inline callbacks every eighth must be a sample,
	// because those behind the first wait for it.
	beginsPiece = -1
)

// LatenessBound returns the upper bound of Lateness.Counts[i]. The first bound is 16.384 us, and
// each further one is twice the one before. For the last count, which has no bound, LatenessBound
// returns the longest duration there is.
func LatenessBound(i int) time.Duration {
	if i >= latenessBounds {
		return 1<<63 - 1
	}
	return 1 << (finestBound + max(i, 0))
}

// Quantile returns a bound below which a share q of the samples lies, for q between 0 and 1. If the
// quantile itself is between 8.2 us and 275 s, the bound is at most twice as much. Quantile returns
// 0 if there are no samples.
func (l Lateness) Quantile(q float64) time.Duration {
	seen := int64(0)
	for i, n := range l.Counts {
		seen += n
		if n > 0 && float64(seen) >= q*float64(l.Samples) {
			return LatenessBound(i)
		}
	}
	return 0
}

func (l *Lateness) add(late time.Duration) {
	l.Samples++
	l.Sum += late
	l.Counts[binOf(late)]++
}

func binOf(late time.Duration) int {
	return min(bits.Len64(uint64(late)>>finestBound), latenessBounds)
}

// sharedLateness is a Lateness that callbacks add to where they run, without a lock.
type sharedLateness struct {
	sum    atomic.Int64
	counts [latenessBounds + 1]atomic.Int64
}

func (l *sharedLateness) add(late time.Duration) {
	l.sum.Add(int64(late))
	l.counts[binOf(late)].Add(1)
}

// load returns samples that agree with the counts. Their sum may be ahead by what is being added.
func (l *sharedLateness) load() (sum Lateness) {
	for i := range l.counts {
		sum.Counts[i] = l.counts[i].Load()
		sum.Samples += sum.Counts[i]
	}
	sum.Sum = time.Duration(l.sum.Load())
	return sum
}

// untimed, in place of a deadline, says that a callback is no sample.
const untimed int64 = -1

// sampleLocked notes how late a timer with this deadline fires, now and then. It returns
// the deadline if the callback is a sample too, and else untimed.
func (s *shard) sampleLocked(deadline int64) (timed int64) {
	if s.skip > 0 {
		s.skip--
		return untimed
	}
	timed = deadline
	if s.engine.executor.mode == goroutine && s.skip != beginsPiece {
		timed = untimed
	}
	s.skip = sampleEvery - 1
	s.late.add(time.Duration(max(s.engine.now()-deadline, 0)))
	return timed
}
