package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errMine   = errors.New("mine")
	errTheirs = errors.New("theirs")
)

// withTimeout makes a context in one of the ways that there are.
type withTimeout func(
	tw *TimingWheel, parent context.Context, d time.Duration,
) (context.Context, context.CancelFunc)

// deadlineForms are the four calls, told apart by what Cause is when the deadline comes.
var deadlineForms = []struct {
	name  string
	make  withTimeout
	cause error
}{
	{"WithTimeout", (*TimingWheel).WithTimeout, context.DeadlineExceeded},
	{"WithDeadline", func(
		tw *TimingWheel, parent context.Context, d time.Duration,
	) (context.Context, context.CancelFunc) {
		return tw.WithDeadline(parent, time.Now().Add(d))
	}, context.DeadlineExceeded},
	{"WithTimeoutCause", func(
		tw *TimingWheel, parent context.Context, d time.Duration,
	) (context.Context, context.CancelFunc) {
		return tw.WithTimeoutCause(parent, d, errMine)
	}, errMine},
	{"WithDeadlineCause", func(
		tw *TimingWheel, parent context.Context, d time.Duration,
	) (context.Context, context.CancelFunc) {
		return tw.WithDeadlineCause(parent, time.Now().Add(d), errMine)
	}, errMine},
}

func isDone(ctx context.Context) bool { return isClosed(ctx.Done()) }

// isClosed looks at the channel without waiting.
func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// requireEnded checks everything that tells how a context ended.
func requireEnded(t *testing.T, ctx context.Context, err, cause error) {
	t.Helper()
	require.Equal(t, err, ctx.Err())
	require.True(t, isDone(ctx), "Done is open though Err is %v", err)
	require.Equal(t, cause, context.Cause(ctx))
}

func requireAlive(t *testing.T, ctx context.Context) {
	t.Helper()
	require.False(t, isDone(ctx))
	require.NoError(t, ctx.Err())
	require.NoError(t, context.Cause(ctx))
}

func TestContextEndsAtItsDeadline(t *testing.T) {
	for _, form := range deadlineForms {
		t.Run(form.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				at := time.Now().Add(time.Minute)
				ctx, cancel := form.make(tw, context.Background(), time.Minute)
				defer cancel()
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				require.True(t, deadline.Equal(at))
				require.Equal(t, 1, tw.Len())

				time.Sleep(time.Minute - 1)
				synctest.Wait()
				requireAlive(t, ctx)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				requireEnded(t, ctx, context.DeadlineExceeded, form.cause)

				require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				var timeout net.Error
				require.ErrorAs(t, ctx.Err(), &timeout)
				require.True(t, timeout.Timeout())
				require.Zero(t, tw.Len())
				cancel()
				requireEnded(t, ctx, context.DeadlineExceeded, form.cause)
			})
		})
	}
}

func TestContextIsCancelled(t *testing.T) {
	for _, form := range deadlineForms {
		for _, asked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, Done called before %t", form.name, asked), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New()
					ctx, cancel := form.make(tw, context.Background(), time.Minute)
					if asked {
						requireAlive(t, ctx)
					}
					cancel()
					requireEnded(t, ctx, context.Canceled, context.Canceled)
					require.Zero(t, tw.Len(), "its timer was stopped")
					cancel()
					time.Sleep(time.Hour)
					synctest.Wait()
					requireEnded(t, ctx, context.Canceled, context.Canceled)
				})
			})
		}
	}
}

func TestContextThatHasNoTimeLeft(t *testing.T) {
	for _, form := range deadlineForms {
		for _, d := range []time.Duration{0, -1, -time.Hour, -1 << 63} {
			t.Run(fmt.Sprintf("%s %v", form.name, d), func(t *testing.T) {
				tw := New()
				ctx, cancel := form.make(tw, context.Background(), d)
				requireEnded(t, ctx, context.DeadlineExceeded, form.cause)
				cancel()
				requireEnded(t, ctx, context.DeadlineExceeded, form.cause)
				require.Zero(t, tw.Stats().Started)
			})
		}
	}
}

func TestContextThatNeverEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		ctx, cancel := tw.WithTimeout(context.Background(), 1<<63-1)
		time.Sleep(200 * 365 * 24 * time.Hour)
		synctest.Wait()
		requireAlive(t, ctx)
		cancel()
		requireEnded(t, ctx, context.Canceled, context.Canceled)
	})
}

