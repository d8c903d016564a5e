package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/internal/servers"
	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/command"
	"github.com/go-timingwheel/timingwheel/jobqueue/jobqueueprom"
	"github.com/go-timingwheel/timingwheel/jobqueue/page"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
)

// The tests have what looks at a job queue, which is the command, the page and the metrics, look at
// one in Redis.

var update = flag.Bool("update", false, "write what the commands print into testdata")

func TestMain(m *testing.M) {
	time.Local = time.UTC
	logging.Disable()
	goleak.VerifyTestMain(m)
}

// startServer returns the address of a redis-server of the test's own.
func startServer(t *testing.T, args ...string) (addr string) {
	t.Helper()
	r, err := servers.StartRedis(needServer(t), t.TempDir(), args...)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r.Addr
}

// needServer skips the test if redis-server is missing.
func needServer(t *testing.T) (program string) {
	t.Helper()
	program, ok := servers.FindRedis()
	if !ok {
		servers.Missing(t, servers.NoRedis)
	}
	return program
}

var far = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// shop returns a Client of a store on the server, with two delayed jobs, a dead and a paused one.
func shop(t *testing.T, addr string, opts ...redisstore.Option) *jobqueue.Client {
	return fill(t, redis.NewClient(&redis.Options{Addr: addr}), opts...)
}

func fill(t *testing.T, client redis.UniversalClient, opts ...redisstore.Option) *jobqueue.Client {
	c := jobqueue.New(redisstore.New(client, opts...))
	t.Cleanup(func() { require.NoError(t, errors.Join(c.Close(), client.Close())) })
	ctx := t.Context()
	for i, key := range []string{"order-1", "order-2"} {
		_, err := c.Add(ctx, "orders/expire", fmt.Appendf(nil, `{"order":%d}`, i+1),
			jobqueue.Key(key), jobqueue.At(far.Add(time.Duration(i)*time.Second)))
		require.NoError(t, err)
	}
	_, err := c.Add(ctx, "webhooks", []byte("ping"), jobqueue.MaxAttempts(1))
	require.NoError(t, err)
	got, err := c.Reserve(ctx, "webhooks", 1, time.Minute)
	require.NoError(t, err)
	require.NoError(t, got[0].Nack(ctx, errors.New("503 Service Unavailable")))
	_, err = c.Add(ctx, "letters", []byte("Dear me"))
	require.NoError(t, err)
	require.NoError(t, c.Pause(ctx, "letters"))
	require.NoError(t, c.Pause(ctx, "orders/expire")) // or how long it is until then would be shown
	return c
}

// run runs the command with JOBQUEUE_URL set, and returns what it prints.
func run(t *testing.T, address, line string) (printed string, status int) {
	t.Setenv("JOBQUEUE_URL", address)
	t.Setenv("JOBQUEUE_FILE", "")
	var out bytes.Buffer
	status = command.Run(t.Context(), open, strings.Fields(line), strings.NewReader(""), &out, &out)
	return out.String(), status
}

// unsteady is what is different in each run: IDs, and instants of this century.
var unsteady = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b[0-9a-hjkmnp-tv-z]{13}\b`), "0000000000000"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d`), "0000-00-00 00:00:00"},
}

