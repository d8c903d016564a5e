package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// replicaOf starts a replica that gets its copy at once.
func replicaOf(t testing.TB, addr string) *server {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	r := startServer(t, "--replicaof", "127.0.0.1 "+port)
	require.True(t, eventually(time.Minute, func() bool {
		info, err := r.client(t).Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}), "the replica has its copy")
	return r
}

// startMaster starts a server that gives replicas their copies at once.
func startMaster(t testing.TB) *server {
	return startServer(t, "--repl-diskless-sync-delay", "0")
}

// TestFailoverBehindACutLink cuts the link to the replica, and promotes the replica while callers
// add. Without WithReplicas some of the jobs that were confirmed are lost; with it none is.
func TestFailoverBehindACutLink(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		require.NotZero(t, cutLink(t, false), "the test loses nothing, so it shows nothing")
	})
	t.Run("with WAIT 1", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, cutLink(t, true, redisstore.WithReplicas(1)))
	})
}

// cutLink returns how many jobs were lost of those whose Add returned nil.
func cutLink(t *testing.T, waits bool, opts ...redisstore.Option) (lost int) {
	master := startMaster(t)
	link := newProxy(t, master.addr)
	replica := replicaOf(t, link.addr())
	var addr atomic.Value
	addr.Store(master.addr)
	client := clientOf(t, &redis.Options{Dialer: func(ctx context.Context, network, _ string) (
		net.Conn, error,
	) {
		return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
	}})
	s := open(t, client, append(opts, redisstore.WithPatience(time.Minute))...)

	var mu sync.Mutex
	added := map[string]bool{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(added)
	}
	more := func(n int) {
		goal := count() + n
		require.True(t, eventually(time.Minute, func() bool { return count() >= goal }))
	}
	var group sync.WaitGroup
	stop := make(chan struct{})
	for caller := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				name := fmt.Sprint(caller, ".", i)
				op := &store.Add{Job: text(name)}
				err := errors.Join(s.Do(context.Background(), []store.Op{op}), op.Err)
				mu.Lock()
				if added[name] = true; err != nil {
					t.Errorf("job %s: %v", name, err)
				}
				mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { // before the Store is closed
		select {
		case <-stop:
		default:
			close(stop)
		}
		group.Wait()
	})
	more(500)
	link.close()
	if cut := count(); waits {
		time.Sleep(800 * time.Millisecond)
		require.Less(t, count()-cut, 100, "calls do not wait for the replica")
	} else {
		time.Sleep(800 * time.Millisecond)
		more(1)
	}
	master.Kill()
	require.NoError(t, replica.client(t).Do(t.Context(), "replicaof", "no", "one").Err())
	addr.Store(replica.addr)
	replicaOf(t, replica.addr) // or no call could be confirmed any more
	more(500)
	close(stop)
	group.Wait()
	all := len(added)
	for jobs := claim(t, s, 1000); len(jobs) > 0; jobs = claim(t, s, 1000) {
		for _, j := range jobs {
			require.True(t, added[string(j.Body)], "job %s is there twice", j.Body)
			delete(added, string(j.Body))
		}
	}
	t.Logf("%d of %d jobs are lost", len(added), all)
	return len(added)
}

// TestTooFewReplicas has a replica that receives nothing for a while.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	master := startMaster(t)
	replica := replicaOf(t, master.addr)
	p := newProxy(t, master.addr)
	s := open(t, clientOf(t, &redis.Options{Addr: p.addr(), MaxRetries: -1}),
		redisstore.WithReplicas(1), redisstore.WithPatience(700*time.Millisecond))
	again := open(t, clientOf(t, &redis.Options{Addr: p.addr(), MaxRetries: -1}),
		redisstore.WithReplicas(1), redisstore.WithPatience(3*time.Second))
	add(t, again, text("first"), 0)
	require.NoError(t, replica.Freeze())
	op := &store.Add{Job: text("second")}
	err := s.Do(t.Context(), []store.Op{op})
	require.ErrorIs(t, err, redisstore.ErrReplicas)
	require.ErrorIs(t, err, store.ErrUnknown)
	require.ErrorIs(t, op.Err, redisstore.ErrReplicas)
	require.ErrorIs(t, op.Err, store.ErrUnknown)
	require.NotErrorIs(t, err, redisstore.ErrUnavailable)

	// A call whose first answer is lost is sent again on another connection, and must not be
	// confirmed because that has written nothing yet, as WAIT of Redis 7.2 and newer would.
	p.loseAnswer.Store(1)
	time.AfterFunc(100*time.Millisecond, func() { p.loseAnswer.Store(0) })
	err = again.Do(t.Context(), []store.Op{&store.Add{Job: text("third")}})
	require.ErrorIs(t, err, redisstore.ErrReplicas)

	// Claims and lazy outcomes do not wait.
	jobs := claim(t, s, 9)
	require.Len(t, jobs, 3, "what is not confirmed is stored, once")
	lazy := ack(jobs[0])
	lazy.Lazy = true
	do(t, s, lazy, &store.Extend{Queue: q, ID: jobs[1].ID, Token: jobs[1].Token, Lease: time.Hour})
	require.ErrorIs(t, s.Do(t.Context(), []store.Op{ack(jobs[1])}), redisstore.ErrReplicas)

	// A call that waits is confirmed when the replica is back.
	patient := open(t, clientOf(t, &redis.Options{Addr: p.addr()}), redisstore.WithReplicas(1))
	done := make(chan error, 1)
	go func() { done <- patient.Do(t.Context(), []store.Op{ack(jobs[2])}) }()
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, done)
	require.NoError(t, replica.Thaw())
	require.NoError(t, <-done)
	require.Zero(t, info(t, s))
}

