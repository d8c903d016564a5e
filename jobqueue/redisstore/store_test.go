package redisstore_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

// A quietLog has the client's messages about broken connections, which tests break, go nowhere.
type quietLog struct{ *log.Logger }

func (l quietLog) Printf(_ context.Context, format string, args ...any) {
	l.Logger.Printf(format, args...)
}

// s2key returns the key of a kind of the queue q.
func s2key(t testing.TB, c *redis.Client, kind string) string {
	keys, err := c.Keys(t.Context(), "*expire:"+kind).Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	return keys[0]
}

func bigEndian(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

func TestManyInOneGroup(t *testing.T) {
	s := open(t, startServer(t).client(t))
	const n = 8200
	var ops []store.Op
	for i := range n {
		ops = append(ops, &store.Add{Job: text(fmt.Sprint(i))})
	}
	do(t, s, ops...)
	ops = ops[:0]
	for len(ops) < n {
		jobs := claim(t, s, 4100)
		require.NotEmpty(t, jobs)
		for _, j := range jobs {
			require.Equal(t, fmt.Sprint(len(ops)), string(j.Body))
			ops = append(ops, ack(j))
		}
	}
	do(t, s, ops...)
	require.Zero(t, info(t, s))
	for i := range ops {
		ops[i] = &store.Add{Job: text(fmt.Sprint(i)), When: store.When{In: time.Hour}}
	}
	do(t, s, ops...)
	purge := &store.Purge{Queue: q, State: store.Delayed, Max: 5000}
	do(t, s, purge)
	require.Equal(t, 5000, purge.N)
	do(t, s, purge)
	require.Equal(t, n-5000, purge.N)
}

func TestLargeBodies(t *testing.T) {
	s := open(t, startServer(t).client(t))
	var ops []store.Op
	for range 30 {
		ops = append(ops, &store.Add{Job: text(strings.Repeat("x", 1<<20))})
	}
	do(t, s, ops...)
	n, calls := 0, 0
	for n < 30 {
		jobs := claim(t, s, 1000)
		require.NotEmpty(t, jobs)
		n += len(jobs)
		calls++
	}
	require.Greater(t, calls, 1, "an answer has a bound")
}

// TestKeysStay checks that all keys of a queue are there as long as one is: a Cluster refuses
// scripts that declare a key which is not there while a slot migrates.
func TestKeysStay(t *testing.T) {
	server := startServer(t)
	c := server.client(t)
	s := open(t, c)
	check := func() {
		keys, err := c.Keys(t.Context(), "{*").Result()
		require.NoError(t, err)
		sort.Strings(keys)
		var kinds []string
		for _, k := range keys {
			kinds = append(kinds, k[strings.Index(k, "}")+1:])
		}
		require.Equal(t, []string{"expire:b", "expire:d", "expire:f", "expire:k", "expire:l",
			"expire:s", "expire:x", "expire:z", "t"}, kinds)
	}
	j := text("x")
	j.Key = "key"
	add(t, s, j, 0)
	check()
	do(t, s, ack(claim(t, s, 1)[0]))
	check()
	claim(t, s, 1)
	do(t, s, &store.Purge{Queue: q, State: store.Dead, Max: 10})
	check()
}

// TestDeclaredKeys watches what the scripts do and checks that each key was declared.
func TestDeclaredKeys(t *testing.T) {
	server := startServer(t)
	c := clientOf(t, &redis.Options{Addr: server.addr})
	conn, err := net.Dial("tcp", server.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	require.True(t, lines.Scan())
	s := open(t, c)
	j := text("x")
	j.Key, j.Retain, j.Repeat, j.ID = "key", time.Hour, []byte("r"), 77
	other := store.Job{Queue: "orders/other", Body: []byte("y")}
	limits := store.Limits{Jobs: 1, DropOldest: true}
	do(t, s, &store.Add{Job: other})
	do(t, s, &store.Configure{Queue: "orders/", Limits: &limits})
	do(t, s, &store.Add{Job: j}) // buries the other queue's
	f := ack(claim(t, s, 1)[0])
	f.Verdict, f.Failed = store.Again, true
	do(t, s, f)
	do(t, s, &store.Update{Queue: q, Ref: store.Ref{Key: "key"}, Body: []byte("z")},
		&store.Reschedule{Queue: q, Ref: store.Ref{ID: 77}})
	do(t, s, ack(claim(t, s, 1)[0]))
	do(t, s, &store.Requeue{Queue: q, Max: 9}, &store.Purge{Queue: q, State: store.Dead, Max: 9})
	require.Equal(t, 1, info(t, s).Done)
	dead, _, err := s.List(t.Context(), "orders/other", store.Dead, "", 9)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.NoError(t, c.Echo(t.Context(), "the end").Err())
	declared := map[string]bool{}
	inside := 0
	for lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, `"echo" "the end"`) {
			break
		}
		_, command, _ := strings.Cut(line, "] ")
		words := strings.Split(strings.Trim(command, `"`), `" "`)
		if len(words) < 2 {
			continue
		}
		switch name := strings.ToLower(words[0]); {
		case name == "evalsha" || name == "eval":
			clear(declared)
			at := 2
			if name == "eval" {
				at = len(words)
				for i, w := range words {
					if w == "9" || w == "17" {
						at = i
						break
					}
				}
			}
			var n int
			_, err := fmt.Sscan(words[at], &n)
			require.NoError(t, err)
			for _, k := range words[at+1 : at+1+n] {
				declared[k] = true
			}
		case strings.Contains(line, " lua]") && name != "time" && name != "publish":
			inside++
			require.True(t, declared[words[1]], "%s", line)
		}
	}
	require.Greater(t, inside, 50)
	require.NoError(t, lines.Err())
}

