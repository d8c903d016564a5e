package timingwheel

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShardsFor(t *testing.T) {
	for procs, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 16: 16, 17: 16, 1000: 16} {
		require.Equal(t, want, shardsFor(procs, defaultWheelSize), "%d processors", procs)
	}
	require.Equal(t, 1, shardsFor(16, maxWheelSize))
	require.Equal(t, 3, shardsFor(16, 20_000))
}

// TestDeal: timers that Init prepares are spread over all shards, and so is every
// n-th of them.
func TestDeal(t *testing.T) {
	for _, shards := range []int{1, 2, 4, 16} {
		for _, stride := range []int{1, 2, 3, 4, 7, 8, 64, 100} {
			tw := New(withShards(shards))
			count := map[*shard]int{}
			timers := make([]Timer, 1600*stride)
			for i := range timers {
				tw.Init(&timers[i], func() {})
				if i%stride == 0 {
					count[timers[i].shard]++
				}
			}
			require.Len(t, count, shards)
			for _, n := range count {
				require.InDelta(t, 1600/shards, n, 20, "%d shards, every %d", shards, stride)
			}
		}
	}
}

// TestHome: a goroutine stays with its shard, and leaves it when it finds it locked.
func TestHome(t *testing.T) {
	tw := New(withShards(4))
	home := tw.lockHome()
	var other *shard
	var done sync.WaitGroup
	for range 100 { // whatever their stacks are, some begin with the locked one
		done.Go(func() {
			s := tw.lockHome()
			if s == home {
				t.Error("got a locked shard")
			}
			other = s
			s.mu.Unlock()
		})
		done.Wait()
	}
	require.NotNil(t, other)
	home.mu.Unlock()
	// One of those may share our place in the table, and have moved on for us too.
	lock := func() *shard { s := tw.lockHome(); s.mu.Unlock(); return s }
	home = lock()
	for range 100 {
		require.Same(t, home, lock())
	}
}

// TestBulkStarts: what one goroutine starts in a loop is spread over all shards, also after
// other timers have come and gone.
func TestBulkStarts(t *testing.T) {
	const n = 100_000
	f := func() {}
	for name, start := range map[string]func(tw *TimingWheel) *Timer{
		"AfterFunc": func(tw *TimingWheel) *Timer { return tw.AfterFunc(time.Hour, f) },
		"NewTimer":  func(tw *TimingWheel) *Timer { return &tw.NewTimer(time.Hour).channel.timer },
	} {
		for _, shards := range []int{1, 2, 4, 16} {
			t.Run(fmt.Sprintf("%s/shards=%d", name, shards), func(t *testing.T) {
				tw := New(withShards(shards))
				defer tw.Stop()
				for range 3 {
					count := map[*shard]int{}
					timers := make([]*Timer, n)
					for i := range timers {
						timers[i] = start(tw)
						count[timers[i].shard]++
					}
					require.Len(t, count, shards)
					for _, c := range count {
						require.InDelta(t, n/shards, c, 2*bulk)
					}
					for _, x := range timers {
						x.Stop()
					}
				}
			})
		}
	}
}

// TestBusyGoroutineStaysAtHome: one that starts and stops its timers keeps its shard, also if
// some hundred of them are pending at a time, and beside many others.
func TestBusyGoroutineStaysAtHome(t *testing.T) {
	for _, beside := range []int{0, 100_000} {
		tw := New(withShards(4))
		defer tw.Stop()
		for range beside {
			tw.AfterFunc(time.Hour, func() {})
		}
		var some [bulk / 2]*Timer
		homes := map[*shard]bool{}
		for i := range 20 * bulk {
			x := &some[i%len(some)]
			if *x != nil {
				(*x).Stop()
			}
			*x = tw.AfterFunc(time.Hour, func() {})
			if i > 2*bulk {
				homes[(*x).shard] = true
			}
		}
		require.Len(t, homes, 1, "beside %d", beside)
	}
}
