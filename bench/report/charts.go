package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/go-timingwheel/timingwheel/bench"
)

// This file chooses what is drawn: cost against pending timers, cost against
// goroutines, and distributions of lateness.

// draw makes all charts that the results have the points for.
func (r *report) draw() {
	for _, wl := range r.workloads {
		ms := r.metrics(wl.Name)
		if len(ms) == 0 {
			continue
		}
		ps := r.places(wl.Name)
		m := ms[0]
		if i := slices.IndexFunc(ms, func(m bench.Metric) bool { return m.Unit == "B/timer" }); i >= 0 {
			m = ms[i] // what Memory is about comes after the empty instance
		}
		r.add(r.againstPending(wl, m, ps))
		r.add(r.againstProcs(wl, m, ps))
		for _, p := range ps {
			r.add(r.lateness(wl, p, ps))
		}
	}
}

// add keeps a chart that shows something.
func (r *report) add(c chart) {
	if len(c.lines) > 0 {
		r.charts = append(r.charts, c)
	}
}

// againstPending has the fewest goroutines and all numbers of pending timers. The
// axis is logarithmic; none at all stands where a tenth of the least would.
func (r *report) againstPending(wl bench.Workload, m bench.Metric, ps []place) chart {
	c := chart{
		workload: wl.Name,
		file:     strings.ToLower(wl.Name) + "-pending.svg",
		title:    wl.Name + ": cost against pending timers",
		note:     wl.What,
		x:        axis{label: "timers pending (log scale)", scale: logScale},
	}
	procs := math.MaxInt
	for _, p := range ps {
		procs = min(procs, p.procs)
	}
	var at []place
	least := math.MaxInt
	for _, p := range ps {
		if p.procs == procs {
			at = append(at, p)
			if p.pending > 0 {
				least = min(least, p.pending)
			}
		}
	}
	if len(at) < 2 {
		return chart{}
	}
	x := func(p place) float64 {
		if p.pending == 0 {
			return float64(least) / 10
		}
		return float64(p.pending)
	}
	for _, p := range at {
		c.x.ticks = append(c.x.ticks, tick{x(p), count(p.pending)})
		if p.pending == 0 {
			c.x.label = "timers pending (log scale, but for 0)"
		}
	}
	r.costs(&c, m, at, x)
	return c
}

// againstProcs has the fewest pending timers and all numbers of goroutines.
func (r *report) againstProcs(wl bench.Workload, m bench.Metric, ps []place) chart {
	c := chart{
		workload: wl.Name,
		file:     strings.ToLower(wl.Name) + "-procs.svg",
		title:    wl.Name + ": cost against procs",
		x:        axis{label: "goroutines that make the calls, and procs", scale: math.Log2},
	}
	var at []place
	for _, p := range ps {
		if p.pending == ps[0].pending {
			at = append(at, p)
			c.x.ticks = append(c.x.ticks, tick{float64(p.procs), count(p.procs)})
		}
	}
	if len(at) < 2 {
		return chart{}
	}
	c.note = fmt.Sprintf("%s; %s pending; ns/call is elapsed time over the calls of all goroutines", wl.What, count(ps[0].pending))
	if most := at[len(at)-1].procs; most > runtime.NumCPU() {
		c.note += fmt.Sprintf("; the machine has %d processors", runtime.NumCPU())
	}
	r.costs(&c, m, at, func(p place) float64 { return float64(p.procs) })
	return c
}

// costs adds a line for each implementation that has at least two points. Where
// the costs differ by more than a factor of ten, their axis is logarithmic.
func (r *report) costs(c *chart, m bench.Metric, at []place, x func(place) float64) {
	lo, hi := math.Inf(1), 0.0
	for style, im := range r.impls {
		l := line{name: im, style: style}
		for _, p := range at {
			if s, ok := r.results[p][im].metric(m.Name); ok {
				l.points = append(l.points, point{x(p), s.median})
			}
		}
		if len(l.points) < 2 {
			continue
		}
		for _, p := range l.points {
			lo, hi = min(lo, p.y), max(hi, p.y)
		}
		c.lines = append(c.lines, l)
	}
	c.y = axis{label: m.Name + ", " + m.Unit}
	c.baselineAtZero = lo >= 0
	if lo > 0 && hi/lo > 10 {
		c.y.scale = logScale
		c.y.label += " (log scale)"
	}
}

// tails are the parts of a lateness chart, each nine of them as wide as the last.
var tails = []tick{{0.5, "50 %"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {0.9999, "99.99 %"}}

// nines is the scale that stretches what is close to 1: a nine has equal widths.
func nines(p float64) float64 { return -math.Log10(1 - p) }

// telling is how many of the ascending parts a sample of n tells of: of 100 timers
// one was later than 99 %, and of 99.9 % they say nothing.
func telling(parts []float64, n int) int {
	known := 0
	for known < len(parts) && (1-parts[known])*float64(n) > 1-1e-6 {
		known++
	}
	return known
}

// lateness is how late a part of the timers was at most: each point the median
// over the runs of that quantile.
func (r *report) lateness(wl bench.Workload, at place, all []place) chart {
	c := chart{
		workload: wl.Name,
		file:     strings.ToLower(wl.Name) + "-lateness.svg",
		title:    wl.Name + ": lateness",
		x:        axis{label: "of the timers were at most this late", scale: nines},
	}
	c.note, _, _ = strings.Cut(wl.What, ":") // what else is measured is not drawn
	if wl.Name == "IdleServer" {
		c.note += "; drawn is an unrelated timer of 5 ms"
	}
	if len(all) > 1 {
		c.file = fmt.Sprintf("%s-lateness-%d-%d.svg", strings.ToLower(wl.Name), at.pending, at.procs)
		c.title += fmt.Sprintf(", %s pending, %d procs", count(at.pending), at.procs)
	}
	var ps []float64
	for i := range 41 {
		ps = append(ps, 1-math.Pow(10, -float64(i)/10))
	}
	hi, last := 0.0, 0.0
	for style, im := range r.impls {
		known := ps[:telling(ps, r.results[at][im].sample())]
		late := r.results[at][im].lateness(known)
		if late == nil {
			continue
		}
		last = max(last, known[len(known)-1])
		l := line{name: im, style: style, bare: true}
		for i, v := range late {
			l.points = append(l.points, point{ps[i], v})
			hi = max(hi, v)
		}
		c.lines = append(c.lines, l)
	}
	if hi == 0 {
		return chart{}
	}
	for _, t := range tails {
		if t.at <= last+1e-9 {
			c.x.ticks = append(c.x.ticks, t)
		}
	}
	// Early ones and those on the dot have no place on a logarithmic axis: they are
	// drawn where it begins then.
	const least = 0.01
	c.y = axis{label: "lateness, ms (log scale)", scale: logScale}
	raised := false
	for _, l := range c.lines {
		for i, p := range l.points {
			raised = raised || p.y < least
			l.points[i].y = max(p.y, least)
		}
	}
	if raised {
		c.note += fmt.Sprintf("; what was early or less than %v ms late is drawn at the bottom", least)
	}
	return c
}
