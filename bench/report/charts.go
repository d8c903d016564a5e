package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// This file chooses what is drawn: cost against pending timers, cost against goroutines, and
// distributions of lateness.

// draw makes every chart that the results have points for.
func (r *report) draw() {
	for _, wl := range r.Workloads {
		ms := r.metrics(wl.Name)
		if len(ms) == 0 {
			continue
		}
		ps := r.places(wl.Name)
		m := ms[0]
		if i := slices.IndexFunc(ms, func(m metric) bool { return m.unit == "B/timer" }); i >= 0 {
			m = ms[i] // Memory measures an empty instance first
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

// againstPending draws the smallest number of goroutines and all numbers of pending timers. The
// axis is logarithmic, and 0 stands where a tenth of the smallest number would.
func (r *report) againstPending(wl described, m metric, ps []place) chart {
	c := chart{
		workload: wl.Name,
		file:     strings.ToLower(wl.Name) + "-pending.svg",
		title:    wl.Name + " beside pending timers",
		note:     wl.What,
		x:        axis{label: "timers pending (log scale)", scale: logScale},
	}
	procs, least := math.MaxInt, math.MaxInt
	for _, p := range ps {
		procs = min(procs, p.Procs)
		if p.Pending > 0 {
			least = min(least, p.Pending)
		}
	}
	at := slices.DeleteFunc(slices.Clone(ps), func(p place) bool { return p.Procs != procs })
	if len(at) < 2 {
		return chart{}
	}
	x := func(p place) float64 {
		if p.Pending == 0 {
			return float64(least) / 10
		}
		return float64(p.Pending)
	}
	for _, p := range at {
		c.x.ticks = append(c.x.ticks, tick{x(p), count(p.Pending)})
		if p.Pending == 0 {
			c.x.label = "timers pending (log scale, except for 0)"
		}
	}
	r.costs(&c, m, at, x)
	return c
}

// againstProcs draws the smallest number of pending timers and all numbers of goroutines.
func (r *report) againstProcs(wl described, m metric, ps []place) chart {
	c := chart{
		workload: wl.Name,
		file:     strings.ToLower(wl.Name) + "-procs.svg",
		title:    wl.Name + " on several procs",
		x:        axis{label: "procs, one calling goroutine each (log scale)", scale: math.Log2},
	}
	least := ps[0].Pending
	at := slices.DeleteFunc(slices.Clone(ps), func(p place) bool { return p.Pending != least })
	if len(at) < 2 {
		return chart{}
	}
	for _, p := range at {
		c.x.ticks = append(c.x.ticks, tick{float64(p.Procs), count(p.Procs)})
	}
	c.note = fmt.Sprintf("%s Here %s are pending. A time is elapsed time divided by all calls.",
		wl.What, count(least))
	if at[len(at)-1].Procs > r.CPUs {
		c.note += fmt.Sprintf(" The machine has %d processors.", r.CPUs)
	}
	r.costs(&c, m, at, func(p place) float64 { return float64(p.Procs) })
	return c
}

// costs adds a line for each implementation that has at least two points. If the largest cost is
// more than ten times the smallest, their axis is logarithmic.
func (r *report) costs(c *chart, m metric, at []place, x func(place) float64) {
	lo, hi := math.Inf(1), 0.0
	for style, im := range r.Impls {
		l := line{name: im, style: style}
		for _, p := range at {
			if s, ok := r.Results[p][im].metric(m.name); ok {
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
	c.y = axis{label: m.name + ", " + m.unit}
	c.baselineAtZero = lo >= 0
	if lo > 0 && hi/lo > 10 {
		c.y.scale = logScale
		c.y.label += " (log scale)"
	}
}

// tails are the ticks of a lateness chart.
var tails = []tick{
	{0.5, "50 %"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {0.9999, "99.99 %"},
}

// nines is the scale of a lateness chart. It gives each further nine the same width.
func nines(p float64) float64 { return -math.Log10(1 - p) }

// lateness draws how late a part of the timers was at most. Each point is the median over the runs
// of that quantile.
func (r *report) lateness(wl described, at place, all []place) chart {
	file := strings.ToLower(wl.Name) + "-lateness"
	c := chart{
		workload: wl.Name,
		file:     file + ".svg",
		title:    wl.Name + ": lateness",
		x:        axis{label: "of the timers were at most this late", scale: nines},
	}
	c.note, _, _ = strings.Cut(wl.What, ":") // the rest is about what the chart does not show
	c.note = strings.TrimSuffix(c.note, ".") + "."
	if wl.Name == "IdleServer" {
		c.note += " The chart shows an unrelated timer of 5 ms."
	}
	if len(all) > 1 {
		c.file = fmt.Sprintf("%s-%d-%d.svg", file, at.Pending, at.Procs)
		c.title += fmt.Sprintf(", %s pending, %d procs", count(at.Pending), at.Procs)
	}
	hi, last := 0.0, 0.0
	for style, im := range r.Impls {
		late := r.Results[at][im].lateness()
		if late == nil {
			continue
		}
		last = max(last, latenessParts[len(late)-1])
		l := line{name: im, style: style, bare: true}
		for i, v := range late {
			l.points = append(l.points, point{latenessParts[i], v})
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
	// A logarithmic axis has no place for timers that were early or exactly on time, so they are
	// drawn where it begins.
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
		c.note += fmt.Sprintf(" Timers less than %v ms late are drawn at the bottom.", least)
	}
	return c
}
