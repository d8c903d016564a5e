package redisstore_test

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/servers"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/storetest"
)

// A cluster is three masters, each with a replica.
type cluster struct {
	nodes []*servers.Redis
	addrs []string
}

// startCluster starts six nodes and joins them.
func startCluster(t testing.TB) *cluster {
	t.Helper()
	program := needServer(t)
	c := &cluster{}
	for range 6 {
		r, err := servers.StartRedis(program, t.TempDir(), "--cluster-enabled", "yes",
			"--cluster-port", "$bus", "--cluster-node-timeout", "3000")
		require.NoError(t, err)
		t.Cleanup(r.Close)
		c.nodes = append(c.nodes, r)
		c.addrs = append(c.addrs, r.Addr)
	}
	args := append([]string{"create"}, c.addrs...)
	c.manage(t, append(args, "--cluster-replicas", "1", "--cluster-yes")...)
	client := c.client(t)
	require.Eventually(t, func() bool {
		for _, addr := range c.addrs {
			info, err := redisAt(t, addr).ClusterInfo(t.Context()).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") {
				return false
			}
		}
		return client.Ping(t.Context()).Err() == nil
	}, time.Minute, 50*time.Millisecond)
	return c
}

// manage runs redis-cli --cluster.
func (c *cluster) manage(t testing.TB, args ...string) {
	t.Helper()
	if _, ok := servers.Find("redis-cli"); !ok {
		servers.Missing(t, servers.NoRedis)
	}
	out, err := command(args...)
	require.NoError(t, err, "%s", out)
}

func command(args ...string) ([]byte, error) {
	return exec.Command("redis-cli", append([]string{"--cluster"}, args...)...).CombinedOutput()
}

// agree waits until all nodes know of what was moved, before which redis-cli refuses to go on.
func (c *cluster) agree(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := command("check", c.addrs[0])
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}

func (c *cluster) client(t testing.TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func redisAt(t testing.TB, addr string) *redis.Client {
	return clientOf(t, &redis.Options{Addr: addr})
}

func TestCluster(t *testing.T) {
	c := startCluster(t)
	client := c.client(t)
	t.Run("Store", func(t *testing.T) {
		storetest.Run(t, storetest.Config{
			IDsByQueue: true,
			Open: func(dir string, clock *storetest.Clock) (store.Store, error) {
				return redisstore.New(client, redisstore.WithClock(clock.Now),
					redisstore.WithPrefix(prefixOf(dir)), redisstore.WithShards(1)), nil
			},
		})
	})
	t.Run("Reshard", func(t *testing.T) { reshard(t, c) })
	t.Run("Replicas", func(t *testing.T) { clusterReplicas(t, c) })
}

// clusterReplicas has each node's jobs confirmed by its own replica.
func clusterReplicas(t *testing.T, c *cluster) {
	client := c.client(t)
	s := open(t, client, redisstore.WithReplicas(1), redisstore.WithPrefix("replicas"))
	group := func(n int) (ops []store.Op) {
		for range n {
			ops = append(ops, &store.Add{Job: text("x")})
		}
		return ops
	}
	do(t, s, group(100)...)
	var slots []redis.ClusterSlot
	require.True(t, eventually(time.Minute, func() (ok bool) {
		var err error
		slots, err = slotsOf(t, client)
		return err == nil && len(slots[0].Nodes) == 2
	}))
	for _, node := range c.nodes {
		if node.Addr == slots[0].Nodes[1].Addr {
			require.NoError(t, node.Freeze())
			defer func() { require.NoError(t, node.Thaw()) }()
		}
	}
	hasty := open(t, client, redisstore.WithReplicas(1), redisstore.WithPrefix("replicas"),
		redisstore.WithPatience(time.Second))
	ops := group(100)
	require.ErrorIs(t, hasty.Do(t.Context(), ops), redisstore.ErrReplicas)
	confirmed := 0
	for _, op := range ops {
		if err := op.Outcome().Err; err == nil {
			confirmed++
		} else {
			require.ErrorIs(t, err, redisstore.ErrReplicas)
		}
	}
	require.NotZero(t, confirmed, "those of the other nodes")
	require.Less(t, confirmed, 100)
}

// reshard moves slots that are busy from node to node. The calls of one of the two processes are
// confirmed by replicas.
func reshard(t *testing.T, c *cluster) {
	client := c.client(t)
	slots, err := slotsOf(t, client)
	require.NoError(t, err)
	// redis-cli moves the first slots of a node. These queues have shards in them.
	const some = 60
	busy := func(name string) (n int) {
		for shard := range 8 {
			slot := keySlot(t, client, name, shard)
			for _, s := range slots {
				if int(slot) >= s.Start && int(slot) < s.Start+some {
					n++
				}
			}
		}
		return n
	}
	var queues []string
	shards := 0
	for i := 0; len(queues) < 4; i++ {
		name := fmt.Sprint("queue", i)
		if n := busy(name); n > 0 {
			queues = append(queues, name)
			shards += n
		}
	}
	l := startLoadWith(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs})
	}, []redisstore.Option{redisstore.WithReplicas(1)}, queues...)
	l.progress(200)
	moved := time.Now()
	for i := len(slots) - 1; i >= 0; i-- { // so that each has its first slots still
		from, to := slots[i], slots[(i+1)%len(slots)]
		c.agree(t)
		c.manage(t, "reshard", c.addrs[0], "--cluster-from", from.Nodes[0].ID,
			"--cluster-to", to.Nodes[0].ID, "--cluster-slots", fmt.Sprint(some), "--cluster-yes")
	}
	t.Logf("moved %d busy shards of %d slots in %v", shards, 3*some, time.Since(moved))
	l.progress(200)
	for shard := range 3 {
		c.agree(t)
		c.creep(t, l, int(keySlot(t, client, queues[0], shard)))
	}
	l.progress(200)
	l.settle(nil)
	l.once()
	t.Logf("%d jobs, the latest by %v", len(l.sofar()), l.lateness())
}

