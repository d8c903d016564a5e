package main

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// This file keeps the results of all runs and turns them into figures: medians, ranges, ratios.

// A place is where a workload runs: beside how many pending timers, and on how many procs.
type place struct {
	Workload       string
	Pending, Procs int
}

func comparePlaces(a, b place) int {
	return cmp.Or(
		strings.Compare(a.Workload, b.Workload),
		cmp.Compare(a.Pending, b.Pending),
		cmp.Compare(a.Procs, b.Procs),
	)
}

// A cell is one implementation at one place, over all runs.
type cell struct {
	Metrics  []series    `json:",omitempty"` // in the workload's order
	Lateness [][]float64 `json:",omitempty"` // of each run: at each of latenessParts, in ms
	// Lacks says which call the implementation does not have. Such a cell has no metrics.
	Lacks string `json:",omitempty"`
	// Failed says how the last failed run ended.
	Failed string `json:",omitempty"`
}

// A series is one metric over the runs.
type series struct {
	Name, Unit string
	Values     []float64
}

// latenessParts are the parts of a sample at which a cell keeps the lateness, ten for each nine.
var latenessParts = func() (parts []float64) {
	for i := range 41 {
		parts = append(parts, 1-math.Pow(10, -float64(i)/10))
	}
	return parts
}()

// add adds the result of a run.
func (c *cell) add(r workload.Result) {
	for _, m := range r.Metrics {
		i := slices.IndexFunc(c.Metrics, func(s series) bool { return s.Name == m.Name })
		if i < 0 {
			i = len(c.Metrics)
			c.Metrics = append(c.Metrics, series{Name: m.Name, Unit: m.Unit})
		}
		c.Metrics[i].Values = append(c.Metrics[i].Values, rounded(steady(m)))
	}
	if len(r.Lateness) == 0 {
		return
	}
	var late []float64
	for _, q := range latenessParts[:telling(latenessParts, len(r.Lateness))] {
		late = append(late, rounded(workload.Quantile(r.Lateness, q).Seconds()*1e3))
	}
	c.Lateness = append(c.Lateness, late)
}

// steady drops what the runtime itself allocates now and then: less than a hundredth of an
// allocation, or half a byte, for each call.
func steady(m workload.Metric) float64 {
	switch m.Unit {
	case "allocs/call":
		return math.Round(m.Value*100) / 100
	case "B/call":
		return math.Round(m.Value)
	}
	return m.Value
}

// rounded keeps five digits, which is more than any figure is good for.
func rounded(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	return v
}

// telling returns how many of the ascending parts a sample of n can tell: a part needs at least one
// value beyond it. Among 100 timers one is later than 99 %, and the sample says nothing about 99.9
// %.
func telling(parts []float64, n int) int {
	known := 0
	for known < len(parts) && (1-parts[known])*float64(n) > 1-1e-6 {
		known++
	}
	return known
}

// lateness returns the medians over the runs of the lateness at the first of latenessParts, in ms.
// It has as many as every run can tell.
func (c *cell) lateness() []float64 {
	if c == nil || len(c.Lateness) == 0 {
		return nil
	}
	known := len(latenessParts)
	for _, run := range c.Lateness {
		known = min(known, len(run))
	}
	late := make([]float64, known)
	for i := range late {
		var values []float64
		for _, run := range c.Lateness {
			values = append(values, run[i])
		}
		late[i] = median(values)
	}
	return late
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
	for _, m := range c.Metrics {
		if m.Name == name && len(m.Values) > 0 {
			v := m.Values
			return summary{median(v), slices.Min(v), slices.Max(v), len(v)}, true
		}
	}
	return summary{}, false
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

// ratio returns a's median divided by b's, unless b's is zero.
func ratio(a, b summary) (float64, bool) {
	if b.median <= 0 || a.median < 0 {
		return 0, false
	}
	return a.median / b.median, true
}

// wins reports whether every run of a is better than every run of b. With medians alone there would
// be a winner even where both differ only by the noise of the machine.
func wins(a, b summary) bool { return a.max < b.min }

// isContext reports whether a metric is not the implementation's doing: what the control or the
// process alone did, or the size of the sample. It has no ratio and no winner. For every other
// metric less is better.
func isContext(metric string) bool {
	for _, what := range []string{"control ", "alone ", "sample", "touches", "closed"} {
		if strings.HasPrefix(metric, what) {
			return true
		}
	}
	return false
}

// results has all cells of a report, by place and implementation.
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

// empty reports that the cell has neither figures nor a reason for having none.
func (c *cell) empty() bool {
	return c == nil || len(c.Metrics) == 0 && c.Lacks == "" && c.Failed == ""
}

// A keyedCell is a cell with its place in results.
type keyedCell struct {
	place
	Impl string
	cell
}

// MarshalJSON writes the cells as a sorted list.
func (r results) MarshalJSON() ([]byte, error) {
	list := []keyedCell{}
	for p, cells := range r {
		for impl, c := range cells {
			if !c.empty() {
				list = append(list, keyedCell{p, impl, *c})
			}
		}
	}
	slices.SortFunc(list, func(a, b keyedCell) int {
		return cmp.Or(comparePlaces(a.place, b.place), strings.Compare(a.Impl, b.Impl))
	})
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *results) UnmarshalJSON(text []byte) error {
	var list []keyedCell
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*r = results{}
	for _, k := range list {
		*r.at(k.place, k.Impl) = k.cell
	}
	return nil
}

// load reads a report from a file that store wrote.
func load(file string) (*report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(report)
	return r, json.Unmarshal(text, r)
}

// store writes a report to a file, with each cell on a line of its own, so that a diff is readable.
func (r *report) store(file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	lines := strings.ReplaceAll(string(text), `},{"Workload"`, "},\n{\"Workload\"")
	return os.WriteFile(file, []byte(lines+"\n"), 0o644)
}
