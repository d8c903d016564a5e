package jobqueue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

const (
	// flushDelay is how long an outcome waits for others at most. A crash within it delivers its
	// job again. It is short beside any lease, and a thousand groups a second cost little.
	flushDelay = time.Millisecond

	// manyOutcomes is how many are stored without waiting for more.
	manyOutcomes = 256

	// prefetchTime is how long a job that is fetched ahead should wait in the buffer. A fetch takes
	// some tens of microseconds on the embedded store and a millisecond over a network.
	prefetchTime = 10 * time.Millisecond

	// What is fetched ahead is bounded in number, so that a claim is short, and in bytes of bodies
	// by the sizes of late. claimMost bounds a claim for workers that are free.
	prefetchMost  = 512
	prefetchBytes = 4 << 20
	claimMost     = 1024

	// beatsInLease is how often a lease is extended in its time: a beat may fail twice before it
	// ends.
	beatsInLease = 4
)

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

// shouldExchangeLocked says whether it is time to talk to the store.
func (d *dispatcher) shouldExchangeLocked() bool {
	if d.busy || d.hold {
		return false
	}
	waiting := d.waiting()
	enough := d.prefetchLocked() / 2
	if d.held {
		enough = 0
	}
	if d.isOn() && d.look && waiting <= enough {
		return true
	}
	return len(d.outcomes) > 0 && (waiting == 0 || len(d.outcomes) >= manyOutcomes)
}

// prefetchLocked returns how many jobs to fetch beyond those that workers are free for.
func (d *dispatcher) prefetchLocked() int {
	if d.pace == 0 {
		return 0
	}
	workers := time.Duration(min(d.opts.workers, prefetchMost))
	byPace := int(min(prefetchTime*workers/d.pace, prefetchMost))
	return min(byPace, prefetchBytes/max(d.weight, 1))
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
	// Jobs are fetched for a free worker alone: if all are with slow handlers, what was given back
	// from the buffer is for others.
	free := d.opts.workers - len(d.running)
	begin := max(min(free, claimMost)-d.waiting(), 0) // at once
	room := min(free, claimMost) + d.prefetchLocked() - d.waiting()
	claiming := d.isOn() && d.look && free > 0 && room > 0
	if claiming {
		d.look = false
		d.due.next = time.Time{} // what wake hears from now on counts, and what the claim says
		d.claim = store.Claim{
			Queue:       d.queue,
			Max:         room,
			Fresh:       d.c.of(d.queue).fresh(room),
			Ahead:       room - begin,
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
	kept := outcomes // to be stored again
	if err == nil {
		kept = nil
		d.report(outcomes)
		if claiming {
			err = d.claim.Err
		}
	}
	final := errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed)
	switch {
	case err != nil && !final:
		d.c.set.log.Error("jobqueue: the store failed", "queue", d.queue, "error", err)
	case err == nil && claiming && d.claim.Buried > 0:
		d.counts.buried.Add(int64(d.claim.Buried))
		d.c.set.log.Error("jobqueue: jobs are dead, as the leases of their last attempts ended",
			"queue", d.queue, "jobs", d.claim.Buried)
	}
	d.mu.Lock()
	d.busy = false
	clear(d.ops)
	switch {
	case final:
		d.breakLocked(err)
	case err != nil:
		d.retryLocked(err, kept, claiming)
	default:
		d.failures = 0
		if claiming {
			d.fetchedLocked(returns, began, now)
		}
	}
	clear(outcomes)
	if d.spare = outcomes[:0]; cap(outcomes) > 4*manyOutcomes {
		d.spare = nil
	}
	d.dropped = d.dropped[:0]
	d.flushLaterLocked()
	d.checkIdleLocked()
}

// report counts outcomes that the store has got.
func (d *dispatcher) report(outcomes []outcome) {
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case o.Err != nil:
			d.counts.refused.Add(1)
			level := slog.LevelWarn
			if o.cancelled {
				level = slog.LevelDebug
			}
			d.c.set.log.Log(context.Background(), level,
				"jobqueue: the outcome of an attempt was refused",
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
	d.flush.Reset(min(50*time.Millisecond<<min(d.failures, 10), 10*time.Second))
}

// breakLocked ends everything, as the store has failed for good.
func (d *dispatcher) breakLocked(err error) {
	d.broken, d.hold, d.on = true, true, false
	d.outcomes = d.outcomes[:0]
	clear(d.buffer)
	d.buffer, d.head = d.buffer[:0], 0
	d.run.fail(err)
}

// fetchedLocked puts what was claimed into the buffer.
func (d *dispatcher) fetchedLocked(returns uint64, began, now time.Time) {
	if d.head > 0 {
		d.buffer = slices.Delete(d.buffer, 0, d.head)
		d.head = 0
	}
	// Jobs on their last attempt begin now: there are no more than workers are free, but fresh ones
	// are behind old ones.
	free := min(d.claim.Max-d.claim.Ahead, len(d.claim.Jobs))
	last := func(j store.Job) bool { return j.Attempts == attemptsOf(&j, &d.opts) }
	if slices.ContainsFunc(d.claim.Jobs[free:], last) {
		slices.SortStableFunc(d.claim.Jobs, func(a, b store.Job) int {
			switch {
			case last(a) == last(b):
				return 0
			case last(a):
				return -1
			}
			return 1
		})
	}
	size := 0
	for i := range d.claim.Jobs {
		size += len(d.claim.Jobs[i].Body)
		if !slices.Contains(d.dropped, d.claim.Jobs[i].ID) {
			d.buffer = append(d.buffer, claimed{d.claim.Jobs[i], began})
		}
	}
	if n := len(d.claim.Jobs); n > 0 {
		d.weight = max(size/n, d.weight/2)
	}
	clear(d.claim.Jobs) // they hold bodies
	if !d.on || d.returns != returns {
		d.returnLocked(time.Time{})
	}
	// The next job is not to wait for a worker.
	d.held = d.claim.Next == 0 && d.waiting() > 0 &&
		len(d.claim.Jobs) <= d.claim.Max-d.claim.Ahead
	switch {
	case !d.on:
	case d.claim.Next == 0 && d.held:
		d.look = true
	case d.claim.Next == 0 && len(d.claim.Jobs) > 0:
		d.look = true
	case d.claim.Next == 0:
		d.due.setLocked(now, time.Millisecond) // a store whose clock and answer disagree
	case d.claim.Next > 0:
		d.due.setLocked(now, d.claim.Next)
	case d.due.next.IsZero():
		d.due.stopLocked()
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