// TestShards spreads jobs over shards, and finds them all.
func TestShards(t *testing.T) {
	server := startServer(t)
	s := open(t, server.client(t), redisstore.WithShards(4))
	const n = 400
	ids := map[string]store.ID{}
	for i := range n {
		j := text(fmt.Sprint(i))
		if i%2 == 0 {
			j.Key = "key " + fmt.Sprint(i)
		}
		ids[string(j.Body)] = add(t, s, j, time.Duration(i)*time.Nanosecond)
	}
	time.Sleep(2 * time.Millisecond)
	require.Equal(t, n, info(t, s).Ready)
	due, err := s.Due(t.Context(), q, []time.Duration{0, time.Hour})
	require.NoError(t, err)
	require.Equal(t, []int{n, 0}, due)
	var all []store.Job
	for after := store.Cursor(""); ; {
		jobs, next, err := s.List(t.Context(), q, store.Ready, after, 7)
		require.NoError(t, err)
		all = append(all, jobs...)
		if after = next; next == "" {
			break
		}
	}
	require.Equal(t, n, len(all))
	for i, j := range all {
		require.Equal(t, ids[string(j.Body)], j.ID)
		require.False(t, i > 0 && j.Due.Before(all[i-1].Due))
		got, err := s.Get(t.Context(), q, store.Ref{ID: j.ID})
		require.NoError(t, err)
		require.Equal(t, j, got)
		if j.Key != "" {
			got, err = s.Get(t.Context(), q, store.Ref{Key: j.Key})
			require.NoError(t, err)
			require.Equal(t, j, got)
		}
	}
	j := text("x")
	j.Key = "key"
	refused := 0
	for shard := range store.ID(4) {
		j.ID = (4*7+shard)<<32 | 1
		op := &store.Add{Job: j, On: store.Replace}
		require.NoError(t, s.Do(t.Context(), []store.Op{op}))
		if op.Err != nil {
			require.ErrorIs(t, op.Err, redisstore.ErrChosenID)
			refused++
		}
	}
	require.Equal(t, 3, refused)
	do(t, s, &store.Cancel{Queue: q, Ref: store.Ref{Key: "key"}})

	seen := map[store.ID]bool{}
	for len(seen) < n {
		op := &store.Claim{Queue: q, Max: 30, Lease: time.Hour}
		do(t, s, op)
		require.NotEmpty(t, op.Jobs)
		require.LessOrEqual(t, len(op.Jobs), 30)
		if len(seen)+len(op.Jobs) < n {
			require.Zero(t, op.Next)
		}
		var ops []store.Op
		for _, j := range op.Jobs {
			require.False(t, seen[j.ID])
			seen[j.ID] = true
			f := ack(j)
			f.Verdict = store.Bury
			ops = append(ops, f)
		}
		do(t, s, ops...)
	}
	requeue := &store.Requeue{Queue: q, Max: 250}
	do(t, s, requeue)
	require.Equal(t, 250, requeue.N)
	do(t, s, requeue)
	require.Equal(t, 150, requeue.N)
	purge := &store.Purge{Queue: q, State: store.Ready, Max: n + 1}
	do(t, s, purge)
	require.Equal(t, n, purge.N)
	require.Zero(t, info(t, s))
}

