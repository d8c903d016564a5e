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

// The CPU time of the server is the steady figure: rates move with the machine.

func usage(t testing.TB, c *redis.Client) (cpu, memory float64) {
	t.Helper()
	info, err := c.Info(t.Context()).Result()
	require.NoError(t, err)
	read := func(name string) (v float64) {
		_, rest, _ := strings.Cut(info, "\n"+name+":")
		_, err := fmt.Sscan(rest, &v)
		require.NoError(t, err)
		return v
	}
	return read("used_cpu_user") + read("used_cpu_sys"), read("used_memory")
}

// BenchmarkServer reports what a job costs the server, with a key and a body of 100 bytes.
func BenchmarkServer(b *testing.B) {
	for _, group := range []int{1, 30, 1000} {
		b.Run(fmt.Sprint("group=", group), func(b *testing.B) {
			server := startServer(b)
			c := server.client(b)
			s := redisstore.New(c)
			defer s.Close()
			body := make([]byte, 100)
			measure := func(what string, f func(n int)) {
				before, _ := usage(b, c)
				began := time.Now()
				for n := 0; n < b.N; n += group {
					f(min(group, b.N-n))
				}
				after, _ := usage(b, c)
				b.ReportMetric((after-before)*1e6/float64(b.N), what+"-cpu-us")
				b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), what+"/s")
			}
			i := 0
			_, empty := usage(b, c)
			measure("add", func(n int) {
				ops := make([]store.Op, n)
				for p := range ops {
					i++
					ops[p] = &store.Add{
						Job:  store.Job{Queue: q, Key: fmt.Sprintf("order-%09d", i), Body: body},
						When: store.When{In: time.Duration(i*7919%1000) * time.Millisecond},
					}
				}
				do(b, s, ops...)
			})
			_, full := usage(b, c)
			b.ReportMetric((full-empty)/float64(b.N)-100, "B/job")
			time.Sleep(time.Second)
			measure("deliver", func(n int) {
				var ops []store.Op
				for _, j := range claim(b, s, n) {
					ops = append(ops, ack(j))
				}
				do(b, s, ops...)
			})
			require.Zero(b, info(b, s))
		})
	}
}
