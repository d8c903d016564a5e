package timingwheel

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMisuseIsNamed(t *testing.T) {
	f := func() {}
	tw := New()
	defer tw.Stop()
	var none *TimingWheel
	pendingTimer := tw.AfterFunc(time.Hour, f)
	ended := tw.ScheduleFunc(Every(time.Hour), f)
	ended.Stop()
	ticker := tw.NewTicker(time.Hour)
	ticker.Stop()
	chanTimer := tw.NewTimer(time.Hour)
	chanTimer.Stop()
	var idleTimer Timer
	tw.Init(&idleTimer, f)
	for _, tc := range []struct {
		message string
		do      func()
	}{
		{"timingwheel: WithTick with the non-positive tick 0s", func() { New(WithTick(0)) }},
		{"timingwheel: WithTick with the non-positive tick -1ns", func() { New(WithTick(-1)) }},
		{"timingwheel: WithWheelSize with the wheel size 1, which is not between 2 and 65536",
			func() { New(WithWheelSize(1)) }},
		{"timingwheel: WithWheelSize with the wheel size -7, which is not between 2 and 65536",
			func() { New(WithWheelSize(-7)) }},
		{"timingwheel: WithWheelSize with the wheel size 65537, which is not between 2 and 65536",
			func() { New(WithWheelSize(1<<16 + 1)) }},
		{"timingwheel: WithExecutor with a nil executor", func() { New(WithExecutor(nil)) }},
		{"timingwheel: WithPanicHandler with a nil handler", func() { New(WithPanicHandler(nil)) }},
		{"timingwheel: New with a nil Option", func() { New(nil) }},
		{"timingwheel: New with more than one executor",
			func() { New(WithInline(), WithExecutor(func(f func()) { f() })) }},
		{"timingwheel: NewTimingWheel with the non-positive tick 0s",
			func() { NewTimingWheel(0, 20) }},
		{"timingwheel: NewTimingWheel with the wheel size 1, which is not between 2 and 65536",
			func() { NewTimingWheel(time.Millisecond, 1) }},
		{"timingwheel: NewTimingWheel with the wheel size 9223372036854775807, " +
			"which is not between 2 and 65536",
			func() { NewTimingWheel(time.Millisecond, math.MaxInt64) }},

		{"timingwheel: AfterFunc with a nil callback", func() { tw.AfterFunc(time.Second, nil) }},
		{"timingwheel: AtFunc with a nil callback", func() { tw.AtFunc(time.Now(), nil) }},
		{"timingwheel: ScheduleFunc with a nil callback",
			func() { tw.ScheduleFunc(Every(time.Second), nil) }},
		{"timingwheel: ScheduleFunc with a nil Scheduler", func() { tw.ScheduleFunc(nil, f) }},
		{"timingwheel: ScheduleFunc with a nil ScheduleOption",
			func() { tw.ScheduleFunc(Every(time.Second), f, nil) }},
		{"timingwheel: Jitter with the negative duration -1s", func() { Jitter(-time.Second) }},
		{"timingwheel: Every with the non-positive interval 0s", func() { Every(0) }},
		{"timingwheel: Every with the non-positive interval -1s", func() { Every(-time.Second) }},
		{"timingwheel: SkipMissed with the negative grace -1s",
			func() { SkipMissed(-time.Second) }},
		{"timingwheel: ScheduleFunc with both SkipWhileRunning and QueueWhileRunning", func() {
			tw.ScheduleFunc(Every(time.Second), f, SkipWhileRunning(), QueueWhileRunning())
		}},
		{"timingwheel: ScheduleFunc with both SkipWhileRunning and QueueWhileRunning", func() {
			tw.ScheduleFunc(Every(time.Second), f, QueueWhileRunning(), StartNow(),
				SkipWhileRunning())
		}},
		{"timingwheel: ScheduleFunc with both SkipMissed and RunMissed", func() {
			tw.ScheduleFunc(Every(time.Second), f, SkipMissed(time.Second), RunMissed())
		}},
		{"timingwheel: ScheduleFunc with both SkipMissed and RunMissed", func() {
			tw.ScheduleFunc(Every(time.Second), f, RunMissed(), SkipMissed(0))
		}},
		{"timingwheel: WithSlowCallback with the non-positive limit 0s",
			func() { WithSlowCallback(0, func(SlowCallback) {}) }},
		{"timingwheel: WithSlowCallback with a nil hook", func() { WithSlowCallback(1, nil) }},
		{"timingwheel: NewTicker with the non-positive interval 0s", func() { tw.NewTicker(0) }},
		{"timingwheel: Ticker.Reset with the non-positive interval -1ns",
			func() { ticker.Reset(-1) }},
		//lint:ignore SA1012 the misuse under test
		{"timingwheel: Shutdown with a nil context", func() { tw.Shutdown(nil) }},

		{"timingwheel: Init of a nil Timer", func() { tw.Init(nil, f) }},
		{"timingwheel: Init with a nil callback", func() { tw.Init(&Timer{}, nil) }},
		{"timingwheel: Init of a pending Timer", func() { tw.Init(pendingTimer, f) }},
		{"timingwheel: Init of a Timer that is part of a schedule", func() { tw.Init(ended, f) }},
		{"timingwheel: Init of a Timer that is part of a timer for a wall time", func() {
			x := New().AtFunc(time.Now().Round(0).Add(time.Hour), f)
			x.Stop()
			tw.Init(x, f)
		}},
		{"timingwheel: Init of a Timer that is part of a Map", func() {
			other := New()
			NewMap[int, int](other, nil).Set(1, 1, time.Hour)
			tw.Init(other.Drain()[0].Timer, f)
		}},
		{"timingwheel: Init of a Timer that is part of a channel", func() {
			other := New()
			other.NewTimer(time.Hour)
			tw.Init(other.Drain()[0].Timer, f)
		}},
		{"timingwheel: Stop of a Timer that was never initialised",
			func() { (*Timer)(nil).Stop() }},
		{"timingwheel: Stop of a Timer that was never initialised", func() { new(Timer).Stop() }},
		{"timingwheel: Reset of a Timer that was never initialised",
			func() { new(Timer).Reset(time.Second) }},
		{"timingwheel: ResetAt of a Timer that was never initialised",
			func() { new(Timer).ResetAt(time.Now()) }},
		{"timingwheel: Pending of a Timer that was never initialised",
			func() { new(Timer).Pending() }},

		{"timingwheel: Stop of a copied Timer", func() { copyOf(pendingTimer).Stop() }},
		{"timingwheel: Reset of a copied Timer",
			func() { copyOf(pendingTimer).Reset(2 * time.Hour) }},
		{"timingwheel: ResetAt of a copied Timer",
			func() { copyOf(pendingTimer).ResetAt(time.Now()) }},
		{"timingwheel: Pending of a copied Timer", func() { copyOf(pendingTimer).Pending() }},
		{"timingwheel: Reset of a copied Timer", func() { copyOf(&idleTimer).Reset(time.Hour) }},
		{"timingwheel: Reset of a copied Timer", func() { copyOf(ended).Reset(time.Hour) }},
		{"timingwheel: Stop of a copied Timer", func() { copyOf(chanTimer).Stop() }},
		{"timingwheel: Reset of a copied Timer", func() { copyOf(ticker).Reset(time.Hour) }},

		{"timingwheel: AfterFunc on a nil TimingWheel", func() { none.AfterFunc(time.Second, f) }},
		{"timingwheel: AtFunc on a nil TimingWheel", func() { none.AtFunc(time.Now(), f) }},
		{"timingwheel: ScheduleFunc on a nil TimingWheel",
			func() { none.ScheduleFunc(Every(time.Second), f) }},
		{"timingwheel: Init on a nil TimingWheel", func() { none.Init(&Timer{}, f) }},
		{"timingwheel: Start on a nil TimingWheel", func() { none.Start() }},
		{"timingwheel: Stop on a nil TimingWheel", func() { none.Stop() }},
		{"timingwheel: Drain on a nil TimingWheel", func() { none.Drain() }},
		{"timingwheel: Shutdown on a nil TimingWheel",
			func() { none.Shutdown(context.Background()) }},
		{"timingwheel: Len on a nil TimingWheel", func() { none.Len() }},
		{"timingwheel: Stats on a nil TimingWheel", func() { none.Stats() }},
		{"timingwheel: Clock on a nil TimingWheel", func() { none.Clock() }},
		{"timingwheel: AfterFunc on a TimingWheel that New did not make",
			func() { new(TimingWheel).AfterFunc(time.Second, f) }},
		{"timingwheel: Stop on a TimingWheel that New did not make",
			func() { new(TimingWheel).Stop() }},
	} {
		t.Run(tc.message, func(t *testing.T) {
			require.PanicsWithValue(t, tc.message, tc.do)
		})
	}
	require.NoError(t, tw.verify(true), "none of it did harm")
	require.Equal(t, 1, tw.Len())
}

