package jobqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// This file sends due jobs on as messages, in batches. Each of them is in the hands of an ordinary
// handler, so leases, outcomes and the end of Run are those of Handle. The handlers of a queue meet
// in shipments: while some are on their way, the next one gathers, as calls do in a group.

// A Sink takes jobs to where others work on them, such as a message broker.
//
// Send returns when it knows what became of each job: nil if all of them are stored where they were
// sent, or as many errors as there are jobs, in their order. What an error does is what it does
// when a Handler returns it: nil acknowledges the job, RetryIn, Snooze and Bury may be used, and
// any other error is a failed attempt. The exception is an error that matches ErrUnavailable, which
// costs no attempt.
//
// A job that was sent may be sent again, for instance if a confirmation was lost. MessageID is then
// the same, so that a consumer can drop the second one.
//
// ctx has the values of Run's context. It ends when the contexts of all the jobs have, as those of
// handlers do. Send must not keep or change jobs once it has returned. Up to two calls are under
// way at a time.
type Sink interface {
	Send(ctx context.Context, jobs []*Job) []error
}

// ErrUnavailable is what the error of a Sink matches if the job could not be handed over for
// reasons that have nothing to do with it: the broker is away, or does not confirm in time. Forward
// then tries again after a while.
var ErrUnavailable = errors.New("the sink is unavailable")

// forwardWorkers is Forward's default of Workers. A broker that confirms in 5 ms then takes 50,000
// jobs a second.
const forwardWorkers = 256

// shipmentsUnderWay is how many calls of Send there are at a time: one gathers what is to be sent
// while the other waits for confirmations.
const shipmentsUnderWay = 2

// Forward has due jobs of a queue sent to a sink while Run is under way. Each is acknowledged when
// the sink has confirmed it, and otherwise tried again, as for Handle, which takes the same
// options. Workers bounds how many jobs are in the process at a time, and with that the size of a
// batch; the default is 256, whatever WithDefaults says.
//
// While the sink is unavailable, jobs that are due stay where they are, but for as many as there
// are workers. Those are sent again after 0.1 s and then after longer waits, up to 10 s. They lose
// no attempt; after Lease, or when Run ends, they are given back to the queue as they were.
//
// Jobs are sent in about the order in which they are due, but not exactly: batches may pass each
// other, and a job that is tried again comes later.
func (c *Client) Forward(queue string, sink Sink, opts ...HandleOption) {
	if sink == nil {
		panic("jobqueue: Forward to a nil Sink")
	}
	opts = slices.Concat([]HandleOption{Workers(forwardWorkers)}, opts)
	f := &forwarder{c: c, queue: queue, sink: sink, keep: c.handleOptions(opts).lease}
	c.Handle(queue, f.handle, opts...)
}

// MessageID returns what a message made of the job is to be known by. It is the job's ID, the same
// for all attempts. Each run of a recurring job has one of its own.
func (j *Job) MessageID() string {
	if j.Repeat == nil {
		return j.ID.String()
	}
	return j.ID.String() + "-" + strconv.Itoa(j.Repeat.Runs)
}

// A forwarder is the handler that Forward gives a queue.
type forwarder struct {
	c     *Client
	queue string
	sink  Sink
	keep  time.Duration // how long jobs wait for a sink that is unavailable

	mu       sync.Mutex
	next     *shipment // what gathers, nil if there is nothing
	taking   bool      // a goroutine that is under way is to take next
	underWay int
	failures int       // since the sink was last fully available
	since    time.Time // when it became unavailable
}

// A shipment is the jobs of one call of Send. All but done is guarded by forwarder.mu until done is
// closed.
type shipment struct {
	parcels []*parcel
	waiting int                // parcels whose handler waits with a context that has not ended
	cancel  context.CancelFunc // of Send's context, nil before
	done    chan struct{}      // closed when every err is set
}

// A parcel is a job in a shipment.
type parcel struct {
	ctx context.Context
	job *Job
	err error
}