// The parents are of every kind that package context tells apart.
func TestContextEndsWithItsParent(t *testing.T) {
	type made struct {
		ctx    context.Context
		cancel func()
		cause  error
	}
	parents := []struct {
		name string
		make func(tw *TimingWheel) made
	}{
		{"WithCancel", func(*TimingWheel) made {
			ctx, cancel := context.WithCancel(context.Background())
			return made{ctx, cancel, context.Canceled}
		}},
		{"WithCancelCause", func(*TimingWheel) made {
			ctx, cancel := context.WithCancelCause(context.Background())
			return made{ctx, func() { cancel(errTheirs) }, errTheirs}
		}},
		{"ours", func(tw *TimingWheel) made {
			ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
			return made{ctx, cancel, context.Canceled}
		}},
		{"ours under WithCancelCause", func(tw *TimingWheel) made {
			top, cancel := context.WithCancelCause(context.Background())
			ctx, _ := tw.WithTimeout(top, time.Minute)
			return made{ctx, func() { cancel(errTheirs) }, errTheirs}
		}},
		{"ours with a value", func(tw *TimingWheel) made {
			ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
			return made{context.WithValue(ctx, contextTestKey(1), 1), cancel, context.Canceled}
		}},
		{"WithCancel under ours", func(tw *TimingWheel) made {
			top, _ := tw.WithTimeout(context.Background(), time.Minute)
			ctx, cancel := context.WithCancel(top)
			return made{ctx, cancel, context.Canceled}
		}},
		{"of a type of its own", func(*TimingWheel) made {
			own := &ownContext{Context: context.Background(), done: make(chan struct{})}
			return made{own, func() { own.end(errTheirs) }, errTheirs}
		}},
		{"of a type of its own with AfterFunc", func(*TimingWheel) made {
			own := &ownAfterFunc{ownContext: ownContext{Context: context.Background(),
				done: make(chan struct{})}}
			return made{own, func() { own.end(errTheirs) }, errTheirs}
		}},
	}
	for _, p := range parents {
		for _, form := range deadlineForms {
			for _, when := range []string{"before", "at once", "later"} {
				t.Run(p.name+"/"+form.name+"/"+when, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						tw := New()
						parent := p.make(tw)
						if when == "before" {
							parent.cancel()
							synctest.Wait() // WithCancel under ours may hear of it by a goroutine
						}
						ctx, cancel := form.make(tw, parent.ctx, time.Second)
						defer cancel()
						done := ctx.Done()
						if when != "before" {
							requireAlive(t, ctx)
							parent.cancel()
						}
						if when == "later" {
							synctest.Wait() // for the goroutine, if it comes by one
							require.True(t, isClosed(done))
						}
						// Without waiting, Err and Done tell what the parent says.
						requireEnded(t, ctx, parent.ctx.Err(), parent.cause)
						require.Error(t, ctx.Err())
						<-done

						time.Sleep(time.Hour)
						synctest.Wait()
						requireEnded(t, ctx, parent.ctx.Err(), parent.cause)
						require.Zero(t, tw.Len())
					})
				})
			}
		}
	}
}

type contextTestKey int

// ownContext is a context of a type that package context does not know.
type ownContext struct {
	context.Context
	mu   sync.Mutex
	done chan struct{}
	err  error
}

func (c *ownContext) Done() <-chan struct{} { return c.done }

func (c *ownContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *ownContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// ownAfterFunc tells others of its end without a goroutine for each.
type ownAfterFunc struct {
	ownContext
	waiting map[*func()]bool
}

func (c *ownAfterFunc) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[*func()]bool{}
	}
	c.waiting[&f] = true
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		was := c.waiting[&f]
		delete(c.waiting, &f)
		return was
	}
}

func (c *ownAfterFunc) end(err error) {
	c.ownContext.end(err)
	for f := range c.waiting {
		go (*f)()
	}
}

// A meddler is a parent that acts while it is being asked.
type meddler struct {
	ownAfterFunc
	meddle func()
}

func (c *meddler) AfterFunc(f func()) (stop func() bool) {
	if c.meddle != nil {
		c.meddle()
	}
	return c.ownAfterFunc.AfterFunc(f)
}

func (c *meddler) Value(key any) any {
	if c.meddle != nil {
		c.meddle()
	}
	return c.ownAfterFunc.Value(key)
}

// A child that ends first leaves nothing behind in its parent.
func TestContextLeavesItsParent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		own := &ownAfterFunc{ownContext: ownContext{Context: context.Background(),
			done: make(chan struct{})}}
		ours, cancelOurs := tw.WithTimeout(context.Background(), time.Hour)
		defer cancelOurs()
		for _, parent := range []context.Context{own, ours,
			context.WithValue(ours, contextTestKey(1), 1)} {
			a, cancel := tw.WithTimeout(parent, time.Minute)
			b, _ := tw.WithTimeout(parent, time.Second)
			requireAlive(t, a) // calls Done, and from then on the parent knows it
			requireAlive(t, b)
			if parent == own {
				require.Len(t, own.waiting, 2)
			} else {
				require.Len(t, ours.(*deadlineContext).children, 2)
			}
			cancel()
			time.Sleep(time.Second)
			synctest.Wait()
			requireEnded(t, a, context.Canceled, context.Canceled)
			requireEnded(t, b, context.DeadlineExceeded, context.DeadlineExceeded)
			requireAlive(t, parent)
			require.Empty(t, own.waiting)
			require.Empty(t, ours.(*deadlineContext).children)
		}
	})
}

