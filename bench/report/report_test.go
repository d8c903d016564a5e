package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-timingwheel/timingwheel/bench"
)

// TestMain makes the test binary the child of a run too, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		os.Exit(child(os.Args[2]))
	}
	os.Exit(m.Run())
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 100}, 3},
	} {
		given := slices.Clone(c.values)
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(given, c.values) {
			t.Errorf("median changed %v to %v", given, c.values)
		}
	}
}

func TestQuantile(t *testing.T) {
	var sorted []time.Duration
	for i := range 100 {
		sorted = append(sorted, time.Duration(i+1))
	}
	for p, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.999: 100, 1: 100} {
		if got := quantile(sorted, p); got != want {
			t.Errorf("quantile %v is %v, want %v", p, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.0412: "0.041", 1.234: "1.23", 45.67: "45.7", 152.4: "152", 1234567.8: "1,234,568", -4321: "-4,321",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 8: "8", 10_000: "10 k", 1_000_000: "1 M", 2_500_000: "2.5 M"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) is %q, want %q", n, got, want)
		}
	}
}

// sample is a report on made-up figures: two places, three runs.
func sample() *report {
	r := &report{
		about:     []string{"Machine: none"},
		workloads: []bench.Workload{{Name: "Load", What: "a <load> & more"}},
		impls:     []string{"wheel", "inline", "time", "floor", "peer", "bad"},
		results:   results{},
	}
	for _, p := range []place{{"Load", 0, 1}, {"Load", 1_000_000, 1}, {"Load", 0, 2}} {
		for _, f := range []struct {
			impl   string
			factor float64
		}{{"wheel", 60}, {"inline", 480}, {"time", 120}, {"floor", 50}} {
			c := r.results.at(p, f.impl)
			for _, run := range []float64{1.5, 0.5, 1} {
				c.results = append(c.results, bench.Result{
					Metrics:  []bench.Metric{{Name: "time", Unit: "ns/call", Value: f.factor * run}, {Name: "allocs", Unit: "allocs/call", Value: 0.001 * f.factor}},
					Lateness: []time.Duration{-time.Millisecond, time.Millisecond, 3 * time.Millisecond},
				})
			}
		}
		r.results.at(p, "peer").lacks = "Stop"
		r.results.at(p, "bad").failed = "panic: a|b"
	}
	return r
}

func TestReport(t *testing.T) {
	r := sample()
	r.draw()
	var b bytes.Buffer
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"60 (30..90)",  // median and range
		"0.50", "1.20", // 60 to package time's 120, to the floor's 50
		"**4.00**",          // 480 to package time's 120, and the ranges apart
		"*lacks Stop*",      // not faked
		"*failed*",          // not fatal
		`panic: a\|b`,       // and why
		"a &lt;load&gt;",    // not markup
		"load-pending.svg",  // charts are in their section
		"load-procs.svg",    //
		"1 M",               // pending
		"## Where package",  // said plainly
		"- Machine: none\n", //
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
	columns := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if columns != 0 && n != columns {
			t.Errorf("%d columns under %d: %s", n, columns, line)
		}
		columns = n
	}
}

func TestRatioOfNothing(t *testing.T) {
	if q, ok := ratio(summary{median: 5}, summary{}); ok {
		t.Errorf("5 is %v times 0", q)
	}
	if q, ok := ratio(summary{}, summary{median: 5}); !ok || q != 0 {
		t.Errorf("0 is %v times 5, %v", q, ok)
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	r := sample()
	r.draw()
	if len(r.charts) != 5 { // pending, procs, and the lateness of three places
		t.Errorf("%d charts", len(r.charts))
	}
	for _, c := range r.charts {
		svg := c.svg()
		d := xml.NewDecoder(bytes.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", c.file, err)
			}
		}
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			if bytes.Contains(svg, []byte(bad)) {
				t.Errorf("%s contains %s", c.file, bad)
			}
		}
	}
}

func TestDecades(t *testing.T) {
	for _, c := range []struct{ lo, hi, first, last float64 }{
		{12, 340, 10, 500}, {1, 1, 0.5, 2}, {0.03, 4000, 0.01, 10_000}, {10, 100, 10, 100},
	} {
		_, first, last := decades(c.lo, c.hi)
		if first > c.lo || last < c.hi {
			t.Errorf("%v to %v has the axis %v to %v", c.lo, c.hi, first, last)
		}
	}
}

func TestJobsAreInterleaved(t *testing.T) {
	var log bytes.Buffer
	o, err := parse([]string{"-workloads", "startstop", "-impls", "time,wheel", "-runs", "2", "-max-pending", "100000"}, &log)
	if err != nil {
		t.Fatal(err)
	}
	jobs := o.jobs()
	half := len(jobs) / 2
	if jobs[0].Impl != "wheel" || jobs[half].Impl != "time" || jobs[0].place() != jobs[half].place() {
		t.Errorf("the rounds begin with %+v and %+v", jobs[0], jobs[half])
	}
	for _, j := range jobs {
		if j.Pending > 100_000 {
			t.Errorf("%+v is too large", j)
		}
	}
	if _, err := parse([]string{"-impls", "none"}, &log); err == nil {
		t.Error("an unknown implementation was accepted")
	}
}

func TestRunInAChild(t *testing.T) {
	j := job{Workload: "StartStop", Impl: "time", Procs: 1, Duration: time.Millisecond}
	rep := j.run(context.Background(), time.Minute, func(float64) {})
	if rep.Failed != "" || rep.Lacks != "" || len(rep.Result.Metrics) == 0 {
		t.Errorf("%+v", rep)
	}
	j.Impl = "siddontang" // its Stop panics in the child
	if rep := j.run(context.Background(), time.Minute, func(float64) {}); rep.Lacks != "Stop" {
		t.Errorf("%+v", rep)
	}
	// but Fire needs Start alone
	fire := job{Workload: "Fire", Impl: j.Impl, Procs: 1, Duration: 20 * time.Millisecond, N: 1_000}
	if rep := fire.run(context.Background(), time.Minute, func(float64) {}); rep.Failed != "" || rep.Lacks != "" || len(rep.Result.Lateness) == 0 {
		t.Errorf("%+v", rep)
	}
	j.Impl = "none"
	if rep := j.run(context.Background(), time.Minute, func(float64) {}); rep.Failed == "" {
		t.Errorf("%+v", rep)
	}
	if rep := j.run(context.Background(), time.Nanosecond, func(float64) {}); rep.Failed == "" {
		t.Errorf("%+v", rep)
	}
}

func TestSaveReplacesCharts(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.svg")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sample().save(dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 6 || slices.Contains(files, old) {
		t.Errorf("%v, %v", files, err)
	}
}
