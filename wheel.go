package timingwheel

import (
	"math"
	"math/bits"
)

// A wheel is one level of a shard's hierarchy: slots of one tick each, and an overflow wheel for
// what lies beyond them. It is pure arithmetic on ticks of the lowest wheel: no goroutine, no clock
// reading, no lock of its own. The shard's lock guards it.
//
// With a wheel size of 12 and a tick of one second, the first three levels after
// the clock has advanced to second 2:
//
//	level  tick   interval  now  slots hold expirations
//	    0     1         12    2  3 .. 25
//	    1    12        144    0  26 .. 287
//	    2   144      1,728    0  288 .. 3,455
//
// A wheel has twice as many slots as its size says, so it spans two slots of its overflow wheel.
// The timers of a coarse bucket can therefore move down during the slot before the bucket is due,
// and not all at once when it is due: when the clock comes to second 24, the lowest wheel spans all
// of the coarse bucket of seconds 36 to 47, that bucket wants to be opened, and the driver has 12
// seconds to drain it. The textbook's wheel spans one interval; with that, a timer just beyond
// would go to a bucket that wants to be opened already, and cost a wake-up to come back.
//
// What must hold, and why it does:
//
//   - now is a multiple of tick, never decreases, and an overflow wheel's now is not ahead of the
//     finer wheel's: advance truncates the same clock to every level's tick.
//   - An expiration is filed on the finest level whose span, from now on, contains it. On a level
//     above the first it therefore lies at least two slots ahead, and its bucket's attention, one
//     slot before its expiration, is ahead of the clock.
//   - A bucket that may be opened takes no timers: the clock has come within a slot of it, so its
//     whole range is within the finer wheel's span. "May be drained" and "may not be filled" are
//     one condition.
//   - A slot never holds two laps: two expirations of one slot are at least a span apart. While a
//     bucket is being flushed the clock stands on its expiration, so an expiration one lap later is
//     just outside the span. That is what allows the driver to flush a bucket in place, piece by
//     piece, with the lock released in between.
type wheel struct {
	level    uint8 // 0 is the lowest
	tick     int64 // duration of a slot, in ticks of the lowest wheel
	interval int64 // tick * size, saturated: the overflow wheel's tick
	span     int64 // 2 * interval, saturated: how far ahead of now expirations are filed here
	now      int64 // current time: a multiple of tick
	size     int
	buckets  []bucket // 2 * size, rounded up to a power of two; made when first needed
	overflow *wheel   // made when first needed

	placed, reinserted, extended int64 // see LevelStats
}

// maxWheelSize bounds the memory of a wheel and the work under its lock if the size is a mistake: a
// level of so many slots takes 6 MiB, and is made when it is first needed.
const maxWheelSize = 1 << 16

func newWheel(level uint8, tick int64, size int, now int64) *wheel {
	w := &wheel{level: level, tick: tick, interval: math.MaxInt64, now: now - now%tick, size: size}
	if tick <= math.MaxInt64/int64(size) {
		w.interval = tick * int64(size)
	}
	w.span = w.interval + min(w.interval, math.MaxInt64-w.interval)
	return w
}

func (w *wheel) makeBuckets() {
	w.buckets = make([]bucket, 1<<bits.Len(uint(2*w.size-1)))
	for i := range w.buckets {
		w.buckets[i].level = w.level
	}
}

// place returns the bucket for a timer that expires at tick e, which must be ahead of the clock,
// and the tick at which that bucket wants attention: its expiration, the first tick of its slot, or
// one slot before that if it is to be opened. The caller adds the timer and queues the bucket under
// the same hold of the lock. Cost: a division for each level; there are at most log(e)/log(size)
// levels, 62 for the smallest wheel size.
func (w *wheel) place(e int64) (b *bucket, attention int64) {
	for e-w.now >= w.span { // both are non-negative: no overflow
		if w.overflow == nil {
			w.overflow = newWheel(w.level+1, w.interval, w.size, w.now)
		}
		w = w.overflow
	}
	if w.buckets == nil {
		w.makeBuckets()
	}
	w.placed++
	slot := e / w.tick
	b = &w.buckets[int(slot)&(len(w.buckets)-1)]
	if w.level > 0 {
		slot--
	}
	return b, slot * w.tick
}

// expiration returns the first tick of the slot of b, a queued bucket of this or of
// a coarser wheel.
func (w *wheel) expiration(b *bucket) int64 {
	if !b.wantsOpening() {
		return b.attention
	}
	for w.level < b.level {
		w = w.overflow
	}
	return b.attention + w.tick
}

// advance moves the clock of this wheel and of the coarser ones forward to the
// tick to, truncated to each level's own tick. No queued bucket may want attention
// before to. Cost: constant, as a coarser wheel moves once in size calls.
func (w *wheel) advance(to int64) {
	for ; w != nil && to-w.now >= w.tick; w = w.overflow {
		w.now = to - to%w.tick
	}
}