// A child of ours learns of its parent's end before the parent's cancel returns.
func TestContextTellsItsOwnAtOnce(t *testing.T) {
	tw := New()
	defer tw.Stop()
	parent, cancelParent := tw.WithTimeout(context.Background(), time.Hour)
	child, cancelChild := tw.WithTimeout(parent, time.Minute)
	defer cancelChild()
	grandchild, cancel := tw.WithTimeout(context.WithValue(child, contextTestKey(1), 1),
		time.Second)
	defer cancel()
	other, cancelOther := tw.WithTimeout(child, time.Second)
	defer cancelOther()
	done, otherDone := grandchild.Done(), other.Done() // that of child itself is never asked for
	cancelParent()
	require.True(t, isClosed(done))
	require.True(t, isClosed(otherDone))
	require.Zero(t, tw.Len())
	require.Nil(t, parent.(*deadlineContext).children,
		"who keeps a parent does not keep its children")
}

// A parent or a child ends while one is being told of the other: these interleavings are too short
// to happen by chance.
func TestContextMeetsAnEnd(t *testing.T) {
	tw := New()
	defer tw.Stop()
	fresh := func() (*deadlineContext, context.CancelFunc) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		return ctx.(*deadlineContext), cancel
	}
	t.Run("the parent", func(t *testing.T) {
		parent, cancelParent := fresh()
		ctx, cancel := tw.WithTimeout(parent, time.Minute)
		defer cancel()
		child := ctx.(*deadlineContext)
		cancelParent()
		parent.addChild(child)
		require.Equal(t, context.Canceled, child.ended())
		require.Empty(t, parent.children)
	})
	t.Run("the child", func(t *testing.T) {
		parent, cancelParent := fresh()
		defer cancelParent()
		child, cancel := fresh()
		cancel()
		parent.addChild(child)
		require.Empty(t, parent.children)
	})
	t.Run("the child, which its parent has not forgotten yet", func(t *testing.T) {
		parent, cancelParent := fresh()
		child, cancel := tw.WithTimeout(parent, 0)
		defer cancel()
		parent.children = map[*deadlineContext]struct{}{child.(*deadlineContext): {}}
		cancelParent()
		require.Equal(t, context.DeadlineExceeded, child.Err())
	})
	t.Run("while it follows, and while it asks", func(t *testing.T) {
		parent := &meddler{}
		parent.Context, parent.done = context.Background(), make(chan struct{})
		ctx, cancel := tw.WithTimeout(parent, time.Hour)
		parent.meddle = cancel
		require.True(t, isDone(ctx))
		requireEnded(t, ctx, context.Canceled, context.Canceled)
		require.Empty(t, parent.waiting)
		parent.meddle = nil

		ctx, cancel = tw.WithTimeout(parent, time.Hour)
		ctx.(*deadlineContext).propagating = true // done with that part
		parent.meddle = cancel
		require.True(t, isDone(ctx))
	})
	t.Run("while its channel is being made", func(t *testing.T) {
		ctx, cancel := fresh()
		s := &source{of: ctx, end: func() {}}
		s.inner, s.cancel = context.WithCancel(s) // as makeSource does
		defer s.cancel()
		cancel()
		require.True(t, isDone(ctx))
		require.False(t, isDone(s.inner), "cancel did not know of it")
		s.end()
		require.True(t, isDone(s.inner))
	})
}

func TestContextTakesTheEarlierDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		for _, make := range []withTimeout{
			(*TimingWheel).WithTimeout,
			func(_ *TimingWheel, parent context.Context, d time.Duration) (context.Context,
				context.CancelFunc) {
				return context.WithTimeout(parent, d)
			},
		} {
			parent, cancelParent := make(tw, context.Background(), time.Second)
			want, _ := parent.Deadline()
			later, cancelLater := tw.WithTimeoutCause(parent, time.Minute, errMine)
			sooner, cancelSooner := tw.WithTimeout(parent, time.Millisecond)
			got, _ := later.Deadline()
			require.Equal(t, want, got)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			requireEnded(t, sooner, context.DeadlineExceeded, context.DeadlineExceeded)
			requireAlive(t, parent)
			time.Sleep(time.Second)
			synctest.Wait()
			requireEnded(t, later, context.DeadlineExceeded, context.DeadlineExceeded)
			cancelLater()
			cancelSooner()
			cancelParent()
		}
		require.Zero(t, tw.Len())
	})
}

// Children of package context's see the deadline as the deadline, at once and without
// a goroutine each, whatever lies between.
func TestContextHasChildrenOfPackageContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		for _, form := range deadlineForms {
			ctx, cancel := form.make(tw, context.Background(), time.Minute)
			defer cancel()
			before := runtime.NumGoroutine()
			var children []context.Context
			for i := range 100 {
				parent := ctx
				for range i % 3 {
					parent = context.WithValue(parent, contextTestKey(i), i)
				}
				child, cancel := context.WithCancel(parent)
				defer cancel()
				under, cancel := tw.WithTimeout(child, 30*time.Second)
				defer cancel()
				timed, cancel := context.WithTimeout(parent, time.Hour)
				defer cancel()
				ours, cancel := tw.WithTimeout(parent, 30*time.Second+time.Minute)
				defer cancel()
				children = append(children, child, timed, ours)
				requireAlive(t, under)
			}
			require.Less(t, runtime.NumGoroutine(), before+10)
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, child := range children {
				requireEnded(t, child, context.DeadlineExceeded, form.cause)
				require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
			}
		}
		require.Zero(t, tw.Len())
	})
}

