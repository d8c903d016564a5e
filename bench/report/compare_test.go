package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/bench"
)

// made is a report on one made-up run of each: workload, procs, implementation,
// and the metrics.
type made struct {
	workload string
	procs    int
	impl     string
	metrics  []bench.Metric
}

func reportOf(runs ...made) *report {
	r := &report{impls: []string{"wheel", "inline", "precise", "time", "floor", "conn"}, results: results{}}
	for _, m := range runs {
		c := r.results.at(place{m.workload, 0, m.procs}, m.impl)
		c.results = append(c.results, bench.Result{Metrics: m.metrics})
	}
	return r
}

func perCall(ns float64) []bench.Metric {
	return []bench.Metric{{Name: "time", Unit: "ns/call", Value: ns}}
}

func late(name string, ms float64) []bench.Metric {
	return []bench.Metric{{Name: name, Unit: "ms", Value: ms}}
}

// comparisonsOf returns the rows that a report has, blanks left out.
func comparisonsOf(r *report) []string {
	var b strings.Builder
	r.writeComparisons(&b)
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestComparisons(t *testing.T) {
	lines := comparisonsOf(reportOf(
		made{"TouchAt", 1, "wheel", perCall(15)},
		made{"TouchHot", 1, "time", perCall(60)},
		made{"TouchHot", 1, "wheel", perCall(50)},
		made{"TouchHot", 1, "conn", perCall(200)},
		made{"StartStop", 1, "wheel", perCall(150)},
		made{"StartStop", 1, "floor", perCall(100)},
		made{"StartStop", 2, "wheel", perCall(120)},
		made{"StartStop", 2, "floor", perCall(60)},
		made{"IdleServer", 1, "wheel", append(late("late max", 6), bench.Metric{Name: "cpu", Unit: "ns/touch", Value: 90})},
		made{"IdleServer", 1, "time", append(late("late max", 4), bench.Metric{Name: "cpu", Unit: "ns/touch", Value: 100})},
		made{"Fire", 1, "wheel", late("late p99", 1.9)},
		made{"Fire", 1, "inline", late("late p99", 1.1)},
		made{"Fire", 1, "time", late("late p99", 1.5)},
		made{"Punctual", 1, "wheel", late("late p50", 2)}, // only precise is set against package time
		made{"Punctual", 1, "precise", append(late("late p50", 0.1), late("late p99", 0.3)...)},
		made{"Punctual", 1, "time", append(late("late p50", 0.5), late("late p99", 0.2)...)},
		made{"Burst", 1, "wheel", []bench.Metric{
			{Name: "call p50", Unit: "us", Value: 3}, {Name: "control call p50", Unit: "us", Value: 2},
			{Name: "response p99.9", Unit: "us", Value: 70}, {Name: "control response p99.9", Unit: "us", Value: 700},
		}},
		made{"Burst", 1, "inline", []bench.Metric{{Name: "call p50", Unit: "us", Value: 3}}}, // no control, no line
		made{"Burst", 1, "time", []bench.Metric{{Name: "control call p50", Unit: "us", Value: 1}}},
	))
	for _, want := range []string{
		"| TouchAt | 0 | 1 | time | wheel | package time's Reset in TouchHot: it has no ResetAt | 15 ns/call | 60 | 0.25 |",
		"| TouchHot | 0 | 1 | time | wheel | conn.SetReadDeadline | 50 ns/call | 200 | 0.25 |",
		"| StartStop | 0 | 2 | time | wheel | floor | 120 ns/call | 60 | 2.00 |",
		"| IdleServer | 0 | 1 | cpu | wheel | package time | 90 ns/touch | 100 | 0.90 |",
		"| IdleServer | 0 | 1 | late max | wheel | package time | 6 ms | 4 | **1.50** |",
		"| Fire | 0 | 1 | late p99 | wheel | package time | 1.90 ms | 1.50 | **+0.40 ms** |",
		"| Fire | 0 | 1 | late p99 | inline | package time | 1.10 ms | 1.50 | -0.40 ms |",
		"| Punctual | 0 | 1 | late p50 | precise | package time | 0.1 ms | 0.5 | 0.20 |",
		"| Punctual | 0 | 1 | late p99 | precise | package time | 0.3 ms | 0.2 | **1.50** |",
		"| Burst | 0 | 1 | call p50 | wheel | its control | 3 us | 2 | 1.50 |",
		"| Burst | 0 | 1 | response p99.9 | wheel | its control | 70 us | 700 | 0.10 |",
	} {
		require.Contains(t, lines, want)
		lines = slices.DeleteFunc(lines, func(l string) bool { return l == want })
	}
	rows := slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "|") })
	require.Len(t, rows, 2, "the head and nothing else: %q", rows)
}

