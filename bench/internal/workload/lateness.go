package workload

import (
	"math/bits"
	"slices"
	"time"
)

// sampleSize is how many latenesses a result has at most. One timer in a hundred of a million is
// sampled, so the extra work for a sample does not show in the cost of all.
const sampleSize = 10_000

// quantiles are those that every distribution is reported by.
var quantiles = []struct {
	name string
	q    float64
}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}}

// addQuantiles adds the quantiles of a distribution, in units of per.
func (r *Result) addQuantiles(
	prefix, unit string, per time.Duration, of func(q float64) time.Duration,
) {
	for _, p := range quantiles {
		r.add(prefix+" "+p.name, unit, float64(of(p.q))/float64(per))
	}
}

// addLateness adds the quantiles of a sorted sample, unless it is empty.
func (r *Result) addLateness(prefix string, sorted []time.Duration) {
	if len(sorted) > 0 {
		of := func(q float64) time.Duration { return Quantile(sorted, q) }
		r.addQuantiles(prefix, "ms", time.Millisecond, of)
	}
}

// Quantile returns the smallest value of a sorted sample that at least the part q of the sample
// does not exceed. The sample must not be empty.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[rank(len(sorted), q)]
}

func rank(n int, q float64) int {
	i := int(q * float64(n))
	if float64(i) == q*float64(n) {
		i--
	}
	return min(max(i, 0), n-1)
}

// thin returns at most sampleSize of the sorted values, evenly spaced by rank, with the first and
// the last.
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

// A histogram counts the durations of single calls without allocating, each to within 1/64 of
// itself. There are millions of calls, too many to keep.
type histogram struct {
	counts [64 << subBits]int64
	n      int64
	max    time.Duration
}

// subBits is how many bits below the highest one determine a value's place.
const subBits = 6

func (h *histogram) record(d time.Duration) {
	h.counts[place(d)]++
	h.n++
	h.max = max(h.max, d)
}

// place returns the value itself up to 1<<subBits, and above that the octave and the next subBits
// bits.
func place(d time.Duration) int {
	v := uint64(max(d, 0))
	octave := bits.Len64(v >> subBits)
	if octave == 0 {
		return int(v)
	}
	return octave<<subBits + int(v>>(octave-1))&(1<<subBits-1)
}

// least returns the smallest duration at place i.
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

// quantile returns a quantile of the recorded durations, rounded down as they are.
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

func (r *Result) addHistogram(prefix string, h *histogram) {
	if h.n > 0 {
		r.addQuantiles(prefix, "us", time.Microsecond, h.quantile)
	}
}

// A probe measures how late a timer is in a program whose other timers are busy. It arms the timer
// again and again.
type probe struct {
	stop chan struct{}
	late chan []time.Duration
}

func newProbe(in Instance, every, during time.Duration) *probe {
	p := &probe{make(chan struct{}), make(chan []time.Duration, 1)}
	late := make([]time.Duration, 0, int(during/every)+1) // so that it allocates nothing meanwhile
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

// end stops the probe and returns the sorted latenesses.
func (p *probe) end() []time.Duration {
	close(p.stop)
	late := <-p.late
	slices.Sort(late)
	return late
}
