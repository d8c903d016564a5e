package bench

import (
	"testing"

	"github.com/go-timingwheel/timingwheel/internal/servers"
)

// startRedis starts a redis-server that saves as it does by default, unless args say otherwise, and
// returns its address. It is gone after the benchmark.
func startRedis(b testing.TB, args ...string) (addr string) {
	program, ok := servers.FindRedis()
	if !ok {
		servers.Missing(b, servers.NoRedis)
	}
	args = append([]string{"--save", "3600 1 300 100 60 10000"}, args...)
	server, err := servers.StartRedis(program, b.TempDir(), args...)
	check(b, err)
	b.Cleanup(server.Close)
	return server.Addr
}