func TestContextAfterFunc(t *testing.T) {
	ends := map[string]func(cancel func()){
		"cancelled": func(cancel func()) { cancel() },
		"expired":   func(func()) { time.Sleep(time.Minute) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				var before, after, never atomic.Int32
				block := make(chan struct{})
				context.AfterFunc(ctx, func() { before.Add(1); <-block })
				stop := context.AfterFunc(ctx, func() { never.Add(1) })
				require.True(t, stop())
				require.False(t, stop())
				end(cancel) // does not wait for the one that blocks
				synctest.Wait()
				require.EqualValues(t, 1, before.Load())
				context.AfterFunc(ctx, func() { after.Add(1) })
				synctest.Wait()
				require.EqualValues(t, 1, after.Load())
				require.Zero(t, never.Load())
				close(block)
			})
		})
	}
}

func TestContextValues(t *testing.T) {
	tw := New()
	defer tw.Stop()
	top := context.WithValue(context.Background(), contextTestKey(1), "top")
	for _, form := range deadlineForms {
		ctx, cancel := form.make(tw, top, time.Hour)
		for range 2 {
			require.Equal(t, "top", ctx.Value(contextTestKey(1)))
			require.Nil(t, ctx.Value(contextTestKey(2)))
			require.Nil(t, ctx.Value([2]any{}))
			ctx.Done() // from now on package context answers
		}
		under := context.WithValue(ctx, contextTestKey(2), "under")
		require.Equal(t, "top", under.Value(contextTestKey(1)))
		require.Equal(t, "under", under.Value(contextTestKey(2)))
		cancel()
		require.Equal(t, "top", ctx.Value(contextTestKey(1)))
	}
}

// As a plain form and its ancestors end one after the other, Cause stays what it was,
// if it is a Cause form or Done was called before.
func TestContextKeepsItsCause(t *testing.T) {
	cases := []struct {
		name   string
		form   int // of deadlineForms
		asked  bool
		expire bool
		want   error
	}{
		{"plain form, expired", 0, false, true, errTheirs}, // as its docstring says
		{"plain form, cancelled", 0, false, false, errTheirs},
		{"plain form with Done, expired", 0, true, true, context.DeadlineExceeded},
		{"plain form with Done, cancelled", 0, true, false, context.Canceled},
		{"Cause form, expired", 2, false, true, errMine},
		{"Cause form, cancelled", 2, false, false, context.Canceled},
		{"Cause form with Done, expired", 2, true, true, errMine},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				parent, cancelParent := context.WithCancelCause(context.Background())
				ctx, cancel := deadlineForms[c.form].make(tw, parent, time.Second)
				if c.asked {
					ctx.Done()
				}
				if c.expire {
					time.Sleep(time.Second)
					synctest.Wait()
					require.Equal(t, deadlineForms[c.form].cause, context.Cause(ctx))
				} else {
					cancel()
					require.Equal(t, context.Canceled, context.Cause(ctx))
				}
				cancelParent(errTheirs)
				synctest.Wait()
				require.Equal(t, c.want, context.Cause(ctx))
				cancel()
			})
		})
	}
	t.Run("no cause given", func(t *testing.T) {
		tw := New()
		ctx, cancel := tw.WithTimeoutCause(context.Background(), 0, nil)
		defer cancel()
		requireEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
	})
}

// A parent that has ended comes before the child's own deadline, though that is the earlier one.
func TestContextBelowAnEndedParent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		mine := errors.New("mine")
		parent, cancelParent := context.WithTimeout(context.Background(), time.Second)
		defer cancelParent()
		time.Sleep(2 * time.Second)
		for _, with := range []func(context.Context, time.Duration, error) (context.Context,
			context.CancelFunc){
			context.WithTimeoutCause, tw.WithTimeoutCause,
		} {
			ctx, cancel := with(parent, -90*time.Second, mine)
			requireEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
			cancel()
		}
	})
}

