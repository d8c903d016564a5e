package timingwheel

import (
	"sync"
	"testing"

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
