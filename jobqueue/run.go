package jobqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Run delivers jobs to the handlers until ctx ends, Close is called, or the store fails. Then no
// handler begins any more; Run waits for those that run, stores their outcomes, gives back what was
// claimed for handlers that had not begun, with no attempt lost, and returns. It returns nil unless
// the store failed. It may be called again afterwards, but not twice at a time.
func (c *Client) Run(ctx context.Context) error {
	r := &run{
		base:   context.WithoutCancel(ctx),
		failed: make(chan error, 1),
		over:   make(chan struct{}),
	}
	c.mu.Lock()
	select {
	case <-c.closing:
		c.mu.Unlock()
		return failed("run", "handlers", ErrClosed)
	default:
	}
	if c.run != nil {
		c.mu.Unlock()
		return errors.New("jobqueue: Run is under way already")
	}
	c.run = r
	c.local.Range(func(_, l any) bool {
		if d := l.(*local).dispatcher.Load(); d != nil {
			r.start(d, c.middleware)
		}
		return true
	})
	c.mu.Unlock()

	var err error
	select {
	case <-ctx.Done():
	case <-c.closing:
	case err = <-r.failed:
	}

	c.mu.Lock()
	r.stopped = true
	c.mu.Unlock()
	var idle []<-chan struct{}
	for _, d := range r.dispatchers {
		idle = append(idle, d.stop())
	}
	if c.set.grace > 0 {
		hurry := c.tw.AfterFunc(c.set.grace, func() {
			for _, d := range r.dispatchers {
				d.interrupt()
			}
		})
		defer hurry.Stop()
	}
	for i, d := range r.dispatchers {
		<-idle[i]
		err = errors.Join(err, d.lost)
	}
	c.mu.Lock()
	c.run = nil
	c.mu.Unlock()
	close(r.over)
	if err != nil {
		return failed("run", "handlers", err)
	}
	return nil
}

// A run is one call of Run.
type run struct {
	base        context.Context // the handlers' contexts come from it
	failed      chan error      // has the failure of the store that ends the run
	over        chan struct{}   // closed at the end
	dispatchers []*dispatcher   // Client.mu guards it until stopped is set
	stopped     bool            // guarded by Client.mu
}

// start begins to deliver jobs of a queue. Client.mu is held.
func (r *run) start(d *dispatcher, middleware []Middleware) {
	if r.stopped {
		return
	}
	r.dispatchers = append(r.dispatchers, d)
	h := d.handler
	for _, m := range slices.Backward(middleware) {
		h = m(h)
	}
	d.start(r, h)
}

func (r *run) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

// A dispatcher delivers the jobs of one queue to its handler. It has no goroutine of its own: what
// wakes it, a timer of the wheel or the store, becomes the first worker, claims as many jobs as
// there are free workers, starts a worker for each of the others, and works on the first itself. A
// worker that has nothing left to do ends. The timer is set for when the store says that the queue
// may have something to claim. The store decides, the wheel only wakes: a wake-up too many finds
// nothing, and there is nothing in memory that would have to agree with the store.
//
// One goroutine at a time talks to the store, with busy set: it brings the outcomes that have
// gathered and fetches jobs in the same group. Where handlers are quick, it fetches some jobs more
// than there are workers, so that the others do not wait.
//
// mu is never held while the store, a handler or other code of the user runs, and the store may
// call wake with a lock of its own held.
type dispatcher struct {
	c       *Client
	queue   string
	counts  *counters
	handler Handler // as it was given to Handle
	opts    handleOptions

	due   timingwheel.Timer // calls ring when the queue may have something to claim
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
	look     bool      // the store is to be asked for jobs
	next     time.Time // when the timer due is set to fire, zero if that is of no interest
	busy     bool      // someone talks to the store
	hold     bool      // the store failed: wait for the timer flush
	failures int       // of the store in a row
	broken   bool      // it has failed for good
	returns  uint64    // counts giveBack: what was claimed before is not to begin
	dropped  []ID      // cancelled while someone talks to the store
	pace     time.Duration
	flushing bool // the timer flush is set
	beating  bool // the timer beat is set, or extend runs

	outcomes []outcome // to be stored
	spare    []outcome // the slice that outcomes takes turns with; its user has busy
	ops      []store.Op
	claim    store.Claim
}

