package redisstore_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/internal/servers"
)

// Package servers starts servers: each test's own, but for those that share one.

func TestMain(m *testing.M) {
	// Most tests that are parallel wait most of the time. -parallel comes after it.
	_ = flag.Set("test.parallel", "8")
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the trouble is what tests are about
	code := m.Run()
	if theClient != nil {
		_ = theClient.Close()
	}
	if shared != nil {
		shared.kill()
		_ = os.RemoveAll(sharedDir)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A server is a redis-server.
type server struct {
	*servers.Redis
	addr string
}

// needServer skips the test if redis-server is missing.
func needServer(t testing.TB) (program string) {
	t.Helper()
	program, ok := servers.FindRedis()
	if !ok {
		servers.Missing(t, servers.NoRedis)
	}
	return program
}

// startServer starts a server that keeps nothing on disk unless args say otherwise.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	r, err := servers.StartRedis(needServer(t), t.TempDir(), args...)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return &server{r, r.Addr}
}

func freePort(t testing.TB) int {
	port, err := servers.FreePort()
	require.NoError(t, err)
	return port
}

func (s *server) start(t testing.TB) { require.NoError(t, s.Start()) }

// kill ends the server as kill -9 does.
func (s *server) kill() { s.Kill() }

func (s *server) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var (
	shared     *server
	sharedDir  string
	sharedOnce sync.Once
)

// sharedServer returns a server for all tests that leave it as it is. Each has its own prefix.
func sharedServer(t testing.TB) *server {
	t.Helper()
	program := needServer(t)
	sharedOnce.Do(func() {
		var err error
		sharedDir, err = os.MkdirTemp("", "redisstore")
		require.NoError(t, err)
		r, err := servers.StartRedis(program, sharedDir)
		require.NoError(t, err)
		shared = &server{r, r.Addr}
	})
	require.NotNil(t, shared)
	return shared
}

// prefixOf makes a prefix of a temporary folder's name.
func prefixOf(dir string) string {
	return strings.NewReplacer("{", "", "}", "").Replace(filepath.ToSlash(dir))
}
