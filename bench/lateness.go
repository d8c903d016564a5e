package bench

import (
	"math/bits"
	"slices"
	"time"
)

// sampleSize is how many latenesses a result carries at most. Of a million timers
// it is one in a hundred, so that what the sampled ones do more than the others is
// not noticed in the cost of all.
const sampleSize = 10_000

// addQuantiles adds the usual quantiles of a sorted sample, none of an empty one.
func (r *Result) addQuantiles(prefix, unit string, per time.Duration, sorted []time.Duration) {
	if len(sorted) == 0 {
		return
	}
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}} {
		r.add(prefix+" "+q.name, unit, float64(quantile(sorted, q.of))/float64(per))
	}
}

// quantile returns the smallest value that at least the part q is not above.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[rank(len(sorted), q)]
}

func rank(n int, q float64) int {
	i := int(q * float64(n))
	if float64(i) == q*float64(n) {
		i--
	}
	return min(max(i, 0), n-1)
}

// thin returns at most sampleSize of the sorted values, evenly by rank, the first
// and the last among them.
func thin(sorted []time.Duration) []time.Duration {
	if len(sorted) <= sampleSize {
		return sorted
	}
	few := make([]time.Duration, sampleSize)
	for i := range few {
		few[i] = sorted[i*(len(sorted)-1)/(sampleSize-1)]
	}
	return few
}

// A histogram counts durations of single calls without allocating, each to within
// 1/64 of itself: millions of calls are too many to be kept.
type histogram struct {
	counts [64 << subBits]int64
	n      int64
	max    time.Duration
}

// subBits is how many bits below its highest tell a value's place.
const subBits = 6

func (h *histogram) record(d time.Duration) {
	h.counts[place(d)]++
	h.n++
	h.max = max(h.max, d)
}

// place is the value itself up to 1<<subBits, and above it the octave and the next
// subBits bits.
func place(d time.Duration) int {
	v := uint64(max(d, 0))
	octave := bits.Len64(v >> subBits)
	if octave == 0 {
		return int(v)
	}
	return octave<<subBits + int(v>>(octave-1))&(1<<subBits-1)
}

// least is the inverse of place: the smallest duration at i.
func least(i int) time.Duration {
	octave := i >> subBits
	if octave == 0 {
		return time.Duration(i)
	}
	return time.Duration((1<<subBits | i&(1<<subBits-1)) << (octave - 1))
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile is that of the recorded durations, rounded down as they are.
func (h *histogram) quantile(q float64) time.Duration {
	if q >= 1 {
		return h.max
	}
	below := int64(rank(int(h.n), q))
	for i, n := range h.counts {
		if below -= n; below < 0 {
			return least(i)
		}
	}
	return h.max
}

func (r *Result) addHistogram(prefix, unit string, per time.Duration, h *histogram) {
	if h.n == 0 {
		return
	}
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}} {
		r.add(prefix+" "+q.name, unit, float64(h.quantile(q.of))/float64(per))
	}
}

// A probe is a timer of its own in a program whose other timers are busy: armed
// every so often, it tells how late it was.
type probe struct {
	stop chan struct{}
	late chan []time.Duration
}

func newProbe(in Instance, every, during time.Duration) *probe {
	p := &probe{make(chan struct{}), make(chan []time.Duration, 1)}
	late := make([]time.Duration, 0, int(during/every)+1) // no allocation on the way
	go func() {
		fired := make(chan time.Time, 1)
		f := func() { fired <- time.Now() }
		for {
			due := time.Now().Add(every)
			t := in.Start(every, f)
			select {
			case at := <-fired:
				late = append(late, at.Sub(due))
			case <-p.stop:
				t.Stop()
				p.late <- late
				return
			}
		}
	}()
	return p
}

// end returns the sorted latenesses.
func (p *probe) end() []time.Duration {
	close(p.stop)
	late := <-p.late
	slices.Sort(late)
	return late
}
