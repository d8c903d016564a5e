package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// These tests check that what takes long is done in parts: the server serves no other client while
// a script runs.

// scripts returns how many scripts the server has run.
func scripts(t testing.TB, c *redis.Client) (n int) {
	text, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		for _, command := range []string{"eval", "evalsha"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				var calls int
				_, err := fmt.Sscanf(rest, "%d,", &calls)
				require.NoError(t, err)
				n += calls
			}
		}
	}
	return n
}

func addMany(t testing.TB, s *redisstore.Store, n int, more ...store.Op) {
	ops := more
	for i := range n {
		ops = append(ops, &store.Add{Job: text(fmt.Sprint(i)), When: store.When{In: time.Hour}})
	}
	do(t, s, ops...)
}

// TestMuchToDrop: a limit that is far below what a queue holds buries a thousand jobs at a time.
func TestMuchToDrop(t *testing.T) {
	client := startServer(t).client(t)
	s := open(t, client)
	const n = 4500
	addMany(t, s, n)
	limits := store.Limits{Jobs: 2, DropOldest: true}
	do(t, s, &store.Configure{Queue: q, Limits: &limits})
	before := scripts(t, client)
	last := &store.Add{Job: text("last"), When: store.When{In: time.Hour}}
	do(t, s, &store.Add{Job: text("one"), When: store.When{In: time.Hour}}, last)
	require.GreaterOrEqual(t, scripts(t, client)-before, 5)
	i := info(t, s)
	require.Equal(t, 2, i.Delayed)
	require.Equal(t, n, i.Dead)
	j, err := s.Get(t.Context(), q, store.Ref{ID: last.ID})
	require.NoError(t, err)
	require.Equal(t, "last", string(j.Body))
}

// TestMuchToSkip: dead jobs that cannot be requeued, as a live one has their key, are looked at a
// thousand at a time.
func TestMuchToSkip(t *testing.T) {
	client := startServer(t).client(t)
	s := open(t, client)
	const n = 3500
	bury := func(key string) {
		add(t, s, store.Job{Queue: q, Key: key}, 0)
		j := claim(t, s, 1)[0]
		do(t, s, &store.Finish{Queue: q, ID: j.ID, Token: j.Token, Verdict: store.Bury})
	}
	for range n {
		bury("same")
	}
	bury("other")
	add(t, s, store.Job{Queue: q, Key: "same"}, time.Hour)
	before := scripts(t, client)
	all := &store.Requeue{Queue: q, Max: 1000}
	do(t, s, all, &store.Add{Job: text("behind it")})
	require.GreaterOrEqual(t, scripts(t, client)-before, 4)
	require.Equal(t, 1, all.N)
	i := info(t, s)
	require.Equal(t, n, i.Dead)
	require.Equal(t, 2, i.Ready)
}

// TestLargeList: a list of large bodies ends early, with the cursor for the rest.
func TestLargeList(t *testing.T) {
	for _, shards := range []int{1, 3} {
		s := open(t, startServer(t).client(t), redisstore.WithShards(shards))
		var want, got []string
		for i := range 40 {
			body := strings.Repeat(fmt.Sprint(i%10), 1<<20)
			want = append(want, fmt.Sprint(i%10))
			add(t, s, text(body), time.Hour+time.Duration(i)*time.Minute)
		}
		pages := 0
		for after := store.Cursor(""); ; pages++ {
			jobs, next, err := s.List(t.Context(), q, store.Delayed, after, 100)
			require.NoError(t, err)
			require.LessOrEqual(t, len(jobs), 9*shards)
			for _, j := range jobs {
				got = append(got, string(j.Body[:1]))
			}
			if after = next; next == "" {
				break
			}
			require.NotEmpty(t, jobs)
		}
		require.Equal(t, want, got)
	}
}

// TestManyQueuesOfNamespace: a limit of a namespace may have jobs of any of its queues dropped.
func TestManyQueuesOfNamespace(t *testing.T) {
	s := open(t, startServer(t).client(t))
	const n = 2000
	limits := store.Limits{Jobs: n, DropOldest: true}
	ops := []store.Op{&store.Configure{Queue: "many/", Limits: &limits}}
	for i := range n + 1 {
		job := store.Job{Queue: fmt.Sprint("many/", i)}
		ops = append(ops, &store.Add{Job: job, When: store.When{In: time.Hour + time.Duration(i)}})
	}
	do(t, s, ops...)
	infos, err := s.Queues(t.Context())
	require.NoError(t, err)
	for _, i := range infos {
		require.Equal(t, i.Name == "many/0", i.Dead == 1, i.Name)
	}
}