// A random tree of contexts is built twice, once with package context's deadlines and
// once with ours, and ends piece by piece; the two agree at every step.
func TestContextBehavesAsPackageContext(t *testing.T) {
	const trees, steps = 150, 60
	for seed := range uint64(trees) {
		if testing.Short() && seed >= trees/10 {
			break
		}
		bubble(t, func(t *testing.T) {
			rnd := newRand(seed)
			tw := New()
			type pair struct {
				theirs, ours             context.Context
				cancelTheirs, cancelOurs context.CancelFunc
				name                     string
				parent                   *pair
				plain, awaited           bool
			}
			all := []*pair{{theirs: context.Background(), ours: context.Background(),
				cancelTheirs: func() {}, cancelOurs: func() {}, name: "background"}}
			grow := func(p *pair) *pair {
				// No two deadlines at one instant, where either could come first.
				d := time.Duration(rnd.IntN(20)-2)*time.Second +
					time.Duration(len(all))*time.Millisecond
				cause := fmt.Errorf("cause %d", len(all))
				n := &pair{parent: p, cancelTheirs: func() {}, cancelOurs: func() {}}
				kind := rnd.IntN(8)
				switch kind {
				case 0:
					n.theirs, n.cancelTheirs = context.WithCancel(p.theirs)
					n.ours, n.cancelOurs = context.WithCancel(p.ours)
				case 1:
					theirs, cancelTheirs := context.WithCancelCause(p.theirs)
					ours, cancelOurs := context.WithCancelCause(p.ours)
					n.theirs, n.cancelTheirs = theirs, func() { cancelTheirs(cause) }
					n.ours, n.cancelOurs = ours, func() { cancelOurs(cause) }
				case 2:
					n.theirs = context.WithValue(p.theirs, contextTestKey(1), cause)
					n.ours = context.WithValue(p.ours, contextTestKey(1), cause)
				case 3:
					n.theirs, n.cancelTheirs = context.WithTimeout(p.theirs, d)
					n.ours, n.cancelOurs = context.WithTimeout(p.ours, d)
				case 4:
					n.theirs, n.cancelTheirs = context.WithTimeoutCause(p.theirs, d, cause)
					n.ours, n.cancelOurs = tw.WithTimeoutCause(p.ours, d, cause)
				case 5:
					n.theirs, n.cancelTheirs = context.WithDeadlineCause(p.theirs,
						time.Now().Add(d), cause)
					n.ours, n.cancelOurs = tw.WithDeadlineCause(p.ours, time.Now().Add(d), cause)
				case 6:
					n.theirs, n.cancelTheirs = context.WithDeadline(p.theirs, time.Now().Add(d))
					n.ours, n.cancelOurs = tw.WithDeadline(p.ours, time.Now().Add(d))
				default:
					n.theirs, n.cancelTheirs = context.WithTimeout(p.theirs, d)
					n.ours, n.cancelOurs = tw.WithTimeout(p.ours, d)
				}
				n.plain = kind >= 6
				if n.awaited = rnd.IntN(2) == 0; n.awaited {
					n.ours.Done()
				}
				n.name = fmt.Sprintf("%s > %d", p.name, kind)
				return n
			}
			for step := range steps {
				switch rnd.IntN(3) {
				case 0, 1:
					all = append(all, grow(all[rnd.IntN(len(all))]))
				default:
					n := all[rnd.IntN(len(all))]
					n.cancelTheirs()
					n.cancelOurs()
				}
				if rnd.IntN(2) == 0 {
					time.Sleep(500 * time.Millisecond)
				} else {
					time.Sleep(time.Second)
				}
				synctest.Wait()
				for _, n := range all {
					where := fmt.Sprintf("seed %d, step %d, %s", seed, step, n.name)
					require.Equal(t, n.theirs.Err(), n.ours.Err(), where)
					if n.theirs.Done() != nil {
						// Cause first, as Done makes a plain form remember it.
						exact := true
						for p := n; p != nil; p = p.parent {
							exact = exact && (!p.plain || p.awaited)
						}
						if exact {
							require.Equal(t, context.Cause(n.theirs), context.Cause(n.ours), where)
						}
						require.Equal(t, n.theirs.Err() != nil,
							!exact && n.ours.Err() != nil || exact && isDone(n.ours), where)
					}
					d1, ok1 := n.theirs.Deadline()
					d2, ok2 := n.ours.Deadline()
					require.True(t, ok1 == ok2 && d1.Equal(d2), where)
					require.Equal(t, n.theirs.Value(contextTestKey(1)),
						n.ours.Value(contextTestKey(1)), where)
				}
			}
			for _, n := range all {
				n.cancelTheirs()
				n.cancelOurs()
			}
			synctest.Wait()
			require.Zero(t, tw.Len())
			require.NoError(t, tw.verify(true))
		})
	}
}

