package redisstore_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Bad weather: each test has a server, and often a proxy, of its own.

const q = "orders/expire"

func open(t testing.TB, client redis.UniversalClient, opts ...redisstore.Option) *redisstore.Store {
	s := redisstore.New(client, opts...)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			require.ErrorIs(t, err, store.ErrClosed)
		}
	})
	return s
}

func clientOf(t testing.TB, opts *redis.Options) *redis.Client {
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func do(t testing.TB, s *redisstore.Store, ops ...store.Op) {
	t.Helper()
	require.NoError(t, s.Do(t.Context(), ops))
	for i, op := range ops {
		require.NoError(t, op.Outcome().Err, "operation %d, %T", i, op)
	}
}

func add(t testing.TB, s *redisstore.Store, j store.Job, in time.Duration) store.ID {
	t.Helper()
	op := &store.Add{Job: j, When: store.When{In: in}}
	do(t, s, op)
	return op.ID
}

func claim(t testing.TB, s *redisstore.Store, most int) []store.Job {
	t.Helper()
	op := &store.Claim{Queue: q, Max: most, Lease: time.Hour}
	do(t, s, op)
	return op.Jobs
}

func ack(j store.Job) *store.Finish {
	return &store.Finish{Queue: j.Queue, ID: j.ID, Token: j.Token}
}

func text(s string) store.Job { return store.Job{Queue: q, Body: []byte(s)} }

func info(t testing.TB, s *redisstore.Store) store.QueueInfo {
	t.Helper()
	infos, err := s.Queues(t.Context())
	require.NoError(t, err)
	for _, i := range infos {
		if i.Name == q {
			return i
		}
	}
	return store.QueueInfo{}
}

func init() { redis.SetLogger(quietLog{log.New(io.Discard, "", 0)}) }

// TestLostAnswers loses answers and delays requests until their clients have gone. Each job is
// there once, is claimed once, and no acknowledgement is refused.
func TestLostAnswers(t *testing.T) {
	for _, retries := range []int{-1, 3} { // what the client repeats on its own does no harm
		for _, shards := range []int{1, 3} {
			t.Run(fmt.Sprintf("retries %d, shards %d", retries, shards), func(t *testing.T) {
				lostAnswers(t, retries, shards)
			})
		}
	}
}

func lostAnswers(t *testing.T, retries, shards int) {
	server := startServer(t)
	p := newProxy(t, server.addr)
	p.hold = 150 * time.Millisecond
	p.loseAnswer.Store(20)
	p.delayRequest.Store(60)
	s := open(t, clientOf(t, &redis.Options{Addr: p.addr(), MaxRetries: retries,
		ReadTimeout: 100 * time.Millisecond}), redisstore.WithShards(shards),
		redisstore.WithPatience(time.Minute))
	const callers, groups, each = 6, 40, 5
	var wg sync.WaitGroup
	var seen sync.Map
	var claimed atomic.Int64
	for c := range callers {
		wg.Go(func() {
			for g := range groups {
				var ops []store.Op
				for i := range each {
					j := text(fmt.Sprint(c, ".", g, ".", i))
					if i%2 == 0 {
						j.Key = string(j.Body)
					}
					ops = append(ops, &store.Add{Job: j, On: store.Fail})
				}
				if err := s.Do(t.Context(), ops); err != nil {
					t.Error(err)
				}
				for _, op := range ops {
					if err := op.Outcome().Err; err != nil {
						t.Error(err)
					}
				}
			}
		})
		wg.Go(func() {
			end := time.Now().Add(time.Minute)
			for claimed.Load() < callers*groups*each && time.Now().Before(end) {
				op := &store.Claim{Queue: q, Max: 7, Lease: time.Hour}
				if err := s.Do(t.Context(), []store.Op{op}); err != nil {
					t.Error(err)
				}
				var acks []store.Op
				for _, j := range op.Jobs {
					_, twice := seen.LoadOrStore(string(j.Body), true)
					if twice || j.Attempts != 1 {
						t.Errorf("job %s was claimed again, attempts %d", j.Body, j.Attempts)
					}
					claimed.Add(1)
					acks = append(acks, ack(j))
				}
				if err := s.Do(t.Context(), acks); err != nil {
					t.Error(err)
				}
				for _, op := range acks {
					if err := op.Outcome().Err; err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, callers*groups*each, claimed.Load())
	require.Zero(t, info(t, s))
}

// TestAClaimThatWasGivenUp has the jobs of a claim without an answer come with the next claim, at
// once and with no attempt lost.
func TestAClaimThatWasGivenUp(t *testing.T) {
	server := startServer(t)
	p := newProxy(t, server.addr)
	s := open(t, clientOf(t, &redis.Options{Addr: p.addr()}),
		redisstore.WithPatience(100*time.Millisecond))
	for i := range 5 {
		add(t, s, text(fmt.Sprint(i)), 0)
	}
	p.loseAnswer.Store(1)
	op := &store.Claim{Queue: q, Max: 3, Lease: time.Hour}
	err := s.Do(t.Context(), []store.Op{op})
	require.ErrorIs(t, err, store.ErrUnknown)
	require.ErrorIs(t, err, redisstore.ErrUnavailable)
	p.loseAnswer.Store(0)
	require.Eventually(t, func() bool { return server.client(t).Ping(t.Context()).Err() == nil },
		5*time.Second, time.Millisecond)
	jobs := claim(t, s, 9)
	require.Len(t, jobs, 5)
	for _, j := range jobs {
		require.Equal(t, 1, j.Attempts)
		do(t, s, ack(j))
	}
}

func TestScriptFlush(t *testing.T) {
	server := startServer(t)
	c := server.client(t)
	s := open(t, c, redisstore.WithShards(4))
	for i := range 20 {
		require.NoError(t, c.ScriptFlush(t.Context()).Err())
		var ops []store.Op
		for n := range 8 {
			ops = append(ops, &store.Add{Job: text(fmt.Sprint(i, n))})
		}
		do(t, s, ops...)
		require.NoError(t, c.ScriptFlush(t.Context()).Err())
		require.Equal(t, 8*(i+1), info(t, s).Ready)
	}
}

func TestMemoryIsFull(t *testing.T) {
	server := startServer(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	s := open(t, server.client(t), redisstore.WithPatience(time.Second))
	body := string(make([]byte, 10_000))
	var full error
	n := 0
	for ; full == nil && n < 1000; n++ {
		j := text(body)
		j.Key = fmt.Sprint(n)
		op := &store.Add{Job: j}
		require.NoError(t, s.Do(t.Context(), []store.Op{op}))
		full = op.Err
	}
	require.ErrorIs(t, full, redisstore.ErrMemory)
	n--
	require.Equal(t, n, info(t, s).Ready)

	// What takes no memory for good goes on, alone and in a group.
	later := func(by string) store.Op {
		return &store.Reschedule{Queue: q, Ref: store.Ref{Key: by}, When: store.When{In: time.Hour}}
	}
	refused := &store.Add{Job: text(body)}
	require.NoError(t, s.Do(t.Context(), []store.Op{refused, later("0")}))
	require.ErrorIs(t, refused.Err, redisstore.ErrMemory)
	do(t, s, later("1"))
	do(t, s, &store.Cancel{Queue: q, Ref: store.Ref{Key: "1"}})
	jobs := claim(t, s, 10)
	require.Len(t, jobs, 10)
	do(t, s, &store.Extend{Queue: q, ID: jobs[0].ID, Token: jobs[0].Token, Lease: time.Minute})
	for verdict := store.Retry; verdict <= store.Again; verdict++ {
		f := ack(jobs[verdict])
		f.Verdict = verdict
		f.When.In = time.Hour
		do(t, s, f)
	}
	claim(t, s, 0)
	for _, j := range jobs[5:] {
		do(t, s, ack(j))
	}
	for len(claim(t, s, 1)) > 0 {
	}
	require.Equal(t, n-6, info(t, s).Leased+info(t, s).Delayed+info(t, s).Dead)
	for _, state := range []store.State{store.Delayed, store.Dead} {
		do(t, s, &store.Purge{Queue: q, State: state, Max: 1000})
	}
	leased, _, err := s.List(t.Context(), q, store.Leased, "", 1000)
	require.NoError(t, err)
	for _, j := range leased {
		do(t, s, ack(j))
	}
	require.Eventually(t, func() bool {
		op := &store.Add{Job: text("x")}
		return s.Do(t.Context(), []store.Op{op}) == nil && op.Err == nil
	}, 10*time.Second, 10*time.Millisecond)
}

func TestEvictionPolicy(t *testing.T) {
	server := startServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	s := open(t, server.client(t))
	require.ErrorIs(t, s.Check(t.Context()), redisstore.ErrEviction)
	require.ErrorIs(t, s.Do(t.Context(), []store.Op{&store.Add{Job: text("x")}}),
		redisstore.ErrEviction)
	add(t, open(t, server.client(t), redisstore.WithEviction()), text("x"), 0)
	require.NoError(t, server.client(t).ConfigSet(t.Context(), "maxmemory-policy",
		"volatile-lru").Err())
	require.NoError(t, s.Check(t.Context()))
}

func TestWrongPassword(t *testing.T) {
	server := startServer(t, "--requirepass", "secret")
	for _, password := range []string{"", "wrong"} {
		s := open(t, clientOf(t, &redis.Options{Addr: server.addr, Password: password}))
		began := time.Now()
		require.ErrorIs(t, s.Check(t.Context()), redisstore.ErrAuth)
		require.Less(t, time.Since(began), 5*time.Second, "it is not tried again")
	}
	s := open(t, clientOf(t, &redis.Options{Addr: server.addr, Password: "secret"}))
	require.NoError(t, s.Check(t.Context()))
}

func TestAnotherLayout(t *testing.T) {
	server := startServer(t)
	c := server.client(t)
	for fields, want := range map[[2]string]error{
		{"2", "1"}: store.ErrNewer,
		{"1", "5"}: redisstore.ErrShards,
		{"1", "x"}: store.ErrCorrupt,
		{"1", "0"}: store.ErrCorrupt,
		{"1", "3"}: nil,
	} {
		require.NoError(t, c.HSet(t.Context(), "jobqueue:meta", "version", fields[0], "shards",
			fields[1]).Err())
		s := open(t, c, redisstore.WithShards(3))
		if err := s.Check(t.Context()); want == nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, want)
		}
	}
	require.NoError(t, c.HSet(t.Context(), "jobqueue:meta", "version", 1, "shards", 3).Err())
	require.NoError(t, open(t, c).Check(t.Context()), "the number that is stored is taken")
}

func TestServerIsAway(t *testing.T) {
	server := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	server.kill()
	s := open(t, server.client(t), redisstore.WithPatience(300*time.Millisecond))
	err := s.Do(t.Context(), []store.Op{&store.Add{Job: text("x")}})
	require.ErrorIs(t, err, redisstore.ErrUnavailable)
	require.NotErrorIs(t, err, store.ErrUnknown, "nothing was sent")
	server.start(t)
	add(t, s, text("x"), 0)
	server.kill()
	_, err = s.Get(t.Context(), q, store.Ref{Key: "x"})
	require.ErrorIs(t, err, redisstore.ErrUnavailable)
	op := &store.Add{Job: text("y")}
	require.ErrorIs(t, s.Do(t.Context(), []store.Op{op}), redisstore.ErrUnavailable)
	require.ErrorIs(t, op.Err, redisstore.ErrUnavailable)
	server.start(t)
	require.Len(t, claim(t, s, 9), 1)
}

// TestKillTheServer kills a server that syncs always while callers add. What was acknowledged is
// there, once.
func TestKillTheServer(t *testing.T) {
	server := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, server.client(t), redisstore.WithPatience(time.Minute))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var added atomic.Int64
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				op := &store.Add{Job: text(fmt.Sprint(c, ".", i))}
				if err := errors.Join(s.Do(t.Context(), []store.Op{op}), op.Err); err != nil {
					t.Error(err)
					return
				}
				added.Add(1)
			}
		})
	}
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		server.kill()
		server.start(t)
	}
	close(stop)
	wg.Wait()
	require.EqualValues(t, added.Load(), info(t, s).Ready)
	seen := map[string]bool{}
	for jobs := claim(t, s, 1000); len(jobs) > 0; jobs = claim(t, s, 1000) {
		for _, j := range jobs {
			require.False(t, seen[string(j.Body)])
			seen[string(j.Body)] = true
		}
	}
	require.Len(t, seen, int(added.Load()))
}