// An outcome is the end of an attempt.
type outcome struct {
	store.Finish
	returned  bool // it never began, or was interrupted at the end of Run
	cancelled bool // the job, by this Client, so that the outcome will be refused
}

// A claimed is a job that waits for a worker.
type claimed struct {
	job store.Job
	at  time.Time // of the claim
}

// A delivery is a job in its handler's hands.
type delivery struct {
	Job
	job         store.Job
	began       time.Time
	leased      time.Time // when the lease was last known to begin; guarded by dispatcher.mu
	place       int       // in running; guarded by dispatcher.mu
	interrupted bool      // by the end of Run; guarded by dispatcher.mu
	cancelled   bool      // by this Client; guarded by dispatcher.mu
	ctx         context.Context
	cancel      context.CancelCauseFunc
}

const (
	// flushDelay is how long an outcome waits for others at most. A crash within it delivers its
	// job again. It is short beside any lease, and a thousand groups a second cost little.
	flushDelay = time.Millisecond

	// manyOutcomes is how many are stored without waiting for more.
	manyOutcomes = 256

	// prefetchTime is how long a job that is fetched ahead should wait in the buffer. A fetch takes
	// some tens of microseconds on the embedded store and a millisecond over a network.
	prefetchTime = 10 * time.Millisecond
	prefetchMost = 512

	// beatsInLease is how often a lease is extended in its time: a beat may fail twice before it
	// ends.
	beatsInLease = 4
)

func newDispatcher(c *Client, queue string, handler Handler, opts handleOptions) *dispatcher {
	d := &dispatcher{c: c, queue: queue, counts: &c.of(queue).counters, handler: handler, opts: opts}
	c.tw.Init(&d.due, d.ring)
	c.tw.Init(&d.flush, d.help)
	c.tw.Init(&d.beat, d.extend)
	return d
}

func (d *dispatcher) start(r *run, wrapped Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.run, d.wrapped, d.on, d.idle, d.lost = r, wrapped, true, make(chan struct{}), nil
	d.look, d.hold, d.broken, d.failures = true, false, false, 0
	d.kickLocked()
}

// stop has no handler begin any more. The channel is closed when all has ended.
func (d *dispatcher) stop() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = false
	d.due.Stop()
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
		d.setLocked(time.Now(), in)
		return
	}
	d.look = true
	d.kickLocked()
}

// setLocked has the timer fire so far from now, unless it fires earlier.
func (d *dispatcher) setLocked(now time.Time, in time.Duration) {
	at := now.Add(in)
	if d.next.IsZero() || at.Before(d.next) {
		d.next = at
		d.due.Reset(in)
	}
}

// ring is called by the timer: there should be a job now.
func (d *dispatcher) ring() {
	d.mu.Lock()
	d.next = time.Time{}
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
	return d.on && d.workers < d.opts.workers && (d.waiting() > 0 || d.look && !d.busy && !d.hold)
}

func (d *dispatcher) waiting() int { return len(d.buffer) - d.head }

