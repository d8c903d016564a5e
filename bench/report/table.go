package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-timingwheel/timingwheel/bench"
)

// This file writes the report: one Markdown file.

const (
	nameOfTime  = "time"  // what ratios are against
	nameOfFloor = "floor" // and the least that is possible
)

// ours are this library's implementations.
var ours = []string{"wheel", "inline", nameOfPrecise, "fine"}

// A report is everything that goes into the file.
type report struct {
	about     []string // the machine, the versions, the command: "name: value"
	workloads []bench.Workload
	impls     []string // order of rows and of colours
	results   results
	charts    []chart
	stopped   bool // not all runs were made
}

// places are a workload's places, in the order of its sizes.
func (r *report) places(workload string) []place {
	var ps []place
	for p := range r.results {
		if p.workload == workload {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, func(a, b place) int {
		if a.pending != b.pending {
			return a.pending - b.pending
		}
		return a.procs - b.procs
	})
	return ps
}

// metrics are the metrics of a workload, in its own order: that of whichever run
// has most of them, and whatever else the other runs have.
func (r *report) metrics(workload string) []bench.Metric {
	var most []bench.Metric
	var all []bench.Metric
	for _, p := range r.places(workload) {
		for _, im := range r.impls {
			c := r.results[p][im]
			if c == nil {
				continue
			}
			for _, res := range c.results {
				if len(res.Metrics) > len(most) {
					most = res.Metrics
				}
				all = append(all, res.Metrics...)
			}
		}
	}
	ms := slices.Clone(most)
	for _, m := range all {
		if !slices.ContainsFunc(ms, func(o bench.Metric) bool { return o.Name == m.Name }) {
			ms = append(ms, m)
		}
	}
	return ms
}

func (r *report) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Benchmark report\n\n")
	if r.stopped {
		b.WriteString("**Interrupted: not all runs were made.**\n\n")
	}
	for _, line := range r.about {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString(`
A figure is the median of the runs, with the smallest and the largest behind it.
Every run is a process of its own, and each round of runs goes over all
implementations before the next begins. "× time" is the multiple of package time's
median, "× floor" that of the floor: the least that any thread-safe timer must do
for that call, measured beside the rest. **Bold** is where package time wins: where
its worst run is better than the implementation's best, so that their ranges do not
overlap. Of a single run nobody knows the spread, and the least difference counts. An
implementation that does not have a call that a workload needs *lacks* it.

`)
	r.writeSummary(&b)
	r.writeComparisons(&b)
	r.writeLosses(&b)
	for _, wl := range r.workloads {
		r.writeWorkload(&b, wl)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeSummary sets this library against package time and the floor: by the time
// of a call, or by all that a workload measures which has no such thing.
func (r *report) writeSummary(b *strings.Builder) {
	rows := [][]string{{"workload", "pending", "procs", "measured", "implementation", "median", "package time", "floor", "× time", "× floor"}}
	for _, wl := range r.workloads {
		ms := r.metrics(wl.Name)
		if len(ms) == 0 {
			continue
		}
		if strings.HasSuffix(ms[0].Unit, "/call") {
			ms = ms[:1]
		}
		for _, p := range r.places(wl.Name) {
			for _, m := range ms {
				if isContext(m) {
					continue
				}
				for _, im := range ours {
					s, ok := r.results[p][im].metric(m.Name)
					if !ok {
						continue
					}
					rows = append(rows, []string{
						wl.Name, count(p.pending), strconv.Itoa(p.procs), m.Name, im,
						strings.TrimSpace(number(s.median) + " " + m.Unit),
						r.median(p, nameOfTime, m), r.median(p, nameOfFloor, m),
						r.ratio(p, im, nameOfTime, m), r.ratio(p, im, nameOfFloor, m),
					})
				}
			}
		}
	}
	if len(rows) > 1 {
		b.WriteString("## Beside package time and the floor\n\n")
		table(b, rows, 5)
	}
}

// writeLosses lists what a reader should know first: where package time is the
// better choice.
func (r *report) writeLosses(b *strings.Builder) {
	rows := [][]string{{"workload", "pending", "procs", "measured", "implementation", "median", "package time", "× time"}}
	compared, unclear := 0, 0
	for _, wl := range r.workloads {
		for _, p := range r.places(wl.Name) {
			for _, m := range r.metrics(wl.Name) {
				t, ok := r.results[p][nameOfTime].metric(m.Name)
				if !ok || isContext(m) {
					continue
				}
				for _, im := range ours {
					s, ok := r.results[p][im].metric(m.Name)
					if !ok {
						continue
					}
					compared++
					switch {
					case wins(t, s):
						rows = append(rows, []string{
							wl.Name, count(p.pending), strconv.Itoa(p.procs), m.Name, im,
							strings.TrimSpace(number(s.median) + " " + m.Unit), r.median(p, nameOfTime, m), r.ratio(p, im, nameOfTime, m),
						})
					case t.median < s.median:
						unclear++
					}
				}
			}
		}
	}
	if compared == 0 {
		return
	}
	fmt.Fprintf(b, "## Where package time wins\n\n%d of %d comparisons: its worst run is better than the implementation's best.", len(rows)-1, compared)
	if unclear > 0 {
		fmt.Fprintf(b, "\nIn %d more its median is better, but the ranges overlap.", unclear)
	}
	b.WriteString("\n\n")
	if len(rows) > 1 {
		table(b, rows, 5)
	}
}

// writeWorkload has every figure of a workload: a row for each implementation at
// each place, a column for each metric.
func (r *report) writeWorkload(b *strings.Builder, wl bench.Workload) {
	ps, ms := r.places(wl.Name), r.metrics(wl.Name)
	if len(ps) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n%s.\n\n", wl.Name, escape(strings.TrimRight(wl.What, ".")))
	for _, c := range r.charts {
		if c.workload == wl.Name {
			fmt.Fprintf(b, "![%s](%s)\n\n", escape(c.title), c.file)
		}
	}
	head := []string{"pending", "procs", "implementation"}
	for _, m := range ms {
		head = append(head, strings.TrimSuffix(m.Name+", "+m.Unit, ", "))
		if r.hasRatio(wl.Name, m, nameOfTime) {
			head = append(head, "× time")
		}
		if r.hasRatio(wl.Name, m, nameOfFloor) {
			head = append(head, "× floor")
		}
	}
	if len(ms) == 0 {
		head = append(head, "result")
	}
	rows := [][]string{head}
	var failures []string
	for _, p := range ps {
		for _, im := range r.impls {
			c := r.results[p][im]
			if c == nil || len(c.results) == 0 && c.lacks == "" && c.failed == "" {
				continue // left out, or interrupted: the head of the report says so
			}
			row := []string{count(p.pending), strconv.Itoa(p.procs), im}
			for _, m := range ms {
				row = append(row, r.figure(p, im, m))
				if r.hasRatio(wl.Name, m, nameOfTime) {
					row = append(row, r.ratio(p, im, nameOfTime, m))
				}
				if r.hasRatio(wl.Name, m, nameOfFloor) {
					row = append(row, r.ratio(p, im, nameOfFloor, m))
				}
			}
			if len(c.results) == 0 {
				word := "*failed*"
				if c.lacks != "" {
					word = "*lacks " + c.lacks + "*"
				}
				row = append(row[:3], append([]string{word}, slices.Repeat([]string{""}, len(head)-4)...)...)
			}
			rows = append(rows, row)
			if c.failed != "" {
				failures = append(failures, fmt.Sprintf("- %s, %s pending, %d procs: %s", im, count(p.pending), p.procs, escape(c.failed)))
			}
		}
	}
	if len(rows) > 1 {
		table(b, rows, 3)
	}
	if len(failures) > 0 {
		fmt.Fprintf(b, "Failed runs:\n\n%s\n\n", strings.Join(failures, "\n"))
	}
}

// hasRatio reports that some row of the workload has a ratio of m against of.
func (r *report) hasRatio(workload string, m bench.Metric, of string) bool {
	for _, p := range r.places(workload) {
		for _, im := range r.impls {
			if im != of && r.ratio(p, im, of, m) != "" {
				return true
			}
		}
	}
	return false
}

// figure is the median and the range.
func (r *report) figure(p place, impl string, m bench.Metric) string {
	s, ok := r.results[p][impl].metric(m.Name)
	if !ok {
		return ""
	}
	if s.runs == 1 || s.min == s.max {
		return number(s.median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.median), number(s.min), number(s.max))
}

func (r *report) median(p place, impl string, m bench.Metric) string {
	if s, ok := r.results[p][impl].metric(m.Name); ok {
		return number(s.median)
	}
	return ""
}

// ratio is empty where there is none to give, and bold where package time wins.
func (r *report) ratio(p place, impl, of string, m bench.Metric) string {
	a, ok1 := r.results[p][impl].metric(m.Name)
	b, ok2 := r.results[p][of].metric(m.Name)
	if !ok1 || !ok2 || impl == of || isContext(m) {
		return ""
	}
	lost := of == nameOfTime && impl != nameOfFloor && wins(b, a)
	text := ""
	if q, ok := ratio(a, b); ok {
		text = multiple(q)
	} else if lost {
		text = "more" // than nothing, of which there is no multiple
	}
	if lost && text != "" {
		return "**" + text + "**"
	}
	return text
}

// multiple writes how many times something is something else.
func multiple(q float64) string {
	if q >= 100 || q > 0 && q < 0.1 {
		return number(q)
	}
	return fmt.Sprintf("%.2f", q)
}

// number writes a value with three significant digits or all before the point.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "?"
	case a >= 100 || v == math.Trunc(v):
		return groups(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// groups separates thousands: 1,234,567.
func groups(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// count writes a number of timers: 0, 100 k, 1 M.
func count(n int) string {
	switch {
	case n >= 1e6 && n%1e5 == 0:
		return strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64) + " M"
	case n >= 1e3 && n%1e3 == 0:
		return strconv.Itoa(n/1e3) + " k"
	}
	return strconv.Itoa(n)
}

// escape keeps text from being taken for Markdown or a table's border.
func escape(s string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`, "_", `\_`, "`", "'").Replace(s)
}

// table writes rows as a Markdown table whose columns stand under each other in
// the source too. Columns from right on are figures.
func table(b *strings.Builder, rows [][]string, right int) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], len([]rune(c)), 3)
		}
	}
	line := func(row []string) {
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(c)))
			if i >= right {
				b.WriteString("| " + pad + c + " ")
			} else {
				b.WriteString("| " + c + pad + " ")
			}
		}
		b.WriteString("|\n")
	}
	line(rows[0])
	for i := range rows[0] {
		if i >= right {
			b.WriteString("|" + strings.Repeat("-", width[i]+1) + ":")
		} else {
			b.WriteString("|" + strings.Repeat("-", width[i]+2))
		}
	}
	b.WriteString("|\n")
	for _, row := range rows[1:] {
		line(row)
	}
	b.WriteString("\n")
}
