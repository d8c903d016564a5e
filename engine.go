package timingwheel

import (
	"sync/atomic"
	"time"
)

// The path of a timer, by file:
//
//	timer.go      Timer.Reset, or AfterFunc by armNew: a deadline
//	shard.go      armLocked, placeLocked: the state word, and where the timer is filed
//	wheel.go      place: the finest wheel that reaches so far; bucket.go and delayqueue.go
//	alarm.go      wakeAt: if the timer is the earliest
//	driver.go     drive, round: what is due, tick by tick over all shards
//	flush.go      flushTimer: fires (claimLocked), or is placed anew
//	executor.go   handOverLocked, invoke: the callback
//
// What differs between a plain timer and one that is part of something is in kind.go, and what
// happens to pending timers when the wheel is stopped in halt.go.
//
// # Locking
//
// Each shard has a lock, which guards its timers. The alarm has a lock, and so does each context
// and each shard of a Map's table. The order is: a context's (see context.go) or a table's, then a
// shard's, then the alarm's. No goroutine holds the locks of two shards.
//
// Each lock is held for a bounded number of timers at a time, and none while user code runs:
// callbacks, executors, Schedulers and panic handlers may call anything of the wheel. Two calls of
// the runtime are made under a lock, and neither blocks: the alarm is set under its own lock and a
// shard's, and a timer that a caller arms when it is due gets its goroutine under the lock of its
// shard. Only Timer.extend and Timer.keep change a timer without a lock. Callers never wait for the
// driver, only for a lock. Init of a timer from another wheel takes the lock of the shard that the
// timer leaves, and no other.

// An engine is the lower part of a TimingWheel: it files timers, wakes up in time, and fires them.
// It knows neither what the timers are part of (see kind.go) nor the TimingWheel.
type engine struct {
	clock
	shards []shard // fixed

	// started and stopped change once. armLocked looks at stopped under its shard's lock, and
	// halt sweeps the shards after it has set it. So what is armed just before is swept.
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
	execution
}

// init prepares e, which is not in use yet. The wheel then waits for Start.
func (e *engine) init(c settings) {
	e.clock = clock{start: time.Now(), tick: int64(c.tick), wall: time.Now}
	e.executor.engine, e.executor.execution = e, c.execution
	e.driver.engine = e
	e.makeShards(c.shards, c.wheelSize)
	e.alarm.init(e, c.precise)
}
