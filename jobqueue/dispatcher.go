package jobqueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// A dispatcher delivers the jobs of one queue to its handler. It has no goroutine of its own: what
// wakes it, a timer of the wheel or the store, becomes the first worker, claims as many jobs as
// there are free workers, starts a worker for each of the others, and works on the first itself. A
// worker that has nothing left to do ends. The timer is set for when the store says that the queue
// may have something to claim. The store decides, the wheel only wakes: a wake-up too many finds
// nothing, and nothing in memory has to agree with the store.
//
// One goroutine at a time talks to the store, with busy set: it brings the outcomes that have
// gathered and fetches jobs in the same group. Where handlers are quick, it fetches more jobs than
// there are workers, so that the others do not wait.
//
// mu is never held while the store, a handler or other code of the user runs, the logger's
// included, and the store may call wake with a lock of its own held.
//
// This file has how a dispatcher starts, wakes, works and stops; attempt.go has what happens to one
// job while it is worked on, and exchange.go how the dispatcher talks to the store.
type dispatcher struct {
	c       *Client
	queue   string
	counts  *counters
	handler Handler // as it was given to Handle
	opts    handleOptions

	due   alarm             // calls ring when the queue may have something to claim
	flush timingwheel.Timer // calls help: outcomes have waited long enough, or a failed store has
	beat  timingwheel.Timer // calls extend while anything is leased

	mu       sync.Mutex
	run      *run
	wrapped  Handler       // the handler in its middleware
	on       bool          // jobs are delivered
	idle     chan struct{} // closed once all has ended after stop
	lost     error         // why outcomes could not be stored at the end
	workers  int           // goroutines in work
	running  []*delivery
	buffer   []claimed // fetched and not begun, from head on
	head     int
	look     bool          // the store is to be asked for jobs
	held     bool          // but not before a worker is free: it gives none ahead
	busy     bool          // someone talks to the store
	hold     bool          // the store failed: wait for the timer flush
	failures int           // of the store in a row
	broken   bool          // it has failed for good
	returns  uint64        // counts giveBack: what was claimed before is not to begin
	dropped  []ID          // cancelled while someone talks to the store
	pace     time.Duration // how long handlers took of late
	weight   int           // the size of the bodies of late
	flushing bool          // the timer flush is set
	beating  bool          // the timer beat is set, or extend runs

	outcomes []outcome // to be stored
	spare    []outcome // the slice that outcomes takes turns with; its user has busy
	ops      []store.Op
	claim    store.Claim
}

func newDispatcher(c *Client, queue string, handler Handler, opts handleOptions) *dispatcher {
	counts := &c.of(queue).counters
	d := &dispatcher{c: c, queue: queue, counts: counts, handler: handler, opts: opts}
	d.due.init(c, d.ring)
	c.tw.Init(&d.flush, d.help)
	c.tw.Init(&d.beat, d.extend)
	return d
}

func (d *dispatcher) start(r *run, wrapped Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.run, d.wrapped, d.on, d.idle, d.lost = r, wrapped, true, make(chan struct{}), nil
	d.look, d.held, d.hold, d.broken, d.failures, d.flushing = true, false, false, false, 0, false
	d.kickLocked()
}

// stop has no handler begin any more. The channel is closed when all has ended.
func (d *dispatcher) stop() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = false
	d.due.stopLocked()
	d.returnLocked(time.Time{})
	if len(d.outcomes) > 0 && !d.busy && !d.hold {
		go d.help()
	}
	d.checkIdleLocked()
	return d.idle
}

// interrupt ends the contexts of handlers.
func (d *dispatcher) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.running {
		r.interrupted = true
		r.cancel(context.Canceled)
	}
}

// checkIdleLocked notices the end after stop.
func (d *dispatcher) checkIdleLocked() {
	if d.on || d.workers > 0 || d.busy || len(d.outcomes) > 0 {
		return
	}
	if d.beating && !d.beat.Stop() {
		return // extend is under way
	}
	d.beating = false
	select {
	case <-d.idle:
	default:
		d.flush.Stop()
		close(d.idle)
	}
}