// A listener notes what a watcher is told.
type listener struct {
	ch chan time.Duration
}

func listen(s *redisstore.Store) *listener {
	l := &listener{ch: make(chan time.Duration, 1000)}
	s.Watch(func(queue string, in time.Duration) {
		if queue == q {
			l.ch <- in
		}
	})
	return l
}

// await returns what is told next.
func (l *listener) await(t testing.TB) time.Duration {
	t.Helper()
	select {
	case in := <-l.ch:
		return in
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was told")
		return 0
	}
}

func TestWatchHearsOtherProcesses(t *testing.T) {
	server := startServer(t)
	adding, waiting := open(t, server.client(t)), open(t, server.client(t))
	l := listen(waiting)
	claim(t, waiting, 1)
	require.Zero(t, l.await(t), "look, now that it is subscribed to")
	add(t, adding, text("hour"), time.Hour)
	require.InDelta(t, time.Hour, l.await(t), float64(time.Second))
	add(t, adding, text("later"), 2*time.Hour)
	add(t, adding, text("minute"), time.Minute)
	in := l.await(t)
	require.InDelta(t, time.Minute, in, float64(time.Second))

	// A subscription that was cut stands again, and what was missed is looked for.
	c := server.client(t)
	require.NoError(t, c.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	require.Zero(t, l.await(t))
	add(t, adding, text("now"), 0)
	require.Zero(t, l.await(t))
	require.Len(t, claim(t, waiting, 9), 1)
}

// TestOneProcessIsArmed has several processes wait for one queue: one comes to the millisecond, the
// others a little later, and any of them takes its place if it does not come.
func TestOneProcessIsArmed(t *testing.T) {
	server := startServer(t)
	first, second := open(t, server.client(t)), open(t, server.client(t))
	due := 300 * time.Millisecond
	add(t, first, text("x"), due)
	next := func(s *redisstore.Store, most int) time.Duration {
		op := &store.Claim{Queue: q, Max: most, Lease: time.Hour}
		do(t, s, op)
		require.Empty(t, op.Jobs)
		return op.Next
	}
	began := time.Now()
	require.LessOrEqual(t, next(first, 1), due+time.Millisecond)
	require.Greater(t, next(second, 1), due+50*time.Millisecond-time.Since(began))
	require.LessOrEqual(t, next(first, 1), due+time.Millisecond)
	l := listen(second)
	require.Zero(t, l.await(t), "look, now that it is subscribed to")
	add(t, first, text("y"), due/2)
	in := l.await(t)
	require.Greater(t, in, due/2+40*time.Millisecond)
	require.LessOrEqual(t, in, due/2+101*time.Millisecond)
	time.Sleep(due + 50*time.Millisecond)

	// The first process does not come.
	require.Len(t, claim(t, second, 3), 2)
	add(t, second, text("z"), due)
	began = time.Now()
	require.LessOrEqual(t, next(second, 1), due+time.Millisecond)
	require.Greater(t, next(first, 1), due+50*time.Millisecond-time.Since(began))

	// Nor is a process armed that has as much as it wanted.
	add(t, first, text("now"), 0)
	require.Len(t, claim(t, second, 1), 1)
	require.LessOrEqual(t, next(first, 1), due+time.Millisecond)
}

// TestIdle counts what two idle processes send.
func TestIdle(t *testing.T) {
	server := startServer(t)
	c := server.client(t)
	for range 2 {
		client := jobqueue.New(redisstore.New(server.client(t)))
		client.Handle(q, func(context.Context, *jobqueue.Job) error { return nil })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- client.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			<-done
			require.NoError(t, client.Close())
		})
	}
	time.Sleep(time.Second)
	count := func() (n int) {
		text, err := c.Info(t.Context(), "stats").Result()
		require.NoError(t, err)
		_, rest, _ := strings.Cut(text, "total_commands_processed:")
		_, err = fmt.Sscan(rest, &n)
		require.NoError(t, err)
		return n
	}
	const span = 6
	before := count()
	time.Sleep(span * time.Second)
	require.Less(t, count()-before-1, 2*span, "less than one a second for each process")
}

