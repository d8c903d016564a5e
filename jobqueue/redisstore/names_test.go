package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// TestOddNames: names and keys with any bytes stay apart, and on a Cluster the keys of a queue with
// braces in its name, which delimit what decides on a key's slot, are together all the same.
func TestOddNames(t *testing.T) {
	addr := startServer(t, "--cluster-enabled", "yes", "--cluster-port", "$bus").addr
	node := clientOf(t, &redis.Options{Addr: addr})
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, time.Minute, 10*time.Millisecond)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	t.Cleanup(func() { _ = client.Close() })
	s := open(t, client)

	queues := []string{"a", "a:0}", "a:0}:z", "}", "{", "{}", "{a}", "a}b", "%s", "é", "a b", "-1",
		"a/x", "a/x:z", "a/x:z:z", "a/t", "a/:t", "{}/x", "}{/x", "a}/x", "a/b:0}x", "a//x",
		"a/b/c"}
	keys := []string{"", "\x00", "\xff", "}", "v", "{a}", "\r\n", strings.Repeat("\x80", 1000)}
	for _, queue := range queues {
		for _, key := range keys {
			body := []byte(queue + "\x00" + key)
			do(t, s, &store.Add{Job: store.Job{Queue: queue, Key: key, Body: body}})
		}
	}
	infos, err := s.Queues(t.Context())
	require.NoError(t, err)
	require.Len(t, infos, len(queues))
	for _, i := range infos {
		require.Equal(t, len(keys), i.Ready, i.Name)
	}
	for _, queue := range queues {
		for _, key := range keys[1:] {
			j, err := s.Get(t.Context(), queue, store.Ref{Key: key})
			require.NoError(t, err)
			require.Equal(t, queue+"\x00"+key, string(j.Body))
		}
		got := map[string]bool{}
		for len(got) < len(keys) { // a claim asks some of the shards
			op := &store.Claim{Queue: queue, Max: len(keys), Lease: time.Hour}
			do(t, s, op)
			for _, j := range op.Jobs {
				require.Equal(t, queue+"\x00"+j.Key, string(j.Body))
				require.False(t, got[j.Key])
				got[j.Key] = true
				do(t, s, &store.Finish{Queue: queue, ID: j.ID, Token: j.Token, Verdict: store.Bury})
			}
		}
		all := &store.Requeue{Queue: queue, Max: 100}
		do(t, s, all)
		require.Equal(t, len(keys), all.N)
		purge := &store.Purge{Queue: queue, State: store.Ready, Max: 100}
		do(t, s, purge)
		require.Equal(t, len(keys), purge.N)
	}
	infos, err = s.Queues(t.Context())
	require.NoError(t, err)
	require.Empty(t, infos)
}

// TestFarTimes: the latest and the earliest times there are, exactly.
func TestFarTimes(t *testing.T) {
	s := open(t, sharedClient(t), redisstore.WithPrefix(prefixOf(t.TempDir())))
	for _, c := range []struct{ at, want time.Time }{
		{time.UnixMilli(1<<48 - 1), time.UnixMilli(1<<48 - 1)},
		{time.UnixMilli(1<<48 - 2), time.UnixMilli(1<<48 - 2)},
		{time.UnixMilli(1<<48 + 7), time.UnixMilli(1<<48 - 1)},
		{time.Date(2200, 1, 1, 0, 0, 0, 1, time.UTC),
			time.Date(2200, 1, 1, 0, 0, 0, 1e6, time.UTC)},
		{time.Unix(-1, 0), time.Unix(0, 0)},
	} {
		op := &store.Add{Job: text("x"), When: store.When{At: c.at}}
		do(t, s, op)
		j, err := s.Get(t.Context(), q, store.Ref{ID: op.ID})
		require.NoError(t, err)
		require.True(t, j.Due.Equal(c.want), "%v, not %v", j.Due, c.want)
	}
	add(t, s, text("longest"), 1<<63-1)
	require.Equal(t, 5, info(t, s).Delayed)
	op := &store.Claim{Queue: q, Max: 9, Lease: 1<<63 - 1, MaxAttempts: 1<<31 - 1}
	do(t, s, op)
	require.Len(t, op.Jobs, 1)
	require.Greater(t, op.Jobs[0].LeaseEnd.Year(), 2300)
	do(t, s, ack(op.Jobs[0]))
}