// wake is called by the store: there may be a job so far from now.
func (d *dispatcher) wake(in time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		return
	}
	if in > 0 {
		d.due.setLocked(time.Now(), in)
		return
	}
	d.look = true
	d.kickLocked()
}

// ring is called by the alarm: there should be a job now.
func (d *dispatcher) ring() {
	d.mu.Lock()
	d.due.stopLocked()
	d.look = true
	if !d.canStartLocked() {
		d.mu.Unlock()
		return
	}
	d.workers++
	d.mu.Unlock()
	d.work()
}

// kickLocked starts a worker if there is something to do and a worker is free.
func (d *dispatcher) kickLocked() {
	if d.canStartLocked() {
		d.workers++
		go d.work()
	}
}

func (d *dispatcher) canStartLocked() bool {
	return d.isOn() && d.workers < d.opts.workers &&
		(d.waiting() > 0 || d.look && !d.busy && !d.hold)
}

// isOn says whether a handler may begin. The end of Run's context comes before stop.
func (d *dispatcher) isOn() bool { return d.on && d.run.ctx.Err() == nil }

func (d *dispatcher) waiting() int { return len(d.buffer) - d.head }

// work is a worker. It is counted in workers.
func (d *dispatcher) work() {
	var at *delivery
	var e ending
	defer func() {
		if at == nil {
			return
		}
		// The handler, or what judge calls, has called runtime.Goexit. judge may do so again.
		defer func() {
			d.settle(at, &e)
			d.endWorkerLocked()
		}()
		if !e.judged {
			d.judge(at, errGoexit, &e)
		}
	}()
	d.mu.Lock()
	for {
		if d.shouldExchangeLocked() {
			d.exchangeLocked()
			continue
		}
		r := d.beginLocked()
		if r == nil {
			d.endWorkerLocked()
			return
		}
		if d.waiting() == 0 {
			d.kickLocked() // something may have been announced since the claim
		}
		d.mu.Unlock()
		at = r
		e.judged = false
		d.judge(r, d.call(r), &e)
		at = nil
		d.settle(r, &e)
	}
}

// endWorkerLocked ends a worker and unlocks.
func (d *dispatcher) endWorkerLocked() {
	d.workers--
	d.kickLocked()
	d.checkIdleLocked()
	d.mu.Unlock()
}

// count returns how many handlers run, and how many may.
func (d *dispatcher) count() (running, workers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.running), d.opts.workers
}

// holds returns the job with a key that waits for a worker or is with its handler, or 0.
func (d *dispatcher) holds(key string) ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := d.head; i < len(d.buffer); i++ {
		if d.buffer[i].job.Key == key {
			return d.buffer[i].job.ID
		}
	}
	for _, r := range d.running {
		if r.job.Key == key {
			return r.job.ID
		}
	}
	return 0
}

// forget makes sure that a job that was cancelled or replaced while it was leased does not begin,
// and returns whether that was in time; otherwise its handler's context ends.
func (d *dispatcher) forget(id ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := d.head; i < len(d.buffer); i++ {
		if d.buffer[i].job.ID == id {
			d.buffer = slices.Delete(d.buffer, i, i+1)
			return true
		}
	}
	for _, r := range d.running { // more than one if a handler ignores that its lease has ended
		if r.job.ID == id {
			r.cancelled = true
			r.cancel(ErrLeaseLost)
		}
	}
	if d.busy {
		d.dropped = append(d.dropped, id)
	}
	return false
}

// giveBack returns what has not begun to the store: the queue was paused.
func (d *dispatcher) giveBack() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.returns++
	d.returnLocked(time.Time{})
	d.flushLaterLocked()
}

// returnLocked has jobs of the buffer given back that were claimed before a time, or all if it is
// zero.
func (d *dispatcher) returnLocked(before time.Time) {
	kept := d.buffer[:0]
	for _, w := range d.buffer[d.head:] {
		if !before.IsZero() && !w.at.Before(before) {
			kept = append(kept, w)
			continue
		}
		o := outcome{returned: true}
		o.Lazy = true
		d.c.verdict(&o.Finish, &w.job, errReturned, &d.opts)
		d.outcomes = append(d.outcomes, o)
	}
	clear(d.buffer[len(kept):])
	d.buffer, d.head = kept, 0
}