// A context neither needs the executor nor ends up in it.
func TestContextNeedsNoExecutor(t *testing.T) {
	for _, x := range []struct {
		name string
		opt  Option
	}{
		{"inline", WithInline()},
		{"an executor that drops everything", WithExecutor(func(func()) {})},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(x.opt)
				ctx, cancel := tw.WithTimeout(context.Background(), time.Second)
				defer cancel()
				// A follower that blocks must not hold up the driver.
				block := make(chan struct{})
				defer close(block)
				context.AfterFunc(ctx, func() { <-block })
				time.Sleep(time.Second)
				synctest.Wait()
				requireEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

func TestContextOnAStoppedWheel(t *testing.T) {
	ends := map[string]func(tw *TimingWheel, t *testing.T){
		"Stop":  func(tw *TimingWheel, _ *testing.T) { tw.Stop() },
		"Drain": func(tw *TimingWheel, t *testing.T) { require.Empty(t, tw.Drain()) },
		"Shutdown": func(tw *TimingWheel, t *testing.T) {
			require.NoError(t, tw.Shutdown(t.Context()))
		},
	}
	for name, end := range ends {
		for _, form := range deadlineForms {
			t.Run(name+"/"+form.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New()
					parent, cancelParent := context.WithCancelCause(context.Background())
					pending, cancelPending := form.make(tw, context.Background(), time.Minute)
					under, cancelUnder := form.make(tw, pending, time.Second)
					cancelled, cancel := form.make(tw, context.Background(), time.Second)
					orphan, cancelOrphan := form.make(tw, parent, time.Minute)
					end(tw, t)
					later, cancelLater := form.make(tw, context.Background(), time.Minute)
					cancelledLater, cancel2 := form.make(tw, context.Background(), time.Second)
					defer func() { cancelPending(); cancelUnder(); cancelLater(); cancelOrphan() }()
					timer := &cancelled.(*deadlineContext).timer
					relay := timer.relay()
					cancel()
					cancel2()
					require.False(t, relay.alarm.Stop(), "was stopped")
					require.Nil(t, timer.relay())
					requireEnded(t, cancelled, context.Canceled, context.Canceled)
					requireEnded(t, cancelledLater, context.Canceled, context.Canceled)

					time.Sleep(time.Second - 1)
					synctest.Wait()
					requireAlive(t, under)
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					requireEnded(t, under, context.DeadlineExceeded, form.cause)
					cancelParent(errTheirs)
					synctest.Wait()
					requireEnded(t, orphan, context.Canceled, errTheirs)

					time.Sleep(59*time.Second - 1)
					synctest.Wait()
					requireAlive(t, pending)
					requireAlive(t, later)
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					requireEnded(t, pending, context.DeadlineExceeded, form.cause)
					requireEnded(t, later, context.DeadlineExceeded, form.cause)
					requireEnded(t, cancelled, context.Canceled, context.Canceled)
				})
			})
		}
	}
}

// Contexts are made, cancelled and left to their deadlines while the wheel is stopped:
// every one of them ends, and none before its time.
func TestContextsAndStopAtOnce(t *testing.T) {
	for range 100 {
		tw := New()
		var made sync.WaitGroup
		var all sync.Map
		for range 4 {
			made.Go(func() {
				for i := range 20 {
					at := time.Now().Add(time.Duration(i%7) * time.Millisecond)
					ctx, cancel := tw.WithDeadline(context.Background(), at)
					if i%3 == 0 {
						go cancel()
					} else {
						defer context.AfterFunc(ctx, cancel)
					}
					all.Store(ctx, i%3 == 0)
				}
			})
		}
		if newRand(uint64(time.Now().UnixNano())).IntN(2) == 0 {
			runtime.Gosched()
		}
		tw.Stop()
		made.Wait()
		all.Range(func(key, cancelled any) bool {
			ctx := key.(context.Context)
			<-ctx.Done()
			at, _ := ctx.Deadline()
			if ctx.Err() == context.DeadlineExceeded {
				require.False(t, time.Now().Before(at), "early")
			} else {
				require.True(t, cancelled.(bool))
			}
			return true
		})
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Zero(t, tw.Len())
	}
}

func TestContextOnAWheelThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		ctx, cancel := tw.WithTimeout(context.Background(), time.Second)
		defer cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		requireAlive(t, ctx)
		tw.Start()
		synctest.Wait()
		requireEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
	})
}

// A caller that sees an error finds the channel closed, and the other way round.
func TestContextErrAndDoneAgree(t *testing.T) {
	tw := New()
	defer tw.Stop()
	for i := range 1000 {
		parent, cancelParent := context.WithCancel(context.Background())
		ctx, cancel := tw.WithTimeout(parent, time.Duration(i%3)*time.Millisecond+time.Millisecond)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					runtime.Gosched()
				}
				require.True(t, isDone(ctx))
			})
			wg.Go(func() {
				<-ctx.Done()
				require.Error(t, ctx.Err())
				require.Error(t, context.Cause(ctx))
			})
		}
		switch i % 4 {
		case 0, 1:
			wg.Go(cancel)
			wg.Go(cancelParent)
		case 2:
			wg.Go(cancelParent)
		}
		wg.Wait()
		cancel()
		cancelParent()
	}
}

// Parents and children of both packages are cancelled in every order at once.
func TestContextCancelledFromAllSides(t *testing.T) {
	tw := New()
	defer tw.Stop()
	for seed := range uint64(300) {
		rnd := newRand(seed)
		cancels := []func(){}
		all := []context.Context{context.Background()}
		for range 30 {
			parent := all[rnd.IntN(len(all))]
			var ctx context.Context
			var cancel context.CancelFunc
			switch rnd.IntN(4) {
			case 0:
				ctx, cancel = context.WithCancel(parent)
			case 1:
				ctx, cancel = context.WithTimeout(context.WithValue(parent, contextTestKey(1), 1),
					time.Hour)
			default:
				ctx, cancel = tw.WithTimeout(parent,
					time.Hour-time.Duration(rnd.IntN(60))*time.Minute+time.Minute)
			}
			all, cancels = append(all, ctx), append(cancels, cancel)
		}
		var wg sync.WaitGroup
		for _, i := range rnd.Perm(len(cancels)) {
			wg.Go(cancels[i])
		}
		wg.Wait()
		for _, ctx := range all[1:] {
			require.Equal(t, context.Canceled, ctx.Err())
			<-ctx.Done()
		}
		// The second caller of cancel does not wait until the first has stopped the timer.
		require.Eventually(t, func() bool { return tw.Len() == 0 }, time.Minute, time.Millisecond)
	}
}

