package timingwheel

import (
	"sync/atomic"
	"time"
)

// The way of a timer: AfterFunc, Reset -> shard.armLocked -> wheel.place -> bucket -> delayQueue
// -> alarm -> driver.drive -> shard.flushTimer -> executor, or wheel.place again.
//
// # Locking
//
// Each shard has a lock, which guards its timers, the alarm has one, and so has each
// context and each shard of a Map's table. They are taken in this order: a context's (more in
// context.go) or a table's, a shard's, the alarm's; no goroutine holds two shards'. Each is
// held for a bounded number of timers at a time and never while user code runs:
// callbacks, executors, Schedulers and panic handlers are all called without any, so
// they may call anything of the wheel. The alarm is set under both, and a caller's
// own timer that is due at once gets its goroutine under its shard's; neither
// blocks. Timer.extend and keep alone change a timer without a lock. Callers never wait for
// the driver, only for a lock. Init of a timer from another wheel takes the lock
// of the shard that it leaves, and no other.

// An engine moves the timers of a TimingWheel. It does not know what they are part of.
type engine struct {
	clock
	shards []shard // fixed

	// started and stopped change once. An add looks at stopped under its shard's
	// lock, and halt sweeps the shards after it has set it: whatever slips in before
	// is swept.
	started, stopped atomic.Bool

	homes [1 << homeBits]atomic.Uint32 // see lockHome
	dealt atomic.Uint32                // see deal

	executor executor
	alarm    alarm
	driver   driver
}

// settings are what an engine is made from.
type settings struct {
	tick      time.Duration
	wheelSize int
	shards    int  // 0 for as many as processors
	precise   bool // WithPreciseWakeup

	mode    executorMode
	run     func(f func())
	onPanic func(recovered any, stack []byte)
	observer
}

// init prepares e, which is part of a TimingWheel that no one uses yet. It waits for Start.
func (e *engine) init(c settings) {
	e.clock = clock{start: time.Now(), tick: int64(c.tick), wall: time.Now}
	e.executor.engine = e
	e.executor.mode, e.executor.run, e.executor.onPanic = c.mode, c.run, c.onPanic
	e.executor.observer = c.observer
	e.driver.engine = e
	e.makeShards(c.shards, c.wheelSize)
	e.alarm.init(e, c.precise)
}
