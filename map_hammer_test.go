package timingwheel

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func sizeOf[T any](x T) uintptr { return unsafe.Sizeof(x) }

// verify returns the first thing that is wrong with the tables. quiet says that no callback is on
// its way.
func (m *Map[K, V]) verify(quiet bool) error {
	for i := range m.shards {
		if err := m.verifyShard(i, quiet); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return nil
}

func (m *Map[K, V]) verifyShard(i int, quiet bool) error {
	s := &m.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moves.Load()%2 != 0 {
		return fmt.Errorf("moves is odd")
	}
	n, buckets := 0, s.buckets.Load()
	keys := map[K]bool{}
	for b := range buckets {
		for e := s.bucket(b).Load(); e != nil; e = e.next.Load() {
			switch n++; {
			case n > s.n:
				return fmt.Errorf("more than %d entries, or a ring", s.n)
			case m.shard(e.hash) != s || bucketOf(e.hash, buckets) != b:
				return fmt.Errorf("entry of hash %x in bucket %d of %d", e.hash, b, buckets)
			case keys[e.key] && e.key == e.key:
				return fmt.Errorf("key %v is there twice", e.key)
			case quiet && !e.timer.Pending():
				return fmt.Errorf("key %v has ended", e.key)
			}
			keys[e.key] = true
		}
	}
	if n != s.n {
		return fmt.Errorf("%d entries, not %d", n, s.n)
	}
	most := int(buckets) + 1
	if !quiet { // a segment may be in the making, by one of some callers
		most = 2*int(buckets) + 16
	}
	if int(buckets) > max(firstSegment, 4*s.n+4) || s.n > most {
		return fmt.Errorf("%d buckets for %d entries", buckets, s.n)
	}
	for k := range s.segments {
		segment := s.segments[k].Load()
		first := uint32(0)
		if k > 0 {
			first = firstSegment << (k - 1)
		}
		if segment == nil {
			if first < buckets {
				return fmt.Errorf("segment %d is missing", k)
			}
			continue
		}
		for j := range *segment {
			if b := first + uint32(j); b >= buckets && (*segment)[j].Load() != nil {
				return fmt.Errorf("bucket %d is in use, of %d", b, buckets)
			}
		}
	}
	return nil
}

// TestBucketOf: the buckets of linear hashing, by hand.
func TestBucketOf(t *testing.T) {
	for _, tc := range []struct {
		hash    uint64
		buckets uint32
		want    uint32
	}{
		{7, 8, 7}, {8, 8, 0}, {8, 9, 8}, {9, 9, 1}, {15, 9, 7}, {15, 16, 15}, {16, 16, 0},
		{16, 17, 16}, {17, 17, 1}, {1<<40 + 5, 8, 5},
	} {
		require.Equal(t, tc.want, bucketOf(tc.hash, tc.buckets), "%+v", tc)
	}
	require.Equal(t, []int{0, 0, 1, 1, 2, 3}, []int{
		segmentOf(0), segmentOf(7), segmentOf(8), segmentOf(15), segmentOf(16), segmentOf(32),
	})
	require.EqualValues(t, 8, len(*newSegment[int, int](1)))
	require.EqualValues(t, 32, len(*newSegment[int, int](3)))
}

// A token is a value that notes what became of it.
type token struct {
	expired, deleted, replaced, handedBack atomic.Int64

	unused    bool  // TouchOrSet found another
	moved     bool  // Reset or Expire may have moved it, so keepUntil does not hold
	keepUntil int64 // by a Touch that has returned true
	at        int64 // when it expired
	mu        sync.Mutex
}

func (k *token) outcomes() int64 {
	return k.expired.Load() + k.deleted.Load() + k.replaced.Load() + k.handedBack.Load()
}

func (k *token) keep(until time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keepUntil = max(k.keepUntil, int64(until))
}

// TestMapHammer has many goroutines do everything to a few keys, most of it near the moment at
// which they expire, and holds each Set against its outcome, each Touch against the time of the
// callback.
func TestMapHammer(t *testing.T) {
	const callers = 8
	length := 400 * time.Millisecond
	if testing.Short() {
		length = 100 * time.Millisecond
	}
	for _, ex := range executors {
		for _, keys := range []int{3, 500} {
			t.Run(fmt.Sprintf("%s/%d keys", ex.name, keys), func(t *testing.T) {
				tw := New(append(ex.opts(), WithTick(100*time.Microsecond), WithWheelSize(3))...)
				start := time.Now()
				m := NewMap(tw, func(_ int, k *token) {
					now := int64(time.Since(start))
					k.mu.Lock()
					k.at = now
					k.mu.Unlock()
					k.expired.Add(1)
				})
				var tokens [callers][]*token
				var wg sync.WaitGroup
				end := time.Now().Add(length)
				for c := range callers {
					wg.Go(func() {
						for time.Now().Before(end) {
							key, d := rand.IntN(keys), pickDelay()
							k := &token{moved: key%2 == 1}
							switch rand.IntN(9) {
							case 0, 1:
								tokens[c] = append(tokens[c], k)
								if old, replaced := m.Set(key, k, d); replaced {
									old.replaced.Add(1)
								}
							case 2, 3:
								tokens[c] = append(tokens[c], k)
								now := time.Since(start)
								actual, touched := m.TouchOrSet(key, k, d)
								if k.unused = touched; touched {
									actual.keep(now + d)
								}
							case 4, 5:
								now := time.Since(start)
								if there, ok := m.Touch(key, d); ok {
									there.keep(now + d)
								}
							case 6:
								if old, ok := m.Delete(key); ok {
									old.deleted.Add(1)
								}
							case 7:
								if key%2 == 1 {
									m.Reset(key, d)
								} else {
									m.Get(key)
								}
							case 8:
								if key%2 == 1 {
									m.Expire(key)
								} else {
									m.Len()
								}
							}
						}
					})
				}
				wg.Go(func() {
					for time.Now().Before(end) {
						if err := m.verify(false); err != nil {
							t.Error(err)
							return
						}
					}
				})
				wg.Wait()
				for _, left := range m.Drain() {
					left.Value.handedBack.Add(1)
				}
				for _, u := range tw.Drain() { // what Expire had just ended
					u.F()
				}
				require.NoError(t, tw.Shutdown(t.Context()))
				require.Zero(t, m.Len())
				require.NoError(t, m.verify(true))
				sum := map[string]int64{}
				for _, k := range slices.Concat(tokens[:]...) {
					want := int64(1)
					if k.unused {
						want = 0
					}
					require.Equal(t, want, k.outcomes(),
						"%d expired, %d deleted, %d replaced, %d handed back",
						k.expired.Load(), k.deleted.Load(), k.replaced.Load(), k.handedBack.Load())
					if !k.moved && k.expired.Load() > 0 {
						require.GreaterOrEqual(t, k.at, k.keepUntil, "expired before a Touch said")
					}
					sum["expired"] += k.expired.Load()
					sum["deleted"] += k.deleted.Load()
					sum["replaced"] += k.replaced.Load()
					sum["handed back"] += k.handedBack.Load()
				}
				t.Log(sum)
			})
		}
	}
}

// TestMapSetsRaceTheWheelsStop: what was set before the wheel was drained has one outcome, what is
// set meanwhile at most one, and nothing is left in the Map.
func TestMapSetsRaceTheWheelsStop(t *testing.T) {
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			for range 50 {
				tw := New(append(ex.opts(), WithTick(50*time.Microsecond), WithWheelSize(2))...)
				m := NewMap(tw, func(_ int, k *token) { k.expired.Add(1) })
				var before, meanwhile [4][]*token
				var draining atomic.Bool
				var wg sync.WaitGroup
				for c := range 4 {
					wg.Go(func() {
						for n := range 200 {
							k := &token{}
							stage := &before[c]
							m.Set(1000*c+n, k, time.Duration(rand.IntN(300))*time.Microsecond)
							if draining.Load() {
								stage = &meanwhile[c]
							}
							*stage = append(*stage, k)
						}
					})
				}
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				draining.Store(true)
				unfired := tw.Drain()
				wg.Wait()
				for _, u := range unfired {
					u.F()
				}
				require.NoError(t, tw.Shutdown(t.Context()))
				for _, k := range slices.Concat(before[:]...) {
					require.EqualValues(t, 1, k.outcomes())
				}
				for _, k := range slices.Concat(meanwhile[:]...) {
					require.LessOrEqual(t, k.outcomes(), int64(1))
				}
				require.Zero(t, m.Len())
				require.NoError(t, m.verify(true))
			}
		})
	}
}

