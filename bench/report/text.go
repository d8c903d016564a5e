package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// This file writes the report as one Markdown file.

const (
	nameOfTime    = "time"    // package time
	nameOfFloor   = "floor"   // the least that is possible
	nameOfConn    = "conn"    // what servers use without a wheel
	nameOfPrecise = "precise" // this library with WithPreciseWakeup
)

// ours are this library's implementations.
var ours = []string{"wheel", "inline", nameOfPrecise, "fine"}

// A report is everything that the files show.
type report struct {
	About     []string // the machine, the versions, the command: "name: value"
	Warning   string   `json:",omitempty"` // why the figures should not be trusted
	Stopped   bool     `json:",omitempty"` // some runs were not made
	Source    string   // machine, Go version, commit and date in one line, for the README
	CPUs      int
	Runs      int
	Workloads []described
	Impls     []string // the order of rows and of colours
	Results   results

	charts []chart
}

// A described is a workload as the report describes it.
type described struct{ Name, What string }

// places returns a workload's places in order of size.
func (r *report) places(workload string) []place {
	var ps []place
	for p := range r.Results {
		if p.Workload == workload {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, comparePlaces)
	return ps
}

// A metric is a metric's name and unit.
type metric struct{ name, unit string }

// metrics returns the metrics of a workload in its own order: those of the cell that has the most,
// and after them those that only other cells have.
func (r *report) metrics(workload string) []metric {
	var cells []*cell
	for _, p := range r.places(workload) {
		for _, im := range r.Impls {
			if c := r.Results[p][im]; c != nil {
				cells = append(cells, c)
			}
		}
	}
	slices.SortStableFunc(cells, func(a, b *cell) int { return len(b.Metrics) - len(a.Metrics) })
	var ms []metric
	for _, c := range cells {
		for _, s := range c.Metrics {
			if m := (metric{s.Name, s.Unit}); !slices.Contains(ms, m) {
				ms = append(ms, m)
			}
		}
	}
	return ms
}

func (r *report) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Benchmark report\n\n")
	if r.Warning != "" {
		fmt.Fprintf(&b, "**%s**\n\n", r.Warning)
	}
	if r.Stopped {
		b.WriteString("**Interrupted: some runs were not made.**\n\n")
	}
	for _, line := range r.About {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString(`
Each figure is the median of the runs, followed by the smallest and the largest in parentheses.
Every run is a process of its own. Each round runs everything once before the next round begins.
Less is better in every comparison.

"× time" is the median divided by package time's, and "× floor" is the median divided by the
floor's. The floor is the least work that a thread-safe timer must do for the call, measured in the
same rounds. **Bold** marks where package time wins: its worst run is better than the
implementation's best run. With a single run any difference counts.

The row of an implementation says what it *lacks* if it has no call that the workload needs, and
*failed* if no run ended in time. Where single calls are timed, inline has no rows, because it
differs from wheel only when timers fire.

`)
	r.writeSummary(&b)
	r.writeComparisons(&b)
	r.writeLosses(&b)
	for _, wl := range r.Workloads {
		r.writeWorkload(&b, wl)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A row is a figure of ours in the tables that compare it with package time.
type row struct {
	place
	metric
	impl string
	summary
}

// eachOwn calls f for every figure of this library's implementations for which less is better.
func (r *report) eachOwn(f func(row)) {
	for _, wl := range r.Workloads {
		ms := r.metrics(wl.Name)
		for _, p := range r.places(wl.Name) {
			for _, m := range ms {
				if isContext(m.name) {
					continue
				}
				for _, im := range ours {
					if s, ok := r.Results[p][im].metric(m.name); ok {
						f(row{p, m, im, s})
					}
				}
			}
		}
	}
}

// ownHead are the titles of row.cells.
var ownHead = []string{"workload", "pending", "procs", "measured", "implementation", "median"}

func (o row) cells() []string {
	return append([]string{o.Workload, count(o.Pending), strconv.Itoa(o.Procs)},
		o.name, o.impl, withUnit(o.median, o.unit))
}

// writeSummary compares this library with package time and the floor. For a workload that times
// single calls it shows only the time.
func (r *report) writeSummary(b *strings.Builder) {
	rows := [][]string{append(slices.Clone(ownHead), "package time", "floor", "× time", "× floor")}
	r.eachOwn(func(o row) {
		if strings.HasSuffix(o.unit, "/call") && o.name != "time" {
			return
		}
		p, m := o.place, o.name
		rows = append(rows, append(o.cells(),
			r.median(p, nameOfTime, m), r.median(p, nameOfFloor, m),
			r.ratio(p, o.impl, nameOfTime, m), r.ratio(p, o.impl, nameOfFloor, m)))
	})
	if len(rows) > 1 {
		b.WriteString("## Beside package time and the floor\n\n")
		table(b, rows, 5)
	}
}

// writeLosses lists where package time is the better choice.
func (r *report) writeLosses(b *strings.Builder) {
	rows := [][]string{append(slices.Clone(ownHead), "package time", "× time")}
	compared, unclear := 0, 0
	r.eachOwn(func(o row) {
		t, ok := r.Results[o.place][nameOfTime].metric(o.name)
		if !ok {
			return
		}
		compared++
		switch {
		case wins(t, o.summary):
			rows = append(rows, append(o.cells(), number(t.median),
				r.ratio(o.place, o.impl, nameOfTime, o.name)))
		case t.median < o.median:
			unclear++
		}
	})
	if compared == 0 {
		return
	}
	fmt.Fprintf(b, "## Where package time wins\n\n"+
		"In %d of %d comparisons its worst run is better than the implementation's best.",
		len(rows)-1, compared)
	if unclear > 0 {
		fmt.Fprintf(b, "\nIn %d more its median is better, but the ranges overlap.", unclear)
	}
	b.WriteString("\n\n")
	if len(rows) > 1 {
		table(b, rows, 5)
	}
}

// writeWorkload writes every figure of a workload: a row for each implementation at each place, and
// a column for each metric.
func (r *report) writeWorkload(b *strings.Builder, wl described) {
	ps, ms := r.places(wl.Name), r.metrics(wl.Name)
	if len(ps) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n%s\n\n", wl.Name, strings.Join(wrap(escape(wl.What), 100), "\n"))
	for _, c := range r.charts {
		if c.workload == wl.Name {
			fmt.Fprintf(b, "![%s](%s)\n\n", escape(c.title), c.file)
		}
	}
	// A metric that has ratios to package time or to the floor gets a column for them.
	head := []string{"pending", "procs", "implementation"}
	type column func(p place, impl string) string
	var columns []column
	add := func(title string, c column) { head, columns = append(head, title), append(columns, c) }
	for _, m := range ms {
		add(strings.TrimSuffix(m.name+", "+m.unit, ", "),
			func(p place, impl string) string { return r.figure(p, impl, m.name) })
		for _, of := range []string{nameOfTime, nameOfFloor} {
			if r.hasRatio(wl.Name, m.name, of) {
				add("× "+of,
					func(p place, impl string) string { return r.ratio(p, impl, of, m.name) })
			}
		}
	}
	if len(ms) == 0 {
		head = append(head, "result")
	}
	rows := [][]string{head}
	var failures []string
	for _, p := range ps {
		for _, im := range r.Impls {
			c := r.Results[p][im]
			if c.empty() {
				continue // the head of the report says what was left out
			}
			row := []string{count(p.Pending), strconv.Itoa(p.Procs), im}
			switch {
			case len(c.Metrics) > 0:
				for _, column := range columns {
					row = append(row, column(p, im))
				}
			case c.Lacks != "":
				row = append(row, "*lacks "+c.Lacks+"*")
			default:
				row = append(row, "*failed*")
			}
			rows = append(rows, append(row, make([]string, len(head)-len(row))...))
			if c.Failed != "" {
				failures = append(failures, fmt.Sprintf("- %s, %s pending, %d procs: %s",
					im, count(p.Pending), p.Procs, escape(c.Failed)))
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

// hasRatio reports whether some row of the workload has a ratio of the metric to that of another
// implementation.
func (r *report) hasRatio(workload, metric, of string) bool {
	for _, p := range r.places(workload) {
		for _, im := range r.Impls {
			if im != of && r.ratio(p, im, of, metric) != "" {
				return true
			}
		}
	}
	return false
}

// figure writes the median and the range.
func (r *report) figure(p place, impl, metric string) string {
	s, ok := r.Results[p][impl].metric(metric)
	if !ok {
		return ""
	}
	if s.runs == 1 || s.min == s.max {
		return number(s.median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.median), number(s.min), number(s.max))
}

func (r *report) median(p place, impl, metric string) string {
	if s, ok := r.Results[p][impl].metric(metric); ok {
		return number(s.median)
	}
	return ""
}

// ratio is empty where there is none, and bold where package time wins.
func (r *report) ratio(p place, impl, of, metric string) string {
	a, ok1 := r.Results[p][impl].metric(metric)
	b, ok2 := r.Results[p][of].metric(metric)
	if !ok1 || !ok2 || impl == of || isContext(metric) {
		return ""
	}
	lost := of == nameOfTime && impl != nameOfFloor && wins(b, a)
	text := ""
	if q, ok := ratio(a, b); ok {
		text = multiple(q)
	} else if lost {
		text = "more" // than zero
	}
	if lost && text != "" {
		return "**" + text + "**"
	}
	return text
}

// multiple writes a ratio.
func multiple(q float64) string {
	if q >= 100 || q > 0 && q < 0.1 {
		return number(q)
	}
	return fmt.Sprintf("%.2f", q)
}

// number writes a value with three significant digits, or with all digits before the point.
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

func withUnit(v float64, unit string) string { return strings.TrimSpace(number(v) + " " + unit) }

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

// escape keeps text from being read as Markdown or as a table's border.
func escape(s string) string {
	return strings.NewReplacer(
		"\n", " ", "|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`, "_", `\_`, "`", "'",
	).Replace(s)
}

// table writes rows as a Markdown table whose columns are aligned in the source too. The columns
// from right on are right-aligned.
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
