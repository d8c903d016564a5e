package main

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/bench"
)

// This file turns the results of several runs into figures: medians, ranges,
// ratios.

// A place is where a workload runs: with what pending, on how many procs.
type place struct {
	workload       string
	pending, procs int
}

// A cell is one implementation at one place, over all runs.
type cell struct {
	results []bench.Result
	// lacks says what call the implementation does not have; such a cell has no
	// results.
	lacks string
	// failed says how the cell's last failed run ended.
	failed string
}

// results are all cells of a report.
type results map[place]map[string]*cell

func (r results) at(p place, impl string) *cell {
	if r[p] == nil {
		r[p] = map[string]*cell{}
	}
	if r[p][impl] == nil {
		r[p][impl] = &cell{}
	}
	return r[p][impl]
}

// A summary is what the runs of one cell say about one metric.
type summary struct {
	median, min, max float64
	runs             int
}

// metric sums up a metric over the runs that have it.
func (c *cell) metric(name string) (s summary, ok bool) {
	if c == nil {
		return summary{}, false
	}
	var values []float64
	for _, r := range c.results {
		for _, m := range r.Metrics {
			if m.Name == name {
				values = append(values, settle(m))
			}
		}
	}
	if len(values) == 0 {
		return summary{}, false
	}
	return summary{median(values), slices.Min(values), slices.Max(values), len(values)}, true
}

// settle drops what the runtime itself allocates now and then, which is not the
// call's: a hundredth of an allocation, half a byte.
func settle(m bench.Metric) float64 {
	switch m.Unit {
	case "allocs/call":
		return math.Round(m.Value*100) / 100
	case "B/call":
		return math.Round(m.Value)
	}
	return m.Value
}

// median is the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// ratio is how many times of b's median a's is, if that says anything: of
// nothing there is no multiple.
func ratio(a, b summary) (float64, bool) {
	if b.median <= 0 || a.median < 0 {
		return 0, false
	}
	return a.median / b.median, true
}

// wins reports that every run of a did better than every run of b. Medians alone
// would name a winner where both are the same but for the noise of the machine.
func wins(a, b summary) bool { return a.max < b.min }

// isContext tells of a metric that is not the implementation's doing: what the
// control or the process alone did, and how large the sample was. It is shown
// without a ratio, and nobody wins. Of all others less is better.
func isContext(m bench.Metric) bool {
	for _, what := range []string{"control ", "alone ", "sample", "touches", "closed"} {
		if strings.HasPrefix(m.Name, what) {
			return true
		}
	}
	return false
}

// quantile returns the sample value below which a part p of the sorted sample
// lies: the nearest rank, so it is always a value that was measured.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// sample is how many latenesses the runs have that have any: those of the least.
func (c *cell) sample() int {
	n := 0
	if c != nil {
		for _, r := range c.results {
			if have := len(r.Lateness); have > 0 && (n == 0 || have < n) {
				n = have
			}
		}
	}
	return n
}

// lateness returns for each part in ps the median over the runs of that quantile
// of the lateness, in milliseconds.
func (c *cell) lateness(ps []float64) []float64 {
	if c == nil {
		return nil
	}
	var late []float64
	for _, p := range ps {
		var values []float64
		for _, r := range c.results {
			if len(r.Lateness) > 0 {
				values = append(values, quantile(r.Lateness, p).Seconds()*1e3)
			}
		}
		if len(values) == 0 {
			return nil
		}
		late = append(late, median(values))
	}
	return late
}
