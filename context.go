package timingwheel

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// This file holds contexts whose deadline is a timer of the wheel.
//
// Most contexts need no channel: the program makes them, perhaps calls Err, and cancels them. So
// until Done is called a context is a single struct: it has no channel, its parent holds no
// reference to it, and Err asks whether the parent has ended.
//
// The first call of Done makes it known to the parent. It also makes an inner context, one of
// package context. The channel of the inner context becomes ours, and the inner context answers
// Value from then on. Package context finds a parent of its own type through any number of
// WithValue, and needs a goroutine to follow any other.
//
//	parent  <-  deadlineContext  <-  source  <-  inner context  <-  children of package context's
//
// The parent of the inner context is the source: the deadlineContext as the inner context must see
// it. Only the source tells the inner context to end, and with which error.
//
// The order of locks: a context's mu, those of its children, and last those of package
// context and a shard's. No parent is asked under them: that may be user code.

// WithTimeout is WithDeadline with the time d from now.
func (tw *TimingWheel) WithTimeout(
	parent context.Context, d time.Duration,
) (context.Context, context.CancelFunc) {
	tw.check("WithTimeout")
	return tw.newContext("WithTimeout", parent, tw.endAfter(d), false, nil)
}

// WithDeadline returns a child of parent that ends with context.DeadlineExceeded at the time at, or
// earlier when the CancelFunc is called or parent ends. It is context.WithDeadline with a timer of
// the wheel: the context never ends early, and ends up to a tick later than one of package context.
// Call the CancelFunc as soon as the context is no longer needed.
//
// Contexts derived from it need no goroutine, whether this package or package context makes them,
// with or without values in between. When a parent that package context made ends, a goroutine
// closes the channel that Done has returned, and ends what package context has derived from this
// context. That takes a moment. Err, and a new call of Done, report the end at once. If Done was
// never called, the context notices its parent's end when Err or Done is called, and its timer
// stays pending until then or until its deadline. Err asks the parent, so its cost grows with the
// number of such contexts above. A parent of your own type must not wait for this context while it
// holds a lock that its Err takes.
//
// context.Cause may return the cause of an ancestor that has ended, even if this context ended
// before that ancestor, by its deadline or its CancelFunc. It does not if Done was called before
// this context ended. A context of WithDeadlineCause keeps its own cause in any case.
//
// The context does not use the executor, and outlives the wheel: if the wheel is or gets stopped
// before the deadline, package time takes the context over. On a wheel that waits for Start, the
// deadline takes effect no earlier than Start.
//
// Cost: one clock reading, one mutex, two allocations of 176 bytes together;
// cancelling it, two mutexes. The first call of Done makes six allocations over a parent
// that cannot end, seven over one of this package, nine over one of package context's.
func (tw *TimingWheel) WithDeadline(
	parent context.Context, at time.Time,
) (context.Context, context.CancelFunc) {
	tw.check("WithDeadline")
	return tw.newContext("WithDeadline", parent, tw.endAt(at), false, nil)
}

// WithTimeoutCause is WithTimeout, and sets the cause that context.Cause returns when the timeout
// expires. The CancelFunc does not set it. Cost: that of WithTimeout and four allocations more,
// about as much as with package context.
func (tw *TimingWheel) WithTimeoutCause(
	parent context.Context, d time.Duration, cause error,
) (context.Context, context.CancelFunc) {
	tw.check("WithTimeoutCause")
	return tw.newContext("WithTimeoutCause", parent, tw.endAfter(d), true, cause)
}

// WithDeadlineCause is WithDeadline, and sets the cause that context.Cause returns when the
// deadline has come. The CancelFunc does not set it. Cost: that of WithTimeoutCause.
func (tw *TimingWheel) WithDeadlineCause(
	parent context.Context, at time.Time, cause error,
) (context.Context, context.CancelFunc) {
	tw.check("WithDeadlineCause")
	return tw.newContext("WithDeadlineCause", parent, tw.endAt(at), true, cause)
}

// expiring is the kind of a Timer that is part of a deadlineContext.
var expiring = newKind(behaviour{
	name:     "a context",
	due:      (*shard).timeOutLocked,
	ring:     func(_ *shard, t *Timer, _ int64) func() { return t.context().expire },
	unlisted: true,
})

// timeOutLocked claims the timer of a context, which is due by this word, and has a goroutine end
// it.
func (s *shard) timeOutLocked(t *Timer, word uint64, _ int64) {
	if _, ok := s.claimLocked(t, word, makeWord(idle, 0)); ok {
		s.engine.driver.startAtUnlock(t.context().expire)
	}
}

// An end is when a context ends, as the caller has said it and by the wheel's clock.
type end struct {
	at            time.Time
	deadline, now int64 // now is the reading of the clock that goes with it
}

func (tw *TimingWheel) endAfter(d time.Duration) end {
	now := time.Now()
	instant := tw.at(now)
	return end{at: now.Add(d), deadline: deadlineAfter(instant, d), now: instant}
}

