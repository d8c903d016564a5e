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

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
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
		require.Equal(t, c.want, median(c.values))
		require.Equal(t, given, c.values, "median changed its argument")
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.0412: "0.041", 1.234: "1.23", 45.67: "45.7", 152.4: "152",
		1234567.8: "1,234,568", -4321: "-4,321",
	} {
		require.Equal(t, want, number(v))
	}
	for n, want := range map[int]string{
		0: "0", 8: "8", 10_000: "10 k", 1_000_000: "1 M", 2_500_000: "2.5 M",
	} {
		require.Equal(t, want, count(n))
	}
}

// sample is a report on made-up figures: three places, three runs.
func sample() *report {
	r := &report{
		About:     []string{"Machine: none"},
		CPUs:      2,
		Runs:      3,
		Workloads: []described{{"Load", "A <load> & more."}},
		Impls:     []string{"wheel", "inline", "time", "floor", "peer", "bad"},
		Results:   results{},
	}
	for _, p := range []place{{"Load", 0, 1}, {"Load", 1_000_000, 1}, {"Load", 0, 2}} {
		for _, f := range []struct {
			impl   string
			factor float64
		}{{"wheel", 60}, {"inline", 480}, {"time", 120}, {"floor", 50}} {
			for _, run := range []float64{1.5, 0.5, 1} {
				r.Results.at(p, f.impl).add(workload.Result{
					Metrics: []workload.Metric{
						{Name: "time", Unit: "ns/call", Value: f.factor * run},
						{Name: "allocs", Unit: "allocs/call", Value: 0.001 * f.factor},
					},
					Lateness: []time.Duration{-1e6, 1e6, 3e6},
				})
			}
		}
		r.Results.at(p, "peer").Lacks = "Stop"
		r.Results.at(p, "bad").Failed = "panic: a|b"
	}
	return r
}

func written(t *testing.T, r *report) string {
	var b bytes.Buffer
	require.NoError(t, r.write(&b))
	return b.String()
}

func TestReport(t *testing.T) {
	r := sample()
	r.Warning = "Beware."
	r.draw()
	text := written(t, r)
	for _, want := range []string{
		"60 (30..90)",  // median and range
		"0.50", "1.20", // 60 to package time's 120, to the floor's 50
		"**4.00**",          // 480 to package time's 120, and the ranges apart
		"*lacks Stop*",      // not emulated
		"*failed*",          // not fatal
		`panic: a\|b`,       // and why
		"A &lt;load&gt;",    // not markup
		"load-pending.svg",  // charts are in their section
		"load-procs.svg",    //
		"1 M",               // pending
		"## Where package",  //
		"- Machine: none\n", //
		"**Beware.**",       //
	} {
		require.Contains(t, text, want)
	}
	columns := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 104, line)
			continue
		}
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if columns != 0 {
			require.Equal(t, columns, n, line)
		}
		columns = n
	}
}

// A report that was stored and loaded is the same report.
func TestStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), resultsFile)
	r := sample()
	require.NoError(t, r.store(file))
	loaded, err := load(file)
	require.NoError(t, err)
	require.Equal(t, r, loaded)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 18, bytes.Count(text, []byte("\n")), "a line for each cell")
}

func TestRatioOfNothing(t *testing.T) {
	_, ok := ratio(summary{median: 5}, summary{})
	require.False(t, ok)
	q, ok := ratio(summary{}, summary{median: 5})
	require.True(t, ok)
	require.Zero(t, q)
}

func TestChartsAreWellFormed(t *testing.T) {
	r := sample()
	r.draw()
	require.Len(t, r.charts, 5) // pending, procs, and the lateness of three places
	for _, c := range r.charts {
		svg := c.svg()
		d := xml.NewDecoder(bytes.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, c.file)
		}
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			require.NotContains(t, string(svg), bad, c.file)
		}
	}
}

func TestDecades(t *testing.T) {
	for _, c := range []struct{ lo, hi, first, last float64 }{
		{12, 340, 10, 500}, {1, 1, 0.5, 2}, {0.03, 4000, 0.01, 10_000}, {10, 100, 10, 100},
	} {
		_, first, last := decades(c.lo, c.hi)
		require.LessOrEqual(t, first, c.lo)
		require.GreaterOrEqual(t, last, c.hi)
	}
}

// parsed returns the options of a command line at the top of the repository.
func parsed(t *testing.T, args ...string) options {
	t.Chdir(filepath.Join("..", ".."))
	defer t.Chdir(filepath.Join("bench", "report"))
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	return o
}

