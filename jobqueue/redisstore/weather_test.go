package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
)

// A load is processes that add and work while servers have trouble: Clients of their own, with
// connections of their own.
type load struct {
	testing.TB
	queues  []string
	stop    chan struct{}
	adding  sync.WaitGroup
	clients []*jobqueue.Client

	mu    sync.Mutex
	added map[string]jobqueue.ID         // whose Add returned nil
	done  map[string]map[jobqueue.ID]int // deliveries
	again int                            // deliveries of a job that had been claimed before
	late  time.Duration                  // the latest first delivery since noteLateness
}

// startLoad has two processes work and four callers of each add jobs, at a pace that one process
// can bear on a slow machine.
func startLoad(t testing.TB, connect func() redis.UniversalClient, queues ...string) *load {
	return startLoadWith(t, connect, nil, queues...)
}

// startLoadWith starts a load whose second process has a Store with opts.
func startLoadWith(t testing.TB, connect func() redis.UniversalClient, opts []redisstore.Option,
	queues ...string,
) *load {
	l := &load{
		TB: t, queues: queues, stop: make(chan struct{}),
		added: map[string]jobqueue.ID{}, done: map[string]map[jobqueue.ID]int{},
	}
	for process := range 2 {
		client := connect()
		all := []redisstore.Option{redisstore.WithPatience(time.Minute)}
		if process == 1 {
			all = append(all, opts...)
		}
		c := jobqueue.New(redisstore.New(client, all...),
			jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
		l.clients = append(l.clients, c)
		for _, queue := range queues {
			c.Handle(queue, l.work, jobqueue.Workers(8), jobqueue.Attempts(0))
		}
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-ran)
			require.NoError(t, c.Close())
			require.NoError(t, client.Close())
		})
		for caller := range 4 {
			l.adding.Go(func() { l.add(c, fmt.Sprint(process, ".", caller)) })
		}
	}
	t.Cleanup(l.end) // before the Clients are closed
	return l
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.adding.Wait()
}

func (l *load) add(c *jobqueue.Client, caller string) {
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		name := fmt.Sprint(caller, ".", i)
		opts := []jobqueue.AddOption{jobqueue.In(time.Duration(i%4) * 20 * time.Millisecond)}
		if i%2 == 0 {
			opts = append(opts, jobqueue.Key(name))
		}
		id, err := c.Add(context.Background(), l.queues[i%len(l.queues)], []byte(name), opts...)
		if err != nil {
			l.Errorf("job %s: %v", name, err)
			continue
		}
		l.mu.Lock()
		l.added[name] = id
		l.mu.Unlock()
	}
}

func (l *load) work(_ context.Context, job *jobqueue.Job) error {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	name := string(job.Body)
	if l.done[name] == nil {
		l.done[name] = map[jobqueue.ID]int{}
	}
	l.done[name][job.ID]++
	if job.Attempts > 1 {
		l.again++
	}
	l.late = max(l.late, now.Sub(job.Due))
	if now.Before(job.Due) {
		l.Errorf("job %s came %v early", name, job.Due.Sub(now))
	}
	return nil
}

// sofar returns the jobs whose Add has returned.
func (l *load) sofar() map[string]jobqueue.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.added)
}

// progress waits until so many more jobs were added.
func (l *load) progress(jobs int) {
	l.Helper()
	goal := len(l.sofar()) + jobs
	require.True(l, eventually(time.Minute, func() bool { return len(l.sofar()) >= goal }))
}

// missing returns those of jobs that were not delivered.
func (l *load) missing(jobs map[string]jobqueue.ID) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range jobs {
		if l.done[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// settle stops the callers, and waits until the jobs and whatever else there is were delivered.
func (l *load) settle(jobs map[string]jobqueue.ID) {
	l.Helper()
	l.end()
	if jobs == nil {
		jobs = l.sofar()
	}
	if !eventually(time.Minute, func() bool { return len(l.missing(jobs)) == 0 }) {
		lost := l.missing(jobs)
		l.Errorf("%d of %d jobs are lost: %v", len(lost), len(jobs), lost[:min(9, len(lost))])
	}
	require.True(l, eventually(time.Minute, func() bool {
		stats, err := l.clients[0].Stats(context.Background())
		for _, i := range stats.Queues {
			if i.Delayed+i.Ready+i.Leased > 0 {
				return false
			}
		}
		return err == nil
	}), "jobs are left")
}

func eventually(limit time.Duration, f func() bool) bool {
	for end := time.Now().Add(limit); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// twice counts the jobs that were delivered more than once, and those that were added twice.
func (l *load) twice() (delivered, added int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ids := range l.done {
		if len(ids) > 1 {
			added++
		}
		for _, n := range ids {
			if n > 1 {
				delivered++
			}
		}
	}
	return delivered, added
}

// once checks that each job was added once, claimed once and delivered once.
func (l *load) once() {
	l.Helper()
	delivered, added := l.twice()
	require.Zero(l, added, "of %d jobs were added twice", len(l.added))
	require.Zero(l, delivered, "of %d jobs were delivered twice", len(l.added))
	require.Zero(l, l.again, "of %d jobs were claimed twice", len(l.added))
}

// lateness returns the latest delivery since the last call.
func (l *load) lateness() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := l.late
	l.late = 0
	return late
}