func (tw *TimingWheel) endAt(at time.Time) end {
	if !isWallOnly(at) {
		return end{at: at, deadline: tw.deadlineAt(at), now: tw.now()}
	}
	d := time.Until(at) // before now is read: what passes in between makes it later, not early
	now := tw.now()
	return end{at: at, deadline: deadlineAfter(now, d), now: now}
}

func (tw *TimingWheel) newContext(
	what string, parent context.Context, e end, keeps bool, cause error,
) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: " + what + " with a nil parent")
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(e.at) {
		return context.WithCancel(parent)
	}
	c := &deadlineContext{parent: parent, at: e.at, open: tw.open}
	if keeps {
		c.keeper = newKeeper(parent, cause)
	}
	if err := parent.Err(); err != nil {
		// It ended before c was made, and gives its cause, though c's deadline may be the earlier.
		c.cancel(err, context.Cause(parent))
	} else if e.deadline <= e.now {
		c.expire()
	} else {
		tw.armNew(&c.timer, expiring, pending, e.deadline, e.now)
	}
	return c, func() { c.cancel(context.Canceled, context.Canceled) }
}

// A deadlineContext is a context whose deadline is a timer of the wheel.
type deadlineContext struct {
	timer Timer // the first field: see Timer.context

	parent context.Context
	at     time.Time
	keeper *keeper       // of the Cause forms
	open   chan struct{} // of the wheel: see source.Done

	err    atomic.Value           // stored once, under mu, before the inner context ends
	source atomic.Pointer[source] // stored once, under mu, by the first Done: see makeSource

	mu          sync.Mutex
	propagating bool                          // the parent knows c, or is about to
	children    map[*deadlineContext]struct{} // children of this package
	removeSelf  func() bool                   // makes the parent forget c
}

// context returns what a Timer that is expiring is part of.
func (t *Timer) context() *deadlineContext { return (*deadlineContext)(unsafe.Pointer(t)) }

var _ = [1]struct{}{}[unsafe.Offsetof(deadlineContext{}.timer)] // fails if not the first

// contextKey is the key under which a deadlineContext is its own value.
type contextKey struct{}

// propagateCancel makes c known to its parent, once, so that it ends when the parent does.
func (c *deadlineContext) propagateCancel() {
	c.mu.Lock()
	known := c.propagating || c.ended() != nil
	c.propagating = true
	c.mu.Unlock()
	if known {
		return
	}
	if p, ok := c.parent.(*deadlineContext); ok {
		p.addChild(c)
		return
	}
	done := c.parent.Done()
	if done == nil {
		return
	}
	// A parent that has the channel of one of our contexts is that context with values.
	if p, ok := c.parent.Value(contextKey{}).(*deadlineContext); ok {
		if s := p.source.Load(); s != nil && s.inner.Done() == done {
			p.addChild(c)
			return
		}
	}
	removeSelf := context.AfterFunc(c.parent, c.catchUp)
	c.mu.Lock()
	ended := c.ended() != nil
	if !ended {
		c.removeSelf = removeSelf
	}
	c.mu.Unlock()
	if ended {
		removeSelf()
	}
}

// addChild makes child end with c.
func (c *deadlineContext) addChild(child *deadlineContext) {
	c.propagateCancel()

	child.mu.Lock()
	child.removeSelf = func() bool { return c.removeChild(child) }
	child.mu.Unlock()

	c.mu.Lock()
	if c.ended() == nil {
		if c.children == nil {
			c.children = map[*deadlineContext]struct{}{}
		}
		c.children[child] = struct{}{}
	}
	c.mu.Unlock()

	// Either may have ended before it knew about the other.
	child.catchUp()
	if child.ended() != nil {
		c.removeChild(child)
	}
}

func (c *deadlineContext) removeChild(child *deadlineContext) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known = c.children[child]
	delete(c.children, child)
	return known
}

// cancel ends c and what is derived from it. Only the first call has an effect. A second one that
// comes meanwhile waits for the lock: when a CancelFunc has returned, the channels are closed.
//
// Ending the inner context and the children under the lock runs no user code, because package
// context starts goroutines for that. removeSelf may run user code, so it is called without the
// lock.
func (c *deadlineContext) cancel(err, cause error) {
	c.mu.Lock()
	if c.ended() != nil {
		c.mu.Unlock()
		return
	}
	c.endLocked(err, cause)
	removeSelf := c.removeSelf
	c.removeSelf = nil
	c.mu.Unlock()
	if removeSelf != nil {
		removeSelf()
	}
}

func (c *deadlineContext) endLocked(err, cause error) {
	plain := err == context.Canceled && cause == err
	source := c.source.Load()
	switch {
	case c.keeper != nil:
		c.keeper.set(cause)
	case source != nil && !plain:
		source.keeper = newKeeper(context.Background(), nil)
		source.keeper.set(cause)
	}
	c.err.Store(err)
	switch {
	case source == nil:
	case plain:
		source.cancel() // the same, for less
	default:
		source.end()
	}
	timedOut := len(c.children) > 0 && isOver(err, c.at)
	for child := range c.children {
		child.mu.Lock() // after its parent's, as with package context
		switch {
		case child.ended() != nil:
		case timedOut && child.at.Before(c.at):
			child.endLocked(err, child.ownCause())
		default:
			child.endLocked(err, cause)
		}
		child.mu.Unlock()
	}
	c.children = nil
	if c.timer.shard != nil { // it was armed
		c.timer.Stop()
	}
}