func keySlot(t testing.TB, c redis.UniversalClient, queue string, shard int) int64 {
	key := fmt.Sprintf("{jobqueue:%s:%d}t", queue, shard)
	slot, err := c.ClusterKeySlot(t.Context(), key).Result()
	require.NoError(t, err)
	return slot
}

// slotsOf returns which nodes have which slots.
func slotsOf(t testing.TB, client *redis.ClusterClient) ([]redis.ClusterSlot, error) {
	//lint:ignore SA1019 servers before Redis 7 have no CLUSTER SHARDS
	return client.ClusterSlots(t.Context()).Result()
}

// creep moves a slot key by key, and has jobs added while each of two nodes has a part of it.
func (c *cluster) creep(t testing.TB, l *load, slot int) {
	t.Helper()
	slots, err := slotsOf(t, c.client(t))
	require.NoError(t, err)
	var from, to redis.ClusterNode
	for _, s := range slots {
		if slot >= s.Start && slot <= s.End {
			from = s.Nodes[0]
		}
	}
	for _, s := range slots { // a node may have several ranges
		if s.Nodes[0].ID != from.ID {
			to = s.Nodes[0]
		}
	}
	source, target := redisAt(t, from.Addr), redisAt(t, to.Addr)
	set := func(c *redis.Client, args ...any) {
		t.Helper()
		args = append([]any{"cluster", "setslot", slot}, args...)
		require.NoError(t, c.Do(t.Context(), args...).Err())
	}
	set(target, "importing", from.ID)
	set(source, "migrating", to.ID)
	host, port, err := net.SplitHostPort(to.Addr)
	require.NoError(t, err)
	keys, err := source.ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	l.progress(20)
	for _, key := range keys {
		require.NoError(t, source.Migrate(t.Context(), host, port, key, 0, 10*time.Second).Err())
		time.Sleep(20 * time.Millisecond) // calls that need the slot wait meanwhile
	}
	set(target, "node", to.ID)
	set(source, "node", to.ID)
}
