package bench

import (
	"net"
	"os/exec"
	"testing"
	"time"
)

// startRedis starts a redis-server with its default settings on a free port of this machine, and
// returns its address. It is gone after the benchmark.
func startRedis(b testing.TB) (addr string) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("needs redis-server on the PATH; on Debian: apt-get install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(b, err)
	addr = l.Addr().String()
	check(b, l.Close())
	_, port, err := net.SplitHostPort(addr)
	check(b, err)

	server := exec.Command(program, "--bind", "127.0.0.1", "--port", port, "--dir", b.TempDir())
	check(b, server.Start())
	b.Cleanup(func() {
		check(b, server.Process.Kill())
		_ = server.Wait() // tells that it was killed
	})
	for range 500 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			check(b, conn.Close())
			return addr
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatal("redis-server does not answer")
	return ""
}
