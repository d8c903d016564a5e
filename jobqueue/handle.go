package jobqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// A Handler works on a job. What it returns decides what becomes of the job:
//
//	nil                  it is acknowledged
//	an error             it is tried again by the queue's Backoff, or dead after the last attempt
//	RetryIn(d)           it is tried again in d, or dead after the last attempt
//	Snooze(d)            it is due again in d, and the attempt does not count
//	Bury(reason)         it is dead
//
// The last three may be wrapped in other errors, or joined with them. A panic is an error with the
// stack in its text, as is a panic in a BackoffFunc, a Scheduler or the methods of err. The text of
// the error is kept as the job's LastError, up to 4 KiB of it.
//
// A job may be delivered more than once: if its lease ran out, or if the process ended before the
// acknowledgement was stored.
//
// ctx has the values of Run's context. It ends when the handler has returned, after Timeout, when
// the job is cancelled by this Client, when its lease is found to be lost, and WithGrace after the
// end of Run's context. Its cause, as context.Cause tells it, is then ErrLeaseLost for a job that
// is no longer the handler's.
type Handler func(ctx context.Context, job *Job) error

// Handle has jobs of a queue worked on by handler while Run is under way. It panics if the queue
// has a handler already, or a name that cannot be used.
func (c *Client) Handle(queue string, handler Handler, opts ...HandleOption) {
	if handler == nil {
		panic("jobqueue: Handle of a nil Handler")
	}
	if err := c.check(queue); err != nil {
		panic(failed("Handle of", queue, err).Error())
	}
	d := newDispatcher(c, queue, handler, c.handleOptions(opts))
	if !c.of(queue).dispatcher.CompareAndSwap(nil, d) {
		panic("jobqueue: the queue " + queue + " has a handler already")
	}
	c.mu.Lock()
	r := c.run
	c.mu.Unlock()
	if r != nil {
		c.deliver(r, d)
	}
}

// A Middleware makes a Handler of another one, around which it does something: logging, tracing, a
// transaction.
type Middleware func(next Handler) Handler

// Use puts middleware around all handlers, the first one outermost. It panics while Run is under
// way.
func (c *Client) Use(middleware ...Middleware) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		panic("jobqueue: Use while Run is under way")
	}
	c.middleware = append(c.middleware, middleware...)
}

// A HandleOption says how the jobs of a queue are worked on.
type HandleOption func(*handleOptions)

type handleOptions struct {
	workers  int
	lease    time.Duration
	timeout  time.Duration
	attempts int // 0 for no limit
	backoff  func(attempt int, err error) (time.Duration, bool)
}

// optionsOf returns those of the queue's Handle, if this Client has one, or those of WithDefaults.
func (c *Client) optionsOf(queue string) handleOptions {
	if d := c.of(queue).dispatcher.Load(); d != nil {
		return d.opts
	}
	return c.handleOptions(nil)
}

func (c *Client) handleOptions(opts []HandleOption) handleOptions {
	o := handleOptions{workers: 10, lease: 30 * time.Second, attempts: 25, backoff: defaultBackoff}
	for _, opt := range slices.Concat(c.set.handle, opts) {
		opt(&o)
	}
	return o
}

// Workers sets how many jobs of the queue this process works on at a time, by default 10.
func Workers(n int) HandleOption {
	if n < 1 {
		panic(fmt.Sprintf("jobqueue: Workers(%d)", n))
	}
	return func(o *handleOptions) { o.workers = n }
}

// Lease sets how long a job stays with a process that has died before another one gets it, by
// default 30 s. While a handler runs, its lease is extended before half of that, so a handler may
// take longer. On an embedded store a process that opens the file anew gets the jobs at once.
func Lease(d time.Duration) HandleOption {
	if d < time.Millisecond {
		panic(fmt.Sprintf("jobqueue: Lease(%v) is shorter than a millisecond", d))
	}
	return func(o *handleOptions) { o.lease = d }
}

// Timeout sets how long a handler may take; the default is for as long as it likes. Then its
// context ends. If it goes on nevertheless, its lease is no longer extended: once that has run out
// the job is delivered again, and what the handler returns counts no more. The handler still takes
// up one of the Workers until it returns.
func Timeout(d time.Duration) HandleOption {
	if d <= 0 {
		panic(fmt.Sprintf("jobqueue: Timeout(%v) is not positive", d))
	}
	return func(o *handleOptions) { o.timeout = d }
}

// Attempts sets after how many attempts a job is dead, unless it has MaxAttempts of its own: by
// default 25, which with the default Backoff takes about 19 hours. 0 is no limit.
//
// Where handlers are quick, a process claims jobs before a worker is free for them. If it is
// killed, these jobs have lost an attempt too, but never their last one: a job on its last attempt
// is only claimed for a worker that is free.
func Attempts(n int) HandleOption {
	if n < 0 {
		panic(fmt.Sprintf("jobqueue: Attempts(%d)", n))
	}
	return func(o *handleOptions) { o.attempts = n }
}

// Backoff sets how long a job waits after a failed attempt: the first step after the first attempt,
// and so on, the last step after all others, and a millisecond at least. The default is 1 s, 5 s,
// 30 s, 2 min, 10 min, 30 min, 1 h.
func Backoff(steps ...time.Duration) HandleOption {
	if len(steps) == 0 {
		panic("jobqueue: Backoff without a step")
	}
	return BackoffFunc(inSteps(slices.Clone(steps)))
}

func inSteps(steps []time.Duration) func(int, error) (time.Duration, bool) {
	return func(attempt int, _ error) (time.Duration, bool) {
		return steps[min(max(attempt, 1), len(steps))-1], true
	}
}

