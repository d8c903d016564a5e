package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// A service is a job queue whose lateness is measured.
type service struct {
	name string
	open opener
}

// An opener starts a service, which calls handle with the number of a job when its handler begins,
// and returns how to add a job that is due at an instant.
type opener func(b testing.TB, handle func(job int)) (add func(job int, due time.Time) error)

// The intervals of those that poll are the defaults, or as short as they can be: they then look
// again a millisecond after they found nothing.
var services = []service{
	{"jobqueue", openJobqueue},
	{"jobqueue-redis", openRedisstore},
	{"asynq", openAsynq(0, 0)},
	{"asynq-tightest", openAsynq(time.Millisecond, time.Millisecond)},
	{"backlite", openBacklite},
	{"goqite", openGoqite(0)},
	{"goqite-tightest", openGoqite(time.Millisecond)},
}

// workers is how many jobs each service may work on at once.
const workers = 64

// BenchmarkLateness adds a thousand jobs a second, each due at some millisecond one to five seconds
// later, and measures how long after that instant its handler begins.
func BenchmarkLateness(b *testing.B) {
	jobs := 10_000
	if testing.Short() {
		jobs = 500
	}
	for _, s := range services {
		b.Run(s.name, func(b *testing.B) {
			for range b.N {
				late, perSecond := measureLateness(b, s, jobs, 1000)
				reportLateness(b, late)
				b.ReportMetric(perSecond, "adds/s")
			}
		})
	}
}

// TestServices has every service deliver some jobs, so that the benchmark works when it is needed.
func TestServices(t *testing.T) {
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			late, _ := measureLateness(t, s, 100, 1000)
			if first := slices.Min(late); strings.HasPrefix(s.name, "jobqueue") && first < 0 {
				t.Errorf("a job began %v too early", -first)
			}
		})
	}
}

// measureLateness adds jobs at a rate, and returns how late the handler of each began, and the rate
// that was reached.
func measureLateness(b testing.TB, s service, jobs, rate int) (late []time.Duration,
	perSecond float64) {
	due := make([]time.Time, jobs)
	late = make([]time.Duration, jobs)
	var mu sync.Mutex
	var left sync.WaitGroup
	left.Add(jobs)
	add := s.open(b, func(job int) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if late[job] == 0 { // delivered for the first time
			late[job] = cmp.Or(now.Sub(due[job]), 1)
			left.Done()
		}
	})
	start := time.Now()
	each(b, callers, jobs, func(job int) error {
		time.Sleep(time.Until(start.Add(time.Duration(job) * time.Second / time.Duration(rate))))
		at := time.Now().Add(time.Second + time.Duration(rand.Int64N(int64(4*time.Second))))
		mu.Lock()
		due[job] = at.Truncate(time.Millisecond)
		mu.Unlock()
		return add(job, due[job])
	})
	perSecond = float64(jobs) / time.Since(start).Seconds()
	left.Wait()
	return late, perSecond
}

func reportLateness(b *testing.B, late []time.Duration) {
	slices.Sort(late)
	quantile := func(q float64, unit string) {
		at := late[int(q*float64(len(late)-1))]
		b.ReportMetric(float64(at.Microseconds())/1000, unit)
	}
	quantile(0, "earliest-ms")
	quantile(0.5, "p50-ms")
	quantile(0.99, "p99-ms")
	quantile(1, "max-ms")
	early, _ := slices.BinarySearch(late, 0)
	b.ReportMetric(100*float64(early)/float64(len(late)), "early-%")
	b.ReportMetric(0, "ns/op")
}

func openJobqueue(b testing.TB, handle func(int)) func(int, time.Time) error {
	c := open(b, filepath.Join(b.TempDir(), "store"))
	c.Handle(queue, func(_ context.Context, job *jobqueue.Job) error {
		return handleBody(handle, job.Body)
	}, jobqueue.Workers(workers))
	stop := run(c)
	b.Cleanup(func() { stop(); check(b, c.Close()) })
	return func(job int, due time.Time) error {
		_, err := c.Add(context.Background(), queue, body(job), jobqueue.At(due))
		return err
	}
}

// body is the number of a job, filled up to the size that all bodies have.
func body(job int) []byte { return fmt.Appendf(nil, "%0*d", bodySize, job) }

func handleBody(handle func(job int), body []byte) error {
	job, err := strconv.Atoi(string(body))
	if err == nil {
		handle(job)
	}
	return err
}