// work is a worker. It is counted in workers.
func (d *dispatcher) work() {
	var at *delivery
	defer func() {
		if at != nil { // the handler called runtime.Goexit
			d.settle(at, errGoexit)
			d.endWorkerLocked()
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
		d.mu.Unlock()
		at = r
		err := d.call(r)
		at = nil
		d.settle(r, err)
	}
}

// endWorkerLocked ends a worker and unlocks.
func (d *dispatcher) endWorkerLocked() {
	d.workers--
	d.kickLocked()
	d.checkIdleLocked()
	d.mu.Unlock()
}

// shouldExchangeLocked says whether it is time to talk to the store.
func (d *dispatcher) shouldExchangeLocked() bool {
	if d.busy || d.hold {
		return false
	}
	waiting := d.waiting()
	if d.on && d.look && waiting <= d.prefetchLocked()/2 {
		return true
	}
	return len(d.outcomes) > 0 && (waiting == 0 || len(d.outcomes) >= manyOutcomes)
}

// prefetchLocked returns how many jobs to fetch beyond those that workers are free for.
func (d *dispatcher) prefetchLocked() int {
	if d.pace == 0 {
		return 0
	}
	return int(min(prefetchTime*time.Duration(d.opts.workers)/d.pace, prefetchMost))
}

// exchangeLocked stores the outcomes and fetches jobs. It unlocks meanwhile.
func (d *dispatcher) exchangeLocked() {
	d.busy = true
	outcomes := d.outcomes
	d.outcomes = d.spare[:0]
	d.ops = d.ops[:0]
	for i := range outcomes {
		d.ops = append(d.ops, &outcomes[i].Finish)
	}
	room := d.opts.workers + d.prefetchLocked() - len(d.running) - d.waiting()
	claiming := d.on && d.look && room > 0
	if claiming {
		d.look = false
		d.next = time.Time{} // what wake hears from now on counts, and what the claim says
		d.claim = store.Claim{
			Queue:       d.queue,
			Max:         room,
			Lease:       d.opts.lease,
			MaxAttempts: d.opts.attempts,
			Jobs:        d.claim.Jobs[:0],
		}
		d.ops = append(d.ops, &d.claim)
	}
	returns := d.returns
	d.mu.Unlock()
	began := time.Now()
	err := d.c.store.Do(context.Background(), d.ops)
	now := time.Now()
	d.mu.Lock()
	d.busy = false
	clear(d.ops)
	switch {
	case err == nil:
		d.failures = 0
		d.storedLocked(outcomes)
		if claiming && d.claim.Err != nil {
			d.retryLocked(d.claim.Err, nil, true)
		} else if claiming {
			d.fetchedLocked(returns, began, now)
		}
	case errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed):
		d.breakLocked(err)
	default:
		d.retryLocked(err, outcomes, claiming)
	}
	clear(outcomes)
	if d.spare = outcomes[:0]; cap(outcomes) > 4*manyOutcomes {
		d.spare = nil
	}
	d.dropped = d.dropped[:0]
	d.flushLaterLocked()
	d.checkIdleLocked()
}

// storedLocked counts outcomes that the store has got.
func (d *dispatcher) storedLocked(outcomes []outcome) {
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case o.Err != nil:
			d.counts.refused.Add(1)
			level := slog.LevelWarn
			if o.cancelled {
				level = slog.LevelDebug
			}
			d.c.set.log.Log(d.run.base, level, "jobqueue: the outcome of an attempt was refused",
				"queue", d.queue, "id", o.ID, "error", o.Err)
		case o.returned:
			d.counts.returned.Add(1)
		default:
			d.counts.ended(&o.Finish)
		}
	}
}

// retryLocked keeps what the store could not take for later.
func (d *dispatcher) retryLocked(err error, outcomes []outcome, claiming bool) {
	d.failures++
	d.look = d.look || claiming
	if !d.on && d.failures > 5 {
		// Run wants to return. The leases will run out.
		d.lost = err
		d.outcomes = d.outcomes[:0]
		return
	}
	d.outcomes = append(slices.Clone(outcomes), d.outcomes...)
	d.hold, d.flushing = true, true
	wait := min(50*time.Millisecond<<min(d.failures, 10), 10*time.Second)
	d.flush.Reset(wait)
	d.c.set.log.Error("jobqueue: the store failed",
		"queue", d.queue, "error", err, "retry_in", wait)
}

// breakLocked ends everything, as the store has failed for good.
func (d *dispatcher) breakLocked(err error) {
	d.broken, d.hold, d.on = true, true, false
	d.outcomes = d.outcomes[:0]
	clear(d.buffer)
	d.buffer, d.head = d.buffer[:0], 0
	d.run.fail(err)
}

