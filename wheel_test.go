package timingwheel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// filed tells where the expiration e would be placed: the level, the slot as the
// textbook counts it, and the bucket's expiration.
func filed(w *wheel, e int64) (level, slot int, expiration int64) {
	b, attention := w.place(e)
	for w.level < b.level {
		w = w.overflow
	}
	for i := range w.buckets {
		if &w.buckets[i] == b {
			b.attention = attention
			expiration = w.expiration(b)
			return int(w.level), int(expiration / w.tick % int64(w.size)), expiration
		}
	}
	panic("placed nowhere")
}

// TestTextbookWalk: a timer comes by the slots of the textbook's walk, but moves down
// as soon as its bucket may be opened, one slot before it is due; and it begins on the
// finer wheel if that slot has begun.
func TestTextbookWalk(t *testing.T) {
	w := newWheel(0, 1, 12, 0)
	w.advance(2)
	level, slot, _ := filed(w, 2+3)
	require.Equal(t, []int{0, 5}, []int{level, slot}, "at clock 2 a 3 s timer lies in slot 5")

	type step struct {
		at          int64
		level, slot int
		expiration  int64
	}
	for e, walk := range map[int64][]step{
		200: {{0, 1, 4, 192}, {180, 0, 8, 200}},
		310: {{0, 2, 2, 288}, {144, 1, 1, 300}, {288, 0, 10, 310}},
	} {
		w := newWheel(0, 1, 12, 0)
		for i, want := range walk {
			w.advance(want.at)
			level, slot, expiration := filed(w, e)
			require.Equal(t, want, step{want.at, level, slot, expiration})
			if i+1 < len(walk) {
				_, attention := w.place(e)
				require.Equal(t, walk[i+1].at, attention)
			}
		}
	}

	w = newWheel(0, 1, 12, 0)
	w.place(20_000)
	var spans []int64
	for ; w != nil; w = w.overflow {
		spans = append(spans, w.interval)
	}
	require.Equal(t, []int64{12, 144, 1728, 20736}, spans)
}

// TestPlaceBoundaries puts expirations around every power of the wheel size, from
// clocks around them too, and follows each down to its tick: by buckets that are
// flushed when they are due, and by buckets that are opened as soon as may be.
func TestPlaceBoundaries(t *testing.T) {
	for _, size := range []int{2, 3, 12, 20, 256, 512} {
		for _, ahead := range []bool{false, true} {
			t.Run(fmt.Sprintf("size=%d/ahead=%t", size, ahead), func(t *testing.T) {
				edges := []int64{0, 1, 2, 3, 5, 255, 256, 257, 1023, 1024, 1029}
				for p := int64(size); p < 1<<30; p *= int64(size) {
					edges = append(edges, p-1, p, p+1, 2*p-1, 2*p)
				}
				for _, clock := range edges {
					for _, delay := range edges[1:] {
						w := newWheel(0, 1, size, 0)
						w.advance(clock)
						follow(t, w, clock+delay, ahead)
					}
				}
			})
		}
	}
}

// follow follows a timer for the tick e down the wheels.
func follow(t *testing.T, w *wheel, e int64, ahead bool) {
	t.Helper()
	for last := 64; ; {
		_, attention := w.place(e)
		level, _, expiration := filed(w, e)
		if level >= last || expiration <= w.now || expiration > e || attention > expiration {
			t.Fatalf("e %d at %d, once at level %d: level %d, attention %d, expiration %d", e,
				w.now, last, level, attention, expiration)
		}
		last = level
		switch {
		case level == 0:
			if attention != e {
				t.Fatalf("e %d at %d: filed under %d", e, w.now, attention)
			}
			return
		case ahead:
			w.advance(attention)
		default:
			w.advance(expiration)
			if expiration == e {
				return // fires from where it is
			}
		}
	}
}

func TestLevelsAreBounded(t *testing.T) {
	for size, most := range map[int]int{2: 62, 3: 40, 12: 18, 256: 8, 1 << 16: 4} {
		w := newWheel(0, 1, size, 0)
		w.place(1<<62 - 1)
		levels := 0
		for ; w != nil; w = w.overflow {
			require.Positive(t, w.interval)
			require.GreaterOrEqual(t, w.span, w.interval)
			levels++
		}
		require.LessOrEqual(t, levels, most, "size %d", size)
	}
}

func TestOverflowWheelOfAnOldWheel(t *testing.T) {
	w := newWheel(0, 1, 8, 0)
	w.advance(1_000_030)
	_, _, expiration := filed(w, 1_000_030+150) // makes two levels at this late hour
	require.Equal(t, int64(1_000_024), w.overflow.now)
	require.Equal(t, int64(1_000_000), w.overflow.overflow.now)
	require.Equal(t, int64(1_000_128), expiration)

	w = newWheel(0, 1, 2, 0)
	w.advance(never - 1)
	_, _, expiration = filed(w, never)
	require.Equal(t, never, expiration)
	for ; w != nil; w = w.overflow {
		require.Positive(t, w.span)
	}
}

