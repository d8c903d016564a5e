package redisstore_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/storetest/history"
)

const addrVariable = "REDISSTORE_HISTORY_ADDR"

// openHistory is what the processes that are killed work with.
func openHistory(string) (*jobqueue.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(addrVariable)})
	s := redisstore.New(client, redisstore.WithPatience(time.Minute))
	return jobqueue.New(s, jobqueue.WithLogger(slog.New(slog.DiscardHandler))), nil
}

// TestKillProcesses kills processes that add and work at the same time.
func TestKillProcesses(t *testing.T) {
	config := history.Config{Open: openHistory, Rounds: 15, Beside: 3}
	if history.Child() {
		history.Run(t, config)
	}
	t.Parallel()
	server := startServer(t)
	config.Env = []string{addrVariable + "=" + server.addr}
	history.Run(t, config)
}

// TestKillRedis kills the server as well, which syncs all that it confirms, and starts it again.
func TestKillRedis(t *testing.T) {
	config := history.Config{Open: openHistory, Rounds: 8, Beside: 3}
	if history.Child() {
		history.Run(t, config)
	}
	t.Parallel()
	server := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	config.Env = []string{addrVariable + "=" + server.addr}
	config.Trouble = func(round int) {
		if round%2 == 1 {
			return
		}
		server.Kill()
		require.NoError(t, server.Start())
	}
	history.Run(t, config)
}