// expire ends c at its deadline, on a goroutine that the driver starts.
func (c *deadlineContext) expire() {
	c.catchUp()
	c.cancel(context.DeadlineExceeded, c.ownCause())
}

// ownCause is the cause of c if its deadline comes first.
func (c *deadlineContext) ownCause() error {
	if c.keeper != nil && c.keeper.own != nil {
		return c.keeper.own
	}
	return context.DeadlineExceeded
}

// isOver reports whether a context that has ended with err has reached its deadline at. If so, a
// child with an earlier deadline has reached its own before, and ends with its own cause. Its
// timer, which is late by up to a tick, may still be the later one.
func isOver(err error, at time.Time) bool {
	return err == context.DeadlineExceeded && !time.Now().Before(at)
}

// ended returns the error that c has ended with, or nil if it has not ended.
func (c *deadlineContext) ended() error {
	err, _ := c.err.Load().(error)
	return err
}

// catchUp ends c if its parent has ended and c may not have been told yet.
func (c *deadlineContext) catchUp() {
	if c.ended() != nil {
		return
	}
	err := c.parent.Err()
	if err == nil {
		return
	}
	cause := context.Cause(c.parent)
	if at, ok := c.parent.Deadline(); ok && c.at.Before(at) && isOver(err, at) {
		cause = c.ownCause()
	}
	c.cancel(err, cause)
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.at, true }

func (c *deadlineContext) Done() <-chan struct{} {
	c.catchUp()
	s := c.source.Load()
	if s == nil {
		c.propagateCancel()
		s = c.makeSource()
	}
	if c.ended() != nil {
		<-s.inner.Done() // which cancel, having stored the error, is about to close
	}
	return s.inner.Done()
}

// Err waits, as package context's does, for the channel to be closed. cancel, which has stored the
// error, is about to do that.
func (c *deadlineContext) Err() error {
	c.catchUp()
	err := c.ended()
	if s := c.source.Load(); err != nil && s != nil {
		<-s.inner.Done()
	}
	return err
}

func (c *deadlineContext) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	if s := c.source.Load(); s != nil {
		return s.inner.Value(key)
	}
	return c.value(key)
}

// value is Value without the inner context.
func (c *deadlineContext) value(key any) any {
	if c.keeper != nil {
		return c.keeper.Value(key)
	}
	return c.parent.Value(key)
}

func (c *deadlineContext) String() string {
	parent := ""
	if s, ok := c.parent.(interface{ String() string }); ok {
		parent = s.String()
	} else {
		parent = reflect.TypeOf(c.parent).String()
	}
	return parent + ".WithDeadline(" + c.at.String() + " [" + time.Until(c.at).String() + "])"
}

// A source is the parent of the inner context of a deadlineContext.
type source struct {
	of     *deadlineContext
	inner  context.Context
	cancel context.CancelFunc
	end    func() // ends the inner context by the error and the cause of its parent

	// keeper holds the cause with which the inner context ends, if of has no keeper. Without it the
	// inner context would ask the parent, which may hide that an ancestor has ended but pass on the
	// ancestor's values. It is set before of ends.
	keeper *keeper
}

func (c *deadlineContext) makeSource() *source {
	s := &source{of: c, end: func() {}}
	s.inner, s.cancel = context.WithCancel(s) // asks the parent, which may be user code: no lock

	c.mu.Lock()
	if c.ended() != nil {
		// cancel came first and found no source. Callers must not see the inner context open.
		c.mu.Unlock()
		s.end()
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if other := c.source.Load(); other != nil {
		s.cancel()
		return other
	}
	c.source.Store(s)
	return s
}

// AfterFunc is how package context asks for a call at the end of a parent that it does not know.
func (s *source) AfterFunc(end func()) (stop func() bool) {
	s.end = end
	return func() bool { return true }
}

// Done tells package context that the source can end, and whether it has.
func (s *source) Done() <-chan struct{} {
	if s.of.ended() == nil {
		return s.of.open
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// Value is asked for the cause when the inner context is told to end.
func (s *source) Value(key any) any {
	if s.of.ended() != nil && s.keeper != nil {
		if cause := s.keeper.Value(key); cause != nil {
			return cause
		}
	}
	return s.of.value(key)
}

func (s *source) Err() error                  { return s.of.ended() }
func (s *source) Deadline() (time.Time, bool) { return s.of.at, true }

// A keeper holds the cause of a context for context.Cause, which looks for it in
// contexts of package context's only.
type keeper struct {
	own error // the cause if the deadline comes first; nil for none
	context.Context
	set context.CancelCauseFunc
}

func newKeeper(parent context.Context, own error) *keeper {
	k := &keeper{own: own}
	k.Context, k.set = context.WithCancelCause(context.WithoutCancel(parent))
	return k
}