// hiding is a parent that hides the end of its ancestors and passes on their values, as
// was written by hand before context.WithoutCancel.
type hiding struct{ context.Context }

func (hiding) Deadline() (time.Time, bool) { return time.Time{}, false }
func (hiding) Done() <-chan struct{}       { return nil }
func (hiding) Err() error                  { return nil }

func TestContextCauseUnderAParentThatHides(t *testing.T) {
	for _, form := range deadlineForms {
		t.Run(form.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				top, cancelTop := context.WithCancelCause(context.Background())
				ctx, cancel := form.make(tw, hiding{top}, time.Second)
				defer cancel()
				ctx.Done()
				cancelTop(errTheirs)
				time.Sleep(time.Second)
				synctest.Wait()
				requireEnded(t, ctx, context.DeadlineExceeded, form.cause)
			})
		})
	}
}

// When the CancelFunc has returned the channels are closed, and Done never returns an
// open one once the context has ended, though another call is in the middle of ending it.
func TestContextCancelWaitsForTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		c := ctx.(*deadlineContext)
		done := ctx.Done()
		c.err.Store(context.DeadlineExceeded) // as cancel does, before it closes
		var returned atomic.Int32
		go func() { require.True(t, isClosed(ctx.Done())); returned.Add(1) }()
		go func() {
			require.Error(t, ctx.Err())
			require.True(t, isClosed(done))
			returned.Add(1)
		}()
		synctest.Wait()
		require.Zero(t, returned.Load())
		c.source.Load().end()
		synctest.Wait()
		require.EqualValues(t, 2, returned.Load())
		c.timer.Stop()
	})
	t.Run("of two", func(t *testing.T) {
		tw := New()
		defer tw.Stop()
		for range 5_000 {
			ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
			ours, cancelOurs := tw.WithTimeout(ctx, time.Minute)
			theirs, cancelTheirs := context.WithCancel(ctx)
			dones := []<-chan struct{}{ctx.Done(), ours.Done(), theirs.Done()}
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					cancel()
					for _, done := range dones {
						require.True(t, isClosed(done))
					}
				})
			}
			all.Wait()
			cancelOurs()
			cancelTheirs()
		}
	})
}

func TestContextThatNeverEndsOnAStoppedWheel(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				if when == "before" {
					tw.Stop()
				}
				ctx, cancel := tw.WithTimeout(context.Background(), 1<<63-1)
				tw.Stop()
				time.Sleep(200 * 365 * 24 * time.Hour)
				synctest.Wait()
				requireAlive(t, ctx)
				cancel()
			})
		})
	}
}

// The two clock readings that a wall-only deadline takes are in the order in which the
// time between them makes it late. A step of the wall clock may spoil some.
func TestContextWallOnlyDeadlineIsNotEarly(t *testing.T) {
	tw := New()
	defer tw.Stop()
	const n = 1000
	early := 0
	for range n {
		at := time.Now().Add(time.Hour).Round(0)
		deadline := tw.endAt(at).deadline
		now := time.Now()
		if tw.instant(deadline).Sub(now) < at.Sub(now.Round(0)) {
			early++
		}
	}
	require.Less(t, early, n/2)
}

func TestContextLeavesStrangersAlone(t *testing.T) {
	tw := New()
	defer tw.Stop()
	top, cancelTop := tw.WithTimeout(context.Background(), time.Hour)
	defer cancelTop()
	between, cancelBetween := context.WithCancel(context.WithoutCancel(top))
	defer cancelBetween()
	ctx, cancel := tw.WithTimeout(between, time.Minute)
	defer cancel()
	ctx.Done()
	require.Nil(t, top.(*deadlineContext).source.Load(), "no call of its Done")
}

// What an ended context held is collected although the wheel lives on.
func TestContextIsCollected(t *testing.T) {
	tw := New()
	defer tw.Stop()
	parent, cancelParent := context.WithCancel(context.Background())
	defer cancelParent()
	var collected atomic.Int32
	for i := range 10 {
		func() {
			big := &[1 << 16]byte{}
			runtime.SetFinalizer(big, func(*[1 << 16]byte) { collected.Add(1) })
			over := parent
			if i%2 == 0 {
				over = context.Background()
			}
			ctx, cancel := tw.WithTimeout(context.WithValue(over, contextTestKey(1), big),
				time.Hour)
			if i%3 == 0 {
				ctx.Done()
			}
			cancel()
		}()
	}
	require.Eventually(t, func() bool { runtime.GC(); return collected.Load() == 10 },
		30*time.Second, time.Millisecond)
	require.NoError(t, parent.Err())
}

