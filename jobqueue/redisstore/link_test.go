package redisstore_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// cut closes all connections of a proxy.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// soonLate fails if no job comes in time once the trouble is over. A machine may be slow for a
// while, so one good stretch is enough.
func (l *load) soonLate(what string) {
	l.Helper()
	const small = 300 * time.Millisecond
	var late time.Duration
	require.True(l, eventually(time.Minute, func() bool {
		l.progress(10)
		l.lateness()
		l.progress(50)
		late = l.lateness()
		return late < small
	}), "%s: jobs are still late by %v", what, late)
}

// TestTroubleUnderLoad has two processes add and work while their links and the server have
// troubles. No job is lost, added twice or delivered twice, and each is in time again soon.
func TestTroubleUnderLoad(t *testing.T) {
	for name, retries := range map[string]int{"the client retries": 3, "the client does not": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			troubleUnderLoad(t, retries)
		})
	}
}

func troubleUnderLoad(t *testing.T, retries int) {
	server := startServer(t)
	p := newProxy(t, server.addr)
	p.hold = 300 * time.Millisecond
	l := startLoad(t, func() redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: p.addr(), MaxRetries: retries})
	}, q, "other")
	c := server.client(t)
	order := func(args ...any) func() {
		return func() { require.NoError(t, c.Do(t.Context(), args...).Err()) }
	}
	set := func(n *atomic.Int64, v int64) func() { return func() { n.Store(v) } }
	l.progress(100)
	for _, trouble := range []struct {
		name  string
		begin func()
		end   func()
	}{
		{"answers are lost", set(&p.loseAnswer, 10), set(&p.loseAnswer, 0)},
		{"requests are slow", set(&p.delayRequest, 20), set(&p.delayRequest, 0)},
		{"connections are cut", p.cut, p.cut},
		{"scripts are forgotten", order("script", "flush"), order("script", "flush")},
		{"clients are paused", order("client", "pause", 2000), func() {}},
		{"subscriptions are cut", order("client", "kill", "type", "pubsub"), func() {}},
	} {
		trouble.begin()
		l.progress(200)
		trouble.end()
		l.soonLate(trouble.name)
	}
	l.settle(nil)
	l.once()
}

// TestAFrozenServer has a server stop in the middle of a claim. The call ends in bounded time, and
// the jobs that the server claims once it goes on come with the next claim.
func TestAFrozenServer(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	connect := func() *redisstore.Store {
		options := &redis.Options{Addr: server.addr, ReadTimeout: 300 * time.Millisecond}
		return open(t, clientOf(t, options), redisstore.WithPatience(time.Second))
	}
	s := connect()
	for i := range 5 {
		add(t, s, text(fmt.Sprint(i)), 0)
	}
	require.NoError(t, server.Freeze())
	began := time.Now()
	op := &store.Claim{Queue: q, Max: 3, Lease: time.Hour}
	err := s.Do(t.Context(), []store.Op{op})
	require.ErrorIs(t, err, redisstore.ErrUnavailable)
	require.ErrorIs(t, err, store.ErrUnknown)
	require.Less(t, time.Since(began), 20*time.Second)
	require.NoError(t, server.Thaw())
	jobs := claim(t, s, 9)
	require.Len(t, jobs, 5)
	for _, j := range jobs {
		require.Equal(t, 1, j.Attempts)
		do(t, s, ack(j))
	}

	other := connect()
	require.NoError(t, server.Freeze())
	began = time.Now()
	require.ErrorIs(t, other.Check(t.Context()), redisstore.ErrUnavailable, "at start")
	require.Less(t, time.Since(began), 20*time.Second)
	require.NoError(t, server.Thaw())
	require.NoError(t, other.Check(t.Context()))
}

// TestAnOldServer talks to one that says it is Redis 4.
func TestAnOldServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				switch strings.ToUpper(lines.Text()) {
				case "INFO":
					info := "redis_version:4.0.14\r\n"
					fmt.Fprintf(c, "$%d\r\n%s\r\n", len(info), info)
				case "HELLO", "CLIENT":
					fmt.Fprint(c, "-ERR unknown command\r\n")
				}
			}
			_ = c.Close()
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String()})
	s := open(t, client)
	require.ErrorIs(t, s.Check(t.Context()), redisstore.ErrVersion)
	c := jobqueue.New(s)
	_, err = c.Add(t.Context(), q, nil)
	require.ErrorIs(t, err, redisstore.ErrVersion)
	require.NoError(t, c.Close())
	require.NoError(t, client.Close())
	require.NoError(t, l.Close())
	<-done
}