// FuzzWheel drives the bare wheel and its delay queue against a slice, the way
// the driver does, with jumps as large as the fuzzer likes.
func FuzzWheel(f *testing.F) {
	f.Add(uint8(2), []byte{1, 5, 2, 9, 40, 3, 200, 250, 7, 7, 7, 31, 1})
	f.Add(uint8(12), []byte{0, 200, 3, 144, 3, 48, 3, 8})
	f.Add(uint8(3), []byte("the quick brown fox jumps over the lazy dog, twice and thrice"))
	f.Fuzz(func(t *testing.T, size uint8, program []byte) {
		if size < 2 {
			size += 2
		}
		tw := New(WithWheelSize(int(size)), WithTick(1), WithInline(), withShards(1+len(program)%3))
		tw.started.Store(false) // no alarm: this test is the clock
		tw.alarm.armed.Store(awake)
		o := &wheelOracle{t: t, tw: tw, pending: map[*Timer]int64{}}
		next := func() int64 {
			if len(program) == 0 {
				return 0
			}
			b := program[0]
			program = program[1:]
			// A byte is a small number, a number near a boundary of a level, or
			// a huge one.
			n := int64(b >> 2)
			switch b & 3 {
			case 1:
				return n * int64(size)
			case 2:
				p := int64(1)
				for range n % 10 {
					if p < 1<<50 {
						p *= int64(size)
					}
				}
				return max(p+n/10-3, 0)
			case 3:
				return 1 << (n % 50)
			}
			return n
		}
		for len(program) > 0 && len(o.order) < 200 {
			switch op := next() % 8; op {
			case 0, 1, 2:
				o.place(next())
			case 3:
				o.stop(o.pick(next()))
			case 4, 5:
				o.reset(o.pick(next()), next())
			case 6:
				o.advance(next())
			default:
				o.advancePartly(next(), next())
			}
			o.check()
		}
		o.advance(1 << 55)
		o.check()
	})
}

// wheelOracle is the dumb version: a map of expirations, sorted when time passes.
type wheelOracle struct {
	t       *testing.T
	tw      *TimingWheel
	clock   int64
	pending map[*Timer]int64
	order   []*Timer // all that were ever made
	fired   []int64  // expirations, in the order of firing
}

func (o *wheelOracle) place(d int64) {
	t := &Timer{}
	o.tw.Init(t, func() { o.fired = append(o.fired, o.pending[t]); delete(o.pending, t) })
	o.order = append(o.order, t)
	o.arm(t, d)
}

func (o *wheelOracle) arm(t *Timer, d int64) {
	e := o.clock + max(d, 0)
	_, was := o.pending[t]
	require.Equal(o.t, was, t.shard.rearm(t, e, o.clock))
	o.pending[t] = e
}

// pick returns one of the timers, nil if there is none.
func (o *wheelOracle) pick(n int64) *Timer {
	if len(o.order) == 0 {
		return nil
	}
	return o.order[n%int64(len(o.order))]
}

func (o *wheelOracle) stop(t *Timer) {
	if t != nil {
		_, was := o.pending[t]
		require.Equal(o.t, was, t.Stop())
		delete(o.pending, t)
	}
}

func (o *wheelOracle) reset(t *Timer, d int64) {
	if t != nil {
		o.arm(t, d)
	}
}

// advance is a round of the driver, up to a clock of the test's own.
func (o *wheelOracle) advance(d int64) {
	want := o.forward(d)
	o.tw.driver.round(o.clock) // the tick is 1, so an instant is a tick
	require.Equal(o.t, want, o.fired)
}

// advancePartly is a round that is broken off after a few steps and then some of
// the reinsertion ahead of time, so that calls come in between.
func (o *wheelOracle) advancePartly(d, n int64) {
	want := o.forward(d)
	for i := range o.tw.shards {
		o.tw.shards[i].begin(o.clock)
	}
	for ; n > 0; n -= 3 {
		if s, limit := o.tw.driver.earliest(o.clock); s != nil {
			s.piece(o.clock, limit, int(min(n, 3)))
		} else if s := &o.tw.shards[n%int64(len(o.tw.shards))]; len(s.draining) > 0 {
			s.drainPiece(int(min(n, 3)))
		} else {
			break
		}
	}
	first := want[:min(len(o.fired), len(want))]
	require.True(o.t, slices.Equal(first, o.fired), "want %v first, got %v", want, o.fired)
}

// forward moves the clock and returns what has to fire.
func (o *wheelOracle) forward(d int64) (want []int64) {
	o.clock += max(d, 0)
	for _, e := range o.pending {
		if e <= o.clock {
			want = append(want, e)
		}
	}
	slices.Sort(want)
	o.fired = nil
	return want
}

func (o *wheelOracle) check() {
	require.Equal(o.t, len(o.pending), o.tw.Len())
	require.NoError(o.t, o.tw.verify(false))
	// The next wake-up is never later than the first timer.
	for x, e := range o.pending {
		require.LessOrEqual(o.t, x.shard.next.Load(), e)
	}
}