// fetchedLocked puts what was claimed into the buffer and starts workers.
func (d *dispatcher) fetchedLocked(returns uint64, began, now time.Time) {
	if d.claim.Buried > 0 {
		d.counts.buried.Add(int64(d.claim.Buried))
		d.c.set.log.Error("jobqueue: jobs are dead, as the leases of their last attempts ended",
			"queue", d.queue, "jobs", d.claim.Buried)
	}
	if d.head > 0 {
		d.buffer = slices.Delete(d.buffer, 0, d.head)
		d.head = 0
	}
	for i := range d.claim.Jobs {
		if !slices.Contains(d.dropped, d.claim.Jobs[i].ID) {
			d.buffer = append(d.buffer, claimed{d.claim.Jobs[i], began})
		}
	}
	clear(d.claim.Jobs) // they hold bodies
	if !d.on || d.returns != returns {
		d.returnLocked(time.Time{})
	}
	switch {
	case !d.on:
	case d.claim.Next == 0 && len(d.claim.Jobs) > 0:
		d.look = true
	case d.claim.Next == 0:
		d.setLocked(now, time.Millisecond) // a store whose clock and answer disagree
	case d.claim.Next > 0:
		d.setLocked(now, d.claim.Next)
	case d.next.IsZero():
		d.due.Stop()
	}
	if d.waiting() > 0 && !d.beating {
		d.beating = true
		d.beat.Reset(d.opts.lease / beatsInLease)
	}
	// The caller takes one job itself, if it is a worker; if not, it calls kickLocked.
	for n := d.waiting() - 1; n > 0 && d.workers < d.opts.workers; n-- {
		d.workers++
		go d.work()
	}
}

// flushLaterLocked sees to it that outcomes do not wait longer than flushDelay.
func (d *dispatcher) flushLaterLocked() {
	if len(d.outcomes) > 0 && !d.flushing && !d.hold {
		d.flushing = true
		d.flush.Reset(flushDelay)
	}
}

// help stores outcomes that have waited long enough, while the workers are with their handlers.
func (d *dispatcher) help() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushing = false
	if d.hold = d.broken; d.hold {
		d.checkIdleLocked()
		return
	}
	for !d.busy && !d.hold && len(d.outcomes) > 0 {
		d.exchangeLocked()
	}
	d.kickLocked()
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

// forget makes sure that a job that was cancelled while it was leased does not begin, and returns
// whether that was in time; otherwise its handler's context ends.
func (d *dispatcher) forget(id ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := d.head; i < len(d.buffer); i++ {
		if d.buffer[i].job.ID == id {
			d.buffer = slices.Delete(d.buffer, i, i+1)
			return true
		}
	}
	for _, r := range d.running {
		if r.job.ID == id {
			r.cancelled = true
			r.cancel(ErrLeaseLost)
			return false
		}
	}
	if d.busy {
		d.dropped = append(d.dropped, id)
	}
	return false
}

// count returns how many handlers run, and how many may.
func (d *dispatcher) count() (running, workers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.running), d.opts.workers
}

// beginLocked takes the next job from the buffer, or returns nil if there is none.
func (d *dispatcher) beginLocked() *delivery {
	if d.waiting() == 0 || !d.on {
		return nil
	}
	w := &d.buffer[d.head]
	r := &delivery{
		Job:    jobOf(&w.job),
		job:    w.job,
		leased: w.at,
		began:  time.Now(),
		place:  len(d.running),
	}
	r.ctx, r.cancel = context.WithCancelCause(d.run.base)
	*w = claimed{}
	if d.head++; d.head == len(d.buffer) {
		d.buffer, d.head = d.buffer[:0], 0
	}
	d.running = append(d.running, r)
	d.flushLaterLocked()
	d.counts.delivered.Add(1)
	d.counts.late(r.began, &r.Job)
	return r
}

var (
	errGoexit    = errors.New("the handler called runtime.Goexit")
	errLastLease = errors.New("the lease of the last attempt ended")
	errNacked    = errors.New("no reason given")
)

// call calls the handler and returns what it returned, or what it panicked with.
func (d *dispatcher) call(r *delivery) (err error) {
	most := attemptsOf(&r.job, &d.opts)
	if most > 0 && r.job.Attempts > most { // only a recurring job
		r.job.Attempts = most
		return errLastLease
	}
	if r.Repeat != nil && r.Repeat.Scheduler != "" {
		if _, _, err := d.c.scheduler(r.Repeat); err != nil {
			d.c.set.log.Error("jobqueue: a recurring job is put off",
				"queue", d.queue, "id", r.ID, "error", err)
			return Snooze(time.Minute)
		}
	}
	ctx := r.ctx
	defer r.cancel(nil)
	if d.opts.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = d.c.tw.WithTimeout(ctx, d.opts.timeout)
		defer stop()
	}
	defer func() {
		// It is nil for runtime.Goexit, which the caller notices.
		if v := recover(); v != nil {
			d.counts.panics.Add(1)
			err = fmt.Errorf("panic: %v\n\n%s", v, panicStack())
		}
	}()
	return d.wrapped(ctx, &r.Job)
}