func keysWithOneHash() []string {
	seen := map[uint32]string{}
	for i := 0; ; i++ {
		key := fmt.Sprint("key ", i)
		if other, ok := seen[redisstore.HashOf(key)]; ok {
			return []string{other, key}
		}
		seen[redisstore.HashOf(key)] = key
	}
}

// TestKeysWithOneHashInAGroup adds their jobs before either is written.
func TestKeysWithOneHashInAGroup(t *testing.T) {
	s := open(t, startServer(t).client(t))
	var ops []store.Op
	keys := keysWithOneHash()
	for _, key := range keys {
		ops = append(ops, &store.Add{Job: store.Job{Queue: q, Key: key, Body: []byte(key)}})
	}
	do(t, s, ops...)
	var bodies []string
	for _, j := range claim(t, s, 3) {
		bodies = append(bodies, string(j.Body))
	}
	require.Equal(t, keys, bodies)
}

// TestKeysWithOneHash compares random operations on jobs whose keys have the same hash, which only
// one of them can be found by, with those of a store in memory.
func TestKeysWithOneHash(t *testing.T) {
	keys := keysWithOneHash()
	server := startServer(t)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	now := time.Now().Truncate(time.Millisecond)
	clock := func() time.Time { return now }
	s := open(t, server.client(t), redisstore.WithClock(clock))
	model := memory.New(memory.WithClock(clock))
	both := func(op func() store.Op) (a, b store.Op) {
		a, b = op(), op()
		require.NoError(t, model.Do(t.Context(), []store.Op{a}))
		require.NoError(t, s.Do(t.Context(), []store.Op{b}))
		require.ErrorIs(t, b.Outcome().Err, a.Outcome().Err)
		return a, b
	}
	for i := range 3000 {
		key := keys[random.IntN(2)]
		on := store.Conflict(random.IntN(3))
		verdict := []store.Verdict{store.Ack, store.Ack, store.Retry, store.Bury}[random.IntN(4)]
		now = now.Add(time.Millisecond)
		switch random.IntN(8) {
		case 0, 1, 2:
			retain := time.Duration(random.IntN(2)) * 20 * time.Millisecond
			both(func() store.Op {
				j := store.Job{Queue: q, Key: key, Body: []byte(fmt.Sprint(i)), Retain: retain}
				return &store.Add{Job: j, On: on}
			})
		case 3:
			both(func() store.Op { return &store.Cancel{Queue: q, Ref: store.Ref{Key: key}} })
		case 4:
			both(func() store.Op {
				body := fmt.Append(nil, "u", i)
				return &store.Update{Queue: q, Ref: store.Ref{Key: key}, Body: body}
			})
		case 5:
			a, b := both(func() store.Op { return &store.Requeue{Queue: q, Max: 1} })
			require.Equal(t, a.(*store.Requeue).N, b.(*store.Requeue).N)
		default:
			a, b := both(func() store.Op {
				return &store.Claim{Queue: q, Max: 1, Lease: time.Hour}
			})
			x, y := a.(*store.Claim).Jobs, b.(*store.Claim).Jobs
			require.Equal(t, len(x), len(y))
			for n := range x {
				require.Equal(t, x[n].Body, y[n].Body)
				for _, f := range []*store.Finish{ack(x[n]), ack(y[n])} {
					f.Verdict = verdict
					var in store.Store = model
					if f.ID == y[n].ID {
						in = s
					}
					require.NoError(t, in.Do(t.Context(), []store.Op{f}))
					require.NoError(t, f.Err)
				}
			}
		}
		for _, key := range keys {
			x, errX := model.Get(t.Context(), q, store.Ref{Key: key})
			y, errY := s.Get(t.Context(), q, store.Ref{Key: key})
			require.Equal(t, errX == nil, errY == nil)
			require.Equal(t, string(x.Body), string(y.Body))
			if errX == nil {
				byID, err := s.Get(t.Context(), q, store.Ref{ID: y.ID})
				require.NoError(t, err)
				require.Equal(t, y, byID)
			}
		}
		x, err := model.Queues(t.Context())
		require.NoError(t, err)
		y, err := s.Queues(t.Context())
		require.NoError(t, err)
		require.Equal(t, x, y)
	}
}
