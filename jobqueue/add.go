package jobqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Add adds a job to a queue, due now unless an option says otherwise. When it returns nil, the job
// is stored. It returns the job's ID, or under the policy Keep that of the live job with the key,
// so that an Add whose outcome is unknown may simply be called again if it has a key.
//
// body must not change while Add runs. It may be used again afterwards, unless Add returned
// ErrUnknown.
func (c *Client) Add(ctx context.Context, queue string, body []byte, opts ...AddOption) (
	ID, error,
) {
	op, err := c.addition(queue, body, opts)
	if err != nil {
		return 0, failed("add to", queue, err)
	}
	held := c.held(op)
	if err := c.do(ctx, "add to", queue, op); err != nil {
		return 0, err
	}
	c.added(op, held)
	return op.ID, nil
}

// An Item is a job for AddMany.
type Item struct {
	Body    []byte
	Options []AddOption
}

// AddMany adds jobs to a queue, all in one write. The options hold for every Item, before its own.
// It returns the ID of each. If some are refused, the others are stored all the same: the error is
// then an AddErrors, and the IDs of the refused are 0.
func (c *Client) AddMany(ctx context.Context, queue string, items []Item, opts ...AddOption) (
	[]ID, error,
) {
	if err := c.check(queue); err != nil {
		return nil, failed("add to", queue, err)
	}
	ids := make([]ID, len(items))
	errs := make(AddErrors, len(items))
	adds := make([]*store.Add, len(items))
	held := make([]ID, len(items))
	ops := make([]store.Op, 0, len(items))
	refused := false
	for i, item := range items {
		all := item.Options
		if len(opts) > 0 {
			all = append(opts[:len(opts):len(opts)], item.Options...)
		}
		if adds[i], errs[i] = c.addition(queue, item.Body, all); errs[i] != nil {
			refused = true
			continue
		}
		held[i] = c.held(adds[i])
		ops = append(ops, adds[i])
	}
	if len(ops) > 0 {
		if err := c.group.do(ctx, ops...); err != nil {
			return nil, failed("add to", queue, err)
		}
	}
	for i, op := range adds {
		switch {
		case errs[i] != nil:
		case op.Err != nil:
			errs[i], refused = op.Err, true
		default:
			ids[i] = op.ID
			c.added(op, held[i])
		}
	}
	if refused {
		return ids, failed("add to", queue, errs)
	}
	return ids, nil
}

// AddErrors has, for each Item of an AddMany, why it was refused, or nil. errors.As finds it in
// what AddMany returned, and errors.Is the reasons in it.
type AddErrors []error

// Error implements error.
func (e AddErrors) Error() string {
	n := 0
	var first error
	for _, err := range e {
		if err != nil {
			if n++; n == 1 {
				first = err
			}
		}
	}
	return fmt.Sprintf("%d of %d jobs refused, the first: %v", n, len(e), first)
}

