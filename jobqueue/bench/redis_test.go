package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
)

// These benchmarks compare what the job queue and asynq ask of Redis. Both use the same server, in
// turns, a few rounds of it, and the medians are reported. The CPU time of the server is the steady
// figure; rates move with the machine.

// A contender is a job queue on a server that it may fill.
type contender struct {
	// add adds a job that is due at a time.
	add func(due time.Time) error
	// run has handle called for each job that is due until stop is called.
	run   func(handle func()) (stop func())
	close func()
}

type contenders []struct {
	name string
	open func(b testing.TB, addr string) contender
}

var (
	oursAndAsynq = contenders{
		{"jobqueue", redisContender()},
		{"asynq", asynqContender(0, 0)},
	}
	andTightest = append(slices.Clone(oursAndAsynq), contenders{
		{"asynq-tightest", asynqContender(time.Millisecond, time.Millisecond)},
	}...)
)

func redisContender(opts ...redisstore.Option) func(b testing.TB, addr string) contender {
	return func(b testing.TB, addr string) contender {
		c, closeAll := openRedis(b, addr, opts...)
		return contender{
			close: closeAll,
			add: func(due time.Time) error {
				_, err := c.Add(context.Background(), queue, make([]byte, bodySize),
					jobqueue.At(due), jobqueue.Key(key()))
				return err
			},
			run: func(handle func()) func() { return handleAndRun(c, handle) },
		}
	}
}

func asynqContender(delayed, ready time.Duration) func(b testing.TB, addr string) contender {
	return func(b testing.TB, addr string) contender {
		redis := asynq.RedisClientOpt{Addr: addr}
		client := asynq.NewClient(redis)
		return contender{
			close: func() { check(b, client.Close()) },
			add: func(due time.Time) error {
				_, err := client.Enqueue(asynq.NewTask(queue, make([]byte, bodySize)),
					asynq.ProcessAt(due))
				return err
			},
			run: func(handle func()) func() {
				server := asynq.NewServer(redis, asynq.Config{
					Concurrency:              workers,
					DelayedTaskCheckInterval: delayed,
					TaskCheckInterval:        ready,
					LogLevel:                 asynq.FatalLevel,
				})
				check(b, server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
					handle()
					return nil
				})))
				return server.Shutdown
			},
		}
	}
}

// openRedis returns a Client of its own connections, as a process has.
func openRedis(b testing.TB, addr string, opts ...redisstore.Option) (c *jobqueue.Client,
	closeAll func()) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	c = jobqueue.New(redisstore.New(client, opts...), quiet)
	return c, func() { check(b, c.Close()); check(b, client.Close()) }
}

func handleAndRun(c *jobqueue.Client, handle func()) (stop func()) {
	c.Handle(queue, func(context.Context, *jobqueue.Job) error {
		handle()
		return nil
	}, jobqueue.Workers(workers))
	return run(c)
}

func openRedisstore(b testing.TB, handle func(int)) func(int, time.Time) error {
	c, closeAll := openRedis(b, startRedis(b))
	b.Cleanup(closeAll)
	c.Handle(queue, func(_ context.Context, job *jobqueue.Job) error {
		return handleBody(handle, job.Body)
	}, jobqueue.Workers(workers))
	b.Cleanup(run(c))
	return func(job int, due time.Time) error {
		_, err := c.Add(context.Background(), queue, body(job), jobqueue.At(due))
		return err
	}
}

// rounds returns how often to measure.
func rounds() int {
	if testing.Short() {
		return 1
	}
	return 3
}

// jobsOf returns a number of jobs, or fewer with -short.
func jobsOf(n int) int {
	if testing.Short() {
		return max(n/100, 20)
	}
	return n
}

// BenchmarkRedisAdd adds jobs that are due in hours, each with a call of its own.
func BenchmarkRedisAdd(b *testing.B) {
	for _, callers := range []int{64, 256} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			jobs := jobsOf(50_000)
			compare(b, oursAndAsynq, func(r *redisServer, c contender, f *figures) {
				m := r.start(b)
				each(b, callers, jobs, func(int) error { return c.add(inHours()) })
				m.report(f, jobs)
			})
		})
	}
}

func inHours() time.Time {
	return time.Now().Add(time.Hour + time.Duration(rand.Int64N(int64(100*time.Hour))))
}

// BenchmarkRedisAddMany adds jobs by a thousand, which asynq does not offer.
func BenchmarkRedisAddMany(b *testing.B) {
	r := newRedisServer(b)
	var f figures
	for range rounds() {
		jobs := max(jobsOf(200_000)/1000*1000, 1000)
		r.flush(b)
		c, closeAll := openRedis(b, r.addr)
		m := r.start(b)
		addMany(b, c, jobs, scattered)
		m.report(&f, jobs)
		closeAll()
	}
	f.report(b)
}

