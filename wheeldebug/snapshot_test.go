package wheeldebug

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// TestReading checks the JSON of a wheel on the fake clock, to the nanosecond.
func TestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New(timingwheel.WithInline(), timingwheel.WithWheelSize(16))
		h := Handler(tw)
		read := func() reading { return readings(t, h, "/?format=json")[0] }
		f := func() {}

		empty := read()
		require.Equal(t, "wheel", empty.Name)
		require.Equal(t, "running", empty.State)
		require.Equal(t, "inline", empty.Executor)
		require.Nil(t, empty.AlarmIn)
		require.Zero(t, empty.counters)
		require.Equal(t, []level{{Tick: time.Millisecond, Exact: true, Cells: []int{},
			Full: []int{}}}, empty.Levels)
		require.Equal(t, queue{Head: []entry{}}, empty.Queue)

		time.Sleep(time.Second)
		tw.AfterFunc(5*time.Millisecond-100*time.Microsecond, f) // fires 100 us after its deadline
		tw.AfterFunc(20*time.Millisecond, f).Stop()
		for range 3 {
			tw.AfterFunc(100*time.Millisecond, f)
		}
		tw.AfterFunc(10*time.Millisecond, f)
		tw.AfterFunc(math.MaxInt64, f)
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()

		r := read()
		require.Equal(t, 1006*time.Millisecond, r.At)
		require.True(t, r.Time.Equal(time.Now()))
		require.Equal(t, counters{Pending: 5, Started: 7, Fired: 1, Stopped: 1}, r.counters)
		require.Equal(t, int64(1), r.Wakeups)
		require.Equal(t, 1, r.LongestHold)
		require.Equal(t, 4*time.Millisecond, *r.AlarmIn)
		require.Equal(t, 1, r.Beyond)
		require.Zero(t, r.Due)
		require.Equal(t, mostLimit, r.CountLimit)

		require.Equal(t, int64(1), r.Lateness.Samples)
		require.Equal(t, 100*time.Microsecond, r.Lateness.Sum)
		require.Equal(t, 100*time.Microsecond, r.Lateness.Mean)
		require.Equal(t, 131072*time.Nanosecond, r.Lateness.P50)
		require.Equal(t, 131072*time.Nanosecond, r.Lateness.P99)
		require.Equal(t, int64(1), r.Lateness.Bins[3].Count)
		require.Equal(t, 131072*time.Nanosecond, *r.Lateness.Bins[3].Below)
		require.Nil(t, r.Lateness.Bins[len(r.Lateness.Bins)-1].Below)

		require.Len(t, r.Levels, 2)
		low, high := r.Levels[0], r.Levels[1]
		require.Equal(t, []time.Duration{time.Millisecond, 32 * time.Millisecond},
			[]time.Duration{low.Tick, low.Lap})
		require.Equal(t, []time.Duration{16 * time.Millisecond, 512 * time.Millisecond},
			[]time.Duration{high.Tick, high.Lap})
		require.Equal(t, []int{32, 1, 1, 1},
			[]int{low.Slots, low.Busy, low.Timers, low.SlotsPerCell})
		require.Equal(t, []int{32, 1, 3, 1},
			[]int{high.Slots, high.Busy, high.Timers, high.SlotsPerCell})
		require.Equal(t, only(32, 1010%32, 1), low.Cells, "due at tick 1010")
		require.Equal(t, only(32, 1100/16%32, 3), high.Cells, "due at tick 1100")
		require.True(t, low.Exact && high.Exact)
		require.Equal(t, int64(3), high.Placed)

		require.Equal(t, entry{In: 4 * time.Millisecond, Level: 0, Shard: r.Queue.Head[0].Shard},
			r.Queue.Head[0])
		require.Equal(t, 1, r.Queue.Head[1].Level)
		require.Equal(t, 1072*time.Millisecond-r.At, r.Queue.Head[1].In,
			"one slot before tick 1088")
		require.Equal(t, r.Queue.Buckets, len(r.Queue.Head))

		require.Len(t, r.Shards, len(tw.Stats().Shards))
		var started int64
		for i, s := range r.Shards {
			require.Equal(t, i, s.Shard)
			started += s.Started
		}
		require.Equal(t, r.Started, started)

		tw.Stop()
		time.Sleep(time.Second)
		r = read()
		require.Equal(t, "stopped", r.State)
		require.Equal(t, int64(5), r.Dropped)
		require.Nil(t, r.AlarmIn)
	})
}

// only returns n numbers that are all zero but one.
func only(n, at, value int) []int {
	list := make([]int, n)
	list[at] = value
	return list
}

func TestReadingOfAWheelNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.NewTimingWheel(time.Second, 10)
		h := Handler(tw)
		tw.AfterFunc(time.Second, func() {})
		require.Equal(t, "not started", readings(t, h, "/?format=json")[0].State)
		tw.Start()
		time.Sleep(time.Second)
		r := readings(t, h, "/?format=json")[0]
		require.Equal(t, "running", r.State)
		require.Equal(t, "goroutine", r.Executor)
		tw.Stop()
	})
}

// TestShared: a reading serves all requests within 50 ms, for the page and for the JSON, and each
// wheel has its own.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		defer tw.Stop()
		var set Set
		set.Add("a", tw)
		set.Add("b", timingwheel.New())
		started := func() int64 { return readings(t, &set, "/?format=json&wheel=a")[0].Started }
		require.Zero(t, started())
		tw.AfterFunc(time.Hour, func() {})
		time.Sleep(shared - 1)
		require.Zero(t, started())
		_, page := get(&set, "/?wheel=a")
		require.Contains(t, page, `data-v="started" data-f="count">0<`)
		require.Equal(t, shared-1, readings(t, &set, "/?format=json&wheel=b")[0].At)
		time.Sleep(time.Nanosecond)
		require.Equal(t, int64(1), started())
		_, page = get(&set, "/?wheel=a")
		require.Contains(t, page, `data-v="started" data-f="count">1<`)
	})
}

// TestSharedFor: the longer a reading takes, the longer it is shared.
func TestSharedFor(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0:                      shared,
		time.Millisecond:       shared,
		2 * time.Millisecond:   100 * time.Millisecond,
		10 * time.Millisecond:  500 * time.Millisecond,
		100 * time.Millisecond: longestShared,
		time.Hour:              longestShared,
	} {
		require.Equal(t, want, sharedFor(took), "%v", took)
	}
}

// TestCount: the lower limit keeps to the budget unless it is leastLimit.
func TestCount(t *testing.T) {
	for _, buckets := range []int{0, 1, 100, 195, 196, 1000, 3000, 3126, 131072 * 4} {
		c := new(tally).count(10_000_000, buckets)
		require.GreaterOrEqual(t, c.Limit, leastLimit)
		require.LessOrEqual(t, c.Limit, mostLimit)
		if c.Limit > leastLimit {
			require.LessOrEqual(t, c.Limit*buckets, budget)
		}
		require.Equal(t, mostLimit, c.DeepLimit)
		require.Equal(t, mostParts, c.Parts)
	}
	require.Equal(t, inside.Count{Limit: mostLimit}, new(tally).count(budget, 1_000_000),
		"all can be counted")
	require.Equal(t, inside.Count{Limit: 16, DeepLimit: mostLimit, Parts: 3, Turn: 1},
		new(tally).count(budget+1, 1000))
}

// TestParts: each part has its turn, and the number of parts follows what was counted.
func TestParts(t *testing.T) {
	var c tally
	turns := map[int]int{}
	for range 8 {
		turns[c.count(2*budget, 1000).Turn]++
		c.adapt(budget / 2)
	}
	require.Equal(t, map[int]int{0: 2, 1: 2, 2: 2, 3: 2}, turns)
	c.adapt(budget + 1)
	require.Equal(t, 8, c.parts)
	for range 10 {
		c.adapt(budget + 1)
	}
	require.Equal(t, mostParts, c.parts)
	for range 10 {
		c.adapt(1)
	}
	require.Equal(t, 1, c.parts)
	require.Zero(t, c.count(2*budget, 1000).Turn)
}

// TestKept: if there are more timers than one reading counts, a few readings count them all. Counts
// are kept only as long as they are needed.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, each = 400, 490
		tw := timingwheel.New()
		defer tw.Stop()
		timers := make([]timingwheel.Timer, slots*each)
		for i := range timers {
			tw.Init(&timers[i], func() {})
			timers[i].Reset(time.Hour + time.Duration(i/each)*time.Minute)
		}
		v := &view{name: "x", tw: tw}
		read := func() (r reading) {
			require.NoError(t, json.Unmarshal(v.read(), &r))
			time.Sleep(longestShared)
			return r
		}
		sum := func(r reading) (timers, estimate, full int) {
			for _, l := range r.Levels {
				timers, estimate, full = timers+l.Timers, estimate+l.Estimate, full+len(l.Full)
			}
			return timers, estimate, full
		}
		first := read()
		counted, estimate, full := sum(first)
		require.Less(t, counted, slots*each/2)
		require.NotZero(t, full)
		require.InDelta(t, slots*each, estimate, 10, "the rest is in the full slots")

		var last reading
		for range v.tally.parts + 1 {
			last = read()
		}
		counted, estimate, full = sum(last)
		require.Equal(t, slots*each, counted)
		require.Equal(t, slots*each, estimate)
		require.Zero(t, full)
		require.False(t, last.Levels[len(last.Levels)-1].Exact, "most are of earlier readings")
		require.NotEmpty(t, v.tally.kept)

		for i := range timers {
			if i%each > 0 {
				timers[i].Stop()
			}
		}
		counted, _, _ = sum(read())
		require.Equal(t, slots, counted)
		require.Empty(t, v.tally.kept)
	})
}

