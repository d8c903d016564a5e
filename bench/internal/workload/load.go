package workload

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// All random numbers come from generators with fixed seeds, so every implementation gets the same
// numbers in the same order.

func nothing() {}

// below returns a random number below n with one multiplication. It is cheaper than rand.Rand,
// whose perfect uniformity no benchmark needs.
func below(r *rand.PCG, n int) int {
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int(hi)
}

// longDelay returns 1 to 60 minutes, for a timer that stays pending throughout.
func longDelay(r *rand.PCG) time.Duration {
	hi, _ := bits.Mul64(r.Uint64(), uint64(59*time.Minute))
	return time.Minute + time.Duration(hi)
}

// delays has 4,096 delays of 1 to 31 s: enough to spread over the wheel, and few enough to stay in
// the cache.
var delays = func() (d [4096]time.Duration) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range d {
		d[i] = time.Second + time.Duration(r.Int64N(int64(30*time.Second)))
	}
	return d
}()

// A bed is an instance with its pending timers: what calls are made on.
type bed struct {
	in      Instance
	workers []Instance // one for each goroutine
	// kept are the timers that close stops. The first c.Pending are the pending timers, and timer i
	// belongs to worker i modulo their number.
	kept []Timer
}

// open opens the case's implementation and starts the pending timers.
func (c Case) open() *bed {
	in := c.Impl.Open()
	b := &bed{in: in, workers: make([]Instance, max(c.Procs, 1))}
	for i := range b.workers {
		b.workers[i] = in
		if in.Worker != nil {
			b.workers[i] = in.Worker(i)
		}
	}
	if c.Pending > 0 {
		b.kept = make([]Timer, c.Pending)
		r := rand.NewPCG(1, 2)
		for i := range b.kept {
			w := b.workers[i%len(b.workers)]
			start := w.Start
			if start == nil {
				start = w.fill
			}
			b.kept[i] = start(longDelay(r), nothing)
		}
	}
	return b
}

// eachOwn makes a timer for each worker, so far apart that no two share a cache line. Inside the
// structs of a program they would not share one either.
func (b *bed) eachOwn(make func(Instance) Timer) []Timer {
	var own []Timer
	for _, in := range b.workers {
		own = append(own, make(in))
		const apart = 3 // times 48 bytes
		for range apart {
			b.kept = append(b.kept, make(in))
		}
	}
	b.kept = append(b.kept, own...)
	return own
}

// close stops the timers and ends the instance, so that the next case does not pay for them.
func (b *bed) close() {
	stopAll(b.kept)
	b.kept = nil
	b.in.Close()
	settle()
}

// settle collects the garbage. Package time removes a stopped timer from a processor's heap only
// when that processor looks for work, so settle first makes each of them do that.
func settle() {
	var work sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for range 20 {
				time.Sleep(10 * time.Microsecond)
				for start := time.Now(); time.Since(start) < 10*time.Microsecond; {
				}
			}
		})
	}
	work.Wait()
	runtime.GC()
	runtime.GC() // a sync.Pool gives up its contents in two collections
}

func stopAll(timers []Timer) {
	for _, t := range timers {
		t.Stop()
	}
}
