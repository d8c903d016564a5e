package main

import (
	"fmt"
	"strconv"
	"strings"
)

// This file has what the other tables do not show, or only among much else: the
// figures that are set against something of their own.

// nameOfConn is what servers touch without a wheel.
const nameOfConn = "conn"

// nameOfPrecise is this library with wake-ups that package time does not have.
const nameOfPrecise = "precise"

// A comparison sets a metric of this library against another figure of the same
// report, at the same number of pending timers and procs.
type comparison struct {
	workload, metric string
	procs            int    // the only number of procs, or 0 for all
	own              string // the only implementation, or "" for all of this library
	with             figure // what is left empty is the same as above
	name             string // of that figure, in words
	difference       bool   // not a multiple
}

// A figure is where a median stands.
type figure struct{ workload, impl, metric string }

var comparisons = []comparison{
	{
		workload: "TouchAt", metric: "time", with: figure{workload: "TouchHot", impl: nameOfTime},
		name: "package time's Reset in TouchHot: it has no ResetAt",
	},
	{workload: "TouchHot", metric: "time", with: figure{impl: nameOfConn}, name: "conn.SetReadDeadline"},
	{workload: "StartStop", metric: "time", procs: 2, with: figure{impl: nameOfFloor}, name: "floor"},
	{workload: "IdleServer", metric: "cpu", with: figure{impl: nameOfTime}, name: "package time"},
	{workload: "IdleServer", metric: "late max", with: figure{impl: nameOfTime}, name: "package time"},
	{workload: "Fire", metric: "late p99", with: figure{impl: nameOfTime}, name: "package time", difference: true},
	{workload: "Punctual", metric: "late p50", own: nameOfPrecise, with: figure{impl: nameOfTime}, name: "package time"},
	{workload: "Punctual", metric: "late p99", own: nameOfPrecise, with: figure{impl: nameOfTime}, name: "package time"},
	besideControl("call p50"), besideControl("call p99"), besideControl("call p99.9"),
	besideControl("response p50"), besideControl("response p99"), besideControl("response p99.9"),
}

// besideControl sets a metric of Burst against that of its control, which ran in
// the same process.
func besideControl(metric string) comparison {
	return comparison{workload: "Burst", metric: metric, with: figure{metric: "control " + metric}, name: "its control"}
}

// of returns both sides of the comparison.
func (c comparison) of(r *report, p place, impl string) (own, other summary, ok bool) {
	at, of, metric := p, impl, c.metric
	if c.with.workload != "" {
		at.workload = c.with.workload
	}
	if c.with.impl != "" {
		of = c.with.impl
	}
	if c.with.metric != "" {
		metric = c.with.metric
	}
	own, ok1 := r.results[p][impl].metric(c.metric)
	other, ok2 := r.results[at][of].metric(metric)
	return own, other, ok1 && ok2
}

// result is the multiple or the difference, bold where package time wins.
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

// writeComparisons has a row for each comparison that both sides were run for.
func (r *report) writeComparisons(b *strings.Builder) {
	rows := [][]string{{"workload", "pending", "procs", "measured", "implementation", "set against", "median", "the other", "× or difference"}}
	for _, c := range comparisons {
		for _, p := range r.places(c.workload) {
			if c.procs != 0 && p.procs != c.procs {
				continue
			}
			unit := r.unit(c.workload, c.metric)
			for _, im := range ours {
				if c.own != "" && c.own != im {
					continue
				}
				if own, other, ok := c.of(r, p, im); ok {
					rows = append(rows, []string{
						c.workload, count(p.pending), strconv.Itoa(p.procs), c.metric, im, c.name,
						strings.TrimSpace(number(own.median) + " " + unit), number(other.median), c.result(own, other, unit),
					})
				}
			}
		}
	}
	scaling := r.scaling()
	if len(rows) == 1 && len(scaling) == 0 {
		return
	}
	b.WriteString("## Beside something else\n\n")
	if len(rows) > 1 {
		b.WriteString(`conn.SetReadDeadline is called on a TCP connection over the loopback interface. The
control of Burst starts as many goroutines as there are timers, beside callers that
do the floor's work, each with a mutex and a list of its own, in the process of the
run it is set against.

`)
		table(b, rows, 6)
	}
	for _, line := range scaling {
		fmt.Fprintf(b, "- %s\n", line)
	}
	if len(scaling) > 0 {
		b.WriteString("\n")
	}
}

// scaling says how much of what a second processor gives to calls that share
// nothing, those of the floor, Rearm gets. A machine whose processors slow each
// other down does so to both.
func (r *report) scaling() []string {
	var lines []string
	for _, p := range r.places("Rearm") {
		if p.procs != 1 {
			continue
		}
		floor, ok := r.speedup(place{"StartStop", p.pending, 1}, nameOfFloor)
		if !ok {
			continue
		}
		for _, im := range ours {
			if own, ok := r.speedup(p, im); ok {
				lines = append(lines, fmt.Sprintf("Rearm scales %s × as well as StartStop's floor from 1 to 2 procs: %s, %s pending, gets %s × as fast, the floor %s ×.",
					multiple(own/floor), im, count(p.pending), multiple(own), multiple(floor)))
			}
		}
	}
	return lines
}

// speedup is how many times as fast two procs are as the one of p.
func (r *report) speedup(p place, impl string) (float64, bool) {
	two := p
	two.procs = 2
	a, ok1 := r.results[p][impl].metric("time")
	b, ok2 := r.results[two][impl].metric("time")
	if !ok1 || !ok2 || a.median <= 0 || b.median <= 0 {
		return 0, false
	}
	return a.median / b.median, true
}

// unit is that of a metric by name.
func (r *report) unit(workload, metric string) string {
	for _, m := range r.metrics(workload) {
		if m.Name == metric {
			return m.Unit
		}
	}
	return ""
}