var defaultBackoff = inSteps([]time.Duration{time.Second, 5 * time.Second, 30 * time.Second,
	2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour})

// FinalBackoff is Backoff, but a job that has failed after the last step is dead. It sets Attempts
// to the number of steps and one.
func FinalBackoff(steps ...time.Duration) HandleOption {
	backoff := Backoff(steps...)
	return func(o *handleOptions) {
		backoff(o)
		o.attempts = len(steps) + 1
	}
}

// BackoffFunc has f say how long a job waits after a failed attempt, the first being 1, or that
// there is to be no other: ok is then false, and the job is dead.
func BackoffFunc(f func(attempt int, err error) (wait time.Duration, ok bool)) HandleOption {
	if f == nil {
		panic("jobqueue: BackoffFunc of nil")
	}
	return func(o *handleOptions) { o.backoff = f }
}

// A directive is an error that says what is to become of the job.
type directive struct {
	verdict store.Verdict
	in      time.Duration
	asIs    bool // its due time stays what it was, whatever in says
	reason  string
}

// Error implements error.
func (d *directive) Error() string {
	switch {
	case d.asIs:
		return "given back"
	case d.verdict == store.Snooze:
		return fmt.Sprintf("snoozed for %v", d.in)
	case d.verdict == store.Bury:
		return d.reason
	}
	return fmt.Sprintf("retry in %v", d.in)
}

// RetryIn returns an error for handlers: the attempt failed, and the next is in d instead of what
// Backoff says. A d below a millisecond is a millisecond. To keep the reason, wrap it:
// fmt.Errorf("%w: %w", err, jobqueue.RetryIn(d)).
func RetryIn(d time.Duration) error {
	return &directive{verdict: store.Retry, in: max(d, leastWait)}
}

// Snooze returns an error for handlers: the job is due again in d, and the attempt does not count.
// A d below a millisecond is a millisecond.
func Snooze(d time.Duration) error {
	return &directive{verdict: store.Snooze, in: max(d, leastWait)}
}

// IsSnooze says whether what a handler returned puts the job off, so that middleware need not take
// it for a failure.
func IsSnooze(err error) bool {
	var d *directive
	return errors.As(err, &d) && d.verdict == store.Snooze
}

// Bury returns an error for handlers: the job is dead, for the reason given. A recurring job goes
// on with its next run.
func Bury(reason string) error { return &directive{verdict: store.Bury, reason: reason} }

// leastWait is how long a job waits at least before it is delivered again. A handler that always
// asks for no wait would otherwise keep a processor busy with one job.
const leastWait = time.Millisecond

// errReturned gives a job back as it was: it was not worked on to its end, as Run is about to
// return, or could not be handed to a sink.
var errReturned error = &directive{verdict: store.Snooze, asIs: true}

// verdict fills in how the attempt at a job ends whose handler returned err.
func (c *Client) verdict(f *store.Finish, j *store.Job, err error, o *handleOptions) {
	f.Queue, f.ID, f.Token = j.Queue, j.ID, j.Token
	var d *directive
	switch {
	case err == nil:
		f.Verdict = store.Ack
	case errors.As(err, &d):
		f.Verdict, f.When = d.verdict, store.When{In: d.in}
		if d.asIs {
			f.When = store.When{At: j.Due}
		}
	default:
		f.Verdict = store.Retry
		wait, ok := o.backoff(max(j.Attempts, 1), err)
		if f.When.In = max(wait, leastWait); !ok {
			f.Verdict = store.Bury
		}
	}
	if f.Verdict == store.Retry || f.Verdict == store.Bury {
		f.Error = text(err)
	}
	if most := attemptsOf(j, o); f.Verdict == store.Retry && most > 0 && j.Attempts >= most {
		f.Verdict = store.Bury
	}
	if len(j.Repeat) > 0 && (f.Verdict == store.Ack || f.Verdict == store.Bury) {
		c.again(f, j)
	}
}

// again makes the end of a run, good or bad, the beginning of the wait for the next.
func (c *Client) again(f *store.Finish, j *store.Job) {
	r, err := parseRepeat(j.Repeat)
	if err == nil {
		var next time.Time
		if next, f.Repeat, err = c.nextRun(*r, time.Now()); err == nil && next.IsZero() {
			return // that was the last
		}
		if err == nil {
			f.Failed = f.Verdict == store.Bury
			f.Verdict, f.When = store.Again, store.When{At: next}
			return
		}
	}
	f.Verdict, f.Error = store.Bury, text(fmt.Errorf("no next run: %w", err))
}

// unready returns how the attempt at a job ends that is not to begin, or nil if it may begin.
func (c *Client) unready(j *store.Job, r *Repeat, o *handleOptions) error {
	if most := attemptsOf(j, o); most > 0 && j.Attempts > most {
		return errLastLease // only a recurring job; the store buries the others
	}
	if r == nil || r.Every > 0 {
		return nil
	}
	if _, _, err := c.scheduler(r); err != nil {
		// Its next run could not be told at its end, and the recurrence would be lost.
		c.set.log.Error("jobqueue: a recurring job is put off",
			"queue", j.Queue, "id", j.ID, "error", err)
		return Snooze(time.Minute)
	}
	return nil
}

func attemptsOf(j *store.Job, o *handleOptions) int {
	if j.MaxAttempts > 0 {
		return j.MaxAttempts
	}
	return o.attempts
}

const maxErrorText = 4096 // bytes: enough for a stack's upper part, which tells where

func text(err error) string {
	s := err.Error()
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	return strings.ToValidUTF8(s, "?")
}