// BenchmarkRedisDeliver has handlers get jobs whose due times are scattered over a second that has
// passed, and acknowledge them.
func BenchmarkRedisDeliver(b *testing.B) {
	compare(b, andTightest, func(r *redisServer, c contender, f *figures) {
		jobs := jobsOf(20_000)
		fill(b, c, jobs)
		deliverAll(b, r, jobs, f, c)
	})
}

// fill adds jobs that come due in the next seconds, and waits until they have.
func fill(b *testing.B, c contender, jobs int) {
	ahead := 3 * time.Second
	if testing.Short() {
		ahead = time.Second
	}
	start := time.Now().Add(ahead)
	each(b, callers, jobs, func(int) error {
		return c.add(start.Add(-time.Duration(rand.Int64N(int64(time.Second)))))
	})
	time.Sleep(time.Until(start.Add(time.Second))) // asynq has whole seconds
}

// deliverAll measures how long contenders need for the jobs that are due on their queue.
func deliverAll(b *testing.B, r *redisServer, jobs int, f *figures, cs ...contender) {
	var done atomic.Int64
	end := make(chan struct{})
	handle := func() {
		if done.Add(1) == int64(jobs) {
			close(end)
		}
	}
	m := r.start(b)
	var stops sync.WaitGroup
	for _, c := range cs {
		stop := c.run(handle)
		defer stops.Wait()
		defer stops.Go(func() { <-end; stop() })
	}
	<-end
	m.report(f, jobs)
}

// BenchmarkRedisGrowth spreads the jobs of a queue over Clients, each with connections of its own,
// all in this process, and over shards on one server. Of the commands, what a script calls does not
// count.
func BenchmarkRedisGrowth(b *testing.B) {
	type setup struct{ clients, shards int }
	all := []setup{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 4}, {1, 16}, {4, 16}}
	if testing.Short() {
		all = all[1:2]
	}
	r := newRedisServer(b)
	backlog, paced := make([]figures, len(all)), make([]figures, len(all))
	for range rounds() {
		for i, s := range all {
			r.flush(b)
			var cs []contender
			for range s.clients {
				cs = append(cs, redisContender(redisstore.WithShards(s.shards))(b, r.addr))
			}
			jobs := jobsOf(20_000)
			fill(b, cs[0], jobs)
			deliverAll(b, r, jobs, &backlog[i], cs...)
			for _, c := range cs {
				c.close()
			}
			measurePaced(b, r, &paced[i], s.shards, s.clients)
		}
	}
	for i, s := range all {
		name := fmt.Sprintf("clients=%d/shards=%d", s.clients, s.shards)
		b.Run("backlog/"+name, backlog[i].report)
		b.Run("paced/"+name, paced[i].report)
	}
}

// measurePaced has one Client add a thousand jobs a second for some seconds, each due within a
// second, and others deliver them.
func measurePaced(b *testing.B, r *redisServer, f *figures, shards, clients int) {
	jobs := jobsOf(3000)
	r.flush(b)
	var done sync.WaitGroup
	done.Add(jobs)
	for range clients {
		c, closeAll := openRedis(b, r.addr, redisstore.WithShards(shards))
		defer closeAll()
		defer handleAndRun(c, done.Done)()
	}
	from := redisContender(redisstore.WithShards(shards))(b, r.addr)
	defer from.close()
	time.Sleep(time.Second) // for subscriptions
	m := r.start(b)
	began := time.Now()
	each(b, callers, jobs, func(i int) error {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Millisecond)))
		return from.add(time.Now().Add(time.Duration(rand.Int64N(int64(time.Second)))))
	})
	done.Wait()
	m.report(f, jobs)
}

// BenchmarkRedisMemory measures what 200,000 jobs take, beyond their bodies.
func BenchmarkRedisMemory(b *testing.B) {
	jobs := max(jobsOf(200_000)/1000*1000, 1000)
	r := newRedisServer(b)
	measure := func(name string, add func()) {
		b.Run(name, func(b *testing.B) {
			r.flush(b)
			before := r.number(b, "used_memory")
			add()
			each := (r.number(b, "used_memory") - before) / float64(jobs)
			b.ReportMetric(each-bodySize, "B/job")
			b.ReportMetric(0, "ns/op")
		})
	}
	c, closeAll := openRedis(b, r.addr)
	defer closeAll()
	due := func(within time.Duration) func() {
		return func() {
			addMany(b, c, jobs, func() jobqueue.AddOption {
				return jobqueue.In(within + time.Duration(rand.Int64N(int64(within))))
			})
		}
	}
	measure("jobqueue/hours", due(24*time.Hour))
	measure("jobqueue/soon", due(time.Minute))
	other := asynqContender(0, 0)(b, r.addr)
	defer other.close()
	measure("asynq", func() {
		each(b, callers, jobs, func(int) error { return other.add(inHours()) })
	})
}