// TestEstimate: the levels with full slots share the timers that were not counted, up to what each
// can hold.
func TestEstimate(t *testing.T) {
	r := reading{counters: counters{Pending: 1000}, Due: 50, Beyond: 50, Levels: []level{
		{Timers: 100, Placed: 1000, inFull: 40},
		{Timers: 200, Placed: 5000, Reinserted: 100, Extended: 100, inFull: 160},
		{Timers: 100, Placed: 1000},
	}}
	r.estimate() // 500 were not counted
	require.Equal(t, []int{200, 600, 100},
		[]int{r.Levels[0].Estimate, r.Levels[1].Estimate, r.Levels[2].Estimate})
	r.Levels[1].Placed = 500
	r.estimate()
	require.Equal(t, 300, r.Levels[1].Estimate)
	r.Levels[1].Placed = 0 // counted a moment before
	r.estimate()
	require.Equal(t, 200, r.Levels[1].Estimate)
}

// TestBounded: a reading counts only so many timers of a slot, and says that there are more.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		defer tw.Stop()
		h := Handler(tw)
		const n = 5 * mostLimit * 16 // more than the limit in each of 16 shards
		timers := make([]timingwheel.Timer, n)
		for i := range timers {
			tw.Init(&timers[i], func() {})
			timers[i].Reset(time.Hour)
		}
		r := readings(t, h, "/?format=json")[0]
		require.Equal(t, int64(n), r.Pending)
		top := r.Levels[len(r.Levels)-1]
		require.False(t, top.Exact)
		require.GreaterOrEqual(t, top.Timers, r.CountLimit)
		require.LessOrEqual(t, top.Timers, r.CountLimit*len(r.Shards))
		require.Len(t, top.Full, 1)
		require.Equal(t, n, top.Estimate, "all of them are in that slot")
		_, page := get(h, "/")
		require.Contains(t, page, `data-k="timers" data-f="exact">≈ `+count(n)+"<")
	})
}

// TestCells: more slots than maxCells share cells, and none is lost.
func TestCells(t *testing.T) {
	for _, c := range []struct {
		size, perCell, cells int
	}{{0, 0, 0}, {4, 1, 4}, {512, 1, 512}, {1024, 2, 512}, {131072, 256, 512}} {
		p := inside.Level{Tick: time.Second, Size: c.size}
		for i := range c.size {
			p.Slots = append(p.Slots, inside.Slot{Index: i, Timers: i % 7})
		}
		l := levelOf(3, &p)
		require.Equal(t, 3, l.Level)
		require.Equal(t, c.perCell, l.SlotsPerCell)
		require.Len(t, l.Cells, c.cells)
		require.True(t, l.Exact)
		require.Equal(t, time.Duration(c.size)*time.Second, l.Lap)
		sum := 0
		for _, n := range l.Cells {
			sum += n
		}
		require.Equal(t, l.Timers, sum)
		if c.size == 1024 {
			require.Equal(t, []int{0 + 1, 2 + 3, 4 + 5, 6 + 0}, l.Cells[:4])
			p.Slots[5].Full, p.Slots[4].Full, p.Slots[9].Full = true, true, true
			l = levelOf(3, &p)
			require.False(t, l.Exact)
			require.Equal(t, []int{2, 4}, l.Full)
		}
	}
	l := levelOf(0, &inside.Level{Tick: math.MaxInt64 / 2, Size: 4})
	require.Equal(t, time.Duration(math.MaxInt64), l.Lap, "saturated")
}

// TestLargestAnswer: an answer is bounded, whatever the wheel's size.
func TestLargestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New(timingwheel.WithWheelSize(1 << 16))
		defer tw.Stop()
		for i := range 100_000 {
			tw.AfterFunc(time.Duration(i)*time.Millisecond+time.Minute, func() {})
		}
		tw.AfterFunc(1<<62, func() {})
		h := Handler(tw)
		_, body := get(h, "/?format=json")
		require.Less(t, len(body), 64<<10)
		_, body = get(h, "/")
		require.Less(t, len(body), 128<<10)
	})
}

