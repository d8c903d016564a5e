package timingwheel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// This file shows that a new kind of timer is one new file: a closer closes its channel at its
// deadline, on the driver. It outlives its wheel, as someone may wait for the channel.

// A closer is a channel that a timer closes.
type closer struct {
	timer Timer // the first field: see closerOf
	c     chan struct{}
}

var closing = newKind(behaviour{
	name:  "a closer",
	due:   (*shard).closeLocked,
	inert: true,
	ring:  func(_ *shard, t *Timer, _ int64) func() { close(closerOf(t).c); return nil },
})

func closerOf(t *Timer) *closer { return (*closer)(unsafe.Pointer(t)) }

var _ = [1]struct{}{}[unsafe.Offsetof(closer{}.timer)] // out of range if it is not the first

// newCloser returns a closer whose channel is closed once d has passed.
func (tw *TimingWheel) newCloser(d time.Duration) *closer {
	c := &closer{c: make(chan struct{})}
	now := tw.now()
	tw.armNew(&c.timer, closing, pending, deadlineAfter(now, d), now)
	return c
}

// closeLocked claims the timer of a closer, which is due by this word, and closes the channel.
func (s *shard) closeLocked(t *Timer, word uint64, _ int64) {
	if _, ok := s.claimLocked(t, word, makeWord(idle, 0)); ok {
		close(closerOf(t).c)
	}
}

// stop keeps the channel open, if it still is.
func (c *closer) stop() bool {
	s := c.timer.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.stopLocked(&c.timer)
	return was
}

func (c *closer) isClosed() bool {
	select {
	case <-c.c:
		return true
	default:
		return false
	}
}

func TestNewKind(t *testing.T) {
	for _, x := range executors {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(x.opts()...)
				start := time.Now()
				short, long := tw.newCloser(time.Second), tw.newCloser(time.Hour)
				stopped, atOnce := tw.newCloser(time.Second), tw.newCloser(0)
				<-atOnce.c
				require.Zero(t, time.Since(start))
				require.True(t, stopped.stop())
				<-short.c
				require.Equal(t, time.Second, time.Since(start))
				require.False(t, short.stop())
				pass(t, tw, time.Hour)
				require.True(t, long.isClosed())
				require.False(t, stopped.isClosed())
				require.Equal(t, Counters{Started: 4, Fired: 3, Stopped: 1}, countersOf(tw))
			})
		})
	}
}

// countersOf leaves out what depends on the wheels.
func countersOf(tw *TimingWheel) Counters {
	c := tw.Stats().Counters
	c.Reinserted, c.Extended = 0, 0
	return c
}

func TestNewKindOnAStoppedWheel(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				start := time.Now()
				before, stopped := tw.newCloser(1500*time.Microsecond), tw.newCloser(time.Second)
				stop(t, tw)
				after := tw.newCloser(time.Second)
				require.True(t, stopped.stop())
				<-before.c
				require.Equal(t, 2*time.Millisecond, time.Since(start), "rounded up to the tick")
				<-after.c
				require.Equal(t, time.Second, time.Since(start))
				require.False(t, stopped.isClosed())
				require.False(t, before.stop())
				require.Equal(t, Counters{Started: 2, Dropped: 2}, countersOf(tw))
			})
		})
	}
}

func TestNewKindIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		c := tw.newCloser(time.Hour)
		unfired := tw.Drain()
		require.Len(t, unfired, 1)
		require.Same(t, &c.timer, unfired[0].Timer)
		require.False(t, unfired[0].Timer.Stop(), "inert")
		require.False(t, unfired[0].Timer.Reset(0), "inert")
		require.PanicsWithValue(t, "timingwheel: Init of a Timer that is part of a closer", func() {
			New().Init(&c.timer, func() {})
		})
		unfired[0].F()
		require.True(t, c.isClosed())
		time.Sleep(2 * time.Hour) // package time does not close it again
		synctest.Wait()
		require.NoError(t, tw.Shutdown(context.Background()))
	})
}

// TestForgottenKind: a Timer of an undefined kind is not taken for part of something else.
func TestForgottenKind(t *testing.T) {
	const want = "timingwheel: newKind did not make the kind of timer 200"
	tw := New()
	x := &Timer{}
	now := tw.now()
	tw.armNew(x, 200, pending, deadlineAfter(now, time.Hour), now)
	s := x.shard
	s.mu.Lock()
	require.PanicsWithValue(t, want, func() { s.flushTimer(x, nil, int64(2*time.Hour)) })
	require.PanicsWithValue(t, want, func() { s.stopLocked(x) })
	s.mu.Unlock()
	require.PanicsWithValue(t, want, func() { tw.sweepOnly(x) })
}

// sweepOnly sweeps the shard of t, as halt does.
func (tw *TimingWheel) sweepOnly(t *Timer) {
	tw.stopped.Store(true)
	t.shard.sweep(nil)
}

func TestIncompleteKind(t *testing.T) {
	const want = "timingwheel: a stopped wheel would lose what is part of a thing"
	require.PanicsWithValue(t, want, func() { newKind(behaviour{name: "a thing", unlisted: true}) })
	require.PanicsWithValue(t, "timingwheel: a kind of timer without a name", func() {
		newKind(behaviour{})
	})
}
