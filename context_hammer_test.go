package timingwheel

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contexts that end from several sides at once, on the real clock.

// Contexts that cancel each other from their own goroutines do not deadlock.
func TestContextsThatCancelEachOther(t *testing.T) {
	tw := New()
	defer tw.Stop()
	for range 1000 {
		parent, cancelParent := tw.WithTimeout(context.Background(), time.Hour)
		child, cancelChild := tw.WithTimeout(parent, time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() { <-parent.Done(); cancelChild() })
		wg.Go(func() { <-child.Done(); cancelParent() })
		wg.Go(cancelChild)
		wg.Wait()
		require.Error(t, parent.Err())
		require.Error(t, child.Err())
	}
	require.Eventually(t, func() bool { return tw.Len() == 0 }, time.Minute, time.Millisecond)
}

// Cause is asked while it is being set: it is none or the right one.
func TestContextCauseWhileItEnds(t *testing.T) {
	tw := New()
	defer tw.Stop()
	for i := range 1000 {
		p, cancelP := context.WithCancelCause(context.Background())
		ctx, cancel := deadlineForms[i%4].make(tw, p, time.Hour)
		if i%3 == 0 {
			ctx.Done()
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if err := context.Cause(ctx); err != nil {
					require.Equal(t, errTheirs, err)
					return
				}
				runtime.Gosched()
			}
		})
		wg.Go(func() { cancelP(errTheirs) })
		wg.Wait()
		cancel()
	}
}

// Parents and children of different wheels, with WithoutCancel in between, both stopped.
func TestContextsOfTwoWheels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := New(WithTick(time.Second)), New()
		p, cancelP := a.WithTimeout(context.Background(), time.Hour)
		c, cancelC := b.WithTimeout(p, time.Minute)
		d, cancelD := a.WithTimeout(context.WithValue(c, contextTestKey(1), 1), time.Second)
		e, cancelE := b.WithTimeout(context.WithoutCancel(p), time.Minute)
		f, cancelF := b.WithTimeout(p, 30*time.Second) // Done never called
		defer cancelC()
		defer cancelD()
		defer cancelE()
		defer cancelF()
		dd, cd := d.Done(), c.Done()
		require.Equal(t, dd, d.Done())
		ed := e.Done()
		a.Stop()
		b.Stop()
		cancelP()
		require.True(t, isClosed(dd))
		require.True(t, isClosed(cd))
		require.False(t, isClosed(ed))
		require.Equal(t, context.Canceled, f.Err())
		require.Equal(t, cd, c.Done())
		require.Equal(t, dd, d.Done())
		time.Sleep(time.Minute)
		synctest.Wait()
		requireEnded(t, e, context.DeadlineExceeded, context.DeadlineExceeded)
		require.Equal(t, ed, e.Done())
	})
}

// Many goroutines make the first call of Done while the context ends: all get the same channel.
func TestContextFirstDoneByMany(t *testing.T) {
	tw := New()
	defer tw.Stop()
	for i := range 1500 {
		p, cancelP := context.WithCancel(context.Background())
		ctx, cancel := deadlineForms[i%4].make(tw, p, time.Duration(1+i%2)*time.Millisecond)
		child, cancelChild := tw.WithTimeout(context.WithValue(ctx, contextTestKey(1), 1),
			time.Millisecond/2)
		var got [4]<-chan struct{}
		var wg sync.WaitGroup
		for j := range got {
			wg.Go(func() {
				if j%2 == 0 {
					child.Done()
				}
				got[j] = ctx.Done()
				context.AfterFunc(child, func() {})
			})
		}
		switch i % 3 {
		case 0:
			wg.Go(cancel)
		case 1:
			wg.Go(cancelP)
		}
		wg.Wait()
		for j := range got {
			require.Equal(t, got[0], got[j])
			<-got[j]
		}
		<-child.Done()
		require.Error(t, ctx.Err())
		cancel()
		cancelP()
		cancelChild()
	}
	require.Eventually(t, func() bool { return tw.Len() == 0 }, time.Minute, time.Millisecond)
}

// A new call of Done after the parent has ended returns a closed channel, whichever goroutine ends
// it.
func TestContextDoneAnew(t *testing.T) {
	tw := New()
	defer tw.Stop()
	for range 5000 {
		p, cancelP := context.WithCancel(context.Background())
		ctx, cancel := tw.WithTimeout(p, time.Hour)
		ctx.Done()
		cancelP()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				require.True(t, isDone(ctx))
			})
		}
		wg.Wait()
		cancel()
	}
}

// The CancelFunc is called just as the deadline comes: once it has returned the channels
// are closed.
func TestContextCancelMeetsTheDeadline(t *testing.T) {
	tw := New(WithTick(50*time.Microsecond), WithPreciseWakeup())
	for range 2000 {
		ctx, cancel := tw.WithTimeout(context.Background(), 100*time.Microsecond)
		child, cancelChild := context.WithCancel(ctx)
		done, childDone := ctx.Done(), child.Done()
		spin(140 * time.Microsecond)
		cancel()
		require.True(t, isClosed(done))
		require.True(t, isClosed(childDone))
		cancelChild()
	}
	require.NoError(t, tw.Shutdown(t.Context()))
}

// Shutdown is called from what a context of the wheel has started, and limited by one.
func TestContextShutsItsWheelDown(t *testing.T) {
	tw := New()
	ctx, cancel := tw.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	res := make(chan error)
	context.AfterFunc(ctx, func() { res <- tw.Shutdown(context.Background()) })
	require.NoError(t, <-res)
	// And with the context of the wheel itself as its limit.
	tw = New()
	tw.AfterFunc(0, func() {
		c, cancel := tw.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		res <- tw.Shutdown(c)
	})
	require.Equal(t, context.DeadlineExceeded, <-res)
	require.NoError(t, tw.Shutdown(t.Context()))
}
