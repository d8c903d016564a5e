package redisstore_test

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
)

// TestManyProcesses has one, then eight processes share a queue. None of the jobs is early, and the
// number of claims does not grow with the number of processes.
func TestManyProcesses(t *testing.T) {
	const jobs, pace = 1000, 2 * time.Millisecond
	var claims []float64
	for _, how := range [][2]int{{1, 1}, {8, 1}, {3, 4}} {
		processes, shards := how[0], how[1]
		server := startServer(t)
		var mu sync.Mutex
		var late []time.Duration
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		var clients []*jobqueue.Client
		for range processes {
			c := jobqueue.New(redisstore.New(server.client(t), redisstore.WithShards(shards)))
			clients = append(clients, c)
			c.Handle(q, func(_ context.Context, job *jobqueue.Job) error {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, time.Since(job.Due))
				return nil
			})
			group.Go(func() { _ = c.Run(ctx) })
		}
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for i := range jobs {
			<-ticker.C
			in := 100*time.Millisecond + rand.N(400*time.Millisecond)
			_, err := clients[i%processes].Add(ctx, q, nil, jobqueue.In(in))
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(late) == jobs
		}, 20*time.Second, 10*time.Millisecond)
		stop()
		group.Wait()
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
		info, err := server.client(t).Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		calls := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)
		n, err := strconv.Atoi(calls.FindStringSubmatch(info)[1])
		require.NoError(t, err)
		slices.Sort(late)
		require.GreaterOrEqual(t, late[0], time.Duration(0), "early")
		t.Logf("%d processes, %d shards: %.2f calls a job; late p50 %v, p99 %v, max %v", processes,
			shards, float64(n)/jobs, late[jobs/2], late[jobs*99/100], late[jobs-1])
		claims = append(claims, float64(n)/jobs)
	}
	require.Less(t, claims[1], claims[0]+1, "calls for each job")
}
