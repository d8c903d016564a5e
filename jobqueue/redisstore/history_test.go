package redisstore_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// history.Run starts the test binary again, so each test calls it with the same Config there.
func killTest(t *testing.T, config history.Config, addr func() string) {
	config.Open, config.Beside = openHistory, 3
	if !history.Child() {
		t.Parallel()
		config.Env = []string{addrVariable + "=" + addr()}
	}
	history.Run(t, config)
}

// TestKillProcesses kills processes that add and work at the same time.
func TestKillProcesses(t *testing.T) {
	killTest(t, history.Config{Rounds: 15}, func() string { return startServer(t).addr })
}

// TestKillRedis kills the server as well, which syncs all that it confirms, and starts it again.
func TestKillRedis(t *testing.T) {
	var server *server
	trouble := func(round int) {
		if round%2 == 0 {
			server.Kill()
			server.start(t)
		}
	}
	killTest(t, history.Config{Rounds: 8, Trouble: trouble}, func() string {
		server = startServer(t, "--appendonly", "yes", "--appendfsync", "always")
		return server.addr
	})
}

// TestKillOnABadLink loses answers, and cuts connections.
func TestKillOnABadLink(t *testing.T) {
	var p *proxy
	trouble := func(round int) {
		if round%3 == 0 {
			p.cut()
		}
	}
	killTest(t, history.Config{Rounds: 8, Trouble: trouble}, func() string {
		p = newProxy(t, startServer(t).addr)
		p.loseAnswer.Store(50)
		return p.addr()
	})
}