// TestTranscript runs the command lines in testdata, which begin with $, and compares what they
// print with the lines that follow.
func TestTranscript(t *testing.T) {
	addr := startServer(t)
	shop(t, addr)
	const file = "testdata/redis.txt"
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	var got strings.Builder
	for text := range strings.Lines(string(want)) {
		if strings.HasPrefix(text, "#") {
			got.WriteString(text)
		}
		line, ok := strings.CutPrefix(text, "$ jobqueue ")
		if !ok {
			continue
		}
		printed, status := run(t, "redis://"+addr+"/0", line)
		for _, u := range unsteady {
			printed = u.pattern.ReplaceAllString(printed, u.instead)
		}
		got.WriteString(text + printed)
		if status != 0 {
			fmt.Fprintf(&got, "[exit %d]\n", status)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	require.Equal(t, string(want), got.String())
}

// TestNoQueue: looking makes no store where there is none, and what is wrong is said without the
// password.
func TestNoQueue(t *testing.T) {
	addr := startServer(t, "--requirepass", "secret")
	client := redis.NewClient(&redis.Options{Addr: addr, Password: "secret"})
	defer client.Close()
	for _, c := range []struct{ address, want string }{
		{"redis://:secret@" + addr + "/0",
			"redis://:xxxxx@" + addr + "/0: there is no job queue in it"},
		{"redis://" + addr, "NOAUTH"},
		{"redis://:wrong@" + addr, "WRONGPASS"},
		{"redis://:secret@" + addr + "?prefix={}", "the prefix has braces"},
		{"redis://:secret@" + addr + "?colour=red", "colour"},
		{"redis://:secret@127.0.0.1:1?max_retries=-1", "connection refused"},
	} {
		printed, status := run(t, c.address, "pause letters")
		require.Equal(t, 1, status, printed)
		require.Contains(t, printed, c.want)
		require.NotContains(t, printed, "secret")
	}
	require.Empty(t, client.Keys(t.Context(), "*").Val())
}

// TestPrefix: the parameter prefix is the one of the store, and evicting servers may be looked at.
func TestPrefix(t *testing.T) {
	addr := startServer(t, "--maxmemory-policy", "allkeys-lru")
	shop(t, addr, redisstore.WithPrefix("shop"), redisstore.WithEviction(),
		redisstore.WithShards(3))
	printed, status := run(t, "redis://"+addr+"?prefix=shop",
		"show orders/expire -key order-2 -body")
	require.Zero(t, status, printed)
	require.Equal(t, `{"order":2}`, printed)
	printed, status = run(t, "redis://"+addr, "stats")
	require.Equal(t, 1, status, printed)
}

// TestOtherServers: the address of a Sentinel leads to its master, and that of a node to its
// Cluster.
func TestOtherServers(t *testing.T) {
	addr := startServer(t)
	shop(t, addr)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	sentinel, err := servers.StartSentinel(needServer(t), t.TempDir(),
		"sentinel monitor shop "+host+" "+port+" 1")
	require.NoError(t, err)
	defer sentinel.Close()

	node := startServer(t, "--cluster-enabled", "yes", "--cluster-port", "$bus")
	first := redis.NewClient(&redis.Options{Addr: node})
	require.NoError(t, first.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(first.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.Close())
	fill(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node}}))

	for _, address := range []string{
		"redis://" + sentinel.Addr + "/0?master_name=shop", "redis://" + node,
	} {
		printed, status := run(t, address, "requeue webhooks -all")
		require.Zero(t, status, printed)
		require.Equal(t, "requeued 1 job\n", printed)
		printed, status = run(t, address, "show orders/expire -key order-2 -body")
		require.Zero(t, status, printed)
		require.Equal(t, `{"order":2}`, printed)
	}
}

// TestPage: the page of one process shows and changes the jobs of all.
func TestPage(t *testing.T) {
	addr := startServer(t)
	shop(t, addr)
	other := redis.NewClient(&redis.Options{Addr: addr})
	defer other.Close()
	c := jobqueue.New(redisstore.New(other))
	defer c.Close()
	h := page.Handler(c)
	ask := func(method, target, body string) map[string]any {
		t.Helper()
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		var answer map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		return answer
	}
	job := func(queue, state string) map[string]any {
		t.Helper()
		jobs := ask("GET", "/?format=json&queue="+queue+"&state="+state, "")["jobs"].([]any)
		require.Len(t, jobs, 1)
		return jobs[0].(map[string]any)
	}
	queues := ask("GET", "/?format=json", "")["queues"].([]any)
	require.Len(t, queues, 3)
	letters, orders := queues[0].(map[string]any), queues[1].(map[string]any)
	require.Equal(t, "letters", letters["name"])
	require.Equal(t, true, letters["paused"])
	require.EqualValues(t, 1, letters["ready"])
	require.EqualValues(t, 2, orders["delayed"])

	dead := job("webhooks", "dead")
	require.Equal(t, "503 Service Unavailable", dead["last_error"])
	ask("POST", "/", fmt.Sprintf(`{"do":"requeue","queue":"webhooks","id":%q}`, dead["id"]))
	require.Equal(t, dead["id"], job("webhooks", "ready")["id"])
	ask("POST", "/", `{"do":"cancel","queue":"orders/expire","key":"order-1"}`)
	require.Equal(t, "order-2", job("orders%2Fexpire", "delayed")["key"])
	ask("POST", "/", `{"do":"resume","queue":"letters"}`)
	got, err := c.Reserve(t.Context(), "letters", 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "Dear me", string(got[0].Body))
	require.Equal(t, "leased", job("letters", "leased")["state"])
}

// TestMetrics: the collector of one process has the jobs of all, and what that process did.
func TestMetrics(t *testing.T) {
	c := shop(t, startServer(t))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	c.Handle("ok", func(context.Context, *jobqueue.Job) error {
		close(done)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	_, err := c.Add(t.Context(), "ok", nil)
	require.NoError(t, err)
	<-done
	stop()
	require.NoError(t, <-ended)

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(jobqueueprom.NewCollector(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() != "client" {
					name += " " + l.GetValue()
				}
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"jobqueue_up":                         1,
		"jobqueue_jobs orders/expire delayed": 2,
		"jobqueue_jobs letters ready":         1,
		"jobqueue_jobs webhooks dead":         1,
		"jobqueue_jobs ok leased":             0,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
}
