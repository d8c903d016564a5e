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
	"github.com/go-timingwheel/timingwheel/internal/inspect"
)

// TestReading: what the JSON says of a wheel on the fake clock, to the nanosecond.
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
		require.Equal(t, []level{{Tick: time.Millisecond, Exact: true, Cells: []int{}}}, empty.Levels)
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
		require.Equal(t, []time.Duration{time.Millisecond, 32 * time.Millisecond}, []time.Duration{low.Tick, low.Lap})
		require.Equal(t, []time.Duration{16 * time.Millisecond, 512 * time.Millisecond}, []time.Duration{high.Tick, high.Lap})
		require.Equal(t, []int{32, 1, 1, 1}, []int{low.Slots, low.Busy, low.Timers, low.SlotsPerCell})
		require.Equal(t, []int{32, 1, 3, 1}, []int{high.Slots, high.Busy, high.Timers, high.SlotsPerCell})
		require.Equal(t, only(32, 1010%32, 1), low.Cells, "due at tick 1010")
		require.Equal(t, only(32, 1100/16%32, 3), high.Cells, "due at tick 1100")
		require.True(t, low.Exact && high.Exact)
		require.Equal(t, int64(3), high.Placed)

		require.Equal(t, entry{In: 4 * time.Millisecond, Level: 0, Shard: r.Queue.Head[0].Shard}, r.Queue.Head[0])
		require.Equal(t, 1, r.Queue.Head[1].Level)
		require.Equal(t, 1072*time.Millisecond-r.At, r.Queue.Head[1].In, "one slot before tick 1088")
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

// only is a list of n zeros but for one.
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

// TestShared: a reading serves everybody who asks within 50 ms, page and JSON alike, and
// each wheel has one of its own.
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

// TestSharedFor: what takes long is done seldom.
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

// TestFirstLimit: a power of two, and within the budget wherever the least limit allows.
func TestFirstLimit(t *testing.T) {
	for _, buckets := range []int{0, 1, 100, 195, 196, 1000, 3000, 3126, 131072 * 4} {
		limit := firstLimit(10_000_000, buckets)
		require.Equal(t, 0, limit&(limit-1), "%d", limit)
		require.GreaterOrEqual(t, limit, leastLimit)
		require.LessOrEqual(t, limit, mostLimit)
		if limit > leastLimit {
			require.LessOrEqual(t, limit*buckets, budget)
		}
	}
	require.Equal(t, mostLimit, firstLimit(budget, 1_000_000), "all can be counted")
	require.Equal(t, mostLimit, firstLimit(budget+1, 0))
	require.Equal(t, 32, firstLimit(budget+1, 1000))
	require.Equal(t, leastLimit, firstLimit(budget+1, 1_000_000))
}

// TestNextLimit: it doubles while that is sure to stay within the budget and something
// is left to count, and halves beyond the budget.
func TestNextLimit(t *testing.T) {
	for _, c := range []struct {
		name        string
		limit       int
		counted     int
		exact       bool
		due, beyond int
		want        int
	}{
		{"room", 32, budget / 2, false, 0, 0, 64},
		{"no room to double", 32, budget/2 + 1, false, 0, 0, 32},
		{"all counted", 32, 1000, true, 0, 0, 32},
		{"too many", 64, budget + 1, false, 0, 0, 32},
		{"too many of others", 64, budget - 1, false, 1, 1, 32},
		{"the most", mostLimit, 1000, false, 0, 0, mostLimit},
		{"the least", leastLimit, 100 * budget, false, 0, 0, leastLimit},
	} {
		r := reading{CountLimit: c.limit, Due: c.due, Beyond: c.beyond, Levels: []level{
			{Timers: c.counted - 1, Exact: c.exact}, {Timers: 1, Exact: true},
		}}
		require.Equal(t, c.want, r.nextLimit(), c.name)
	}
}

