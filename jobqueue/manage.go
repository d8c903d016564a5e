package jobqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Cancel removes a job that is live or dead. When it returns nil, no delivery begins any more. If a
// worker had claimed the job, it returns ErrRunning: the handler may run, no other delivery begins,
// the acknowledgement will be refused, and if it is a handler of this Client its context ends.
func (c *Client) Cancel(ctx context.Context, queue string, ref Ref) error {
	op := &store.Cancel{Queue: queue, Ref: ref}
	if err := c.do(ctx, "cancel in", queue, op); err != nil {
		return err
	}
	l := c.of(queue)
	l.counters.cancelled.Add(1)
	if !op.Running {
		return nil
	}
	if d := l.dispatcher.Load(); d != nil && d.forget(op.ID) {
		return nil
	}
	return failed("cancel in", queue, ErrRunning)
}

// Reschedule moves the due time of a job that is Delayed or Ready, to earlier or later: it is due d
// from now. If the job is being worked on, it returns ErrLeased.
func (c *Client) Reschedule(ctx context.Context, queue string, ref Ref, d time.Duration) error {
	return c.reschedule(ctx, queue, ref, store.When{In: max(d, 0)})
}

// RescheduleAt is Reschedule to an instant of the wall clock.
func (c *Client) RescheduleAt(ctx context.Context, queue string, ref Ref, t time.Time) error {
	when, err := at(t)
	if err != nil {
		return failed("reschedule in", queue, err)
	}
	return c.reschedule(ctx, queue, ref, when)
}

func (c *Client) reschedule(ctx context.Context, queue string, ref Ref, when store.When) error {
	err := c.do(ctx, "reschedule in", queue, &store.Reschedule{Queue: queue, Ref: ref, When: when})
	if err == nil {
		c.of(queue).counters.rescheduled.Add(1)
	}
	return err
}

// UpdateBody replaces the body of a job that is Delayed or Ready. If the job is being worked on, it
// returns ErrLeased.
func (c *Client) UpdateBody(ctx context.Context, queue string, ref Ref, body []byte) error {
	if len(body) > c.set.maxBody {
		return failed("update in", queue, tooLarge("body", len(body), c.set.maxBody))
	}
	return c.do(ctx, "update in", queue, &store.Update{Queue: queue, Ref: ref, Body: body})
}

// Get returns a job.
func (c *Client) Get(ctx context.Context, queue string, ref Ref) (*Job, error) {
	if err := c.check(queue); err != nil {
		return nil, failed("get from", queue, err)
	}
	j, err := c.store.Get(ctx, queue, ref)
	if err != nil {
		return nil, failed("get from", queue, err)
	}
	job := jobOf(&j)
	return &job, nil
}

// A Cursor is a place in a List. It is a text that may be stored or sent.
type Cursor = store.Cursor

// List returns up to limit jobs of a queue in a state: those that are live in the order in which
// they are due, the others in the order in which they finished. It begins behind the cursor after,
// and returns the cursor for the next call; an empty one is the beginning, and the end. A job that
// comes, goes or moves meanwhile may be missing or appear twice.
func (c *Client) List(ctx context.Context, queue string, state State, after Cursor, limit int) (
	[]*Job, Cursor, error,
) {
	if err := c.check(queue); err != nil {
		return nil, "", failed("list", queue, err)
	}
	if limit < 1 || state < Delayed || state > Done {
		err := fmt.Errorf("%w: a list of %d jobs in state %d", ErrInvalid, limit, state)
		return nil, "", failed("list", queue, err)
	}
	found, next, err := c.store.List(ctx, queue, state, after, limit)
	if err != nil {
		return nil, "", failed("list", queue, err)
	}
	jobs := make([]*Job, len(found))
	for i := range found {
		job := jobOf(&found[i])
		jobs[i] = &job
	}
	return jobs, next, nil
}

// Jobs returns all jobs of a queue in a state, as List has them, read in pages. It ends with the
// first error.
func (c *Client) Jobs(ctx context.Context, queue string, state State) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		var after Cursor
		for {
			jobs, next, err := c.List(ctx, queue, state, after, 500)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range jobs {
				if !yield(job, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			after = next
		}
	}
}

// Requeue makes a dead job ready again, with all its attempts before it. If a live job has its key
// by now, it returns ErrKeyExists.
func (c *Client) Requeue(ctx context.Context, queue string, id ID) error {
	return c.do(ctx, "requeue in", queue, &store.Requeue{Queue: queue, Ref: ByID(id)})
}

