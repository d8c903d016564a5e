package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// This file starts servers: each test's own, on a free port of loopback, in a temporary folder.

func TestMain(m *testing.M) {
	code := m.Run()
	if theClient != nil {
		_ = theClient.Close()
	}
	if shared != nil {
		shared.kill()
		_ = os.RemoveAll(shared.dir)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A server is a redis-server.
type server struct {
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
	log  *bytes.Buffer
}

// needServer skips the test, or fails it if the gate says that there must be servers.
func needServer(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	text := program + " is not installed: apt-get install redis-server redis-sentinel"
	if os.Getenv("JOBQUEUE_SERVERS") == "required" {
		t.Fatal(text)
	}
	t.Skip(text)
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startServer starts a server that keeps nothing on disk unless args say otherwise.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := newServer(t, t.TempDir(), args...)
	t.Cleanup(s.kill)
	return s
}

func newServer(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	needServer(t, "redis-server")
	s := &server{addr: fmt.Sprintf("127.0.0.1:%d", freePort(t)), dir: dir, args: args}
	s.start(t)
	return s
}

func (s *server) start(t testing.TB) {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.addr)
	args := append([]string{"--bind", host, "--port", port, "--dir", s.dir, "--save", "",
		"--appendonly", "no", "--daemonize", "no"}, s.args...)
	s.log = &bytes.Buffer{}
	s.cmd = exec.Command("redis-server", args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = dieWithUs()
	require.NoError(t, s.cmd.Start())
	s.await(t)
}

// await returns when the server takes connections.
func (s *server) await(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, "redis-server: %v", s.args)
}

// kill ends the server as kill -9 does.
func (s *server) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

func (s *server) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var (
	shared     *server
	sharedOnce sync.Once
)

// sharedServer returns a server for all tests that leave it as it is. Each has its own prefix.
func sharedServer(t testing.TB) *server {
	t.Helper()
	needServer(t, "redis-server")
	sharedOnce.Do(func() {
		dir, err := os.MkdirTemp("", "redisstore")
		require.NoError(t, err)
		shared = newServer(t, dir)
	})
	require.NotNil(t, shared)
	return shared
}

// prefixOf makes a prefix of a temporary folder's name.
func prefixOf(dir string) string {
	return strings.NewReplacer("{", "", "}", "").Replace(filepath.ToSlash(dir))
}

func ctx(t testing.TB) context.Context { return t.Context() }