// TestReadme: the README explains every field of the JSON.
func TestReadme(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("no files")
	}
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	tw := timingwheel.New()
	defer tw.Stop()
	tw.AfterFunc(time.Hour, func() {})
	var v any
	require.NoError(t, json.Unmarshal((&view{name: "x", tw: tw}).read(), &v))
	explained := regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(string(text), -1)
	known := map[string]bool{}
	for _, m := range explained {
		known[m[1]] = true
	}
	var missing []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				if !known[key] && !slices.Contains(missing, key) {
					missing = append(missing, key)
				}
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(v)
	require.Empty(t, missing)
}

func TestFormats(t *testing.T) {
	for ns, want := range formatted {
		require.Equal(t, want, duration(ns), "%v", ns)
	}
	for n, want := range map[float64]string{0: "0", 7: "7", 999: "999", 1000: "1,000",
		1234567: "1,234,567", 1e15: "1,000,000,000,000,000"} {
		require.Equal(t, want, count(n))
	}
	wheel := map[string]any{"count_limit": 16.0}
	for _, c := range []struct {
		format string
		v, row any
		want   string
	}{
		{"in", nil, nil, "not set"},
		{"in", 2e6, nil, "in 2 ms"},
		{"in", -2e6, nil, "overdue by 2 ms"},
		{"below", nil, nil, "longer"},
		{"below", 16384.0, nil, "16.4 µs"},
		{"late", 0.0, nil, "no samples"},
		{"late", 5e6, nil, "5 ms"},
		{"yes", true, nil, "yes"},
		{"yes", false, nil, "no"},
		{"exact", 5.0, map[string]any{"exact": true, "estimate": 5.0}, "5"},
		{"exact", 500.0, map[string]any{"exact": false, "estimate": 7000.0}, "≈ 7,000"},
		{"used", 0.0, map[string]any{"slots": 0.0}, "–"},
		{"used", 0.0, map[string]any{"slots": 512.0}, "0 ns"},
		{"atleast", 15.0, nil, "15"},
		{"atleast", 16.0, nil, "≥ 16"},
		{"text", "inline", nil, "inline"},
	} {
		require.Equal(t, c.want, show(c.format, c.v, c.row, wheel), "%+v", c)
	}
	rows := []any{map[string]any{"count": 0.0}, map[string]any{"count": 1e6}}
	require.Equal(t, "100.0", width(1e6, rows))
	require.Equal(t, "0.0", width(0.0, rows))
	require.Equal(t, "5.0", width(1.0, rows))
	require.Equal(t, "0.0", width(0.0, rows[:1]))
}

// formatted are durations as both Go and the script format them.
var formatted = map[float64]string{
	0: "0 ns", 1: "1 ns", 999: "999 ns",
	1000: "1 µs", 16384: "16.4 µs", 131072: "131 µs", 999_400: "999 µs",
	999_500: "1 ms", 1e6: "1 ms", 1.25e6: "1.25 ms", 12.34e6: "12.3 ms",
	1e9: "1 s", 9.99e9: "9.99 s", 59.94e9: "59.9 s",
	59.96e9: "1 min", 60e9: "1 min", 65536e6: "1 min 6 s", 90e9: "1 min 30 s",
	3599e9: "59 min 59 s", 3599.6e9: "1 h", 5400e9: "1 h 30 min", 33554432e6: "9 h 19 min",
	86399e9: "1 d", 86400e9: "1 d", 90000e9: "1 d 1 h",
	400 * 86400e9: "400 d", 1234.5 * 86400e9: "1,234 d 12 h",
	math.MaxInt64: "never",
}

// TestTables: the JSON has every value of the page, under the name that the script looks for.
func TestTables(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	tw.AfterFunc(time.Hour, func() {})
	var wheel any
	require.NoError(t, json.Unmarshal((&view{name: "x", tw: tw}).read(), &wheel))
	has := func(v any, path string) bool {
		keys := strings.Split(path, ".")
		for _, key := range keys {
			m, _ := v.(map[string]any)
			inner, ok := m[key]
			if !ok {
				return false
			}
			v = inner
		}
		return true
	}
	for _, f := range slices.Concat(shown.Counters, shown.Driver, shown.Lateness) {
		require.True(t, has(wheel, f.Key), f.Key)
	}
	for _, table := range []table{shown.Levels, shown.Queue, shown.Bins, shown.Shards} {
		rows, _ := at(wheel, table.Path).([]any)
		require.NotEmpty(t, rows, table.Path)
		for _, c := range table.Columns {
			require.True(t, has(rows[0], c.Key), "%s of %s", c.Key, table.Path)
		}
	}
}
