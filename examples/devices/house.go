package main

import (
	"context"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// A house switches its devices at the times of a table. An order that does not reach its device is
// tried again until it does, or until a later order for the device replaces it. The house is the
// Scheduler of its own runs, and is used as
//
//	tw.ScheduleFunc(h, h.run, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
//
// so that after a suspend of the machine the missed runs happen one by one, in their order.
type house struct {
	table  table
	retry  time.Duration // after a failure
	tell   func(ctx context.Context, device string, on bool) error
	report func(report) // without the lock

	ctx     context.Context // of all attempts
	close   context.CancelFunc
	devices map[string]*device // does not change

	mu   sync.Mutex
	runs []time.Time // returned by Next, and still to run
}

// A device has an order that is to be carried out, or nil. Its fields are guarded by house.mu.
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

// A report tells that an attempt at an order has succeeded or failed, or that a later order has
// replaced it and there will be no further attempt.
type report struct {
	order
	err      error
	replaced bool
}

func newHouse(tw *timingwheel.TimingWheel, t table, retry time.Duration,
	tell func(ctx context.Context, device string, on bool) error, inform func(report)) *house {
	h := &house{table: t, retry: retry, tell: tell, report: inform, devices: make(map[string]*device)}
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

// Next is called once for each run and in their order, so keeping what it returns tells run its
// time. The clock would not, when the run is late.
func (h *house) Next(t time.Time) time.Time {
	next := h.table.Next(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs = append(h.runs, next)
	return next
}

// run gives the orders of one time of the table.
func (h *house) run() {
	var replaced []report
	h.mu.Lock()
	at := h.runs[0]
	h.runs = h.runs[1:]
	for _, l := range h.table.at(at) {
		d := h.devices[l.device]
		if d.order != nil && d.order != d.trying { // otherwise the attempt in progress reports it
			replaced = append(replaced, report{order: *d.order, replaced: true})
		}
		d.order = &order{at: at, line: l}
		d.attempt.Reset(0) // on a goroutine of the wheel, for which Shutdown waits
	}
	h.mu.Unlock()
	for _, r := range replaced {
		h.report(r)
	}
}

// carryOut makes an attempt at the device's order. If one is in progress already, that one begins
// the next when it ends.
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

	err := h.tell(h.ctx, o.line.device, o.line.on)

	h.mu.Lock()
	d.trying = nil
	r := report{*o, err, err != nil && d.order != o}
	switch {
	case d.order != o:
		d.attempt.Reset(0)
	case err == nil:
		d.order = nil
	default:
		d.attempt.Reset(h.retry)
	}
	h.mu.Unlock()
	h.report(r)
}
