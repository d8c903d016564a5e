package main

import (
	"context"
	"fmt"
)

// This file makes all runs, one after the other.

// measure makes all runs, or as many as there are until ctx ends.
func (o options) measure(ctx context.Context, d *display) results {
	all := results{}
	jobs := o.jobs()
	d.begin(jobs, o.runs)
	defer d.end()
	for _, j := range jobs {
		if ctx.Err() != nil {
			break
		}
		c := all.at(j.place(), j.Impl)
		if c.Lacks != "" || all.hopeless(j) {
			d.skip(j)
			continue
		}
		d.start(j)
		rep := j.run(ctx, o.timeout, d.progress)
		switch {
		case ctx.Err() != nil:
			d.done("interrupted")
		case rep.Lacks != "":
			c.Lacks = rep.Lacks
			d.done("lacks " + rep.Lacks)
		case rep.Failed != "":
			c.Failed = fmt.Sprintf("in round %d: %s", j.Round, rep.Failed)
			d.done("FAILED: " + rep.Failed)
		case len(rep.Result.Metrics) == 0:
			c.Failed = fmt.Sprintf("in round %d: nothing measured", j.Round)
			d.done("FAILED: nothing measured")
		default:
			c.add(rep.Result)
			m := rep.Result.Metrics[0]
			d.done(withUnit(m.Value, m.Unit))
		}
	}
	return all
}

// hopeless reports whether the run is pointless, because one of the same size or smaller has failed
// or lacked a call. It notes the reason in the job's cell. If an implementation succeeded in
// another round, its failures do not count.
func (r results) hopeless(j job) bool {
	c := r.at(j.place(), j.Impl)
	if len(c.Metrics) > 0 {
		return false
	}
	if c.Failed != "" {
		return true
	}
	for p, cells := range r {
		smaller := cells[j.Impl]
		below := p.Pending < j.Pending || p.Pending == j.Pending && p.Procs < j.Procs
		if p.Workload != j.Workload || !below || smaller == nil || len(smaller.Metrics) > 0 {
			continue
		}
		switch {
		case smaller.Lacks != "":
			c.Lacks = smaller.Lacks
			return true
		case smaller.Failed != "":
			c.Failed = fmt.Sprintf("not tried, because it failed with %s pending", count(p.Pending))
			return true
		}
	}
	return false
}