func TestReadOnlyReplica(t *testing.T) {
	server := startServer(t)
	c := server.client(t)
	s := open(t, c, redisstore.WithPatience(200*time.Millisecond))
	add(t, s, text("x"), 0)
	require.NoError(t, c.Do(t.Context(), "replicaof", "127.0.0.1", freePort(t)).Err())
	err := s.Do(t.Context(), []store.Op{&store.Add{Job: text("y")}})
	require.ErrorIs(t, err, redisstore.ErrUnavailable)
	require.NotErrorIs(t, err, store.ErrUnknown)
	patient := open(t, c)
	done := make(chan error, 1)
	go func() { done <- patient.Do(t.Context(), []store.Op{&store.Add{Job: text("z")}}) }()
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, c.Do(t.Context(), "replicaof", "no", "one").Err())
	require.NoError(t, <-done)
	require.Len(t, claim(t, s, 9), 2)
}

func TestClientPause(t *testing.T) {
	server := startServer(t)
	s := open(t, clientOf(t, &redis.Options{Addr: server.addr, ReadTimeout: 50 * time.Millisecond}))
	add(t, s, text("first"), 0)
	c := server.client(t)
	require.NoError(t, c.Do(t.Context(), "client", "pause", 400).Err())
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			op := &store.Add{Job: text(fmt.Sprint(i))}
			if err := errors.Join(s.Do(t.Context(), []store.Op{op}), op.Err); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 11, info(t, s).Ready)
}

// TestATornShard removes a record by hand, as an evicting server or a person might.
func TestATornShard(t *testing.T) {
	server := startServer(t)
	c := server.client(t)
	s := open(t, c)
	id := add(t, s, text("torn"), 0)
	add(t, s, text("whole"), 0)
	other := s2key(t, c, "b")
	fields, err := c.HKeys(t.Context(), other).Result()
	require.NoError(t, err)
	for _, f := range fields {
		if len(f) == 8 && f == string(bigEndian(uint64(id))) {
			require.NoError(t, c.HDel(t.Context(), other, f).Err())
		}
	}
	jobs := claim(t, s, 9)
	require.Len(t, jobs, 1)
	require.Equal(t, "whole", string(jobs[0].Body))
	do(t, s, ack(jobs[0]))
	require.Zero(t, info(t, s))
}
