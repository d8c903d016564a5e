package timingwheel

import (
	"strconv"
	"time"
)

// This file holds the options of New and the config that they set.

const (
	defaultTick = time.Millisecond

	// defaultWheelSize keeps most timeouts of servers on the two lowest wheels (a millisecond to
	// two minutes) at 24 KiB a wheel. docs/design.md has the measurements that decided it.
	defaultWheelSize = 256
)

// An Option sets up a TimingWheel made by New. The With functions panic with a
// message that begins with "timingwheel: " when their argument makes no sense.
type Option func(*config)

// A config is what options set up. New makes a TimingWheel from it.
type config struct {
	settings
	slow   *slowWatch                  // see WithSlowCallback, nil for none
	around func(name string, f func()) // calls f for wheeldebug, nil for none
}

// WithTick sets the duration of one slot of the lowest wheel, by default a
// millisecond. Deadlines round up to it, which adds at most one tick
// to a timer's lateness. The driver wakes at most once per tick.
func WithTick(d time.Duration) Option {
	mustBeTick("WithTick", d)
	return func(c *config) { c.tick = d }
}

// WithWheelSize sets the number of slots per wheel, from 2 to 65,536, by default
// 256. In memory a wheel has twice as many, rounded up to a power of two. A timer is reinserted
// once per level, so larger wheels reinsert less and take more memory. Each level in use takes 96
// bytes times n, rounded up to a power of two, in each shard, and at most 6 MiB in all shards.
// There are about as many shards as processors.
func WithWheelSize(n int) Option {
	mustBeWheelSize("WithWheelSize", int64(n))
	return func(c *config) { c.wheelSize = n }
}

// The checks that WithTick and WithWheelSize share with NewTimingWheel; what names the call.
func mustBeTick(what string, d time.Duration) {
	if d <= 0 {
		panic("timingwheel: " + what + " with the non-positive tick " + d.String())
	}
}

func mustBeWheelSize(what string, n int64) {
	if n < 2 || n > maxWheelSize {
		panic("timingwheel: " + what + " with the wheel size " + strconv.FormatInt(n, 10) +
			", which is not between 2 and " + strconv.Itoa(maxWheelSize))
	}
}

// WithExecutor hands callbacks to run instead of starting a goroutine for each: a worker pool, an
// event loop, an errgroup. Only the driver calls run, one callback at a time and never on the stack
// of AfterFunc or Reset. So a run that blocks holds up every timer of the wheel. A panic in run is
// treated like a panic in the callback, which then counts as dropped. run should call its argument
// once. If it drops the argument, the timer has still fired and its callback never runs. Shutdown
// cannot know that and waits until its context ends.
func WithExecutor(run func(f func())) Option {
	if run == nil {
		panic("timingwheel: WithExecutor with a nil executor")
	}
	return func(c *config) { c.setExecutor(custom); c.run = run }
}

// WithInline runs callbacks on the driver itself, one after the other. It is
// the cheapest executor and keeps callbacks in the order of their ticks, but a
// callback that blocks holds up every timer of the wheel.
func WithInline() Option {
	return func(c *config) { c.setExecutor(inline) }
}

// WithPreciseWakeup wakes the driver on Linux some tens of microseconds after a tick, where package
// time takes most of a millisecond. It uses a timer file that the runtime's poller waits for, so
// ticks down to 50 microseconds make sense. It takes a file descriptor and a parked goroutine while
// something is pending, and for a tenth of a second afterwards. A fine tick also causes more
// wake-ups. On other systems, without a free file descriptor, and in a synctest bubble, the wheel
// wakes up as without the option.
func WithPreciseWakeup() Option {
	return func(c *config) { c.precise = true }
}

// WithPanicHandler calls h when a callback or a Scheduler panics, on the goroutine that panicked. h
// receives what recover returned and the stack of the panic. Without a handler such a panic crashes
// the program, as with time.AfterFunc.
func WithPanicHandler(h func(recovered any, stack []byte)) Option {
	if h == nil {
		panic("timingwheel: WithPanicHandler with a nil handler")
	}
	return func(c *config) { c.onPanic = h }
}

func (c *config) setExecutor(mode executorMode) {
	if c.mode != goroutine {
		panic("timingwheel: New with more than one executor")
	}
	c.mode = mode
}