func TestJobsAreInterleaved(t *testing.T) {
	o := parsed(t, "-workloads", "startstop", "-impls", "time,wheel",
		"-runs", "2", "-max-pending", "100000")
	jobs := o.jobs()
	half := len(jobs) / 2
	require.Equal(t, "wheel", jobs[0].Impl)
	require.Equal(t, "time", jobs[half].Impl)
	require.Equal(t, jobs[0].place(), jobs[half].place())
	require.Equal(t, 1, jobs[half-1].Round)
	require.Equal(t, 2, jobs[half].Round)
	for _, j := range jobs {
		require.LessOrEqual(t, j.Pending, 100_000)
	}
	_, err := parse([]string{"-impls", "none"}, io.Discard)
	require.Error(t, err)
}

// Only a run of everything may replace the results, and slow implementations do not hold it up.
func TestEverything(t *testing.T) {
	require.Equal(t, resultsDir, parsed(t).out)
	for _, args := range [][]string{
		{"-quick"}, {"-runs", "2"}, {"-workloads", "Fire"}, {"-impls", "wheel,time"},
		{"-max-pending", "1000000"},
	} {
		require.Equal(t, scratchDir, parsed(t, args...).out, "%v", args)
	}
	most := map[string]int{}
	for _, j := range parsed(t).jobs() {
		most[j.Impl] = max(most[j.Impl], j.Pending)
	}
	for impl, pending := range most {
		if impl != "precise" && impl != "fine" {
			require.Equal(t, pendingLimit(impl), pending, impl)
		}
	}
	_, err := parse(nil, io.Discard) // not at the top of the repository
	require.ErrorContains(t, err, "top of the repository")
}

// After a failed or impossible run, larger ones are skipped. Other workloads still run, and so does
// what succeeded before.
func TestHopeless(t *testing.T) {
	small := job{Workload: "Churn", Impl: "map", Pending: 10, Procs: 1}
	procs, large, other := small, small, small
	procs.Procs, large.Pending, other.Workload = 2, 20, "Rearm"

	for _, fail := range []cell{{Failed: "slow"}, {Lacks: "Stop"}} {
		all := results{}
		*all.at(large.place(), "map") = fail
		require.False(t, all.hopeless(small))
		*all.at(small.place(), "map") = fail
		require.True(t, all.hopeless(procs))
		require.True(t, all.hopeless(large))
		require.False(t, all.hopeless(other))
		require.Equal(t, fail.Lacks, all.at(procs.place(), "map").Lacks)
	}

	all := results{}
	c := all.at(small.place(), "map")
	c.add(workload.Result{Metrics: []workload.Metric{{Name: "time", Value: 1}}})
	c.Failed = "in round 2: slow"
	require.False(t, all.hopeless(small))
	require.False(t, all.hopeless(large))
}

func TestRunInAChild(t *testing.T) {
	run := func(j job, extra time.Duration) reply {
		return j.run(context.Background(), extra, func(float64) {})
	}
	j := job{Workload: "StartStop", Impl: "time", Procs: 1, Duration: time.Millisecond}
	rep := run(j, time.Minute)
	require.Empty(t, rep.Failed+rep.Lacks)
	require.NotEmpty(t, rep.Result.Metrics)

	j.Impl = "siddontang" // it has no Stop
	require.Equal(t, "Stop", run(j, time.Minute).Lacks)
	fire := job{Workload: "Fire", Impl: j.Impl, Procs: 1, Duration: 20 * time.Millisecond, N: 1_000}
	rep = run(fire, time.Minute) // but Fire needs only Start
	require.Empty(t, rep.Failed+rep.Lacks)
	require.NotEmpty(t, rep.Result.Lateness)
	j.Impl = "none"
	require.Contains(t, run(j, time.Minute).Failed, "no implementation")
	j.Workload = "none"
	require.Contains(t, run(j, time.Minute).Failed, "no workload")
}

// The report shows "lacks" if the child panics because its library has no such call. Any other
// panic is a failure.
func TestBlame(t *testing.T) {
	err := errors.New("exit status 2")
	said := "panic: " + lacking("Reset from now").Error() + " [recovered]"
	require.Equal(t, reply{Lacks: "Reset from now"}, blame(err, said))
	require.Equal(t, reply{Failed: "exit status 2: panic: boom"}, blame(err, "panic: boom"))
	require.Equal(t, reply{Failed: "exit status 2"}, blame(err, ""))
}