// copyOf copies what go vet would not let pass.
func copyOf[T any](p *T) *T {
	c := *p
	return &c
}

// TestTimerOfAStackThatMoves: a Timer in a variable that nothing but Init, Stop and Pending
// has to do with is no copy when the stack has grown.
func TestTimerOfAStackThatMoves(t *testing.T) {
	tw := New()
	defer tw.Stop()
	done := make(chan struct{})
	go func() { // whose stack is small
		defer close(done)
		var x Timer
		tw.Init(&x, func() {})
		grow(1000)
		if x.Pending() || x.Stop() {
			t.Error("it was never armed")
		}
	}()
	<-done
}

func grow(depth int) int {
	var page [1024]byte
	if depth > 0 {
		page[depth%1024] = byte(grow(depth - 1))
	}
	return int(page[0]) + len(page)
}

// TestCopiedStruct: a struct may be copied before its Timer is initialised, and the Timer of
// a copy be initialised anew.
func TestCopiedStruct(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		fired := 0
		var x Timer
		y := copyOf(&x)
		tw.Init(&x, func() {})
		tw.Init(y, func() { fired++ })
		z := copyOf(y)
		tw.Init(z, func() { fired += 10 })
		y.Reset(time.Second)
		z.Reset(time.Second)
		pass(t, tw, time.Minute)
		require.Equal(t, 11, fired)
	})
}
