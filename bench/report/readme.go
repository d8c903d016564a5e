package main

import (
	"fmt"
	"os"
	"strings"
)

// This file writes the table of figures in README.md, so that it cannot differ from the results.

// The table stands between these lines.
const (
	readmeBegin = "<!-- figures: written by go run ./bench/report, do not edit -->"
	readmeEnd   = "<!-- end of figures -->"
)

// A readmeRow is a row of the table: a figure of ours beside package time's and the floor's, on one
// proc unless procs says otherwise.
type readmeRow struct {
	label string
	figure
	pending, procs int
	other          figure // package time's figure, if not the same
	remark         string // after package time's figure
}

const million = 1_000_000

var (
	startStop = figure{"StartStop", "wheel", "time"}
	touchHot  = figure{"TouchHot", "wheel", "time"}
)

var readmeRows = []readmeRow{
	{label: "start and stop a timer", figure: startStop},
	{label: "the same with a million pending", figure: startStop, pending: million},
	{label: "the same with ten million pending", figure: startStop, pending: 10 * million},
	{label: "the same on two processors at once", figure: startStop, procs: 2},
	{
		label:  "stop a random one of a million and start another",
		figure: figure{"Churn", "wheel", "time"}, pending: million,
	},
	{label: "extend a timeout, `Reset` to later", figure: touchHot},
	{
		label:  "extend it with the caller's clock, `ResetAt`",
		figure: figure{"TouchAt", "wheel", "time"}, other: touchHot, remark: " (`Reset`)",
	},
	{
		label:  "extend a random one of a million",
		figure: figure{"TouchRandom", "wheel", "time"}, pending: million,
	},
	{label: "reset to a random time", figure: figure{"Rearm", "wheel", "time"}},
	{
		label:  "touch a million idle timeouts, CPU per touch",
		figure: figure{"IdleServer", "wheel", "cpu"},
	},
	{
		label:  "an unrelated timer beside them, latest",
		figure: figure{"IdleServer", "wheel", "late max"},
	},
	{label: "fire a million in 3 s, CPU per timer", figure: figure{"Fire", "wheel", "cpu"}},
	{label: "the same, inline", figure: figure{"Fire", "inline", "cpu"}},
	{label: "lateness of a million in 3 s, p50", figure: figure{"Fire", "wheel", "late p50"}},
	{label: "the same, p99", figure: figure{"Fire", "wheel", "late p99"}},
	{
		label:  "lateness with a 100 us tick and `WithPreciseWakeup`, p50",
		figure: figure{"Punctual", nameOfPrecise, "late p50"},
	},
	{label: "the same, p99", figure: figure{"Punctual", nameOfPrecise, "late p99"}},
	{
		label:  "memory of a pending timer",
		figure: figure{"Memory", "wheel", "timer"}, pending: million,
	},
	{
		label:  "CPU of a garbage collection with a million pending",
		figure: figure{"GC", "wheel", "cpu"}, pending: million,
	},
}

// readmeTable writes the table, with what it was measured on below it.
func (r *report) readmeTable() (string, error) {
	var b strings.Builder
	b.WriteString("| | this | package time | floor | this / package time |\n")
	b.WriteString("|---|---:|---:|---:|---:|\n")
	for _, row := range readmeRows {
		at := place{row.workload, row.pending, max(row.procs, 1)}
		own, ok := r.Results[at][row.impl].metric(row.metric)
		if !ok {
			return "", fmt.Errorf("the results have no figure for %q", row.label)
		}
		unit := r.unit(row.workload, row.metric)
		show := func(s summary, ok bool) string {
			if !ok {
				return ""
			}
			return readmeNumber(s.median, unit)
		}
		otherAt, metric := at, row.metric
		if row.other.workload != "" {
			otherAt.Workload, metric = row.other.workload, row.other.metric
		}
		other, okOther := r.Results[otherAt][nameOfTime].metric(metric)
		floor, okFloor := r.Results[at][nameOfFloor].metric(row.metric)
		q := ""
		if v, ok := ratio(own, other); ok {
			q = multiple(v)
		}
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s | %s |\n", row.label,
			show(own, true), show(other, okOther), row.remark, show(floor, okFloor), q)
	}
	rounds := "One round"
	if r.Runs > 1 {
		rounds = fmt.Sprintf("Medians of %d rounds", r.Runs)
	}
	source := rounds + " of " + r.Source + "."
	for _, line := range wrap(source, 100) {
		b.WriteString("\n" + line)
	}
	return b.String() + "\n", nil
}

// readmeNumber writes a figure with its unit, nanoseconds and bytes without a fraction.
func readmeNumber(v float64, unit string) string {
	unit, _, _ = strings.Cut(unit, "/") // ns/call
	switch {
	case unit == "ns" || unit == "B" || v >= 10:
		return groups(fmt.Sprintf("%.0f", v)) + " " + unit
	case v >= 2.95:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

// readmeWith returns the text of a README with another table between the two lines.
func readmeWith(file, table string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	before, rest, ok1 := strings.Cut(string(text), readmeBegin+"\n")
	_, after, ok2 := strings.Cut(rest, readmeEnd)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("%s has no lines %q and %q", file, readmeBegin, readmeEnd)
	}
	return before + readmeBegin + "\n\n" + table + "\n" + readmeEnd + after, nil
}

// rewriteReadme writes the table into a file.
func (r *report) rewriteReadme(file string) error {
	table, err := r.readmeTable()
	if err != nil {
		return err
	}
	text, err := readmeWith(file, table)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
