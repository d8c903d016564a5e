package timingwheel

import "math"

// A wheel is one level of the hierarchy: size slots of tick each, and an
// overflow wheel for what lies beyond them. It is pure arithmetic on ticks of
// the lowest wheel: no goroutine, no clock reading, no lock of its own.
// TimingWheel.mu guards it; the oracle test drives it bare.
//
// With 12 slots and a tick of one second, the first three levels after the
// clock has advanced to second 2:
//
//	level  tick   interval  now  slots hold expirations
//	    0     1         12    2  3 .. 13, slot = e mod 12
//	    1    12        144    0  14 .. 143, slot = e/12 mod 12
//	    2   144      1,728    0  144 .. 1,727, slot = e/144 mod 12
//
// What must hold, and why it does:
//
//   - now is a multiple of tick, never decreases, and an overflow wheel's now
//     is not ahead of the finer wheel's: advance truncates the same clock to
//     every level's tick.
//   - An expiration is filed on the finest level whose span, now up to
//     now+interval, contains it. On a level above the first it therefore lies
//     at least one slot ahead of now, so its bucket's expiration is ahead of
//     the clock.
//   - A slot never holds two laps: two expirations of one slot are an interval
//     apart, and the span is one interval. While a bucket is being flushed the
//     clock stands on its expiration, so an expiration one lap later is just
//     outside the span and goes to the overflow wheel. That is what allows the
//     driver to flush a bucket in place, piece by piece, with the lock released
//     in between.
type wheel struct {
	tick     int64 // duration of a slot, in ticks of the lowest wheel
	interval int64 // tick * size, saturated
	now      int64 // current time: a multiple of tick
	buckets  []bucket
	overflow *wheel // made when first needed
}

func newWheel(tick int64, size int, now int64) *wheel {
	w := &wheel{
		tick:     tick,
		interval: math.MaxInt64,
		now:      now - now%tick,
		buckets:  make([]bucket, size),
	}
	if tick <= math.MaxInt64/int64(size) {
		w.interval = tick * int64(size)
	}
	for i := range w.buckets {
		w.buckets[i].init()
	}
	return w
}

// place returns the bucket for a timer that expires at tick e, which must be
// ahead of the clock, and that bucket's expiration, which is at most e and
// ahead of the clock too. The caller adds the timer and queues the bucket
// under the same hold of the lock. Cost: two divisions a level; the levels
// number at most log(e)/log(size), 62 for the smallest wheel size.
func (w *wheel) place(e int64) (b *bucket, expiration int64) {
	for e-w.now >= w.interval { // both are non-negative: no overflow
		if w.overflow == nil {
			w.overflow = newWheel(w.interval, len(w.buckets), w.now)
		}
		w = w.overflow
	}
	slot := e / w.tick
	return &w.buckets[slot%int64(len(w.buckets))], slot * w.tick
}

// advance moves the clock of this wheel and of the coarser ones forward to the
// tick to, truncated to each level's own tick. No queued bucket may expire
// before to. Cost: constant, as a coarser wheel moves once in size calls.
func (w *wheel) advance(to int64) {
	for ; w != nil && to-w.now >= w.tick; w = w.overflow {
		w.now = to - to%w.tick
	}
}
