package jobqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Reserve is for programs that bring their own workers. It waits until a job of the queue is due,
// or ctx ends, and leases up to n that are. Each Delivery has to be ended with Ack, Nack or Bury
// before its lease runs out, or be extended; otherwise the job is delivered again. Attempts and
// Backoff are those of Handle, if this Client has one for the queue, or those of WithDefaults.
func (c *Client) Reserve(ctx context.Context, queue string, n int, lease time.Duration) (
	[]*Delivery, error,
) {
	for waited := false; ; waited = true {
		got, next, seen, err := c.reserve(ctx, queue, n, lease)
		if err != nil {
			if waited {
				c.of(queue).gate.wake(0) // it was this one's turn: the next one's now
			}
			return nil, failed("reserve from", queue, err)
		}
		if len(got) > 0 {
			return got, nil
		}
		if err := c.of(queue).gate.wait(ctx, c.closing, next, seen); err != nil {
			return nil, failed("reserve from", queue, err)
		}
	}
}

// TryReserve is Reserve that does not wait: it returns nothing if no job is due.
func (c *Client) TryReserve(ctx context.Context, queue string, n int, lease time.Duration) (
	[]*Delivery, error,
) {
	got, _, _, err := c.reserve(ctx, queue, n, lease)
	if err != nil {
		return nil, failed("reserve from", queue, err)
	}
	return got, nil
}

// reserve claims once. It returns how long it is until there may be more, negative for never, and
// what the gate's version was before.
func (c *Client) reserve(ctx context.Context, queue string, n int, lease time.Duration) (
	got []*Delivery, next time.Duration, seen uint64, err error,
) {
	if err := c.check(queue); err != nil {
		return nil, 0, 0, err
	}
	if n < 1 || lease < time.Millisecond {
		return nil, 0, 0, fmt.Errorf("%w: Reserve of %d jobs for %v", ErrInvalid, n, lease)
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, 0, err
	}
	l := c.of(queue)
	seen = l.gate.look()
	opts := c.optionsOf(queue)
	claim := &store.Claim{Queue: queue, Max: n, Fresh: l.fresh(n), Lease: lease,
		MaxAttempts: opts.attempts}
	if err := c.store.Do(ctx, []store.Op{claim}); err != nil {
		return nil, 0, 0, err
	}
	if claim.Err != nil {
		return nil, 0, 0, claim.Err
	}
	l.counters.buried.Add(int64(claim.Buried))
	now := time.Now()
	for i := range claim.Jobs {
		j := &claim.Jobs[i]
		d := &Delivery{Job: jobOf(j), client: c, job: *j}
		if outcome := c.unready(j, d.Repeat, &opts); outcome != nil {
			if err := d.end(ctx, outcome); err != nil {
				c.set.log.Error("jobqueue: a run was not ended",
					"queue", queue, "id", d.ID, "error", err)
			}
			continue
		}
		l.counters.delivered.Add(1)
		l.counters.late(now, &d.Job)
		got = append(got, d)
	}
	if claim.Next >= 0 && len(got) > 0 {
		l.gate.wake(claim.Next) // others that wait
	}
	return got, claim.Next, seen, nil
}

// A Delivery is a job that Reserve leased. Its methods return ErrLeaseLost if the lease has ended
// meanwhile: the job may be with another worker by then, or was cancelled.
type Delivery struct {
	Job
	client *Client
	job    store.Job
}

// Ack says that the work is done. It returns when that is stored.
func (d *Delivery) Ack(ctx context.Context) error { return d.end(ctx, nil) }

// Nack says that the attempt failed, as a Handler does by returning err: RetryIn, Snooze and Bury
// work here too. A nil err is an error without a text.
func (d *Delivery) Nack(ctx context.Context, err error) error {
	if err == nil {
		err = errNacked
	}
	return d.end(ctx, err)
}

// Bury says that there is to be no other attempt: the job is dead.
func (d *Delivery) Bury(ctx context.Context, reason string) error {
	return d.end(ctx, Bury(reason))
}

// Extend has the lease end so far from now.
func (d *Delivery) Extend(ctx context.Context, lease time.Duration) error {
	if lease < time.Millisecond {
		return failed("extend in", d.Queue, fmt.Errorf("%w: a lease of %v", ErrInvalid, lease))
	}
	op := &store.Extend{Queue: d.Queue, ID: d.ID, Token: d.job.Token, Lease: lease}
	return d.client.do(ctx, "extend in", d.Queue, op)
}

func (d *Delivery) end(ctx context.Context, outcome error) error {
	opts := d.client.optionsOf(d.Queue)
	f := &store.Finish{}
	d.client.verdict(f, &d.job, outcome, &opts)
	err := d.client.do(ctx, "finish in", d.Queue, f)
	if err == nil {
		d.client.of(d.Queue).counters.ended(f)
	}
	return err
}

// A gate is where the pullers of a queue wait. One of them is let through at a time, and lets the
// next one through if there is more.
type gate struct {
	mu      sync.Mutex
	due     alarm           // calls open
	version uint64          // counts what was heard: a wait misses nothing since its claim
	waiting []chan struct{} // closed to let one through; the first came first
}

func (g *gate) init(c *Client) { g.due.init(c, g.open) }

// look returns the version that wait is to be given.
func (g *gate) look() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.version
}

// wake says that there may be a job so far from now.
func (g *gate) wake(in time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if in <= 0 {
		g.openLocked()
		return
	}
	g.version++
	if len(g.waiting) > 0 {
		g.due.setLocked(time.Now(), in)
	}
}

// open lets the first one through, when the alarm rings.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due.stopLocked()
	g.openLocked()
}

func (g *gate) openLocked() {
	g.version++
	if len(g.waiting) > 0 {
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
	}
}

// wait returns nil when it is time to claim again: something was heard since look returned seen, or
// next has passed.
func (g *gate) wait(
	ctx context.Context, closing <-chan struct{}, next time.Duration, seen uint64,
) error {
	g.mu.Lock()
	if g.version != seen {
		g.mu.Unlock()
		return nil
	}
	through := make(chan struct{})
	g.waiting = append(g.waiting, through)
	if next >= 0 {
		// A store whose clock and answer disagree says 0.
		g.due.setLocked(time.Now(), max(next, time.Millisecond))
	}
	g.mu.Unlock()

	var err error
	select {
	case <-through:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-closing:
		err = ErrClosed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == through {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return err
		}
	}
	g.openLocked() // it was this one's turn: the next one's now
	return err
}