// A run that takes too long is a failed run, and the limit counts from what the workload measures.
func TestLimit(t *testing.T) {
	j := job{Workload: "IdleServer", Impl: "time", Procs: 1, N: 100}
	require.Equal(t, 15*time.Second, j.minTime())
	j.Duration = 300 * time.Millisecond
	rep := j.run(context.Background(), -200*time.Millisecond, func(float64) {})
	require.Contains(t, rep.Failed, "not done after")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NotEmpty(t, j.run(ctx, time.Minute, func(float64) {}).Failed)
}

// The estimate takes what is known from an earlier round, and scales its guesses by what was seen.
func TestPace(t *testing.T) {
	j := job{Workload: "Fire", Impl: "time", Procs: 1, Round: 1}
	var p pace
	require.Equal(t, 2*expect(j), p.left([]job{j, j}))
	p.took(j, 2*expect(j))
	again, other := j, j
	again.Round, other.Impl = 2, "wheel"
	require.Equal(t, 2*expect(j), p.left([]job{again}))
	require.Equal(t, expect(j), p.left([]job{other}), "one short run says little about the machine")
	for range 3 {
		p.took(j, 2*expect(j))
	}
	require.Equal(t, 2*expect(j), p.left([]job{other}))
	p.took(other, 0) // skipped
	require.Zero(t, p.left([]job{other}))
}

// render writes everything that the figures show, and removes charts of an earlier report.
func TestRender(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "old.svg"), nil, 0o644))
	require.NoError(t, sample().store(filepath.Join(dir, resultsFile)))
	require.NoError(t, run(context.Background(), []string{"-render", "-out", dir}, io.Discard))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 7) // five charts, the report, the results
	require.NotContains(t, files, filepath.Join(dir, "old.svg"))
}

// README.md and report.md show the figures of results.json, and no others.
func TestFilesShowTheResults(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	r, err := load(filepath.Join(resultsDir, resultsFile))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no results: go run ./bench/report makes them")
	}
	require.NoError(t, err)
	r.draw()
	text, err := os.ReadFile(filepath.Join(resultsDir, "report.md"))
	require.NoError(t, err)
	require.Equal(t, written(t, r), string(text), "go run ./bench/report -render writes it again")

	table, err := r.readmeTable()
	require.NoError(t, err)
	readme, err := os.ReadFile(readmeFile)
	require.NoError(t, err)
	want, err := readmeWith(readmeFile, table)
	require.NoError(t, err)
	require.Equal(t, want, string(readme), "go run ./bench/report -render writes it again")
}

// The README's table has every row that a full run measures, and only the text between its lines
// changes.
func TestReadme(t *testing.T) {
	o := parsed(t)
	r := &report{Source: "`go run ./bench/report` on a machine", Runs: 3, Results: results{}}
	for _, im := range impls {
		r.Impls = append(r.Impls, im.Name)
	}
	for _, j := range o.jobs() {
		for _, row := range readmeRows {
			if row.workload == j.Workload {
				c := r.Results.at(j.place(), j.Impl)
				c.Metrics = append(c.Metrics,
					series{row.metric, "ns/call", []float64{float64(1000 + len(j.Impl))}})
			}
		}
	}
	table, err := r.readmeTable()
	require.NoError(t, err)
	require.Contains(t, table,
		"| start and stop a timer | 1,005 ns | 1,004 ns | 1,005 ns | 1.00 |\n")
	require.Contains(t, table, "| 1,004 ns (`Reset`) |")
	require.Contains(t, table,
		"|\n\nMedians of 3 rounds of `go run ./bench/report` on a machine.\n")

	text := "before\n" + readmeBegin + "\nold\n" + readmeEnd + "\nafter\n"
	file := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	for range 2 { // the second time changes nothing
		require.NoError(t, r.rewriteReadme(file))
		changed, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(text, "\nold\n", "\n\n"+table+"\n", 1), string(changed))
	}

	delete(r.Results, place{"GC", 1_000_000, 1})
	_, err = r.readmeTable()
	require.ErrorContains(t, err, "garbage collection")
	require.NoError(t, os.WriteFile(file, []byte("no lines"), 0o644))
	_, err = readmeWith(file, table)
	require.Error(t, err)
}

func TestReadmeNumber(t *testing.T) {
	for want, v := range map[string]float64{
		"0.11 ms": 0.114, "2.15 ms": 2.151, "4.3 ms": 4.32, "49 ms": 48.7, "1,228 ms": 1228.4,
	} {
		require.Equal(t, want, readmeNumber(v, "ms"))
	}
	require.Equal(t, "10 ns", readmeNumber(9.87, "ns/call"))
	require.Equal(t, "48 B", readmeNumber(48.1, "B/timer"))
}