// Unwrap returns the reasons.
func (e AddErrors) Unwrap() (errs []error) {
	for _, err := range e {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// An AddOption says how a job is added.
type AddOption func(*addition)

// An addition is a job on its way to the store.
type addition struct {
	store.Add
	timed  bool // In or At was given
	repeat *Repeat
	err    error
}

func (a *addition) refuse(err error) {
	if a.err == nil {
		a.err = err
	}
}

// In has the job due d from now, by the time that passes. What is not positive is now.
func In(d time.Duration) AddOption {
	return func(a *addition) { a.When, a.timed = store.When{In: max(d, 0)}, true }
}

// At has the job due at an instant of the wall clock. One that has passed is now, and the job goes
// before those that have been due for a shorter time. An instant beyond the year 9999 is refused
// with ErrBadTime.
func At(t time.Time) AddOption {
	return func(a *addition) {
		var err error
		if a.When, err = at(t); err != nil {
			a.refuse(err)
		}
		a.timed = true
	}
}

var epoch = time.Unix(0, 0)

// at returns the When of an instant.
func at(t time.Time) (store.When, error) {
	if t.UTC().Year() > 9999 {
		return store.When{}, ErrBadTime
	}
	if t.Before(epoch) {
		t = epoch
	}
	return store.When{At: t}, nil
}

// Key gives the job a key, by which Cancel and others find it. Among the live jobs of a queue a key
// is unique; OnConflict says what happens otherwise. An empty key is none.
func Key(key string) AddOption {
	return func(a *addition) {
		if len(key) > maxKey {
			a.refuse(tooLarge("key", len(key), maxKey))
		}
		a.Job.Key = key
	}
}

// Conflict says what Add does if a live job of the queue has the same key.
type Conflict = store.Conflict

// The policies for OnConflict.
const (
	Keep    = store.Keep    // the live job stays as it is, and Add returns its ID; the default
	Replace = store.Replace // the new job takes its place, as if the live one were cancelled
	Fail    = store.Fail    // Add returns ErrKeyExists
)

// OnConflict says what happens if a live job of the queue has the same key, by default Keep.
func OnConflict(policy Conflict) AddOption {
	return func(a *addition) {
		if policy > Fail {
			a.refuse(fmt.Errorf("%w: OnConflict(%d)", ErrInvalid, policy))
		}
		a.On = policy
	}
}

// Priority says which of the jobs that are due at the same millisecond goes first: the one with the
// lower number, from -128 to 127, by default 0. It does not let a job pass others that are due
// before it, nor those that a worker has claimed already: where handlers are quick, these are the
// jobs of the next 10 ms.
func Priority(p int) AddOption {
	return func(a *addition) {
		if p < -128 || p > 127 {
			a.refuse(fmt.Errorf("%w: Priority(%d) is not between -128 and 127", ErrInvalid, p))
		}
		a.Job.Priority = uint8(p + 128)
	}
}

// MaxAttempts sets after how many attempts the job is dead, instead of the handler's Attempts.
func MaxAttempts(n int) AddOption {
	return func(a *addition) {
		if n < 1 {
			a.refuse(fmt.Errorf("%w: MaxAttempts(%d)", ErrInvalid, n))
		}
		a.Job.MaxAttempts = n
	}
}

// Retain keeps the job for a time after it was acknowledged, in the state Done, where Get and List
// find it by its ID.
func Retain(d time.Duration) AddOption {
	return func(a *addition) { a.Job.Retain = max(d, 0) }
}

// addition returns the operation that adds a job.
func (c *Client) addition(queue string, body []byte, opts []AddOption) (*store.Add, error) {
	a := &addition{Add: store.Add{Job: store.Job{Queue: queue, Body: body, Priority: 128}}}
	for _, opt := range opts {
		opt(a)
	}
	if a.err != nil {
		return nil, a.err
	}
	if len(body) > c.set.maxBody {
		return nil, tooLarge("body", len(body), c.set.maxBody)
	}
	if a.repeat != nil {
		if err := c.firstRun(a, time.Now()); err != nil {
			return nil, err
		}
	}
	return &a.Add, nil
}

func tooLarge(what string, size, limit int) error {
	return fmt.Errorf("%w: a %s of %d bytes; the limit is %d", ErrTooLarge, what, size, limit)
}

// held returns the job that this Client's handler has, or is about to get, and that an Add is to
// replace, or 0. It is asked before the Add: what is claimed meanwhile may be the new job.
func (c *Client) held(op *store.Add) ID {
	if op.On != Replace || op.Job.Key == "" {
		return 0
	}
	if d := c.of(op.Job.Queue).dispatcher.Load(); d != nil {
		return d.holds(op.Job.Key)
	}
	return 0
}

// added notes that an Add was carried out. held is what it has replaced if that is another job.
func (c *Client) added(op *store.Add, held ID) {
	l := c.of(op.Job.Queue)
	if !op.Kept {
		l.counters.added.Add(1)
	}
	if held != 0 && held != op.ID {
		l.dispatcher.Load().forget(held)
	}
}
