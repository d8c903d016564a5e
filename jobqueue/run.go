package jobqueue

import (
	"context"
	"errors"
	"slices"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Run delivers jobs to the handlers until ctx ends, Close is called, or the store fails. Then no
// handler begins any more; Run waits for those that run, stores their outcomes, gives back what was
// claimed for handlers that had not begun, with no attempt lost, and returns. It returns nil unless
// the store failed. It may be called again afterwards, but not twice at a time.
//
// Run waits for a handler, and for a call of the store, however long it takes. WithGrace tells
// handlers to hurry.
func (c *Client) Run(ctx context.Context) error {
	r := &run{
		base:   context.WithoutCancel(ctx),
		failed: make(chan error, 1),
		ending: make(chan struct{}),
		over:   make(chan struct{}),
	}
	r.ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	if err := c.begin(r); err != nil {
		return err
	}
	defer c.end(r)
	c.local.Range(func(_, l any) bool {
		if d := l.(*local).dispatcher.Load(); d != nil {
			c.deliver(r, d)
		}
		return true
	})

	<-r.ctx.Done()
	c.mu.Lock()
	r.stopped = true
	c.mu.Unlock()
	close(r.ending)
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
	var err error
	for i, d := range r.dispatchers {
		<-idle[i]
		err = errors.Join(err, d.lost)
	}
	select {
	case failure := <-r.failed:
		err = errors.Join(failure, err)
	default:
	}
	if err != nil {
		return failed("run", "handlers", err)
	}
	return nil
}

// A run is one call of Run.
type run struct {
	ctx         context.Context // once it has ended no handler begins
	stop        func()          // ends ctx
	base        context.Context // the handlers' contexts come from it
	middleware  []Middleware
	failed      chan error    // has the failure of the store that ends the run
	ending      chan struct{} // closed when no handler is to begin any more
	over        chan struct{} // closed at the end
	dispatchers []*dispatcher // Client.mu guards it until stopped is set
	stopped     bool          // guarded by Client.mu
}

// begin makes r the Run under way.
func (c *Client) begin(r *run) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closing:
		return failed("run", "handlers", store.ErrClosed)
	default:
	}
	if c.run != nil {
		return errors.New("jobqueue: Run is under way already")
	}
	c.run, r.middleware = r, c.middleware
	return nil
}

func (c *Client) end(r *run) {
	c.mu.Lock()
	c.run = nil
	c.mu.Unlock()
	close(r.over)
}

// deliver begins to deliver the jobs of a queue. Run and Handle may both call it for a queue.
func (c *Client) deliver(r *run, d *dispatcher) {
	wrapped := d.handler
	for _, m := range slices.Backward(r.middleware) { // without the lock: it is the user's code
		wrapped = m(wrapped)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.stopped && !slices.Contains(r.dispatchers, d) {
		r.dispatchers = append(r.dispatchers, d)
		d.start(r, wrapped)
	}
}

// fail ends the run, as the store has failed.
func (r *run) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
	r.stop()
}

// current returns the Run that is under way. A handler calls it, so there is one.
func (c *Client) current() *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// isEnding says whether no handler is to begin any more.
func (r *run) isEnding() bool {
	select {
	case <-r.ending:
		return true
	default:
		return false
	}
}
