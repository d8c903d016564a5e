// Package bench measures the job queue on the embedded store, beside what the disk alone takes.
//
//	go test -run=^$ -bench=Embedded -benchtime=200000x ./bench
package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

const (
	callers  = 256
	bodySize = 100
	queue    = "orders/expire"
)

var quiet = jobqueue.WithLogger(slog.New(slog.DiscardHandler))

// pending is how many jobs there are in the store that is not empty.
func pending() int {
	if n, err := strconv.Atoi(os.Getenv("JOBQUEUE_PENDING")); err == nil {
		return n
	}
	return 2_000_000
}

// A yardstick is a store that appends what is added to a file and syncs it, and does nothing else.
type yardstick struct {
	store.Store
	mu   sync.Mutex
	f    *os.File
	buf  []byte
	last store.ID
}

func newYardstick(b *testing.B) *jobqueue.Client {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	return jobqueue.New(&yardstick{f: f}, quiet)
}

func (y *yardstick) Do(_ context.Context, ops []store.Op) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.buf = y.buf[:0]
	for _, op := range ops {
		add := op.(*store.Add)
		y.last++
		add.ID = y.last
		y.buf = binary.LittleEndian.AppendUint64(y.buf, uint64(len(add.Job.Body)))
		y.buf = append(append(y.buf, add.Job.Key...), add.Job.Body...)
	}
	if _, err := y.f.Write(y.buf); err != nil {
		return err
	}
	return syscall.Fdatasync(int(y.f.Fd()))
}

func (y *yardstick) Watch(func(string, time.Duration)) {}
func (y *yardstick) Close() error                      { return y.f.Close() }

