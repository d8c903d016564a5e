package wheeldebug

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// This file makes the page: one answer with its style and its script in it, and the
// numbers of one reading in tables. The script only brings these up to date and draws,
// by the same attributes and formats: data-v is the path of a value in the JSON of a
// wheel, data-each that of a list of rows, data-k the key of a value in a row, data-f
// the format. Nothing here is guarded by a lock; what is made once does not change.

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// A field is a value with the path or key that it has in the JSON.
type field struct{ Key, Title, Format, Hint string }

// A table is a list in the JSON and its columns.
type table struct {
	Path    string
	Columns []field
}

// The texts of the page about the numbers, in the order in which they are shown.
var (
	counterFields = []field{
		{"started", "Started", "count", "armings of timers that were not pending"},
		{"fired", "Fired", "count", "handed to the executor, sent, or ended"},
		{"stopped", "Stopped", "count", "Stop returned true"},
		{"dropped", "Dropped", "count", "pending when the wheel was stopped"},
		{"pending", "Pending", "count", "started - fired - stopped - dropped"},
		{"reinserted", "Reinserted", "count", "moved by the driver to a finer wheel"},
		{"extended", "Extended", "count", "found to be due later, as Reset had pushed them on"},
	}
	driverFields = []field{
		{"executor", "Executor", "text", "where callbacks run"},
		{"running", "Callbacks running", "count", "handed over and not returned"},
		{"waiting", "Callbacks waiting", "count", "of these, not begun: the executor's backlog"},
		{"driving", "Driver at work", "yes", ""},
		{"alarm_in_ns", "Alarm", "in", "when the driver wakes up next"},
		{"wakeups", "Wake-ups", "count", "times the alarm rang"},
		{"idle_wakeups", "Idle wake-ups", "count", "of these, nothing to do"},
		{"longest_hold", "Longest hold", "count", "most timers handled under one hold of a lock"},
		{"due", "Due", "atleast", "due when armed, waiting for the driver"},
		{"beyond", "Beyond", "atleast", "with deadlines that never come"},
		{"at_ns", "Age of the wheel", "duration", ""},
	}
	latenessFields = []field{
		{"lateness.p50_ns", "Half of them below", "late", ""},
		{"lateness.p99_ns", "99 % below", "late", ""},
		{"lateness.mean_ns", "Mean", "late", ""},
		{"lateness.samples", "Samples", "count", ""},
		{"callback_lateness.p50_ns", "Half of the callbacks below", "late", "when they began: what they waited for an executor is in it"},
		{"callback_lateness.p99_ns", "99 % of the callbacks below", "late", ""},
	}
	overviewTable = table{"wheels", []field{
		{"name", "Wheel", "wheel", ""}, {"state", "State", "state", ""}, {"pending", "Pending", "count", "timers armed now"},
		{"started", "Started", "count", "armings of timers that were not pending"}, {"fired", "Fired", "count", ""}, {"stopped", "Stopped", "count", ""},
		{"running", "Callbacks", "count", "handed over and not returned"}, {"waiting", "Waiting", "count", "of these, not begun: the executor's backlog"},
		{"lateness.p99_ns", "Late, 99 %", "late", "99 % of the timers were less late, since the wheel was made"}, {"at_ns", "Age", "duration", ""},
	}}
	levelTable = table{"levels", []field{
		{"level", "Level", "count", ""}, {"tick_ns", "Tick", "duration", "of one slot"},
		{"lap_ns", "Turn", "used", "of the hand"}, {"now_ns", "Clock", "used", "the wheel's current time"}, {"slots", "Slots", "count", ""},
		{"busy", "In use", "count", "slots that hold timers"}, {"timers", "Timers", "exact", ""},
		{"placed", "Placed", "count", "timers filed here"}, {"reinserted", "Reinserted", "count", "moved to a finer wheel"},
		{"extended", "Extended", "count", ""},
	}}
	queueTable = table{"queue.head", []field{
		{"in_ns", "Wants the driver", "in", ""}, {"level", "Level", "count", ""}, {"shard", "Shard", "count", ""},
	}}
	latenessTable = table{"lateness.bins", []field{
		{"below_ns", "Late by less than", "below", ""}, {"count", "", "bar", ""}, {"count", "Samples", "count", ""},
	}}
	shardTable = table{"shards", []field{
		{"shard", "Shard", "count", ""}, {"pending", "Pending", "count", ""}, {"started", "Started", "count", ""},
		{"fired", "Fired", "count", ""}, {"stopped", "Stopped", "count", ""}, {"dropped", "Dropped", "count", ""},
		{"reinserted", "Reinserted", "count", ""}, {"extended", "Extended", "count", ""}, {"longest_hold", "Longest hold", "count", ""},
	}}
)

// pageData is what page.html is made of.
type pageData struct {
	CSS   template.CSS
	JS    template.JS
	Names []string
	Name  string         // of the wheel shown; empty if there is none, and for the overview
	Wheel map[string]any // its part of the JSON; nil if there is none
	All   map[string]any // the JSON, for the overview; nil for a single wheel
}