func TestContextString(t *testing.T) {
	tw := New()
	defer tw.Stop()
	ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	require.Regexp(t, `^context\.Background\.WithDeadline\(.* \[59m59\..*\]\)$`, fmt.Sprint(ctx))
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	require.Regexp(t, `^context\.Background\.WithDeadline\(.*\]\)\.WithCancel$`, fmt.Sprint(child))
	own := &ownContext{Context: context.Background(), done: make(chan struct{})}
	nameless, cancel := tw.WithTimeout(own, time.Hour)
	defer cancel()
	require.Contains(t, fmt.Sprint(nameless), "ownContext.WithDeadline(")
	own.end(errTheirs)
}

func TestContextMisuse(t *testing.T) {
	tw := New()
	at := time.Now()
	var none context.Context
	require.PanicsWithValue(t, "timingwheel: WithTimeout with a nil parent",
		func() { tw.WithTimeout(none, 1) })
	require.PanicsWithValue(t, "timingwheel: WithDeadline with a nil parent",
		func() { tw.WithDeadline(none, at) })
	require.PanicsWithValue(t, "timingwheel: WithTimeoutCause with a nil parent",
		func() { tw.WithTimeoutCause(none, 1, nil) })
	require.PanicsWithValue(t, "timingwheel: WithDeadlineCause with a nil parent",
		func() { tw.WithDeadlineCause(none, at, nil) })
	require.PanicsWithValue(t, "timingwheel: WithTimeout on a nil TimingWheel", func() {
		(*TimingWheel)(nil).WithTimeout(context.Background(), 1)
	})
}

// A child whose deadline is less than a tick before its parent's ends by its own, although
// its timer may be the later one: its cause is not the parent's.
func TestContextAheadOfItsParentByLessThanATick(t *testing.T) {
	parents := errors.New("the parent's")
	own := errors.New("its own")
	const at, later = 10300 * time.Microsecond, 10600 * time.Microsecond
	makers := map[string]func(tw *TimingWheel) (context.Context, context.CancelFunc){
		"package context's": func(*TimingWheel) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.Background(), later, parents)
		},
		"ours": func(tw *TimingWheel) (context.Context, context.CancelFunc) {
			return tw.WithTimeoutCause(context.Background(), later, parents)
		},
	}
	for name, parentOf := range makers {
		for _, waitedFor := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, waited for: %t", name, waitedFor), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(withShards(1))
					type pair struct{ plain, withCause context.Context }
					var children []pair
					for range 200 { // which of the goroutines is first is up to chance
						parent, cancel := parentOf(tw)
						defer cancel()
						plain, cancelPlain := tw.WithTimeout(parent, at)
						withCause, cancelCause := tw.WithTimeoutCause(parent, at, own)
						defer cancelPlain()
						defer cancelCause()
						children = append(children, pair{plain, withCause})
						if waitedFor {
							plain.Done()
							withCause.Done()
						}
					}
					// The parent's deadline has come; the tick has not.
					time.Sleep(10900 * time.Microsecond)
					synctest.Wait()
					for range 2 {
						for _, c := range children {
							if err := c.withCause.Err(); err != nil {
								require.Equal(t, context.DeadlineExceeded, err)
								require.Equal(t, own, context.Cause(c.withCause))
								require.Equal(t, context.DeadlineExceeded, c.plain.Err())
								if waitedFor {
									require.Equal(t, context.DeadlineExceeded,
										context.Cause(c.plain))
								}
							}
						}
						time.Sleep(time.Millisecond)
						synctest.Wait()
					}
					for _, c := range children {
						require.Equal(t, context.DeadlineExceeded, c.withCause.Err())
						require.Equal(t, own, context.Cause(c.withCause))
					}
				})
			})
		}
	}

	// A parent that ends before the child's deadline decides, whatever it calls its error.
	bubble(t, func(t *testing.T) {
		tw := New()
		first, cancelFirst := context.WithTimeoutCause(context.Background(), time.Second, parents)
		defer cancelFirst()
		child, cancel := tw.WithTimeoutCause(withoutDeadline{first}, time.Minute, own)
		defer cancel()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, context.DeadlineExceeded, child.Err())
		require.Equal(t, parents, context.Cause(child))
	})
}

// TestContextLearnsLateOfACancelledParent: the parent was cancelled before its deadline, and the
// child, whose own timer is late, is asked after both. It ends as the parent did.
func TestContextLearnsLateOfACancelledParent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20) // waits for Start, so all its timers are late
		defer tw.Stop()
		why, own := errors.New("why"), errors.New("own")
		outer, cancelOuter := context.WithCancelCause(t.Context())
		parent, cancelParent := context.WithTimeout(outer, 2*time.Second)
		defer cancelParent()
		child, cancelChild := tw.WithTimeoutCause(parent, time.Second, own)
		defer cancelChild()
		cancelOuter(why)
		time.Sleep(3 * time.Second)
		requireEnded(t, child, context.Canceled, why)
	})
}

// withoutDeadline is a context that does not tell its deadline.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