// TestMapExpireRacesTheWheelsDrain: what Expire has taken out expires or is handed back; what it
// has not is handed back.
func TestMapExpireRacesTheWheelsDrain(t *testing.T) {
	const keys = 50
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	for range rounds {
		tw := New()
		var ends [keys]atomic.Int64
		m := NewMap(tw, func(key, _ int) { ends[key].Add(1) })
		for key := range keys {
			m.Set(key, key, time.Hour)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for key := range keys {
				m.Expire(key)
			}
		})
		spin(time.Duration(rand.IntN(20)) * time.Microsecond)
		unfired := tw.Drain()
		wg.Wait()
		for _, u := range unfired {
			u.F()
		}
		require.NoError(t, tw.Shutdown(t.Context()))
		for key := range keys {
			require.EqualValues(t, 1, ends[key].Load(), "key %d", key)
		}
		require.NoError(t, m.verify(true))
	}
}

// TestMapReadersNeverMiss: keys that are there all the time are found all the time, without the
// lock, while others come and go by the thousand, buckets are split and merged, and they
// themselves are replaced.
func TestMapReadersNeverMiss(t *testing.T) {
	const stable, readers, writers = 64, 4, 2
	length := 400 * time.Millisecond
	if testing.Short() {
		length = 100 * time.Millisecond
	}
	tw := New()
	defer tw.Stop()
	m := NewMap(tw, func(int, int) {})
	for key := range stable {
		m.Set(key, key, time.Hour)
	}
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	var looks atomic.Int64
	for range readers {
		wg.Go(func() {
			for time.Now().Before(end) {
				for key := range stable {
					value, ok := m.Get(key)
					if !ok || value != key {
						t.Errorf("Get of %d: %d, %t", key, value, ok)
						return
					}
					if _, ok := m.Touch(key, time.Hour); !ok {
						t.Errorf("Touch of %d", key)
						return
					}
					if _, touched := m.TouchOrSet(key, key, time.Hour); !touched {
						t.Errorf("TouchOrSet of %d", key)
						return
					}
				}
				looks.Add(3 * stable)
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(end) {
			seen := maps.Collect(m.All())
			for key := range stable {
				if seen[key] != key {
					t.Errorf("All has not met %d", key)
					return
				}
			}
		}
	})
	for w := range writers {
		wg.Go(func() {
			for time.Now().Before(end) {
				first := (w + 1) * 1_000_000
				crowd := 1 + rand.IntN(2000)
				for i := range crowd {
					m.Set(first+i, 0, time.Hour)
					key := rand.IntN(stable)
					m.Set(key, key, time.Hour)
				}
				for i := range crowd {
					m.Delete(first + i)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, stable, m.Len())
	require.NoError(t, m.verify(true))
	t.Logf("%d looks", looks.Load())
}

// FuzzMap drives a Map on the fake clock against a list of keys, and compares what is there, and
// what expired and when, after every step.
func FuzzMap(f *testing.F) {
	f.Add(uint8(1), []byte{0, 1, 5, 7, 9, 0, 1, 200, 2, 1, 40, 7, 90, 4, 1, 8, 3, 1, 12})
	f.Add(uint8(9), []byte("the quick brown fox jumps over the lazy dog, twice and thrice"))
	f.Add(uint8(200), []byte("Sphinx of black quartz, judge my vow; and again, and yet again!"))
	f.Fuzz(runMapProgram)
}

func runMapProgram(t *testing.T, tick uint8, program []byte) {
	bubble(t, func(t *testing.T) {
		o := &mapOracle{t: t, tick: time.Duration(tick)*time.Duration(tick)*10*time.Microsecond + 1}
		o.tw = New(WithTick(o.tick), WithWheelSize(4), WithInline())
		o.start = o.tw.start
		o.m = NewMap(o.tw, func(key float64, value int) {
			o.got = append(o.got, mapExpiry[float64, int]{time.Since(o.start), key, value})
		})
		next := func() (n int) {
			if len(program) > 0 {
				n, program = int(program[0]), program[1:]
			}
			return n
		}
		duration := func() time.Duration {
			n := next()
			d := time.Duration(n >> 2)
			switch n & 3 {
			case 0:
				return d - 8
			case 1:
				return d * o.tick
			case 2:
				return d*d*o.tick - 1
			}
			return math.MaxInt64 >> (n >> 2)
		}
		// Few keys, one of them not equal to itself.
		key := func() float64 {
			n := next() % 12
			if n == 11 {
				return math.NaN()
			}
			return float64(n)
		}
		for len(program) > 0 && o.sets < 200 {
			switch next() % 10 {
			case 0, 1:
				o.set(key(), duration())
			case 2:
				o.touchOrSet(key(), duration())
			case 3, 4:
				o.touch(key(), duration())
			case 5:
				o.reset(key(), duration())
			case 6:
				o.remove(key())
			case 7:
				o.expire(key())
			default:
				o.sleep(duration())
			}
		}
		o.sleep(longAgo)
		o.drain()
	})
}

// longAgo is how far the fake clock goes in a step: not beyond the life of a wheel in three.
const longAgo = 40 * 365 * 24 * time.Hour

type mapOracle struct {
	t     *testing.T
	tw    *TimingWheel
	m     *Map[float64, int]
	start time.Time
	tick  time.Duration
	sets  int
	there []*modelEntry
	got   []mapExpiry[float64, int]
}

type modelEntry struct {
	key      float64
	value    int
	deadline time.Duration
	atOnce   bool // due at once, and not at the end of the tick
}

func (o *mapOracle) now() time.Duration { return time.Since(o.start) }

func (o *mapOracle) after(d time.Duration) time.Duration {
	return time.Duration(deadlineAfter(int64(o.now()), d))
}

func (o *mapOracle) find(key float64) *modelEntry {
	if i := slices.IndexFunc(o.there, func(e *modelEntry) bool { return e.key == key }); i >= 0 {
		return o.there[i]
	}
	return nil
}

func (o *mapOracle) drop(e *modelEntry) {
	o.there = slices.DeleteFunc(o.there, func(x *modelEntry) bool { return x == e })
}

func (o *mapOracle) add(key float64, d time.Duration) {
	o.there = append(o.there,
		&modelEntry{key: key, value: o.sets, deadline: o.after(d), atOnce: d <= 0})
}

func (o *mapOracle) set(key float64, d time.Duration) {
	o.sets++
	was := o.find(key)
	old, replaced := o.m.Set(key, o.sets, d)
	require.Equal(o.t, was != nil, replaced)
	if was != nil {
		require.Equal(o.t, was.value, old)
		o.drop(was)
	}
	o.add(key, d)
	o.check()
}

func (o *mapOracle) touchOrSet(key float64, d time.Duration) {
	o.sets++
	was := o.find(key)
	actual, touched := o.m.TouchOrSet(key, o.sets, d)
	require.Equal(o.t, was != nil, touched)
	if was == nil {
		require.Equal(o.t, o.sets, actual)
		o.add(key, d)
	} else {
		require.Equal(o.t, was.value, actual)
		was.deadline = max(was.deadline, o.after(d))
	}
	o.check()
}

func (o *mapOracle) touch(key float64, d time.Duration) {
	was := o.find(key)
	value, ok := o.m.Touch(key, d)
	require.Equal(o.t, was != nil, ok)
	if was != nil {
		require.Equal(o.t, was.value, value)
		was.deadline = max(was.deadline, o.after(d))
	}
	o.check()
}

func (o *mapOracle) reset(key float64, d time.Duration) {
	was := o.find(key)
	require.Equal(o.t, was != nil, o.m.Reset(key, d))
	if was != nil {
		was.deadline, was.atOnce = o.after(d), d <= 0
	}
	o.check()
}

func (o *mapOracle) remove(key float64) {
	was := o.find(key)
	value, ok := o.m.Delete(key)
	require.Equal(o.t, was != nil, ok)
	if was != nil {
		require.Equal(o.t, was.value, value)
		o.drop(was)
	}
	o.check()
}

func (o *mapOracle) expire(key float64) {
	was := o.find(key)
	require.Equal(o.t, was != nil, o.m.Expire(key))
	_, ok := o.m.Get(key)
	require.False(o.t, ok)
	if was != nil {
		was.deadline, was.atOnce = o.now(), true
	}
	o.check()
}

func (o *mapOracle) sleep(d time.Duration) {
	if d > 0 && o.now() < longAgo {
		time.Sleep(min(d, longAgo))
		o.check()
	}
}

// drain ends the Map.
func (o *mapOracle) drain() {
	var want []mapExpiry[float64, int]
	for _, e := range o.there {
		want = append(want, mapExpiry[float64, int]{e.deadline, e.key, e.value})
	}
	var got []mapExpiry[float64, int]
	for _, e := range o.m.Drain() {
		got = append(got, mapExpiry[float64, int]{e.Deadline.Sub(o.start), e.Key, e.Value})
	}
	o.same(want, got)
	require.NoError(o.t, o.m.verify(true))
	require.Zero(o.t, o.tw.Len())
}

// same compares in the order of values, which are told apart; NaN is not equal to itself.
func (o *mapOracle) same(want, got []mapExpiry[float64, int]) {
	order := func(a, b mapExpiry[float64, int]) int { return a.value - b.value }
	slices.SortFunc(want, order)
	slices.SortFunc(got, order)
	require.Equal(o.t, fmt.Sprint(want), fmt.Sprint(got))
}

func (o *mapOracle) check() {
	verify(o.t, o.tw)
	now := o.now()
	var want []mapExpiry[float64, int]
	for _, e := range slices.Clone(o.there) {
		at := e.deadline
		switch {
		case int64(e.deadline) == never:
			continue
		case !e.atOnce:
			at = roundUp(e.deadline, o.tick)
		}
		if at <= now {
			want = append(want, mapExpiry[float64, int]{at, e.key, e.value})
			o.drop(e)
		}
	}
	o.same(want, o.got)
	o.got = nil
	require.NoError(o.t, o.m.verify(true))
	require.Equal(o.t, len(o.there), o.m.Len())
	require.Equal(o.t, len(o.there), o.tw.Len())
	seen := map[int]bool{}
	for _, value := range o.m.All() {
		seen[value] = true
	}
	require.Len(o.t, seen, len(o.there))
	for _, e := range o.there {
		require.True(o.t, seen[e.value])
		value, ok := o.m.Get(e.key)
		require.Equal(o.t, e.key == e.key, ok)
		require.True(o.t, !ok || value == e.value)
	}
}
