package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// made is a made-up run.
type made struct {
	workload string
	procs    int
	impl     string
	metrics  []workload.Metric
}

func reportOf(runs ...made) *report {
	r := &report{
		Impls:   []string{"wheel", "inline", "precise", "time", "floor", "conn"},
		Results: results{},
	}
	for _, m := range runs {
		r.Results.at(place{m.workload, 0, m.procs}, m.impl).add(workload.Result{Metrics: m.metrics})
	}
	return r
}

func perCall(ns float64) []workload.Metric {
	return []workload.Metric{{Name: "time", Unit: "ns/call", Value: ns}}
}

func cpu(ns float64) workload.Metric {
	return workload.Metric{Name: "cpu", Unit: "ns/touch", Value: ns}
}

func us(name string, v float64) workload.Metric {
	return workload.Metric{Name: name, Unit: "us", Value: v}
}

func late(name string, ms float64) []workload.Metric {
	return []workload.Metric{{Name: name, Unit: "ms", Value: ms}}
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
		made{"IdleServer", 1, "wheel", append(late("late max", 6), cpu(90))},
		made{"IdleServer", 1, "time", append(late("late max", 4), cpu(100))},
		made{"Fire", 1, "wheel", late("late p99", 1.9)},
		made{"Fire", 1, "inline", late("late p99", 1.1)},
		made{"Fire", 1, "time", late("late p99", 1.5)},
		made{"Punctual", 1, "wheel", late("late p50", 2)}, // only precise is compared
		made{"Punctual", 1, "precise", append(late("late p50", 0.1), late("late p99", 0.3)...)},
		made{"Punctual", 1, "time", append(late("late p50", 0.5), late("late p99", 0.2)...)},
		made{"Burst", 1, "wheel", []workload.Metric{
			us("call p50", 3), us("control call p50", 2),
			us("response p99.9", 70), us("control response p99.9", 700),
		}},
		made{"Burst", 1, "inline", []workload.Metric{us("call p50", 3)}}, // no control, no line
		made{"Burst", 1, "time", []workload.Metric{us("control call p50", 1)}},
	))
	for _, want := range []string{
		"| TouchAt | 0 | 1 | time | wheel | 15 ns/call | package time's Reset in TouchHot, as it has no ResetAt | 60 | 0.25 |",
		"| TouchHot | 0 | 1 | time | wheel | 50 ns/call | conn.SetReadDeadline | 200 | 0.25 |",
		"| StartStop | 0 | 2 | time | wheel | 120 ns/call | floor | 60 | 2.00 |",
		"| IdleServer | 0 | 1 | cpu | wheel | 90 ns/touch | package time | 100 | 0.90 |",
		"| IdleServer | 0 | 1 | late max | wheel | 6 ms | package time | 4 | **1.50** |",
		"| Fire | 0 | 1 | late p99 | wheel | 1.90 ms | package time | 1.50 | **+0.40 ms** |",
		"| Fire | 0 | 1 | late p99 | inline | 1.10 ms | package time | 1.50 | -0.40 ms |",
		"| Punctual | 0 | 1 | late p50 | precise | 0.1 ms | package time | 0.5 | 0.20 |",
		"| Punctual | 0 | 1 | late p99 | precise | 0.3 ms | package time | 0.2 | **1.50** |",
		"| Burst | 0 | 1 | call p50 | wheel | 3 us | its control | 2 | 1.50 |",
		"| Burst | 0 | 1 | response p99.9 | wheel | 70 us | its control | 700 | 0.10 |",
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
		"On two procs, Rearm of wheel is 1.50 times as fast as on one, " +
			"and StartStop of the floor is 2.00 times as fast: a ratio of 0.75.",
	}, r.scaling())
	require.Contains(t, strings.Join(comparisonsOf(r), "\n"), "a ratio of 0.75.")

	delete(r.Results, place{"StartStop", 0, 2})
	require.Empty(t, r.scaling())
	require.Empty(t, comparisonsOf(r))
}

// The workloads measure what the comparisons compare, by the same names.
func TestComparisonsNameMetrics(t *testing.T) {
	compared := map[string]bool{} // workloads
	missing := map[figure]bool{}  // figures that no run has measured
	for _, c := range comparisons {
		own := figure{c.workload, workload.Wheel.Name, c.metric}
		if c.own != "" {
			own.impl = c.own
		}
		for _, f := range []figure{own, c.other(own.impl)} {
			compared[f.workload], missing[f] = true, true
		}
	}
	// On an overloaded machine a short run may end before it has measured everything.
	for try := 0; try < 20 && len(missing) > 0; try++ {
		for _, wl := range workload.All {
			if !compared[wl.Name] {
				continue
			}
			duration := 20 * time.Millisecond
			if wl.Name == "IdleServer" { // it measures a timer of 5 ms
				duration *= 15
			}
			for _, im := range workload.Impls {
				if !wl.Takes(im) || wl.Lacks(im) != "" {
					continue
				}
				res, err := wl.Run(workload.Case{Impl: im, N: 1_000, Duration: duration})
				require.NoError(t, err)
				for _, m := range res.Metrics {
					delete(missing, figure{wl.Name, im.Name, m.Name})
				}
			}
		}
	}
	require.Empty(t, missing)
}

