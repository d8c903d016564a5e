package pebblestore

import (
	"context"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

func TestLogsThatAreNotNeededGo(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs)
	for range 400 {
		var ops []store.Op
		for range 10 {
			ops = append(ops, &store.Add{Job: store.Job{Queue: "q", Body: make([]byte, 10_000)}})
		}
		require.NoError(t, s.Do(context.Background(), ops))
	}
	require.NoError(t, s.db.Flush())
	s.db.TestOnlyWaitForCleaning()
	names, err := fs.List("db")
	require.NoError(t, err)
	var logs []string
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			logs = append(logs, name)
		}
	}
	require.Len(t, logs, 1, "only the one that is being written")
	require.NoError(t, s.Close())
}

func TestAnIdleStoreSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, vfs.NewMem())
		defer s.Close()
		_, err := do(s, &store.Add{Job: store.Job{Queue: "q"}, When: store.When{In: time.Hour}})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		before := wakeUps()
		time.Sleep(time.Hour)
		require.Less(t, wakeUps()-before, uint64(100))
	})
}

// wakeUps returns how often goroutines began to run, or a part of that: the runtime takes samples.
func wakeUps() (n uint64) {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	for _, count := range s[0].Value.Float64Histogram().Counts {
		n += count
	}
	return n
}