// panicStack returns the stack from where it panicked.
func panicStack() []byte {
	stack := debug.Stack()
	if i := bytes.Index(stack, []byte("\npanic(")); i >= 0 {
		if rest := bytes.SplitN(stack[i+1:], []byte("\n"), 3); len(rest) == 3 {
			return rest[2]
		}
	}
	return stack
}

// settle notes how an attempt ended. It returns with mu locked.
func (d *dispatcher) settle(r *delivery, err error) {
	took := time.Since(r.began)
	d.counts.duration.add(took)
	o := outcome{}
	o.Lazy = true
	d.mu.Lock()
	if r.interrupted && err != nil {
		err, o.returned = errReturned, true
	}
	o.cancelled = r.cancelled
	d.mu.Unlock()
	d.c.verdict(&o.Finish, &r.job, err, &d.opts)
	d.logOutcome(r, &o, err, took)

	d.mu.Lock()
	last := len(d.running) - 1
	d.running[r.place] = d.running[last]
	d.running[r.place].place = r.place
	d.running[last] = nil
	d.running = d.running[:last]
	if d.pace == 0 {
		d.pace = took
	}
	d.pace = max(d.pace+(took-d.pace)/8, 1)
	if d.broken {
		return
	}
	d.outcomes = append(d.outcomes, o)
}

func (d *dispatcher) logOutcome(r *delivery, o *outcome, err error, took time.Duration) {
	level, message := slog.LevelDebug, "jobqueue: a job is done"
	switch {
	case o.returned:
		message = "jobqueue: a job was interrupted"
	case o.Verdict == store.Snooze:
		message = "jobqueue: a job was snoozed"
	case o.Verdict == store.Retry:
		level, message = slog.LevelWarn, "jobqueue: an attempt failed"
	case o.Verdict == store.Bury || o.Failed:
		level, message = slog.LevelError, "jobqueue: a job is dead"
	}
	ctx := d.run.base
	if !d.c.set.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("queue", d.queue),
		slog.String("id", r.job.ID.String()),
		slog.Int("attempt", r.job.Attempts),
		slog.Duration("took", took),
	}
	if r.job.Key != "" {
		attrs = append(attrs, slog.String("key", r.job.Key))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", text(err)))
	}
	d.c.set.log.LogAttrs(ctx, level, message, attrs...)
}

// extend is called by the timer beat: it extends the leases of what runs, and gives back what has
// waited in the buffer since before the last beat.
func (d *dispatcher) extend() {
	d.mu.Lock()
	beat := d.opts.lease / beatsInLease
	now := time.Now()
	old := now.Add(-beat)
	d.returnLocked(old)
	d.flushLaterLocked()
	var ops []store.Op
	var whose []*delivery
	for _, r := range d.running {
		if r.leased.After(old) || d.opts.timeout > 0 && now.Sub(r.began) >= d.opts.timeout {
			continue
		}
		ops = append(ops, &store.Extend{
			Queue: d.queue,
			ID:    r.job.ID,
			Token: r.job.Token,
			Lease: d.opts.lease,
		})
		whose = append(whose, r)
	}
	d.mu.Unlock()
	var err error
	if len(ops) > 0 {
		if err = d.c.store.Do(context.Background(), ops); err != nil {
			d.c.set.log.Error("jobqueue: leases were not extended", "queue", d.queue, "error", err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, op := range ops {
		switch refused := op.Outcome().Err; {
		case err != nil:
		case refused == nil:
			whose[i].leased = now
		default:
			whose[i].cancel(ErrLeaseLost)
		}
	}
	d.beating = len(d.running)+d.waiting() > 0
	if d.beating {
		d.beat.Reset(beat)
	}
	d.checkIdleLocked()
}
