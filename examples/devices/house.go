package main

import (
	"context"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// A house switches its devices at the times of a table. It repeats an order that does not reach its
// device, until it does or a later order for the device replaces it. The house is the Scheduler of
// its own runs, and is used as
//
//	tw.ScheduleFunc(h, h.run, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
//
// so that after a suspend of the machine the missed runs happen one by one, in their order.
type house struct {
	table  table
	retry  time.Duration // after a failure
	tell   func(context.Context, line) error
	report func(o order, err error, replaced bool) // after an attempt, or without one if replaced

	ctx     context.Context // of all attempts
	close   context.CancelFunc
	devices map[string]*device // does not change

	mu   sync.Mutex  // guards what follows and all devices; not held while tell or report runs
	runs []time.Time // returned by Next, and still to run
}

// A device has an order that is to be carried out, or nil.
type device struct {
	order   *order
	trying  *order            // the order of the attempt in progress
	attempt timingwheel.Timer // begins the next attempt
}

// An order is what a line of the table says at a time.
type order struct {
	at       time.Time
	line     line
	attempts int
}

func newHouse(tw *timingwheel.TimingWheel, t table, retry time.Duration,
	tell func(context.Context, line) error, report func(order, error, bool)) *house {
	h := &house{table: t, retry: retry, tell: tell, report: report, devices: map[string]*device{}}
	h.ctx, h.close = context.WithCancel(context.Background())
	for _, l := range t {
		if h.devices[l.device] == nil {
			d := &device{}
			tw.Init(&d.attempt, func() { h.carryOut(d) })
			h.devices[l.device] = d
		}
	}
	return h
}

// Next is called once for each run and in their order, so what it returns tells run its time. The
// clock would not, when the run is late.
func (h *house) Next(t time.Time) time.Time {
	next := h.table.Next(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs = append(h.runs, next)
	return next
}

// run gives the orders of one time of the table.
func (h *house) run() {
	var replaced []order
	h.mu.Lock()
	at := h.runs[0]
	h.runs = h.runs[1:]
	for _, l := range h.table.at(at) {
		d := h.devices[l.device]
		if d.order != nil && d.order != d.trying { // otherwise the attempt in progress reports it
			replaced = append(replaced, *d.order)
		}
		d.order = &order{at: at, line: l}
		d.attempt.Reset(0) // on a goroutine of the wheel, for which Shutdown waits
	}
	h.mu.Unlock()
	for _, o := range replaced {
		h.report(o, nil, true)
	}
}

// carryOut makes an attempt at the device's order. If one is in progress, that one begins the next
// when it ends.
func (h *house) carryOut(d *device) {
	h.mu.Lock()
	o := d.order
	if o == nil || d.trying != nil {
		h.mu.Unlock()
		return
	}
	d.trying = o
	o.attempts++
	h.mu.Unlock()

	err := h.tell(h.ctx, o.line)

	h.mu.Lock()
	d.trying = nil
	done, replaced := *o, err != nil && d.order != o
	switch {
	case d.order != o:
		d.attempt.Reset(0)
	case err == nil:
		d.order = nil
	default:
		d.attempt.Reset(h.retry)
	}
	h.mu.Unlock()
	h.report(done, err, replaced)
}
