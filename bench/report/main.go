// Command report runs the benchmarks of package bench on this library, package
// time, the floor and other libraries, and writes a Markdown report with charts.
//
//	go run ./bench/report -quick          # under a minute, for a look
//	go run ./bench/report                 # all of it, on a machine with nothing else to do
//	go run ./bench/report -workloads Fire,Burst -impls wheel,time
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-timingwheel/timingwheel/bench"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		os.Exit(child(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	workloads []bench.Workload
	impls     []bench.Impl
	runs      int
	quick     bool
	cross     bool
	max       int
	timeout   time.Duration
	out       string
}

func parse(args []string, w io.Writer) (options, error) {
	var workloadNames, implNames []string
	for _, wl := range bench.Workloads {
		workloadNames = append(workloadNames, wl.Name)
	}
	for _, im := range impls {
		implNames = append(implNames, im.Name)
	}
	var o options
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	fs.SetOutput(w)
	only := fs.String("workloads", "all", "comma-separated `names` of the workloads to run")
	on := fs.String("impls", "all", "comma-separated `names` of the implementations to run them on; what is left out, nothing is compared with")
	fs.IntVar(&o.runs, "runs", 0, "`times` everything is run, of which medians are taken (default 5, with -quick 1)")
	fs.BoolVar(&o.quick, "quick", false, "small sizes and short runs, under a minute in all: for a look, not for figures")
	fs.BoolVar(&o.cross, "cross", false, "every number of pending timers with every number of procs, not only with the least of the other")
	fs.IntVar(&o.max, "max-pending", 10_000_000, "most `timers` pending beside the calls; 10 million take 2 to 4 GB. The million that come due in Fire and Burst and the connections of IdleServer are not among them")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest that one run may take (default 90s, with -quick 8s); what takes longer is marked as failed and not tried again")
	fs.StringVar(&o.out, "out", filepath.Join("bench", "results"), "`directory` for report.md and the charts")
	fs.Usage = func() {
		fmt.Fprintf(w, "Usage: go run ./bench/report [flags]\n\nRuns the benchmarks and writes a report with charts.\n\n"+
			"A few lines only, in less than a minute:\n\n"+
			"  go run ./bench/report -workloads StartStop,Rearm -impls wheel,time,floor -runs 3 -max-pending 10000\n\n"+
			"Workloads: %s.\n\nImplementations: %s.\n\n", strings.Join(workloadNames, ", "), strings.Join(implNames, ", "))
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	var err error
	if o.workloads, err = choose(bench.Workloads, *only, workloadNames, "workload"); err != nil {
		return o, err
	}
	if o.impls, err = choose(impls, *on, implNames, "implementation"); err != nil {
		return o, err
	}
	if o.runs <= 0 {
		o.runs = 5
		if o.quick {
			o.runs = 1
		}
	}
	if o.timeout <= 0 {
		o.timeout = 90 * time.Second
		if o.quick {
			o.timeout = 8 * time.Second
		}
	}
	if o.max < 1 {
		return o, errors.New("-max-pending must be at least 1")
	}
	if len(o.jobs()) == 0 {
		return o, errors.New("none of the implementations is for any of the workloads")
	}
	return o, nil
}

// choose returns the entries whose names are in a comma-separated list, in their
// own order, whatever the list's.
func choose[T any](all []T, list string, names []string, what string) ([]T, error) {
	if list == "all" || list == "" {
		return all, nil
	}
	wanted := map[int]bool{}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, strings.TrimSpace(name)) })
		if i < 0 {
			return nil, fmt.Errorf("no %s is called %q; there are %s", what, name, strings.Join(names, ", "))
		}
		wanted[i] = true
	}
	var chosen []T
	for i, e := range all {
		if wanted[i] {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

// What -quick makes of a workload.
const (
	quickPending = 10_000
	quickProcs   = 2
)

// shorten makes a quick run of a job.
func (j *job) shorten() {
	j.Duration, j.N = 20*time.Millisecond, 10_000
	switch j.Workload {
	case "IdleServer", "Fire":
		j.Duration = 200 * time.Millisecond
	case "Punctual": // as many at a time as in a full run
		j.Duration, j.N = 300*time.Millisecond, 2_000
	case "Idle":
		j.Duration = 100 * time.Millisecond
	case "GC":
		j.N = 3 // collections
	}
}

// described are the workloads, each with what is run in fact: -quick makes fewer
// timers of a million, and less time of seconds.
func (o options) described() []bench.Workload {
	ws := slices.Clone(o.workloads)
	if !o.quick {
		return ws
	}
	for i := range ws {
		j := job{Workload: ws[i].Name}
		j.shorten()
		ws[i].What = strings.NewReplacer(
			"a million", number(float64(j.N)),
			"20,000 timers", number(float64(j.N))+" timers",
			"within 3 s", "within "+strconv.FormatFloat(j.Duration.Seconds(), 'f', -1, 64)+" s",
		).Replace(ws[i].What)
	}
	return ws
}

// takenBy are the chosen implementations that are for the workload.
func (o options) takenBy(wl bench.Workload) []bench.Impl {
	return slices.DeleteFunc(slices.Clone(o.impls), func(im bench.Impl) bool { return !wl.Takes(im) })
}

// leftOut are the implementations that are for one of the workloads and were not
// chosen.
func (o options) leftOut() []string {
	var names []string
	for _, im := range impls {
		chosen := slices.ContainsFunc(o.impls, func(c bench.Impl) bool { return c.Name == im.Name })
		wanted := slices.ContainsFunc(o.workloads, func(wl bench.Workload) bool { return wl.Takes(im) })
		if wanted && !chosen {
			names = append(names, im.Name)
		}
	}
	return names
}

// places are where the workload runs.
func (o options) places(wl bench.Workload) []place {
	most, mostProcs := o.max, 0
	if o.quick {
		most, mostProcs = min(most, quickPending), quickProcs
	}
	pending, procs := sizes(wl.Pending, most, 0), sizes(wl.Procs, mostProcs, 1)
	var ps []place
	for i, n := range pending {
		for j, p := range procs {
			if i == 0 || j == 0 || o.cross {
				ps = append(ps, place{wl.Name, n, p})
			}
		}
	}
	return ps
}

// sizes are the given ones in order, none above most unless it is 0, or else what
// is used when there are none.
func sizes(given []int, most, otherwise int) []int {
	var s []int
	for _, n := range given {
		if most > 0 {
			n = min(n, most)
		}
		s = append(s, n)
	}
	if len(s) == 0 {
		return []int{otherwise}
	}
	slices.Sort(s)
	return slices.Compact(s)
}

// jobs are all runs in their order: every round goes over everything before the
// next begins, and within a place each round begins with another implementation.
// So whatever disturbs the machine for a while disturbs all alike.
func (o options) jobs() []job {
	var jobs []job
	for round := range o.runs {
		for _, wl := range o.workloads {
			takes := o.takenBy(wl)
			for _, p := range o.places(wl) {
				for i := range takes {
					j := job{
						Workload: wl.Name, Impl: takes[(i+round)%len(takes)].Name,
						Pending: p.pending, Procs: p.procs,
					}
					if o.quick {
						j.shorten()
					}
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs
}

func run(ctx context.Context, args []string, w io.Writer) error {
	o, err := parse(args, w)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err // before the work, not after it
	}
	rep := report{about: about(ctx, o, args), workloads: o.described(), results: results{}}
	for _, im := range impls {
		rep.impls = append(rep.impls, im.Name)
	}
	rep.results = o.measure(ctx, newDisplay(w))
	rep.stopped = ctx.Err() != nil
	return rep.save(o.out, w)
}

// measure makes all runs, or as many as there are until ctx ends.
func (o options) measure(ctx context.Context, d *display) results {
	all := results{}
	jobs := o.jobs()
	d.begin(len(jobs))
	defer d.end()
	for i, j := range jobs {
		if ctx.Err() != nil {
			break
		}
		c := all.at(j.place(), j.Impl)
		if c.lacks != "" || c.failed != "" {
			d.skip()
			continue
		}
		if at, ok := all.failedBelow(j); ok {
			c.failed = fmt.Sprintf("not tried, having failed with %s pending", count(at))
			d.skip()
			continue
		}
		what := fmt.Sprintf("run %d/%d  %-11s %6s pending  %d procs  %-10s",
			i*o.runs/len(jobs)+1, o.runs, j.Workload, count(j.Pending), j.Procs, j.Impl)
		d.start(what)
		rep := j.run(ctx, o.timeout, d.progress)
		switch {
		case ctx.Err() != nil:
			d.done("interrupted")
		case rep.Lacks != "":
			c.lacks = rep.Lacks
			d.done("lacks " + rep.Lacks)
		case rep.Failed != "":
			c.failed = rep.Failed
			d.done("FAILED: " + rep.Failed)
		default:
			c.results = append(c.results, rep.Result)
			if len(rep.Result.Metrics) > 0 {
				m := rep.Result.Metrics[0]
				d.done(fmt.Sprintf("%s %s", number(m.Value), m.Unit))
			} else {
				d.done("nothing measured")
			}
		}
	}
	return all
}

// failedBelow reports that the implementation has failed at the same workload with
// fewer timers pending, or with the same number and fewer goroutines.
func (r results) failedBelow(j job) (pending int, failed bool) {
	for p, cells := range r {
		below := p.pending < j.Pending || p.pending == j.Pending && p.procs < j.Procs
		if c := cells[j.Impl]; p.workload == j.Workload && below && c != nil && c.failed != "" {
			return p.pending, true
		}
	}
	return 0, false
}

// save writes the report and its charts, and removes charts of an earlier one.
func (r *report) save(dir string, w io.Writer) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	r.draw()
	for _, c := range r.charts {
		if err := os.WriteFile(filepath.Join(dir, c.file), c.svg(), 0o644); err != nil {
			return err
		}
	}
	name := filepath.Join(dir, "report.md")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(r.write(f), f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s and %d charts beside it\n", name, len(r.charts))
	return nil
}
