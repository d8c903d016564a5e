package timingwheel_test

import (
	"context"
	"math"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// A daily schedule stands for those that programs and other packages write.
type daily struct{}

func (daily) Next(t time.Time) time.Time { return t.AddDate(0, 0, 1) }

// TestCostTable measures what the calls in README's table of costs allocate, and compares.
func TestCostTable(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n## Cost\n")
	require.True(t, found)
	table, _, _ := strings.Cut(section, "\n\nAn empty wheel")

	tw := timingwheel.New()
	defer tw.Stop()
	var (
		ctx   = context.Background()
		f     = func() {}
		every = timingwheel.Every(time.Hour)
		timer = tw.AfterFunc(time.Hour, f)
		now   = time.Now()
		later = time.Hour
	)
	cancellable, cancel := context.WithCancel(ctx)
	defer cancel()
	with := func(opts ...func() timingwheel.ScheduleOption) [][2]func() {
		var calls [][2]func()
		for _, opt := range opts {
			calls = append(calls, [2]func(){
				func() { tw.ScheduleFunc(every, f).Stop() },
				func() { tw.ScheduleFunc(every, f, opt()).Stop() },
			})
		}
		return calls
	}
	call := func(calls ...func()) (pairs [][2]func()) {
		for _, c := range calls {
			pairs = append(pairs, [2]func(){nil, c})
		}
		return pairs
	}
	// By the row's first cell: what allocates that much more than the call beside it, or than none.
	calls := map[string][][2]func(){
		"`AfterFunc`, `AtFunc`": call(
			func() { tw.AfterFunc(time.Hour, f).Stop() },
			func() { tw.AtFunc(now.Add(time.Hour), f).Stop() }),
		"`AtFunc` for a wall time": call(func() {
			tw.AtFunc(now.Add(time.Hour).Round(0), f).Stop()
		}),
		"`WithTimeout`, `WithDeadline`": call(
			func() { _, cancel := tw.WithTimeout(ctx, time.Hour); cancel() },
			func() { _, cancel := tw.WithDeadline(ctx, now.Add(time.Hour)); cancel() }),
		"the same, and the first `Done`": call(
			func() { ctx, cancel := tw.WithTimeout(ctx, time.Hour); ctx.Done(); cancel() }),
		"the same below a cancellable parent": call(
			func() { ctx, cancel := tw.WithTimeout(cancellable, time.Hour); ctx.Done(); cancel() }),
		"`NewTimer`, `NewTicker`": call(
			func() { tw.NewTimer(time.Hour).Stop() },
			func() { tw.NewTicker(time.Hour).Stop() }),
		"`ScheduleFunc` with `Every`": call(func() {
			tw.ScheduleFunc(timingwheel.Every(time.Hour), f).Stop()
		}),
		"`ScheduleFunc` with another `Scheduler`": call(func() {
			tw.ScheduleFunc(daily{}, f).Stop()
		}),
		"with `StartNow`": with(timingwheel.StartNow),
		"with `Jitter`": with(func() timingwheel.ScheduleOption {
			return timingwheel.Jitter(time.Minute)
		}),
		"with `SkipMissed`": with(func() timingwheel.ScheduleOption {
			return timingwheel.SkipMissed(time.Minute)
		}),
		"with another option": with(timingwheel.SkipWhileRunning,
			timingwheel.QueueWhileRunning, timingwheel.RunMissed),
		"`Reset` of a pending timer to later": call(func() { timer.Reset(time.Hour) }),
		"`ResetAt` of a pending timer to later": call(func() {
			later += time.Second
			timer.ResetAt(now.Add(later))
		}),
		"`Reset`, `ResetAt` otherwise": call(
			func() { later -= time.Second; timer.Reset(later) },
			func() { later -= time.Second; timer.ResetAt(now.Add(later)) }),
		"`Stop`":    call(func() { timer.Reset(time.Hour); timer.Stop() }),
		"`Pending`": call(func() { timer.Pending() }),
		"`Len`":     call(func() { tw.Len() }),
		"`Stats`":   call(func() { tw.Stats() }),
	}

	// The table's sizes are those of 64 bits; the race detector has its own.
	info, _ := debug.ReadBuildInfo()
	exact := math.MaxInt > math.MaxInt32 &&
		!slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})

	row := regexp.MustCompile(`(?m)^\| ([^|]*\S) \| (\d+)(?: of (\d+) B)?\b[^|]*\|`)
	rows := row.FindAllStringSubmatch(table, -1)
	require.NotEmpty(t, rows)
	for _, m := range rows {
		name, wantCount, wantBytes := m[1], m[2], m[3]
		if strings.HasPrefix(name, "firing") { // not the caller's
			continue
		}
		require.Contains(t, calls, name, "a row that is not measured here")
		for _, pair := range calls[name] {
			count, bytes := allocated(pair[1])
			if pair[0] != nil {
				lessCount, lessBytes := allocated(pair[0])
				count, bytes = count-lessCount, bytes-lessBytes
			}
			require.Equal(t, wantCount, strconv.Itoa(count), name)
			if wantBytes != "" && exact {
				require.Equal(t, wantBytes, strconv.Itoa(bytes), name)
			}
		}
		delete(calls, name)
	}
	require.Empty(t, calls, "not in the table")
}

// allocated returns what a call of f allocates, at the least: others allocate too.
func allocated(f func()) (count, bytes int) {
	const runs = 200
	count, bytes = math.MaxInt, math.MaxInt
	f()
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			f()
		}
		runtime.ReadMemStats(&after)
		count = min(count, int(after.Mallocs-before.Mallocs)/runs)
		bytes = min(bytes, int(after.TotalAlloc-before.TotalAlloc)/runs)
	}
	return count, bytes
}
