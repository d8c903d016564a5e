package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/servers"
)

// watched is a master and a replica that three Sentinels watch.
type watched struct {
	servers   [2]*server
	sentinels []string
}

func startWatched(t testing.TB) *watched {
	t.Helper()
	w := &watched{}
	w.servers[0] = startServer(t)
	w.servers[1] = startServer(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", w.servers[0].Port))
	for range 3 {
		s, err := servers.StartSentinel(needServer(t), t.TempDir(),
			fmt.Sprintf("sentinel monitor jobs 127.0.0.1 %d 2", w.servers[0].Port),
			"sentinel down-after-milliseconds jobs 1000",
			"sentinel failover-timeout jobs 5000")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		w.sentinels = append(w.sentinels, s.Addr)
	}
	require.Eventually(t, func() bool {
		for _, addr := range w.sentinels {
			all, err := redisAt(t, addr).Do(t.Context(), "sentinel", "master", "jobs").Result()
			m, ok := all.(map[any]any)
			if err != nil || !ok || m["num-slaves"] != "1" || m["num-other-sentinels"] != "2" {
				return false
			}
		}
		return w.replicated(t, 0)
	}, time.Minute, 50*time.Millisecond)
	return w
}

// replicated reports whether all that the server has executed so far is at its replica.
func (w *watched) replicated(t testing.TB, master int) bool {
	conn := redisAt(t, w.servers[master].addr).Conn() // WAIT is about the connection's own writes
	defer conn.Close()
	if conn.Set(t.Context(), "marker", 1, 0).Err() != nil {
		return false
	}
	n, err := conn.Wait(t.Context(), 1, 10*time.Second).Result()
	return err == nil && n == 1
}

func (w *watched) client() redis.UniversalClient {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "jobs", SentinelAddrs: w.sentinels,
	})
}

// awaitMaster waits until a server takes writes.
func (w *watched) awaitMaster(t testing.TB, server int) {
	t.Helper()
	require.True(t, eventually(time.Minute, func() bool {
		info, err := redisAt(t, w.servers[server].addr).Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	}))
}

// TestFailover kills the master under load. What was added, and had reached the replica, is
// delivered.
func TestFailover(t *testing.T) {
	t.Parallel() // the old master takes ten seconds and more until it follows
	w := startWatched(t)
	l := startLoad(t, w.client, q, "other")
	l.progress(300)
	safe := l.sofar()
	require.True(t, w.replicated(t, 0))
	before := l.lateness()
	w.servers[0].Kill()
	killed := time.Now()
	w.awaitMaster(t, 1)
	l.progress(100)
	t.Logf("jobs are added again after %v", time.Since(killed))
	w.servers[0].start(t) // it comes back as it was configured: a master, until a Sentinel sees it
	require.True(t, eventually(time.Minute, func() bool {
		info, err := redisAt(t, w.servers[0].addr).Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "role:slave") && w.replicated(t, 1)
	}), "the old master follows the new one")
	l.progress(100)
	l.end()
	l.settle(safe)
	delivered, added := l.twice()
	lost := len(l.missing(l.sofar()))
	t.Logf("of %d jobs, %d delivered twice, %d added twice, %d lost of those not yet replicated; "+
		"latest %v before, %v then", len(l.sofar()), delivered, added, lost, before, l.lateness())
	require.Zero(t, added)
}