// A report describes what was really run, even after a quick run.
func TestQuickRunIsDescribed(t *testing.T) {
	what := func(args ...string) string {
		var all []string
		for _, d := range parsed(t, args...).described() {
			all = append(all, d.Name+": "+d.What)
		}
		return strings.Join(all, "\n")
	}
	full, quick := what(), what("-quick")
	require.Contains(t, full, "Punctual: 20,000 timers due at random within 3 s:")
	require.Contains(t, quick, "Punctual: 2,000 timers due at random within 300 ms:")
	require.Contains(t, full, "Fire: 1,000,000 timers due at random within 3 s,")
	require.Contains(t, quick, "Fire: 10,000 timers due at random within 200 ms,")
	require.Contains(t, quick, "Burst: 10,000 timers due")
	require.Contains(t, quick, "control starts 10,000 goroutines")
	require.Contains(t, quick, "IdleServer: 10,000 connections")
	require.NotContains(t, quick, "1,000,000")
}

// Package time wins where every run of it is better, and nowhere else.
func TestOverlapIsNoWin(t *testing.T) {
	r := &report{
		Workloads: []described{{Name: "Load"}},
		Impls:     []string{"wheel", "inline", "time"},
		Results:   results{},
	}
	p := place{"Load", 0, 1}
	for impl, runs := range map[string][]float64{
		"time": {10, 11, 12}, "wheel": {12, 14, 15}, "inline": {13, 14, 15},
	} {
		for _, ns := range runs {
			r.Results.at(p, impl).add(workload.Result{Metrics: perCall(ns)})
		}
	}
	require.Equal(t, "1.27", r.ratio(p, "wheel", nameOfTime, "time"))
	require.Equal(t, "**1.27**", r.ratio(p, "inline", nameOfTime, "time"))
	var b strings.Builder
	r.writeLosses(&b)
	require.Contains(t, b.String(), "\nIn 1 of 2 comparisons")
	require.Contains(t, b.String(), "In 1 more")
	require.Contains(t, b.String(), "| inline ")
	require.NotContains(t, b.String(), "| wheel ")
}

// The figures of the process alone have no winner.
func TestContext(t *testing.T) {
	for name, want := range map[string]bool{
		"alone cpu": true, "alone thread wake-ups": true, "control call p50": true, "sample": true,
		"cpu": false, "empty cpu": false, "wake-ups": false,
	} {
		require.Equal(t, want, isContext(name), name)
	}
}

// The head names the implementations that were not chosen, and they have no rows. One that is meant
// for a single workload is not missing in the others.
func TestLeftOut(t *testing.T) {
	require.Empty(t, parsed(t).leftOut())
	require.Empty(t, parsed(t, "-workloads", "Fire").leftOut())
	o := parsed(t, "-workloads", "Fire",
		"-impls", "wheel,inline,time,floor,conn,go-zero,gost,siddontang,map")
	require.Equal(t, []string{"heap"}, o.leftOut())
	jobs := parsed(t).jobs()
	for _, j := range jobs {
		special := j.Impl == "precise" || j.Impl == "fine"
		require.True(t, j.Workload == "Punctual" || !special, "%+v", j)
	}
	require.True(t, slices.ContainsFunc(jobs, func(j job) bool { return j.Impl == "precise" }))
	_, err := parse([]string{"-workloads", "Fire", "-impls", "precise"}, io.Discard)
	require.Error(t, err)

	r := sample()
	r.Impls = append(r.Impls, "absent")
	r.draw()
	text := written(t, r)
	require.NotContains(t, text, "absent")
	require.Contains(t, text, "| bad ")
}

// No two implementations look the same in a chart.
func TestEveryImplHasAColour(t *testing.T) {
	for _, th := range []theme{light, dark} {
		require.GreaterOrEqual(t, len(th.lines), len(impls))
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(th.lines))), len(th.lines))
	}
}

// A sample tells a part if it has at least one value beyond it.
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

// Early timers are drawn at the very bottom, below the smallest of the others.
func TestEarlyIsDrawnAtTheBottom(t *testing.T) {
	ms := func(late ...float64) workload.Result {
		r := workload.Result{}
		for _, l := range late {
			r.Lateness = append(r.Lateness, time.Duration(l*float64(time.Millisecond)))
		}
		return r
	}
	r := &report{Impls: []string{"wheel", "time"}, Results: results{}}
	p := place{"Load", 0, 1}
	load := described{"Load", "A load: measures."}
	r.Results.at(p, "wheel").add(ms(2, 3, 4, 5))
	c := r.lateness(load, p, []place{p})
	require.Equal(t, "A load.", c.note)
	require.Equal(t, 2.0, c.lines[0].points[0].y)

	r.Results.at(p, "time").add(ms(-1, 3, 4, 5))
	c = r.lateness(load, p, []place{p})
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
		o := parsed(t, args...)
		r := sample()
		cells := r.Results[place{"Load", 0, 1}]
		r.CPUs = 1 // so that every chart mentions them
		r.Workloads, r.Results = o.described(), results{}
		for _, wl := range o.workloads {
			for _, p := range o.places(wl) {
				r.Results[p] = cells
			}
		}
		r.draw()
		require.NotEmpty(t, r.charts)
		for _, c := range r.charts {
			require.LessOrEqual(t, len(wrap(c.note, noteWidth)), 3, "%s: %s", c.file, c.note)
		}
	}
}