// TestLimitGrows: with more timers than the budget, most of them in one bucket, what is
// left of the budget is used after a few readings.
func TestLimitGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		defer tw.Stop()
		for i := range 2000 {
			tw.AfterFunc(time.Minute+time.Duration(i)*time.Minute, func() {})
		}
		for range budget {
			tw.AfterFunc(20*time.Hour, func() {})
		}
		h := Handler(tw)
		var limits []int
		for range 5 {
			limits = append(limits, readings(t, h, "/?format=json")[0].CountLimit)
			time.Sleep(longestShared)
		}
		require.Less(t, limits[0], mostLimit)
		require.Equal(t, min(2*limits[0], mostLimit), limits[1])
		require.Equal(t, mostLimit, limits[4])
	})
}

// TestBounded: of a slot with very many timers only so many are counted, and it is said
// that there may be more.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		defer tw.Stop()
		h := Handler(tw)
		const n = 20 * mostLimit * 16 // more than the limit in each of 16 shards
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
		_, page := get(h, "/")
		require.Contains(t, page, `data-k="timers" data-f="exact">≥ `+count(float64(top.Timers))+"<")
	})
}

// TestCells: slots beyond maxCells are laid together, and none is lost.
func TestCells(t *testing.T) {
	for _, c := range []struct {
		size, perCell, cells int
	}{{0, 0, 0}, {4, 1, 4}, {512, 1, 512}, {1024, 2, 512}, {131072, 256, 512}} {
		p := inspect.Level{Tick: time.Second, Size: c.size}
		for i := range c.size {
			p.Slots = append(p.Slots, inspect.Slot{Index: i, Timers: i % 7})
		}
		l := levelOf(3, &p, 7)
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
			require.False(t, func() bool { l := levelOf(3, &p, 6); return l.Exact }())
		}
	}
	l := levelOf(0, &inspect.Level{Tick: math.MaxInt64 / 2, Size: 4}, 1)
	require.Equal(t, time.Duration(math.MaxInt64), l.Lap, "saturated")
}

// TestLargestAnswer: an answer is bounded whatever the wheel's size.
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
	for n, want := range map[float64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", 1e15: "1,000,000,000,000,000"} {
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
		{"exact", 5.0, map[string]any{"exact": true}, "5"},
		{"exact", 500.0, map[string]any{"exact": false}, "≥ 500"},
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

// formatted are durations as the page writes them, by Go as by the script.
var formatted = map[float64]string{
	0: "0 ns", 1: "1 ns", 999: "999 ns", 1000: "1 µs", 16384: "16.4 µs", 131072: "131 µs", 999_400: "999 µs", 999_500: "1 ms",
	1e6: "1 ms", 1.25e6: "1.25 ms", 12.34e6: "12.3 ms", 1e9: "1 s", 9.99e9: "9.99 s", 59.94e9: "59.9 s",
	59.96e9: "1 min", 60e9: "1 min", 90e9: "1 min 30 s", 3599e9: "59 min 59 s", 3599.6e9: "1 h", 5400e9: "1 h 30 min",
	86399e9: "1 d", 86400e9: "1 d", 90000e9: "1 d 1 h", 400 * 86400e9: "400 d", 1234.5 * 86400e9: "1,234 d 12 h",
	math.MaxInt64: "never", 65536e6: "1 min 6 s", 33554432e6: "9 h 19 min",
}

// TestTables: all that the page shows is in the JSON under the name that the script
// looks for.
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
	for _, f := range slices.Concat(counterFields, driverFields, latenessFields) {
		require.True(t, has(wheel, f.Key), f.Key)
	}
	for _, table := range []table{levelTable, queueTable, latenessTable, shardTable} {
		rows, _ := at(wheel, table.Path).([]any)
		require.NotEmpty(t, rows, table.Path)
		for _, c := range table.Columns {
			require.True(t, has(rows[0], c.Key), "%s of %s", c.Key, table.Path)
		}
	}
}
