package wheeldebug

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// BenchmarkPolled compares the speed of a wheel with a million pending timers while its JSON is
// fetched ten times a second over a real connection with its speed while no one looks. An iteration
// has half a second of each, in alternating order. The ratio is the median over the iterations; it
// is 1 if looking costs nothing. A meaningful ratio needs about twenty iterations:
//
//	go test -run '^$' -bench Polled -benchtime 20x ./wheeldebug
//
// unwatched-ns and watched-ns are medians for one operation. The two longest-µs are medians of the
// longest time that 64 operations in a row took in half a second (for Fire, a whole burst). They
// show the wait for a lock that a reading holds, and whatever else takes the processor away.
func BenchmarkPolled(b *testing.B) {
	for _, c := range []struct {
		name       string
		goroutines int
		work       func(tw *timingwheel.TimingWheel) work
	}{
		{"StartStop", 1, startStop},
		{"StartStop/two", 2, startStop},
		{"Reset", 1, moves},
		{"Fire", 1, fires},
	} {
		b.Run(c.name, func(b *testing.B) {
			tw := million(b)
			server := httptest.NewServer(Handler(tw))
			defer server.Close()
			stretch := 500 * time.Millisecond
			if testing.Short() {
				stretch = 50 * time.Millisecond
			}
			works := make([]work, c.goroutines)
			for i := range works {
				works[i] = c.work(tw)
			}
			var ratios, alone, watched, longestAlone, longestWatched []float64
			polls := 0
			for i := range b.N {
				var ns, longest [2]float64
				for k := range 2 {
					watch := (i + k) % 2
					stop := func() int { return 0 }
					if watch == 1 {
						stop = poll(b, server.URL+"/?format=json")
					}
					ns[watch], longest[watch] = run(works, stretch)
					polls += stop()
				}
				ratios = append(ratios, ns[1]/ns[0])
				alone, watched = append(alone, ns[0]), append(watched, ns[1])
				longestAlone = append(longestAlone, longest[0])
				longestWatched = append(longestWatched, longest[1])
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(median(alone), "unwatched-ns")
			b.ReportMetric(median(watched), "watched-ns")
			b.ReportMetric(median(longestAlone), "unwatched-longest-µs")
			b.ReportMetric(median(longestWatched), "watched-longest-µs")
			b.ReportMetric(float64(polls)/float64(b.N), "polls")
		})
	}
}

// BenchmarkRead measures a reading of a wheel with a million pending timers, and an answer that
// shares it.
func BenchmarkRead(b *testing.B) {
	tw := million(b)
	v := &view{name: "wheel", tw: tw}
	longest := time.Duration(0)
	b.Run("reading", func(b *testing.B) {
		for b.Loop() {
			v.until = time.Time{}
			began := time.Now()
			v.read()
			longest = max(longest, time.Since(began))
		}
		b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
		b.ReportMetric(float64(v.tally.parts), "parts")
		b.ReportMetric(float64(len(v.data)), "bytes")
	})
	b.Run("shared", func(b *testing.B) {
		v.until = time.Now().Add(time.Hour)
		for b.Loop() {
			v.read()
		}
	})
}

// million returns a wheel with a million timers that are pending over the next hours, in random
// order in memory.
func million(b *testing.B) *timingwheel.TimingWheel {
	tw := timingwheel.New()
	b.Cleanup(func() {
		tw.Stop()
		require.NoError(b, tw.Shutdown(b.Context()))
	})
	timers := make([]timingwheel.Timer, 1_000_000)
	for i := range timers {
		tw.Init(&timers[i], func() {})
	}
	for _, i := range rand.Perm(len(timers)) {
		timers[i].Reset(10*time.Minute + rand.N(4*time.Hour))
	}
	return tw
}

// A work uses a wheel and returns the number of its operations.
type work func() int

const operations = 64

func startStop(tw *timingwheel.TimingWheel) work {
	f := func() {}
	return func() int {
		for range operations {
			tw.AfterFunc(30*time.Second, f).Stop()
		}
		return operations
	}
}

// moves resets a timer to earlier deadlines, because only these take the lock.
func moves(tw *timingwheel.TimingWheel) work {
	t := tw.AfterFunc(time.Minute, func() {})
	return func() int {
		for i := range operations {
			t.Reset(time.Duration(20-i%20) * time.Second)
		}
		return operations
	}
}

// fires arms a burst of timers that are due within two milliseconds, and waits for all of them.
func fires(tw *timingwheel.TimingWheel) work {
	const burst = 1 << 15 // arming them takes longer than the wait until they are due
	var pending sync.WaitGroup
	f := pending.Done
	return func() int {
		pending.Add(burst)
		for i := range burst {
			tw.AfterFunc(time.Duration(1+i%2)*time.Millisecond, f)
		}
		pending.Wait()
		return burst
	}
}

// run repeats each of the works on its own goroutine for a while. It returns the nanoseconds for an
// operation, and the microseconds of the longest call of a work.
func run(works []work, stretch time.Duration) (ns, longest float64) {
	var group sync.WaitGroup
	var mu sync.Mutex
	total := 0
	began := time.Now()
	for _, work := range works {
		group.Go(func() {
			n, most := 0, time.Duration(0)
			for last := began; last.Sub(began) < stretch; {
				n += work()
				now := time.Now()
				most = max(most, now.Sub(last))
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
			longest = max(longest, float64(most)/1e3)
		})
	}
	group.Wait()
	return float64(time.Since(began)) / float64(total), longest
}

// poll fetches the address ten times a second until stop is called; stop returns how often.
func poll(b *testing.B, address string) (stop func() int) {
	done, polls := make(chan struct{}), make(chan int)
	go func() {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for {
			res, err := client.Get(address)
			if err != nil {
				b.Error(err)
			} else {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				n++
			}
			select {
			case <-done:
				client.CloseIdleConnections()
				polls <- n
				return
			case <-tick.C:
			}
		}
	}()
	return func() int {
		close(done)
		return <-polls
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
