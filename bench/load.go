package bench

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Everything random comes from generators seeded alike, so that every
// implementation gets the same numbers in the same order.

func nothing() {}

// below returns a random number below n with one multiplication: cheaper than
// rand.Rand, whose last bit of uniformity no benchmark needs.
func below(r *rand.PCG, n int) int {
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int(hi)
}

// longDelay returns 1 to 60 minutes: a timer that stays pending throughout.
func longDelay(r *rand.PCG) time.Duration {
	hi, _ := bits.Mul64(r.Uint64(), uint64(59*time.Minute))
	return time.Minute + time.Duration(hi)
}

// delays are 4,096 delays of 1 to 31 s: enough to spread over the wheel, few
// enough to stay in the cache.
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
	kept    []Timer    // stopped in the end: the pending timers, the i-th of worker i modulo their number
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

// eachOwn makes a timer for each worker, so far from each other that no two share a
// cache line, as they would not inside the structs of a program either.
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

// close ends the pending timers and the instance, so that the next case does not
// pay for them.
func (b *bed) close() {
	stopAll(b.kept)
	b.kept = nil
	b.in.Close()
	settle()
}

// settle collects the garbage. Package time lets go of stopped timers only when
// the processor whose heap they are in looks for work, so each is given some that
// it has to look for.
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
	runtime.GC() // pools give up what they hold in two
}

func stopAll(timers []Timer) {
	for _, t := range timers {
		t.Stop()
	}
}