// RequeueAll makes the dead jobs of a queue ready again, and returns how many. Those whose key a
// live job has by now stay dead.
func (c *Client) RequeueAll(ctx context.Context, queue string) (n int, err error) {
	return c.inParts(ctx, "requeue in", queue, Dead, func(most int) (int, error) {
		op := &store.Requeue{Queue: queue, Max: most}
		err := c.do(ctx, "requeue in", queue, op)
		return op.N, err
	})
}

// manyAtATime bounds operations on all jobs of a queue, so that they hold up no other for long.
const manyAtATime = 1000

// Purge removes the jobs of a queue in a state, which cannot be Leased, and returns how many. Jobs
// that get into that state meanwhile may be removed or not.
func (c *Client) Purge(ctx context.Context, queue string, state State) (n int, err error) {
	if state < Delayed || state > Done || state == Leased {
		return 0, failed("purge", queue, fmt.Errorf("%w: state %d", ErrInvalid, state))
	}
	return c.inParts(ctx, "purge", queue, state, func(most int) (int, error) {
		op := &store.Purge{Queue: queue, State: state, Max: most}
		err := c.do(ctx, "purge", queue, op)
		return op.N, err
	})
}

// inParts calls f for as many jobs as are in a state now. More may come as fast as f deals with
// them: those that are requeued may soon be dead again.
func (c *Client) inParts(
	ctx context.Context, verb, queue string, state State, f func(most int) (int, error),
) (n int, err error) {
	if err := c.check(queue); err != nil {
		return 0, failed(verb, queue, err)
	}
	infos, err := c.store.Queues(ctx)
	if err != nil {
		return 0, failed(verb, queue, err)
	}
	left := 0
	for _, info := range infos {
		if info.Name == queue {
			left = map[State]int{Delayed: info.Delayed, Ready: info.Ready, Dead: info.Dead,
				Done: info.Done}[state]
		}
	}
	for left > 0 {
		most := min(left, manyAtATime)
		done, err := f(most)
		if n += done; err != nil || done < most {
			return n, err
		}
		left -= most
	}
	return n, nil
}

// Pause has no job of the queue delivered until Resume, in any process and after a restart too.
// Handlers that run go on. When it returns nil, no handler of this Client begins any more, and what
// was claimed for them is ready again with no attempt lost.
func (c *Client) Pause(ctx context.Context, queue string) error {
	paused := true
	op := &store.Configure{Queue: queue, Paused: &paused}
	if err := c.do(ctx, "pause", queue, op); err != nil {
		return err
	}
	if d := c.of(queue).dispatcher.Load(); d != nil {
		d.giveBack()
	}
	return nil
}

// Resume undoes Pause.
func (c *Client) Resume(ctx context.Context, queue string) error {
	paused := false
	return c.do(ctx, "resume", queue, &store.Configure{Queue: queue, Paused: &paused})
}

// Limits bound what a queue or a namespace holds of live jobs.
type Limits = store.Limits

// Limit bounds a queue, or a namespace if the name ends with a slash: all queues whose names begin
// so, up to the first slash, together. The limits are stored. The zero Limits are none.
func (c *Client) Limit(ctx context.Context, name string, limits Limits) error {
	if limits.Jobs < 0 || limits.Bytes < 0 {
		return failed("limit", name, fmt.Errorf("%w: a limit below zero", ErrInvalid))
	}
	op := &store.Configure{Queue: name, Limits: &limits}
	if isNamespace(name) {
		err := c.group.do(ctx, op)
		if err = errors.Join(err, op.Err); err != nil {
			return failed("limit", name, err)
		}
		return nil
	}
	return c.do(ctx, "limit", name, op)
}

// ErrNoBackup is returned by Backup if the store has none.
var ErrNoBackup = errors.New("the store makes no backups")

// Backup writes a copy of the store, as it was at one moment, to a path where nothing is yet. Jobs
// go on meanwhile. Stores other than the embedded one may have no backup; the error is then
// ErrNoBackup.
func (c *Client) Backup(ctx context.Context, path string) error {
	s, ok := c.store.(interface {
		Backup(ctx context.Context, path string) error
	})
	if !ok {
		return failed("backup to", path, ErrNoBackup)
	}
	if err := s.Backup(ctx, path); err != nil {
		return failed("backup to", path, err)
	}
	return nil
}