func TestScaling(t *testing.T) {
	r := reportOf(
		made{"Rearm", 1, "wheel", perCall(60)}, // 1.5 times as fast on two
		made{"Rearm", 2, "wheel", perCall(40)},
		made{"Rearm", 1, "inline", perCall(60)}, // not run on two
		made{"StartStop", 1, "floor", perCall(100)},
		made{"StartStop", 2, "floor", perCall(50)},
	)
	require.Equal(t, []string{
		"Rearm scales 0.75 × as well as StartStop's floor from 1 to 2 procs: wheel, 0 pending, gets 1.50 × as fast, the floor 2.00 ×.",
	}, r.scaling())
	require.Contains(t, strings.Join(comparisonsOf(r), "\n"), "- Rearm scales 0.75 ×")

	delete(r.results, place{"StartStop", 0, 2})
	require.Empty(t, r.scaling())
	require.Empty(t, comparisonsOf(r))
}

// What a comparison is about is what the workloads measure, by the same names.
func TestComparisonsNameMetrics(t *testing.T) {
	measured := map[figure]bool{}
	for _, wl := range bench.Workloads {
		if !slices.ContainsFunc(comparisons, func(c comparison) bool { return c.workload == wl.Name || c.with.workload == wl.Name }) {
			continue
		}
		duration := 20 * time.Millisecond
		if wl.Name == "IdleServer" { // its timer of 5 ms is to fire, however busy the machine
			duration *= 15
		}
		for _, im := range []bench.Impl{bench.Wheel, bench.Precise, bench.Time, bench.Floor, bench.Conn} {
			if !wl.Takes(im) || wl.Lacks(im) != "" {
				continue
			}
			res, err := wl.Run(bench.Case{Impl: im, Procs: 1, N: 1_000, Duration: duration})
			require.NoError(t, err)
			for _, m := range res.Metrics {
				measured[figure{wl.Name, im.Name, m.Name}] = true
			}
		}
	}
	for _, c := range comparisons {
		own := figure{c.workload, bench.Wheel.Name, c.metric}
		if c.own != "" {
			own.impl = c.own
		}
		other := own
		if c.with.workload != "" {
			other.workload = c.with.workload
		}
		if c.with.impl != "" {
			other.impl = c.with.impl
		}
		if c.with.metric != "" {
			other.metric = c.with.metric
		}
		require.True(t, measured[own], "%+v", own)
		require.True(t, measured[other], "%+v", other)
	}
}

// A quick run says how much it ran.
func TestQuickRunIsDescribed(t *testing.T) {
	what := func(args ...string) string {
		var log bytes.Buffer
		o, err := parse(args, &log)
		require.NoError(t, err)
		var all []string
		for _, wl := range o.described() {
			all = append(all, wl.Name+": "+wl.What)
		}
		return strings.Join(all, "\n")
	}
	full, quick := what(), what("-quick")
	require.Contains(t, full, "Punctual: 20,000 timers due at random within 3 s ")
	require.Contains(t, quick, "Punctual: 2,000 timers due at random within 0.3 s ")
	require.Contains(t, full, "Fire: a million timers due at random within 3 s,")
	require.Contains(t, quick, "Fire: 10,000 timers due at random within 0.2 s,")
	require.Contains(t, quick, "Burst: 10,000 timers due")
	require.Contains(t, quick, "control starts 10,000 goroutines")
	require.Contains(t, quick, "IdleServer: 10,000 connections")
	require.NotContains(t, quick, "million")
	require.Equal(t, full, what(), "the workloads themselves were changed")
}

// Package time wins where every run of it is better, and nowhere else.
func TestOverlapIsNoWin(t *testing.T) {
	r := &report{workloads: []bench.Workload{{Name: "Load"}}, impls: []string{"wheel", "inline", "time"}, results: results{}}
	p := place{"Load", 0, 1}
	for impl, runs := range map[string][]float64{"time": {10, 11, 12}, "wheel": {12, 14, 15}, "inline": {13, 14, 15}} {
		for _, ns := range runs {
			c := r.results.at(p, impl)
			c.results = append(c.results, bench.Result{Metrics: perCall(ns)})
		}
	}
	m := perCall(0)[0]
	require.Equal(t, "1.27", r.ratio(p, "wheel", nameOfTime, m))
	require.Equal(t, "**1.27**", r.ratio(p, "inline", nameOfTime, m))
	var b strings.Builder
	r.writeLosses(&b)
	require.Contains(t, b.String(), "\n1 of 2 comparisons")
	require.Contains(t, b.String(), "In 1 more")
	require.Contains(t, b.String(), "| inline ")
	require.NotContains(t, b.String(), "| wheel ")
}