// handle is a Handler.
func (f *forwarder) handle(ctx context.Context, job *Job) error {
	for began := time.Now(); ; {
		p := &parcel{ctx: ctx, job: job}
		s := f.join(p)
		select {
		case <-s.done:
		case <-ctx.Done():
			f.leave(s)
			<-s.done // Send has the job
		}
		switch {
		case !errors.Is(p.err, ErrUnavailable):
			return p.err
		case ctx.Err() != nil, f.c.current().isEnding(), time.Since(began) >= f.keep:
			return errReturned
		}
	}
}

// join adds a parcel to the next shipment.
func (f *forwarder) join(p *parcel) *shipment {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.next
	if s == nil {
		s = &shipment{done: make(chan struct{})}
		f.next = s
	}
	s.parcels = append(s.parcels, p)
	s.waiting++
	f.startLocked()
	return s
}

// leave has Send's context end once no handler needs its answer.
func (f *forwarder) leave(s *shipment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.waiting--; s.waiting == 0 && s.cancel != nil {
		s.cancel()
	}
}

// startLocked sends the next shipment, unless enough are under way. While the sink is unavailable,
// one is enough to find out when it no longer is.
func (f *forwarder) startLocked() {
	most := shipmentsUnderWay
	if f.failures > 0 {
		most = 1
	}
	if f.next != nil && !f.taking && f.underWay < most {
		f.taking = true
		f.underWay++
		go f.ship()
	}
}

// ship sends what has gathered.
func (f *forwarder) ship() {
	r := f.c.current()
	mayTry := f.pause(r)
	ctx, cancel := context.WithCancel(r.base)
	defer cancel()
	f.mu.Lock()
	s := f.next
	f.next, f.taking, s.cancel = nil, false, cancel
	f.mu.Unlock()

	var sent []*parcel
	var jobs []*Job
	for _, p := range s.parcels {
		switch {
		case p.ctx.Err() != nil: // it was cancelled, say
			p.err = errReturned
		case !mayTry:
			p.err = ErrUnavailable
		default:
			sent = append(sent, p)
			jobs = append(jobs, p.job)
		}
	}
	errs := slices.Repeat([]error{errSendGoexit}, len(jobs))
	defer func() {
		if v := recover(); v != nil {
			f.c.of(f.queue).counters.panics.Add(1)
			err := fmt.Errorf("panic: %v\n\n%s", v, panicStack())
			errs = slices.Repeat([]error{err}, len(jobs))
		}
		f.shipped(s, sent, errs)
	}()
	if len(jobs) > 0 {
		errs = f.sink.Send(ctx, jobs)
	}
}

var errSendGoexit = errors.New("the sink called runtime.Goexit")

// pause waits while the sink is unavailable, for longer each time. It returns whether to send: not
// if Run ends meanwhile.
func (f *forwarder) pause(r *run) bool {
	f.mu.Lock()
	failures := f.failures
	f.mu.Unlock()
	if failures == 0 {
		return true
	}
	wait := min(50*time.Millisecond<<min(failures, 10), 10*time.Second)
	// Processes that share a sink do not come back to it at the same moment.
	timer := time.NewTimer(wait/2 + rand.N(wait/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ending:
		return false
	}
}

// shipped notes what Send has answered, and starts the next shipment.
func (f *forwarder) shipped(s *shipment, sent []*parcel, errs []error) {
	if len(errs) != len(sent) && errs != nil {
		err := fmt.Errorf("the sink has %d results for %d jobs", len(errs), len(sent))
		errs = slices.Repeat([]error{err}, len(sent))
	}
	var away error
	kept := 0
	for i, err := range errs {
		sent[i].err = err
		if errors.Is(err, ErrUnavailable) {
			away = err
			kept++
		}
	}
	f.mu.Lock()
	before, since := f.failures, f.since
	switch {
	case len(sent) == 0:
	case kept == 0:
		f.failures = 0
	case kept < len(sent): // it took some
		f.failures = 1
	default:
		f.failures++
	}
	after := f.failures
	if before == 0 {
		f.since = time.Now()
	}
	f.underWay--
	f.startLocked()
	f.mu.Unlock()
	close(s.done)

	switch log := f.c.set.log; {
	case before == 0 && after > 0:
		log.Warn("jobqueue: a sink is unavailable", "queue", f.queue, "error", away)
	case before > 0 && after == 0:
		log.Info("jobqueue: a sink is available again", "queue", f.queue,
			"after", time.Since(since))
	}
}
