package timingwheel

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzTimingWheel drives a whole wheel, driver and alarm included, on the fake
// clock against a list of deadlines, and compares what fired and when after
// every step.
func FuzzTimingWheel(f *testing.F) {
	f.Add(uint8(1), uint8(2), []byte{0, 5, 200, 0, 40, 6, 90, 3, 0, 12, 6, 255, 4, 1, 6, 3})
	f.Add(uint8(3), uint8(12), []byte{1, 200, 1, 144, 6, 48, 7, 8, 5, 0, 1, 3, 6, 200})
	f.Add(uint8(9), uint8(7),
		[]byte("the quick brown fox jumps over the lazy dog, twice and thrice"))
	f.Add(uint8(250), uint8(250),
		[]byte("Sphinx of black quartz, judge my vow; and again, and yet again!"))
	f.Fuzz(func(t *testing.T, tick, size uint8, program []byte) {
		bubble(t, func(t *testing.T) {
			o := &oracle{t: t,
				tick: time.Duration(tick)*time.Duration(tick)*10*time.Microsecond + 1}
			o.tw = New(WithTick(o.tick), WithWheelSize(int(size)+2), WithInline(),
				withShards(1+int(tick)%4))
			next := func() (n int64) {
				if len(program) > 0 {
					n, program = int64(program[0]), program[1:]
				}
				return n
			}
			// A duration is a few nanoseconds, ticks or laps, give or take one, or almost endless.
			duration := func() time.Duration {
				n := next()
				d := time.Duration(n >> 3)
				switch n & 7 {
				case 0:
					return d
				case 1, 2:
					return d * o.tick
				case 3:
					return d*o.tick*time.Duration(size) - 1
				case 4:
					return d*o.tick*time.Duration(size)*time.Duration(size) + o.tick
				case 5:
					return o.tick*time.Duration(size) + d - 16
				case 6:
					return -d
				}
				return math.MaxInt64 >> n
			}
			for len(program) > 0 && len(o.timers) < 100 {
				switch next() % 8 {
				case 0, 1, 2:
					o.add(duration())
				case 3:
					o.stop(next())
				case 4, 5:
					o.reset(next(), duration())
				case 6:
					o.sleep(duration())
				case 7:
					o.sleep(time.Duration(next()))
				}
			}
			o.sleep(100 * 365 * 24 * time.Hour)
		})
	})
}

type oracle struct {
	t      *testing.T
	tw     *TimingWheel
	tick   time.Duration
	timers []*oracleTimer
	got    []time.Duration // when callbacks ran since the last check, and
	which  []*oracleTimer  // whose they were
}

type oracleTimer struct {
	Timer
	pending bool
	fires   time.Duration // since the wheel was made; the far end if never
}

func (o *oracle) now() time.Duration { return time.Since(o.tw.start) }

func (o *oracle) add(d time.Duration) {
	x := &oracleTimer{}
	o.tw.Init(&x.Timer, func() {
		o.got = append(o.got, o.now())
		o.which = append(o.which, x)
	})
	o.timers = append(o.timers, x)
	o.arm(x, d)
}

func (o *oracle) arm(x *oracleTimer, d time.Duration) {
	was := x.pending
	x.pending = true
	deadline := int64(o.now())
	switch {
	case d <= 0:
		x.fires = o.now()
	case int64(d) >= never-deadline:
		x.fires = math.MaxInt64
	default:
		x.fires = roundUp(time.Duration(deadline)+d, o.tick)
	}
	require.Equal(o.t, was, x.Reset(d))
	o.check(o.now())
}

func (o *oracle) stop(n int64) {
	if len(o.timers) > 0 {
		x := o.timers[n%int64(len(o.timers))]
		require.Equal(o.t, x.pending, x.Stop())
		x.pending = false
		o.check(o.now())
	}
}

func (o *oracle) reset(n int64, d time.Duration) {
	if len(o.timers) > 0 {
		o.arm(o.timers[n%int64(len(o.timers))], d)
	}
}

// sleep lets time pass, but not so much that the fake clock ends.
func (o *oracle) sleep(d time.Duration) {
	if d > 0 && o.now() < 100*365*24*time.Hour {
		d = min(d, 100*365*24*time.Hour)
		time.Sleep(d)
		o.check(o.now())
	}
}

func (o *oracle) check(now time.Duration) {
	synctest.Wait()
	var want []time.Duration
	pending := 0
	first := time.Duration(math.MaxInt64)
	for _, x := range o.timers {
		switch {
		case x.pending && x.fires <= now:
			want = append(want, x.fires)
		case x.pending:
			pending++
			first = min(first, x.fires)
		}
	}
	slices.Sort(want)
	require.Equal(o.t, want, o.got, "when they fired, in order")
	for i, x := range o.which {
		require.Equal(o.t, x.fires, o.got[i])
		require.True(o.t, x.pending)
		x.pending = false
	}
	o.got, o.which = nil, nil
	require.NoError(o.t, o.tw.verify(true))
	require.Equal(o.t, pending, o.tw.Len())
}

// TestTickOf: deadlines round up and the clock rounds down. Rounding a deadline
// down would not fire it early, as flush compares the deadline itself, but the
// driver would spin through the tick before.
func TestTickOf(t *testing.T) {
	for _, tc := range []struct{ tick, deadline, want int64 }{
		{1, 0, 0}, {1, 1, 1}, {10, 0, 0}, {10, 1, 1}, {10, 9, 1}, {10, 10, 1}, {10, 11, 2},
		{7, never, (never + 6) / 7}, {1, never, never}, {math.MaxInt64, 1, 1},
		{math.MaxInt64, never, 1},
	} {
		tw := &clock{tick: tc.tick}
		require.Equal(t, tc.want, tw.tickOf(tc.deadline), "%+v", tc)
	}
}