// BenchmarkRedisIdle counts what a process with a handler sends while nothing is due, and what its
// scripts call.
func BenchmarkRedisIdle(b *testing.B) {
	idleTime := 20 * time.Second
	if testing.Short() {
		idleTime = time.Second
	}
	r := newRedisServer(b)
	for _, c := range andTightest {
		b.Run(c.name, func(b *testing.B) {
			r.flush(b)
			c := c.open(b, r.addr)
			defer c.close()
			check(b, c.add(inHours()))
			defer c.run(func() {})()
			time.Sleep(2 * time.Second)
			before := r.number(b, "total_commands_processed")
			time.Sleep(idleTime)
			n := r.number(b, "total_commands_processed") - before - 1 // INFO
			b.ReportMetric(n/idleTime.Seconds(), "commands/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRedisLateness is BenchmarkLateness at other rates, for those on Redis.
func BenchmarkRedisLateness(b *testing.B) {
	for _, perSecond := range []int{500, 2000} {
		for _, s := range services {
			if !strings.HasPrefix(s.name, "asynq") && s.name != "jobqueue-redis" {
				continue
			}
			b.Run(fmt.Sprintf("%d/%s", perSecond, s.name), func(b *testing.B) {
				for range b.N {
					late, adds := measureLateness(b, s, jobsOf(10*perSecond), perSecond)
					reportLateness(b, late)
					b.ReportMetric(adds, "adds/s")
				}
			})
		}
	}
}

// compare has contenders do the same in turns.
func compare(b *testing.B, cs contenders, do func(*redisServer, contender, *figures)) {
	r := newRedisServer(b)
	all := make([]figures, len(cs))
	for range rounds() {
		for i, c := range cs {
			r.flush(b)
			c := c.open(b, r.addr)
			do(r, c, &all[i])
			c.close()
		}
	}
	for i, c := range cs {
		b.Run(c.name, all[i].report)
	}
}

// figures has what the rounds measured, by unit.
type figures struct {
	units  []string
	values map[string][]float64
}

func (f *figures) add(value float64, unit string) {
	if f.values == nil {
		f.values = map[string][]float64{}
	}
	if !slices.Contains(f.units, unit) {
		f.units = append(f.units, unit)
	}
	f.values[unit] = append(f.values[unit], value)
}

func (f *figures) report(b *testing.B) {
	for _, unit := range f.units {
		values := f.values[unit]
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
	b.ReportMetric(0, "ns/op")
}

// A redisServer is a redis-server that writes nothing to disk.
type redisServer struct {
	addr   string
	client *redis.Client
}

func newRedisServer(b testing.TB) *redisServer {
	addr := startRedis(b, "--save", "")
	client := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { check(b, client.Close()) })
	return &redisServer{addr, client}
}

func (r *redisServer) flush(b testing.TB) {
	check(b, r.client.FlushAll(context.Background()).Err())
}

// number returns a field of INFO.
func (r *redisServer) number(b testing.TB, name string) (v float64) {
	return r.numbers(b, name)[0]
}

func (r *redisServer) numbers(b testing.TB, names ...string) (list []float64) {
	info, err := r.client.Info(context.Background(), "everything").Result()
	check(b, err)
	for _, name := range names {
		var v float64
		if _, rest, ok := strings.Cut(info, "\n"+name); ok {
			_, err := fmt.Sscan(rest[1:], &v)
			check(b, err)
		}
		list = append(list, v)
	}
	return list
}

// The scripts of both job queues are run by EVALSHA.
var counted = []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread",
	"cmdstat_evalsha:calls", "cmdstat_eval:calls"}

// A redisMeasurement reports operations a second, and for each the CPU time of the server, that of
// this process, and scripts.
type redisMeasurement struct {
	b      *testing.B
	server *redisServer
	began  time.Time
	before []float64
	cpu    time.Duration
}

func (r *redisServer) start(b *testing.B) redisMeasurement {
	before := r.numbers(b, counted...)
	return redisMeasurement{b, r, time.Now(), before, usage(b).cpu}
}

func (m redisMeasurement) report(f *figures, n int) {
	took, cpu := time.Since(m.began), usage(m.b).cpu-m.cpu
	after := m.server.numbers(m.b, counted...)
	since := func(i int) float64 { return (after[i] - m.before[i]) / float64(n) }
	f.add(float64(n)/took.Seconds(), "jobs/s")
	f.add((since(0)+since(1))*1e6, "redis-µs/job")
	f.add(float64(cpu.Nanoseconds())/1000/float64(n), "cpu-µs/job")
	f.add(since(2)+since(3), "calls/job")
}
