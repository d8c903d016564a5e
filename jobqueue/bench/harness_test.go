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

func start(b *testing.B) measurement {
	b.ResetTimer()
	return measurement{b, time.Now(), usage(b).cpu}
}

func (m measurement) report(n int) {
	m.b.StopTimer()
	m.b.ReportMetric(float64(n)/time.Since(m.began).Seconds(), "jobs/s")
	m.b.ReportMetric(float64((usage(m.b).cpu-m.cpu).Nanoseconds())/1000/float64(n), "cpu-µs/job")
	m.b.ReportMetric(0, "ns/op")
}

var keys atomic.Int64

func key() string { return fmt.Sprintf("order-%012d", keys.Add(1)) }

func check(b testing.TB, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

func open(b testing.TB, path string) *jobqueue.Client {
	c, err := jobqueue.Open(path, quiet)
	check(b, err)
	return c
}

// each has callers call f with 0 to n-1.
func each(b testing.TB, callers, n int, f func(i int) error) {
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

func addMany(b testing.TB, c *jobqueue.Client, n int, due func() jobqueue.AddOption) {
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

// run delivers the jobs of a Client until stop is called.
func run(c *jobqueue.Client) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { c.Run(ctx) })
	return func() { cancel(); over.Wait() }
}

// watchSize looks at the size of a folder until the function it returns is called, which returns
// the largest that was seen.
func watchSize(b testing.TB, path string) (largest func() int64) {
	end := make(chan struct{})
	result := make(chan int64)
	go func() {
		var n int64
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			n = max(n, size(b, path))
			select {
			case <-tick.C:
			case <-end:
				result <- n
				return
			}
		}
	}()
	return func() int64 { close(end); return <-result }
}

// newSize returns the size of a new store that n jobs were added to. Opening it once more empties
// its log.
func newSize(b testing.TB, n int) int64 {
	path := filepath.Join(b.TempDir(), "new")
	c := open(b, path)
	addMany(b, c, n, scattered)
	check(b, c.Close())
	check(b, open(b, path).Close())
	return size(b, path)
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

func size(b testing.TB, path string) (n int64) {
	check(b, filepath.Walk(path, func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			n += info.Size()
		}
		return nil
	}))
	return n
}
