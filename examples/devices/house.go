package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file switches the devices. house.mu guards every field of every device, and
// the times that wait for their run; it is not held while tell or report runs.

// A house switches its devices at the times of a table. What a device is to be
// counts, not the orders it was sent: an order that did not get through is tried
// again until it does, or until a later order for the device takes its place.
//
// A house is the Scheduler of its own runs, to be used as
//
//	wheel.ScheduleFunc(h, h.run, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
//
// so that after a suspend of the machine the missed runs come one by one, in their
// order.
type house struct {
	table  table
	retry  time.Duration // how long after a failure
	tell   func(ctx context.Context, addr string, on bool) error
	report func(report)

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	devices map[string]*device // fixed by newHouse

	mu   sync.Mutex
	runs []time.Time // what Next has returned and run has not yet come to
}

// A device with the order that is to be carried out, if there is one. The timer
// stands for the next attempt: at once, or some time after one that failed.
type device struct {
	name, addr string

	order   *order
	trying  *order // the one of the attempt under way
	attempt timingwheel.Timer
}

// An order is what a line of the table says at a time.
type order struct {
	at       time.Time
	on       bool
	attempts int
}

// A report tells what has become of an order: err is nil if it was carried out,
// and replaced says that it will not be, as a later order came. Otherwise its first
// attempt has failed, and others follow.
type report struct {
	device   string
	order    order
	err      error
	replaced bool
}

var errReplaced = errors.New("a later order came first")

// newHouse has the devices of these names at these addresses. The table may name
// no other.
func newHouse(wheel *timingwheel.TimingWheel, t table, addrs map[string]string, retry time.Duration,
	tell func(ctx context.Context, addr string, on bool) error, inform func(report)) (*house, error) {
	h := &house{table: t, retry: retry, tell: tell, report: inform, devices: map[string]*device{}}
	for _, l := range t {
		if _, known := addrs[l.device]; !known {
			return nil, fmt.Errorf("the table switches %q, but there is no such device", l.device)
		}
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for name, addr := range addrs {
		d := &device{name: name, addr: addr}
		wheel.Init(&d.attempt, func() { h.carryOut(d) })
		h.devices[name] = d
	}
	return h, nil
}

// close breaks off attempts under way. The wheel is shut down after it.
func (h *house) close() { h.cancel() }

// Next is the table's. It is called once for every run and in their order, so
// keeping what it returns tells run what time it is for; the clock would not, when
// the run is late.
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
		if d.order != nil && d.order != d.trying { // else the attempt will tell
			replaced = append(replaced, report{d.name, *d.order, errReplaced, true})
		}
		d.order = &order{at: at, on: l.on}
		// The timer gives the attempt a goroutine of the wheel, for which
		// Shutdown waits. One that stood for a further attempt is pulled ahead.
		d.attempt.Reset(0)
	}
	h.mu.Unlock()
	for _, r := range replaced {
		h.report(r)
	}
}

// carryOut makes an attempt with the order of the device, unless one is under way
// already: then that one sees to it that the order is not forgotten.
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

	err := h.tell(h.ctx, d.addr, o.on)

	h.mu.Lock()
	d.trying = nil
	replaced := d.order != o
	switch {
	case replaced:
		d.attempt.Reset(0)
	case err == nil:
		d.order = nil
	default:
		d.attempt.Reset(h.retry)
	}
	r := report{d.name, *o, err, replaced && err != nil}
	h.mu.Unlock()
	if err == nil || replaced || r.order.attempts == 1 {
		h.report(r)
	}
}
