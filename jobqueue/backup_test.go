package jobqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestABackupUnderLoadIsAStateThatExisted takes backups while writers add and cancel jobs and
// handlers work. Each writer has one job, or two while it replaces the first by the second; the
// body says which job of every other writer was there before. So a copy that has a job but not what
// came before it, or half of what was one write, is no state that existed.
func TestABackupUnderLoadIsAStateThatExisted(t *testing.T) {
	const writers, moving, backups = 4, 50, 4
	ctx := t.Context()
	folder := t.TempDir()
	c, err := Open(filepath.Join(folder, "store"), quiet)
	require.NoError(t, err)
	var done [writers]atomic.Int64 // the last job of each writer whose Add has returned
	var stop atomic.Bool
	var wg sync.WaitGroup
	key := func(w int, i int64) string { return fmt.Sprintf("%d-%d", w, i) }
	for w := range writers {
		wg.Go(func() {
			for i := int64(1); !stop.Load(); i++ {
				var seen [writers]int64
				for o := range seen {
					seen[o] = done[o].Load()
				}
				body, _ := json.Marshal(seen)
				pair := []Item{{body, []AddOption{Key(key(w, i))}},
					{nil, []AddOption{Key("twin-" + key(w, i))}}}
				_, err := c.AddMany(ctx, "kept", pair, In(time.Hour))
				if err == nil && i > 1 {
					err = c.Cancel(ctx, "kept", ByKey(key(w, i-1)))
				}
				if err != nil {
					t.Error(err)
					return
				}
				done[w].Store(i)
			}
		})
	}
	// These jobs move all the time, and are never gone or there twice.
	for i := range moving {
		_, err := c.Add(ctx, "moving", nil, Key(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	c.Handle("moving", func(context.Context, *Job) error {
		return Snooze(rand.N(5 * time.Millisecond))
	})
	runs, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(runs) }()

	path := func(b int) string { return filepath.Join(folder, fmt.Sprint("copy-", b)) }
	var before, after [backups][writers]int64
	for b := range backups {
		time.Sleep(50 * time.Millisecond)
		for w := range done {
			before[b][w] = done[w].Load()
		}
		require.NoError(t, c.Backup(ctx, path(b)))
		for w := range done {
			after[b][w] = done[w].Load() + 1 // the next may be under way
		}
	}
	stop.Store(true)
	wg.Wait()
	end()
	require.NoError(t, <-ended)
	require.NoError(t, c.Close())

	for b := range backups {
		c, err := Open(path(b), quiet)
		require.NoError(t, err)
		var last [writers]int64
		seen := map[string][writers]int64{}
		twins := map[string]bool{}
		for job, err := range c.Jobs(ctx, "kept", Delayed) {
			require.NoError(t, err)
			var w int
			var i int64
			if _, err := fmt.Sscanf(job.Key, "twin-%d-%d", &w, &i); err == nil {
				twins[key(w, i)] = true
				continue
			}
			_, err = fmt.Sscanf(job.Key, "%d-%d", &w, &i)
			require.NoError(t, err)
			var others [writers]int64
			require.NoError(t, json.Unmarshal(job.Body, &others))
			seen[job.Key] = others
			last[w] = max(last[w], i)
		}
		for w, i := range last {
			require.GreaterOrEqual(t, i, before[b][w], "what was stored before the backup began")
			require.LessOrEqual(t, i, after[b][w])
			for o, known := range seen[key(w, i)] {
				require.LessOrEqual(t, known, last[o], "it has a job but not what came before it")
			}
			for n := int64(1); n <= i; n++ {
				require.True(t, twins[key(w, n)], "half of one write")
				_, isThere := seen[key(w, n)]
				require.True(t, isThere == (n == i) || n == i-1, "%d of %d", n, i)
			}
		}
		require.Len(t, twins, int(last[0]+last[1]+last[2]+last[3]), "half of one write")
		n := 0
		for _, state := range []State{Delayed, Ready, Leased, Dead, Done} {
			n += len(list(t, c, "moving", state))
		}
		require.Equal(t, moving, n, "jobs that move are there once")
		require.NoError(t, c.Close())
	}
}
