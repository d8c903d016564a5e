package main

import (
	"fmt"
	"slices"
	"strings"
)

// This file compares figures of different workloads, implementations or metrics, which stand in
// different rows or tables of the report.

// A comparison compares a metric of this library with another figure of the same report, for the
// same numbers of pending timers and procs.
type comparison struct {
	workload, metric string
	procs            int    // the only number of procs, or 0 for all
	own              string // the only implementation, or "" for all of this library
	with             figure // an empty field means the same as above
	name             string // describes the other figure
	difference       bool   // show the difference and not the ratio
}

// A figure says where a median stands.
type figure struct{ workload, impl, metric string }

var comparisons = []comparison{
	{
		workload: "TouchAt", metric: "time", with: figure{workload: "TouchHot", impl: nameOfTime},
		name: "package time's Reset in TouchHot, as it has no ResetAt",
	},
	{
		workload: "TouchHot", metric: "time", with: figure{impl: nameOfConn},
		name: "conn.SetReadDeadline",
	},
	{
		workload: "StartStop", metric: "time", procs: 2, with: figure{impl: nameOfFloor},
		name: "floor",
	},
	besideTime(comparison{workload: "IdleServer", metric: "cpu"}),
	besideTime(comparison{workload: "IdleServer", metric: "late max"}),
	besideTime(comparison{workload: "Fire", metric: "late p99", difference: true}),
	besideTime(comparison{workload: "Punctual", metric: "late p50", own: nameOfPrecise}),
	besideTime(comparison{workload: "Punctual", metric: "late p99", own: nameOfPrecise}),
	besideControl("call p50"), besideControl("call p99"), besideControl("call p99.9"),
	besideControl("response p50"), besideControl("response p99"), besideControl("response p99.9"),
}

// besideTime compares with the same figure of package time.
func besideTime(c comparison) comparison {
	c.with, c.name = figure{impl: nameOfTime}, "package time"
	return c
}

// besideControl compares a metric of Burst with that of the control, which ran in the same process.
func besideControl(metric string) comparison {
	return comparison{
		workload: "Burst", metric: metric, with: figure{metric: "control " + metric},
		name: "its control",
	}
}

// other returns the figure with which the implementation's figure is compared.
func (c comparison) other(impl string) figure {
	f := figure{c.workload, impl, c.metric}
	if c.with.workload != "" {
		f.workload = c.with.workload
	}
	if c.with.impl != "" {
		f.impl = c.with.impl
	}
	if c.with.metric != "" {
		f.metric = c.with.metric
	}
	return f
}

// of returns both sides of the comparison.
func (c comparison) of(r *report, p place, impl string) (own, other summary, ok bool) {
	f := c.other(impl)
	at := p
	at.Workload = f.workload
	own, ok1 := r.Results[p][impl].metric(c.metric)
	other, ok2 := r.Results[at][f.impl].metric(f.metric)
	return own, other, ok1 && ok2
}

// result is the ratio or the difference, bold where package time wins.
func (c comparison) result(own, other summary, unit string) string {
	text := ""
	if c.difference {
		text = fmt.Sprintf("%+.2f %s", own.median-other.median, unit)
	} else if q, ok := ratio(own, other); ok {
		text = multiple(q)
	}
	if text != "" && c.with.impl == nameOfTime && wins(other, own) {
		return "**" + text + "**"
	}
	return text
}

// writeComparisons writes a row for each comparison that has both sides.
func (r *report) writeComparisons(b *strings.Builder) {
	rows := [][]string{
		append(slices.Clone(ownHead), "compared with", "its median", "ratio or difference"),
	}
	for _, c := range comparisons {
		for _, p := range r.places(c.workload) {
			if c.procs != 0 && p.Procs != c.procs {
				continue
			}
			unit := r.unit(c.workload, c.metric)
			for _, im := range ours {
				if c.own != "" && c.own != im {
					continue
				}
				if own, other, ok := c.of(r, p, im); ok {
					o := row{p, metric{c.metric, unit}, im, own}
					rows = append(rows, append(o.cells(),
						c.name, number(other.median), c.result(own, other, unit)))
				}
			}
		}
	}
	scaling := r.scaling()
	if len(rows) == 1 && len(scaling) == 0 {
		return
	}
	b.WriteString("## Other comparisons\n\n")
	if len(rows) > 1 {
		b.WriteString(`conn.SetReadDeadline is called on a TCP connection over the loopback
interface. The control of Burst runs in the same process. It starts as many goroutines as there are
timers, beside callers that do the floor's work, each with a mutex and a list of its own.

`)
		table(b, rows, 7)
	}
	for _, line := range scaling {
		fmt.Fprintf(b, "- %s\n", line)
	}
	if len(scaling) > 0 {
		b.WriteString("\n")
	}
}

// scaling compares how much faster Rearm gets on two procs with how much faster the floor's calls
// get, which share nothing. A machine whose processors slow each other down affects both.
func (r *report) scaling() []string {
	var lines []string
	for _, p := range r.places("Rearm") {
		if p.Procs != 1 || p.Pending != 0 {
			continue
		}
		floor, ok := r.speedup(place{"StartStop", p.Pending, 1}, nameOfFloor)
		if !ok {
			continue
		}
		for _, im := range ours {
			if own, ok := r.speedup(p, im); ok {
				lines = append(lines, fmt.Sprintf(
					"On two procs, Rearm of %s is %s times as fast as on one, and StartStop of "+
						"the floor is %s times as fast: a ratio of %s.",
					im, multiple(own), multiple(floor), multiple(own/floor)))
			}
		}
	}
	return lines
}

// speedup returns how many times as fast two procs are as the one of p.
func (r *report) speedup(p place, impl string) (float64, bool) {
	two := p
	two.Procs = 2
	a, ok1 := r.Results[p][impl].metric("time")
	b, ok2 := r.Results[two][impl].metric("time")
	if !ok1 || !ok2 || a.median <= 0 || b.median <= 0 {
		return 0, false
	}
	return a.median / b.median, true
}

// unit returns the unit of a metric.
func (r *report) unit(workload, metric string) string {
	for _, m := range r.metrics(workload) {
		if m.name == metric {
			return m.unit
		}
	}
	return ""
}
