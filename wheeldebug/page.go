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

// This file makes the page: one answer that contains its style, its script, and the numbers of one
// reading in tables. The script updates the tables and draws. Both use the same attributes and
// formats: data-v is the path of a value in the JSON of a wheel, data-each that of a list of rows,
// data-k the key of a value in a row, and data-f the format. No lock is needed: the parsed page
// does not change.

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// A field is a value of the page. Key is its path in the JSON of a wheel, or of a row.
type field struct{ Key, Title, Format, Hint string }

// A table shows the list at Path in the JSON.
type table struct {
	Path    string
	Columns []field
}

// shown has the numbers on the page and their texts, in the order of the page.
var shown = struct {
	Counters, Driver, Lateness            []field
	Overview, Levels, Queue, Bins, Shards table
}{
	Counters: []field{
		{"started", "Started", "count", "armings of timers that were not pending"},
		{"fired", "Fired", "count", "handed to the executor, sent, or ended"},
		{"stopped", "Stopped", "count", "Stop returned true"},
		{"dropped", "Dropped", "count", "pending when the wheel was stopped"},
		{"pending", "Pending", "count", "started - fired - stopped - dropped"},
		{"reinserted", "Reinserted", "count", "moved by the driver to a finer wheel"},
		{"extended", "Extended", "count", "found to be due later, because Reset extended them"},
	},
	Driver: []field{
		{"executor", "Executor", "text", "where callbacks run"},
		{"running", "Callbacks running", "count", "handed over and not returned"},
		{"waiting", "Callbacks waiting", "count", "of these, not begun: the executor's backlog"},
		{"driving", "Driver at work", "yes", ""},
		{"alarm_in_ns", "Alarm", "in", "when the driver wakes up next"},
		{"wakeups", "Wake-ups", "count", "times the alarm rang"},
		{"idle_wakeups", "Idle wake-ups", "count", "of these, found nothing to do"},
		{"longest_hold", "Longest hold", "count", "most timers handled under one hold of a lock"},
		{"due", "Due", "atleast", "timers due when armed, waiting for the driver"},
		{"beyond", "Beyond", "atleast", "timers whose deadlines never come"},
		{"at_ns", "Age of the wheel", "duration", ""},
	},
	Lateness: []field{
		{"lateness.p50_ns", "Half of the timers below", "late", ""},
		{"lateness.p99_ns", "99 % of the timers below", "late", ""},
		{"lateness.mean_ns", "Mean", "late", ""},
		{"lateness.samples", "Samples", "count", ""},
		{"callback_lateness.p50_ns", "Half of the callbacks below", "late",
			"when they began, including their wait for an executor"},
		{"callback_lateness.p99_ns", "99 % of the callbacks below", "late", ""},
	},
	Overview: table{"wheels", []field{
		{"name", "Wheel", "wheel", ""},
		{"state", "State", "state", ""},
		{"pending", "Pending", "count", "timers armed now"},
		{"started", "Started", "count", "armings of timers that were not pending"},
		{"fired", "Fired", "count", ""},
		{"stopped", "Stopped", "count", ""},
		{"running", "Callbacks", "count", "handed over and not returned"},
		{"waiting", "Waiting", "count", "of these, not begun: the executor's backlog"},
		{"lateness.p99_ns", "Late, 99 %", "late", "99 % of all timers were less late"},
		{"at_ns", "Age", "duration", ""},
	}},
	Levels: table{"levels", []field{
		{"level", "Level", "count", ""},
		{"tick_ns", "Tick", "duration", "of one slot"},
		{"lap_ns", "Turn", "used", "of the hand"},
		{"now_ns", "Clock", "used", "the wheel's current time"},
		{"slots", "Slots", "count", ""},
		{"busy", "In use", "count", "slots that hold timers"},
		{"timers", "Timers", "exact", ""},
		{"placed", "Placed", "count", "timers filed here"},
		{"reinserted", "Reinserted", "count", "moved to a finer wheel"},
		{"extended", "Extended", "count", "found to be due later"},
	}},
	Queue: table{"queue.head", []field{
		{"in_ns", "Needs the driver", "in", ""},
		{"level", "Level", "count", ""},
		{"shard", "Shard", "count", ""},
	}},
	Bins: table{"lateness.bins", []field{
		{"below_ns", "Late by less than", "below", ""},
		{"count", "", "bar", ""},
		{"count", "Samples", "count", ""},
	}},
	Shards: table{"shards", []field{
		{"shard", "Shard", "count", ""},
		{"pending", "Pending", "count", ""},
		{"started", "Started", "count", ""},
		{"fired", "Fired", "count", ""},
		{"stopped", "Stopped", "count", ""},
		{"dropped", "Dropped", "count", ""},
		{"reinserted", "Reinserted", "count", ""},
		{"extended", "Extended", "count", ""},
		{"longest_hold", "Longest hold", "count", ""},
	}},
}

// pageData is what page.html is made of.
type pageData struct {
	CSS   template.CSS
	JS    template.JS
	Names []string
	Name  string         // of the wheel shown; empty if there is none, and for the overview
	Wheel map[string]any // its part of the JSON; nil if there is none
	All   map[string]any // the JSON, for the overview; nil for a single wheel
	Shown any            // shown
}

// page returns the parsed page, and the policy that lets a browser run this script and use this
// style and nothing else. The policy names them by their hashes: they never change, so they need no
// nonce.
var page = sync.OnceValues(func() (*template.Template, string) {
	t := template.Must(template.New("page").Funcs(template.FuncMap{
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
	data := pageData{
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Names: names, Shown: shown,
	}
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

// mustUnmarshal decodes JSON that this package has encoded.
func mustUnmarshal(data []byte, v any) {
	if err := json.Unmarshal(data, v); err != nil {
		panic("wheeldebug: " + err.Error())
	}
}

// at returns the value at a path such as lateness.samples in the JSON.
func at(v any, path string) any {
	for _, key := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// show formats a value of a row, or of a wheel, as show in page.js does.
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

// width returns the length of a row's bar in percent of the longest one. The scale is logarithmic,
// so that one late timer among a million shows.
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

// count formats a whole number with commas between the thousands.
func count(n float64) string {
	s := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// duration formats nanoseconds with three digits, or as two units.
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
		limit      float64 // of the unit
	}{{60, 1, "min", "s", 60}, {3600, 60, "h", "min", 24}, {86400, 3600, "d", "h", 50_000}} {
		parts := math.Round(ns / second / large.part)
		per := large.unit / large.part
		if parts < large.limit*per {
			whole, rest := math.Floor(parts/per), math.Mod(parts, per)
			if rest == 0 {
				return count(whole) + " " + large.name
			}
			return count(whole) + " " + large.name + " " + count(rest) + " " + large.rest
		}
	}
	return "never" // 146 years or more
}

// digits formats n, which is below 1000, with three digits, without zeros at the end.
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