// What a process does before there is an instance, nobody wins.
func TestContext(t *testing.T) {
	for name, want := range map[string]bool{
		"alone cpu": true, "alone thread wake-ups": true, "control call p50": true, "sample": true,
		"cpu": false, "empty cpu": false, "wake-ups": false,
	} {
		require.Equal(t, want, isContext(bench.Metric{Name: name}), name)
	}
}

// Who was not chosen is named at the top and has no row, and who is for one
// workload alone is not missed in the others.
func TestLeftOut(t *testing.T) {
	parsed := func(args ...string) options {
		var log bytes.Buffer
		o, err := parse(args, &log)
		require.NoError(t, err)
		return o
	}
	require.Empty(t, parsed().leftOut())
	require.Empty(t, parsed("-workloads", "Fire").leftOut())
	o := parsed("-workloads", "Fire", "-impls", "wheel,inline,time,floor,conn,go-zero,gost,siddontang,map")
	require.Equal(t, []string{"heap"}, o.leftOut())
	for _, j := range parsed().jobs() {
		require.True(t, j.Workload == "Punctual" || j.Impl != "precise" && j.Impl != "fine", "%+v", j)
	}
	require.True(t, slices.ContainsFunc(parsed().jobs(), func(j job) bool { return j.Impl == "precise" }))
	_, err := parse([]string{"-workloads", "Fire", "-impls", "precise"}, &bytes.Buffer{})
	require.Error(t, err)

	r := sample()
	r.impls = append(r.impls, "absent")
	r.draw()
	var b bytes.Buffer
	require.NoError(t, r.write(&b))
	require.NotContains(t, b.String(), "absent")
	require.Contains(t, b.String(), "| bad ")
}

// No two implementations look the same in a chart.
func TestEveryImplHasAColour(t *testing.T) {
	require.GreaterOrEqual(t, len(colours), len(impls))
}

// A part is told of if the sample has one at least that is beyond it.
func TestTelling(t *testing.T) {
	parts := []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999}
	for n, want := range map[int]int{0: 0, 1: 1, 3: 2, 99: 3, 100: 4, 999: 4, 10_000: 6} {
		require.Equal(t, want, telling(parts, n), "%d", n)
	}
}

func TestApart(t *testing.T) {
	for _, c := range []struct{ at, want []float64 }{
		{[]float64{10, 50, 90}, []float64{10, 50, 90}},
		{[]float64{10, 15, 90}, []float64{10, 30, 90}},
		{[]float64{70, 95, 99}, []float64{60, 80, 100}},
	} {
		apart(c.at, 20, 100)
		require.Equal(t, c.want, c.at)
	}
}

// What is early is at the very bottom of its chart, and not where the least of the
// others is.
func TestEarlyIsDrawnAtTheBottom(t *testing.T) {
	ms := func(late ...float64) bench.Result {
		var r bench.Result
		for _, l := range late {
			r.Lateness = append(r.Lateness, time.Duration(l*float64(time.Millisecond)))
		}
		return r
	}
	r := &report{impls: []string{"wheel", "time"}, results: results{}}
	p := place{"Load", 0, 1}
	r.results.at(p, "wheel").results = []bench.Result{ms(2, 3, 4, 5)}
	c := r.lateness(bench.Workload{Name: "Load", What: "a load: measures"}, p, []place{p})
	require.Equal(t, "a load", c.note)
	require.Equal(t, 2.0, c.lines[0].points[0].y)

	r.results.at(p, "time").results = []bench.Result{ms(-1, 3, 4, 5)}
	c = r.lateness(bench.Workload{Name: "Load", What: "a load: measures"}, p, []place{p})
	require.Contains(t, c.note, "at the bottom")
	var all []float64
	for _, l := range c.lines {
		for _, p := range l.points {
			all = append(all, p.y)
		}
	}
	y := c.y.fit(all, plotBottom, plotTop, 6, true)
	require.InDelta(t, plotBottom, y.to(c.lines[1].points[0].y), 0.1)
	require.Less(t, y.to(c.lines[0].points[0].y), plotBottom)
}

// No subtitle runs into the plot.
func TestNotesFit(t *testing.T) {
	for _, args := range [][]string{nil, {"-quick"}} {
		var log bytes.Buffer
		o, err := parse(args, &log)
		require.NoError(t, err)
		r := sample()
		cells := r.results[place{"Load", 0, 1}]
		r.workloads, r.results = o.described(), results{}
		for _, wl := range r.workloads {
			for _, p := range o.places(wl) {
				r.results[p] = cells
			}
		}
		r.draw()
		require.NotEmpty(t, r.charts)
		for _, c := range r.charts {
			if strings.HasSuffix(c.file, "-procs.svg") && !strings.Contains(c.note, "the machine has") {
				c.note += "; the machine has 2 processors" // as it has, or has not
			}
			require.LessOrEqual(t, len(wrap(c.note, noteWidth)), 3, "%s: %s", c.file, c.note)
		}
	}
}
