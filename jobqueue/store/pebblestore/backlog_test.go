//go:build !race

package pebblestore_test

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// TestABacklogOfAMillion adds jobs while a million of the same queue are overdue by hours. They are
// delivered while most of the backlog is still there; the backlog shrinks meanwhile, its oldest
// first; and memory holds neither. It takes 10 s and 300 MB of disk, and is left out under -short
// and under -race, which takes several times as long.
func TestABacklogOfAMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("adds a million jobs")
	}
	const old, fresh = 1_000_000, 300
	ctx := t.Context()
	q, err := jobqueue.Open(t.TempDir()+"/jobs", jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	start := time.Now().Add(-2 * time.Hour)
	body := strings.Repeat("x", 200)
	for n := 0; n < old; {
		items := make([]jobqueue.Item, 2000)
		for i := range items {
			items[i].Body = []byte(strconv.Itoa(n) + body)
			due := start.Add(time.Duration(n) * time.Millisecond)
			items[i].Options = []jobqueue.AddOption{jobqueue.At(due)}
			n++
		}
		_, err := q.AddMany(ctx, "q", items)
		require.NoError(t, err)
	}

	debug.FreeOSMemory()
	before, most := anonymous(), 0
	var oldDone, freshDone atomic.Int64
	q.Handle("q", func(_ context.Context, job *jobqueue.Job) error {
		if len(job.Body) < len(body) {
			freshDone.Add(1)
			return nil
		}
		n, err := strconv.ParseInt(strings.TrimRight(string(job.Body), "x"), 10, 64)
		if done := oldDone.Add(1); err != nil || n > done+2048 {
			t.Errorf("job %d of the backlog is number %d", n, done)
		}
		time.Sleep(time.Millisecond)
		return nil
	}, jobqueue.Workers(16))
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- q.Run(run) }()
	for n := range int64(fresh) {
		_, err := q.Add(ctx, "q", []byte("new"))
		require.NoError(t, err)
		worked := oldDone.Load()
		require.Eventually(t, func() bool {
			return freshDone.Load() > n && oldDone.Load() > worked
		}, 20*time.Second, time.Millisecond, "both make progress")
		most = max(most, anonymous())
	}
	require.Less(t, oldDone.Load(), int64(old*9/10), "the backlog is still there")
	t.Logf("%d of the backlog were done; memory grew by %d MB", oldDone.Load(), (most-before)>>20)
	require.Less(t, most-before, 100<<20, "memory holds no backlog")
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, q.Close())
}

// anonymous returns the anonymous resident memory of the process, where Linux tells.
func anonymous() int {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10
		}
	}
	return 0
}
