package jobqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

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

// beginLocked takes the next job from the buffer, or returns nil if there is none.
func (d *dispatcher) beginLocked() *delivery {
	if d.waiting() == 0 || !d.isOn() {
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
	defer r.cancel(nil)
	if err := d.c.unready(&r.job, r.Repeat, &d.opts); err != nil {
		return err
	}
	ctx := r.ctx
	if d.opts.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = d.c.tw.WithTimeout(ctx, d.opts.timeout)
		defer stop()
	}
	defer func() {
		// It is nil for runtime.Goexit, which work notices.
		if v := recover(); v != nil {
			err = d.panicked(v)
		}
	}()
	return d.wrapped(ctx, &r.Job)
}

func (d *dispatcher) panicked(v any) error {
	d.counts.panics.Add(1)
	return fmt.Errorf("panic: %v\n\n%s", v, panicStack())
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

// An ending is the end of one delivery, as judge has found it.
type ending struct {
	outcome
	judged bool
	took   time.Duration
	text   string // of the error
}

// judge decides what becomes of a job whose handler returned err. It calls code of the user: the
// BackoffFunc, a Scheduler, methods of err. If that panics or calls runtime.Goexit, the attempt has
// failed, whatever err is.
func (d *dispatcher) judge(r *delivery, err error, e *ending) {
	*e = ending{took: time.Since(r.began)}
	e.Lazy = true
	defer func() {
		if e.judged {
			return
		}
		err := errGoexit
		if v := recover(); v != nil {
			err = d.panicked(v)
		}
		e.judged, e.text = true, text(err)
		wait, _ := defaultBackoff(r.job.Attempts, err)
		e.outcome = outcome{Finish: store.Finish{
			Lazy:    true,
			Queue:   d.queue,
			ID:      r.job.ID,
			Token:   r.job.Token,
			Verdict: store.Retry,
			When:    store.When{In: wait},
			Error:   e.text,
		}}
		most := attemptsOf(&r.job, &d.opts)
		if most > 0 && r.job.Attempts >= most && len(r.job.Repeat) == 0 {
			e.Verdict = store.Bury // a recurring job waits until its next run can be told
		}
	}()
	if err != nil {
		e.text = text(err)
		d.mu.Lock()
		interrupted := r.interrupted
		d.mu.Unlock()
		if own := new(directive); interrupted && !errors.As(err, &own) {
			err, e.returned = errReturned, true
		}
	}
	d.c.verdict(&e.Finish, &r.job, err, &d.opts)
	e.judged = true
}

// settle notes how an attempt ended. It returns with mu locked.
func (d *dispatcher) settle(r *delivery, e *ending) {
	d.counts.duration.add(e.took)
	d.logOutcome(r, e)
	d.mu.Lock()
	e.outcome.cancelled = r.cancelled
	last := len(d.running) - 1
	d.running[r.place] = d.running[last]
	d.running[r.place].place = r.place
	d.running[last] = nil
	d.running = d.running[:last]
	if d.pace == 0 {
		d.pace = e.took
	}
	d.pace = max(d.pace+(e.took-d.pace)/8, 1)
	if !d.broken {
		d.outcomes = append(d.outcomes, e.outcome)
	}
}

func (d *dispatcher) logOutcome(r *delivery, e *ending) {
	level, message := slog.LevelDebug, "jobqueue: a job is done"
	switch o := &e.outcome; {
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
		slog.Duration("took", e.took),
	}
	if r.job.Key != "" {
		attrs = append(attrs, slog.String("key", r.job.Key))
	}
	if e.text != "" {
		attrs = append(attrs, slog.String("error", e.text))
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