// TestConfirmedWithFullMemory has a call that was carried out confirmed although the memory is full
// by now.
func TestConfirmedWithFullMemory(t *testing.T) {
	t.Parallel()
	master := startMaster(t)
	c := master.client(t)
	s := open(t, c, redisstore.WithReplicas(1))
	done := make(chan error, 1)
	op := &store.Add{Job: text("x")}
	go func() { done <- s.Do(t.Context(), []store.Op{op}) }()
	require.True(t, eventually(time.Minute, func() bool {
		n, err := c.Exists(t.Context(), "{jobqueue:orders/:0}t").Result()
		return err == nil && n == 1
	}))
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	time.Sleep(1500 * time.Millisecond) // it is sent again
	require.Empty(t, done)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	replicaOf(t, master.addr)
	require.NoError(t, <-done)
	require.NoError(t, op.Err)
	require.Equal(t, 1, info(t, s).Ready)
}

// hasWaitAOF reports whether a server is Redis 7.2 or newer.
func hasWaitAOF(t testing.TB, c *redis.Client) bool {
	var major, minor int
	_, version, _ := strings.Cut(c.Info(t.Context(), "server").Val(), "redis_version:")
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	require.NoError(t, err)
	return major > 7 || major == 7 && minor >= 2
}

func TestAppendOnly(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0", "--appendonly", "yes",
		"--appendfsync", "no")
	c := master.client(t)
	if !hasWaitAOF(t, c) {
		t.Skip("WAITAOF takes redis-server 7.2 or newer")
	}
	own := open(t, c, redisstore.WithAppendOnly(0), redisstore.WithPatience(time.Second))
	err := own.Do(t.Context(), []store.Op{&store.Add{Job: text("x")}})
	require.ErrorIs(t, err, redisstore.ErrReplicas, "the server does not sync")
	require.NoError(t, c.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
	own = open(t, c, redisstore.WithAppendOnly(0))
	add(t, own, text("y"), 0)
	both := open(t, c, redisstore.WithAppendOnly(1), redisstore.WithReplicas(1),
		redisstore.WithPatience(2*time.Second))
	replica := replicaOf(t, master.addr) // has no append-only file
	err = both.Do(t.Context(), []store.Op{&store.Add{Job: text("z")}})
	require.ErrorIs(t, err, redisstore.ErrReplicas)
	require.NoError(t, replica.client(t).ConfigSet(t.Context(), "appendonly", "yes").Err())
	add(t, open(t, c, redisstore.WithAppendOnly(1), redisstore.WithReplicas(1)), text("z"), 0)
	master.Kill()
	master.start(t)
	require.Equal(t, 4, info(t, own).Ready)

	without := startServer(t).client(t)
	require.ErrorIs(t, open(t, without, redisstore.WithAppendOnly(0)).Check(t.Context()),
		redisstore.ErrAppendOnly)
}

func TestAppendOnlyTakesRedis72(t *testing.T) {
	c := sharedServer(t).client(t)
	if hasWaitAOF(t, c) {
		t.Skip("the server has WAITAOF")
	}
	s := open(t, c, redisstore.WithPrefix("old"), redisstore.WithAppendOnly(0))
	require.ErrorIs(t, s.Check(t.Context()), redisstore.ErrVersion)
	require.ErrorIs(t, s.Do(t.Context(), []store.Op{&store.Add{Job: text("x")}}),
		redisstore.ErrVersion)
	_, err := s.Get(t.Context(), q, store.Ref{Key: "x"})
	require.ErrorIs(t, err, redisstore.ErrVersion)
}
