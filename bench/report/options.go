package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// This file reads the flags and lists the runs that they ask for.

// options are what the flags say.
type options struct {
	workloads []workload.Workload
	impls     []workload.Impl
	runs      int
	quick     bool
	cross     bool
	max       int
	timeout   time.Duration
	dirty     bool
	render    bool
	out       string
}

const (
	fullRuns    = 3
	fullPending = 10_000_000
)

func parse(args []string, w io.Writer) (options, error) {
	workloadNames, implNames := namesOf(workload.All, nameOfWorkload), namesOf(impls, nameOfImpl)
	var o options
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	fs.SetOutput(w)
	only := fs.String("workloads", "all", "comma-separated `names` of the workloads to run")
	on := fs.String("impls", "all", "comma-separated `names` of the implementations to run them on")
	fs.IntVar(&o.runs, "runs", 0, fmt.Sprintf(
		"`number` of rounds, whose medians the report shows (default %d, with -quick 1)", fullRuns))
	fs.BoolVar(&o.quick, "quick", false,
		"small sizes and short runs, under a minute in all: for a look, not for figures")
	fs.BoolVar(&o.cross, "cross", false,
		"every number of pending timers on every number of procs, not only on the smallest")
	fs.IntVar(&o.max, "max-pending", fullPending,
		"largest `number` of timers pending beside the calls; 10 million take 2 to 4 GB. "+
			"It does not limit the timers of Fire and Burst and the connections of IdleServer")
	fs.DurationVar(&o.timeout, "timeout", 0,
		"how much longer than it measures a run may take (default 45s, with -quick 8s); "+
			"a run that takes longer counts as failed, and the others go on")
	fs.BoolVar(&o.dirty, "dirty", false,
		"run everything although the tree has uncommitted changes, and say so in the report")
	fs.BoolVar(&o.render, "render", false,
		"run nothing: write the files again from "+resultsFile+" in -out")
	fs.StringVar(&o.out, "out", "", fmt.Sprintf(
		"`folder` for the files (default %s for a run of everything, %s for any other)",
		resultsDir, scratchDir))
	fs.Usage = func() {
		fmt.Fprintf(w, "Usage: go run ./bench/report [flags]\n\n"+
			"Runs the benchmarks and writes a report with charts.\n\n"+
			"A few figures within seconds:\n\n"+
			"  go run ./bench/report -workloads StartStop -impls wheel,time -max-pending 10000\n\n"+
			"Workloads: %s.\n\nImplementations: %s.\n\n",
			strings.Join(workloadNames, ", "), strings.Join(implNames, ", "))
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	var err error
	if o.workloads, err = choose(workload.All, *only, workloadNames, "workload"); err != nil {
		return o, err
	}
	if o.impls, err = choose(impls, *on, implNames, "implementation"); err != nil {
		return o, err
	}
	if o.max < 1 {
		return o, errors.New("-max-pending must be at least 1")
	}
	if o.runs <= 0 {
		o.runs = fullRuns
		if o.quick {
			o.runs = 1
		}
	}
	if o.timeout <= 0 {
		o.timeout = 45 * time.Second
		if o.quick {
			o.timeout = 8 * time.Second
		}
	}
	if len(o.jobs()) == 0 {
		return o, errors.New("none of the implementations is meant for any of the workloads")
	}
	if o.out == "" {
		o.out = scratchDir
		if o.everything() {
			o.out = resultsDir
		}
		if _, err := os.Stat("bench"); err != nil {
			return o, errors.New("run it at the top of the repository, or set -out")
		}
	}
	return o, nil
}

// everything reports whether nothing was left out, so that the figures may go to bench/results.
func (o options) everything() bool {
	return !o.quick && o.runs >= fullRuns && o.max >= fullPending &&
		len(o.workloads) == len(workload.All) && len(o.impls) == len(impls)
}

func nameOfWorkload(w workload.Workload) string { return w.Name }
func nameOfImpl(im workload.Impl) string        { return im.Name }

func namesOf[T any](all []T, nameOf func(T) string) []string {
	var names []string
	for _, e := range all {
		names = append(names, nameOf(e))
	}
	return names
}

// choose returns the entries whose names are in a comma-separated list, in the order of all.
func choose[T any](all []T, list string, names []string, what string) ([]T, error) {
	if list == "all" || list == "" {
		return all, nil
	}
	wanted := map[int]bool{}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
		if i < 0 {
			known := strings.Join(names, ", ")
			return nil, fmt.Errorf("no %s is called %q; there are %s", what, name, known)
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

// The sizes of a quick run.
const (
	quickPending = 10_000
	quickProcs   = 2
)

// sized returns a job of the workload with the N and the duration that the flags ask for. Zero
// stands for the workload's own.
func (o options) sized(workload string) job {
	j := job{Workload: workload}
	if !o.quick {
		return j
	}
	j.Duration, j.N = 20*time.Millisecond, 10_000
	switch workload {
	case "IdleServer", "Fire":
		j.Duration = 200 * time.Millisecond
	case "Punctual": // as many at a time as in a full run
		j.Duration, j.N = 300*time.Millisecond, 2_000
	case "Idle":
		j.Duration = 100 * time.Millisecond
	case "GC":
		j.N = 3 // collections
	}
	return j
}

// described returns the workloads as the report describes them.
func (o options) described() []described {
	var ds []described
	for _, wl := range o.workloads {
		ds = append(ds, described{wl.Name, wl.Describe(o.sized(wl.Name).toCase(workload.Impl{}))})
	}
	return ds
}

// leftOut returns the implementations that are meant for one of the workloads and were not chosen.
func (o options) leftOut() []string {
	var names []string
	for _, im := range impls {
		_, chosen := find(o.impls, im.Name, nameOfImpl)
		if !chosen && slices.ContainsFunc(o.workloads, func(wl workload.Workload) bool {
			return wl.Takes(im)
		}) {
			names = append(names, im.Name)
		}
	}
	return names
}

// places returns where the workload runs.
func (o options) places(wl workload.Workload) []place {
	most, mostProcs := o.max, 0
	if o.quick {
		most, mostProcs = min(most, quickPending), quickProcs
	}
	pending, procs := sizes(wl.Pending, most), sizes(wl.Procs, mostProcs)
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

// sizes returns the ascending sizes, none above most unless most is 0.
func sizes(given []int, most int) []int {
	var s []int
	for _, n := range given {
		if most > 0 {
			n = min(n, most)
		}
		s = append(s, n)
	}
	return slices.Compact(s)
}

// pendingLimits are the most pending timers that an implementation runs beside. With more, a run of
// gost or map takes minutes or does not end: gost walks a sorted list for each timer that it starts
// or stops, and map scans all of them a hundred times a second. Ten million take up to 15 s each,
// so only what the README compares runs beside them.
var pendingLimits = map[string]int{
	"wheel": fullPending, nameOfTime: fullPending, nameOfFloor: fullPending,
	"gost": 10_000, "map": 100_000,
}

// otherPendingLimit is the limit of every other implementation.
const otherPendingLimit = 1_000_000

func pendingLimit(impl string) int {
	if limit, ok := pendingLimits[impl]; ok {
		return limit
	}
	return otherPendingLimit
}

// takenBy returns the chosen implementations that run the workload at the place. The connections of
// IdleServer are pending timers too.
func (o options) takenBy(wl workload.Workload, p place) []workload.Impl {
	pending := p.Pending
	if wl.Name == workload.IdleServer.Name {
		pending = cmp.Or(o.sized(wl.Name).N, wl.N)
	}
	var takes []workload.Impl
	for _, im := range o.impls {
		if wl.Takes(im) && pending <= pendingLimit(im.Name) {
			takes = append(takes, im)
		}
	}
	return takes
}

// jobs returns all runs in order. A round runs everything before the next one begins. At each
// place, each round begins with a different implementation, so a disturbance of the machine affects
// all of them alike.
func (o options) jobs() []job {
	var jobs []job
	for round := range o.runs {
		for _, wl := range o.workloads {
			for _, p := range o.places(wl) {
				takes := o.takenBy(wl, p)
				for i := range takes {
					j := o.sized(wl.Name)
					j.Impl, j.Round = takes[(i+round)%len(takes)].Name, round+1
					j.Pending, j.Procs = p.Pending, p.Procs
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs
}