// page returns what does not change: the parsed page, and the policy that lets a browser
// run this script and use this style and nothing else. By their hashes, as what is always
// the same needs no nonce.
var page = sync.OnceValues(func() (*template.Template, string) {
	fields := func(in []field) func() []field { return func() []field { return in } }
	tables := func(in table) func() table { return func() table { return in } }
	t := template.Must(template.New("page").Funcs(template.FuncMap{
		"counterFields": fields(counterFields), "driverFields": fields(driverFields), "latenessFields": fields(latenessFields),
		"overviewTable": tables(overviewTable), "levelTable": tables(levelTable), "queueTable": tables(queueTable), "latenessTable": tables(latenessTable), "shardTable": tables(shardTable),
		"at": at, "args": func(args ...any) []any { return args }, "show": show, "width": width,
	}).Parse(pageHTML))
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return t, "default-src 'none'; script-src " + hash(pageJS) + "; style-src " + hash(pageCSS) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

func servePage(w http.ResponseWriter, names []string, chosen []*view) {
	t, policy := page()
	data := pageData{CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Names: names}
	switch {
	case len(chosen) == 1:
		data.Name = chosen[0].name
		mustUnmarshal(chosen[0].read(), &data.Wheel)
	case len(chosen) > 1:
		var all bytes.Buffer
		writeJSON(&all, chosen)
		mustUnmarshal(all.Bytes(), &data.All)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic("wheeldebug: " + err.Error())
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.Write(b.Bytes())
}

// mustUnmarshal reads JSON of our own.
func mustUnmarshal(data []byte, v any) {
	if err := json.Unmarshal(data, v); err != nil {
		panic("wheeldebug: " + err.Error())
	}
}

// at follows a path such as lateness.samples into the JSON.
func at(v any, path string) any {
	for _, key := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// show writes a value of the row, or of the wheel, in a format, as show in page.js does.
// wheel is what count_limit is read from.
func show(format string, v any, row any, wheel map[string]any) string {
	n, isNumber := v.(float64)
	switch format {
	case "count":
		return count(n)
	case "duration":
		return duration(n)
	case "late":
		if n == 0 {
			return "no samples"
		}
		return duration(n)
	case "in":
		switch {
		case !isNumber:
			return "not set"
		case n < 0:
			return "overdue by " + duration(-n)
		}
		return "in " + duration(n)
	case "below":
		if !isNumber {
			return "longer"
		}
		return duration(n)
	case "yes":
		if v == true {
			return "yes"
		}
		return "no"
	case "exact":
		if at(row, "exact") != true {
			estimate, _ := at(row, "estimate").(float64)
			return "≈ " + count(estimate)
		}
		return count(n)
	case "used":
		if slots, _ := at(row, "slots").(float64); slots == 0 {
			return "–"
		}
		return duration(n)
	case "atleast":
		if limit, _ := wheel["count_limit"].(float64); n > 0 && n >= limit {
			return "≥ " + count(n)
		}
		return count(n)
	}
	return fmt.Sprint(v)
}

// width returns how long the bar of a row is, in percent of the longest of the list, on a
// logarithmic scale: one late timer among a million is what one looks for.
func width(v any, rows any) string {
	most := 0.0
	list, _ := rows.([]any)
	for _, row := range list {
		n, _ := at(row, "count").(float64)
		most = max(most, n)
	}
	n, _ := v.(float64)
	return strconv.FormatFloat(100*math.Log1p(n)/math.Log1p(max(most, 1)), 'f', 1, 64)
}

// count writes a whole number with its thousands apart.
func count(n float64) string {
	s := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// duration writes nanoseconds with three digits, or as two units.
func duration(ns float64) string {
	const second = 1e9
	for _, small := range []struct {
		unit float64
		name string
	}{{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}, {second, "s"}} {
		if n := ns / small.unit; n < 999.5 && (small.unit < second || n < 59.95) {
			return digits(n) + " " + small.name
		}
	}
	for _, large := range []struct {
		unit, part float64
		name, rest string
	}{{60, 1, "min", "s"}, {3600, 60, "h", "min"}, {86400, 3600, "d", "h"}} {
		parts := math.Round(ns / second / large.part)
		per := large.unit / large.part
		if limit := map[string]float64{"min": 60, "h": 24, "d": 50_000}[large.name]; parts < limit*per {
			whole, rest := math.Floor(parts/per), math.Mod(parts, per)
			if rest == 0 {
				return count(whole) + " " + large.name
			}
			return count(whole) + " " + large.name + " " + count(rest) + " " + large.rest
		}
	}
	return "never" // 146 years or more
}

// digits writes n, which is below 1000, with three digits, but no zeros at the end.
func digits(n float64) string {
	decimals := 2
	if n >= 9.995 {
		decimals = 1
	}
	if n >= 99.95 {
		decimals = 0
	}
	s := strconv.FormatFloat(n, 'f', decimals, 64)
	if decimals > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