// A measurement reports operations a second and the CPU time of each.
type measurement struct {
	b     *testing.B
	began time.Time
	cpu   time.Duration
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func start(b *testing.B) measurement {
	b.ResetTimer()
	return measurement{b, time.Now(), cpuTime()}
}

func (m measurement) report(n int) {
	m.b.StopTimer()
	m.b.ReportMetric(float64(n)/time.Since(m.began).Seconds(), "jobs/s")
	m.b.ReportMetric(float64((cpuTime()-m.cpu).Nanoseconds())/1000/float64(n), "cpu-µs/job")
	m.b.ReportMetric(0, "ns/op")
}

var keys atomic.Int64

func key() string { return fmt.Sprintf("order-%012d", keys.Add(1)) }

func check(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

func open(b *testing.B, path string) *jobqueue.Client {
	c, err := jobqueue.Open(path, quiet)
	check(b, err)
	return c
}

// each has callers call f with 0 to n-1.
func each(b *testing.B, callers, n int, f func(i int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// scattered is a due time within the next days.
func scattered() jobqueue.AddOption {
	return jobqueue.In(time.Hour + time.Duration(rand.Int64N(int64(100*time.Hour))))
}

func add(b *testing.B, c *jobqueue.Client, callers int) {
	body := make([]byte, bodySize)
	m := start(b)
	each(b, callers, b.N, func(int) error {
		_, err := c.Add(context.Background(), queue, body, scattered(), jobqueue.Key(key()))
		return err
	})
	m.report(b.N)
}

func addMany(b *testing.B, c *jobqueue.Client, n int, due func() jobqueue.AddOption) {
	const batch = 1000
	body := make([]byte, bodySize)
	each(b, 2, (n+batch-1)/batch, func(int) error {
		items := make([]jobqueue.Item, batch)
		for i := range items {
			items[i] = jobqueue.Item{Body: body,
				Options: []jobqueue.AddOption{jobqueue.Key(key()), due()}}
		}
		_, err := c.AddMany(context.Background(), queue, items)
		return err
	})
}

func BenchmarkEmbeddedAdd(b *testing.B) {
	for _, callers := range []int{callers, 1} {
		b.Run(fmt.Sprintf("empty/callers=%d", callers), func(b *testing.B) {
			c := open(b, b.TempDir())
			add(b, c, callers)
			check(b, c.Close())
		})
		b.Run(fmt.Sprintf("yardstick/callers=%d", callers), func(b *testing.B) {
			c := newYardstick(b)
			add(b, c, callers)
			check(b, c.Close())
		})
	}
	b.Run("many", func(b *testing.B) {
		c := open(b, b.TempDir())
		m := start(b)
		addMany(b, c, b.N, scattered)
		m.report(b.N)
		check(b, c.Close())
	})
}

// BenchmarkEmbeddedPending is all that is measured beside many pending jobs. Its parts follow each
// other on one store, as filling it takes longest.
func BenchmarkEmbeddedPending(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store")
	c := open(b, path)
	first := keys.Load()
	addMany(b, c, pending(), scattered)
	known := keys.Load() - first
	random := func() jobqueue.Ref {
		return jobqueue.ByKey(fmt.Sprintf("order-%012d", first+1+rand.Int64N(known)))
	}
	b.Run("add", func(b *testing.B) { add(b, c, callers) })
	b.Run("reschedule", func(b *testing.B) {
		m := start(b)
		each(b, callers, b.N, func(int) error {
			return c.Reschedule(context.Background(), queue, random(),
				time.Hour+time.Duration(rand.Int64N(int64(100*time.Hour))))
		})
		m.report(b.N)
	})
	b.Run("cancel", func(b *testing.B) {
		var gone atomic.Int64
		m := start(b)
		each(b, callers, b.N, func(int) error {
			if err := c.Cancel(context.Background(), queue, random()); err != nil {
				gone.Add(1)
			}
			return nil
		})
		m.report(b.N)
	})
	// A Client has one handler a queue, and a benchmark may run more than once.
	var handle atomic.Value
	c.Handle(queue, func(context.Context, *jobqueue.Job) error {
		handle.Load().(func())()
		return nil
	}, jobqueue.Workers(64))
	b.Run("deliver", func(b *testing.B) { deliver(b, c, &handle) })
	b.Run("memory", func(b *testing.B) {
		debug.FreeOSMemory()
		b.ReportMetric(float64(anonymous())/1e6, "RssAnon-MB")
		b.ReportMetric(float64(size(b, path))/1e6, "disk-MB")
	})
	check(b, c.Close())
	b.Run("open", func(b *testing.B) {
		const rounds = 3
		var took time.Duration
		for range rounds {
			began := time.Now()
			c := open(b, path)
			_, err := c.Add(context.Background(), queue+"/now", nil)
			check(b, err)
			_, err = c.Reserve(context.Background(), queue+"/now", 1, time.Minute)
			check(b, err)
			took += time.Since(began)
			check(b, c.Close())
		}
		b.ReportMetric(float64(took.Milliseconds())/rounds, "ms-to-first-job")
	})
}

// deliver adds jobs that are due at scattered times that have passed, and measures how fast
// handlers get them and their acknowledgements are stored.
func deliver(b *testing.B, c *jobqueue.Client, handle *atomic.Value) {
	addMany(b, c, b.N, func() jobqueue.AddOption {
		return jobqueue.At(time.Now().Add(-time.Duration(rand.Int64N(int64(time.Hour)))))
	})
	n := (b.N + 999) / 1000 * 1000
	var left sync.WaitGroup
	left.Add(n)
	handle.Store(left.Done)
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	m := start(b)
	over.Go(func() { c.Run(ctx) })
	left.Wait()
	cancel()
	over.Wait()
	m.report(n)
}

// BenchmarkEmbeddedChurn adds and acknowledges jobs through a store of many pending ones.
func BenchmarkEmbeddedChurn(b *testing.B) {
	path := b.TempDir()
	c := open(b, path)
	const held = 100_000
	body := make([]byte, bodySize)
	room := make(chan struct{}, held)
	var left sync.WaitGroup
	left.Add(b.N)
	c.Handle(queue, func(context.Context, *jobqueue.Job) error { <-room; left.Done(); return nil },
		jobqueue.Workers(64))
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { c.Run(ctx) })
	m := start(b)
	each(b, callers, b.N, func(int) error {
		room <- struct{}{}
		_, err := c.Add(context.Background(), queue, body,
			jobqueue.In(time.Duration(rand.Int64N(int64(4*time.Second)))), jobqueue.Key(key()))
		return err
	})
	left.Wait()
	m.report(b.N)
	b.ReportMetric(float64(size(b, path))/1e6, "disk-MB")
	cancel()
	over.Wait()
	check(b, c.Close())
}

// anonymous returns the anonymous resident memory of the process.
func anonymous() int {
	runtime.GC()
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n * 1024
		}
	}
	return 0
}

func size(b *testing.B, path string) (n int64) {
	check(b, filepath.Walk(path, func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			n += info.Size()
		}
		return nil
	}))
	return n
}
