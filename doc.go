/*
Package timingwheel provides timers for programs that keep many timeouts and let few of them fire:
timeouts of connections, requests, sessions and leases. It works like time.AfterFunc, and its cost
does not grow with the number of pending timers.

	tw := timingwheel.New()
	t := tw.AfterFunc(30*time.Second, func() { conn.Close() })
	t.Reset(30 * time.Second) // on every packet
	t.Stop()                  // when the connection ends

A TimingWheel is a hierarchical timing wheel like that of Apache Kafka (after Varghese and Lauck,
"Hashed and Hierarchical Timing Wheels", 1987). Timers lie in buckets, one for each slot of a wheel.
Timers beyond the span of a wheel go to a coarser one, its overflow wheel. A heap of buckets, the
delay queue, decides when to wake up next, so nothing ticks while nothing is due.

	AfterFunc(140 s) at second 0, tick 1 ms, wheels of 256 slots

	overflow wheel  65,536 ms  [ ][ ][140s][ ] ...  due at 131.072 s, moves down one slot earlier
	overflow wheel     256 ms  [ ] ...  [*] ...     due at 139.776 s, moves down one slot earlier
	lowest wheel         1 ms  [ ] ...  [*] ...     fires at 140.000 s

	delay queue: the buckets that hold timers, by when each needs attention
	alarm:       one time.AfterFunc, set for the first of these; its goroutine is the driver

There is one such hierarchy for each processor, with a lock of its own, and one alarm for all.

# When to use package time

Use package time if you have a few thousand timers, if most of them fire, or if a millisecond of
lateness matters. The wheel pays off if timers are many and most are stopped or extended, or if they
are fields of structs that are reused.

# Accuracy

A callback never begins before its deadline. Deadlines round up to the tick, a millisecond by
default. Add the time that the platform takes to wake a sleeping program, about a millisecond on
Linux. WithPreciseWakeup reduces it.

Callbacks of earlier ticks are handed over before those of later ticks. Within a tick there is no
order. With the default executor, which starts a goroutine for each callback, a timer that is due
when it is armed does not wait for the driver, so it may overtake earlier ticks if the driver is
late. A callback that blocks delays others only with WithInline or with an executor that blocks.

Durations follow the monotonic clock: a step of the wall clock does not affect them. ScheduleFunc,
except with Every, and AtFunc with a time that has no monotonic reading follow the wall clock, and
notice a step within a minute.

# Tick and wheel size

Make the tick as coarse as your timeouts allow. The wheel wakes up once for each tick in which
something is due, so ticks of 10 ms or 100 ms save wake-ups where timeouts are seconds. On Linux,
WithPreciseWakeup makes ticks down to 50 microseconds worthwhile.

The wheel size trades memory for moves: a timer moves once for each level that it starts above the
lowest. With the defaults, timeouts up to half a second never move, up to two minutes once, and up
to nine hours twice.

# Concurrency

All calls are safe for concurrent use, and callbacks may make them too. No lock is held while user
code runs, and none is held for more than a bounded number of timers. Each arming of a timer has
exactly one outcome: its callback was handed to the executor, or Stop or Reset returned true, or the
wheel was stopped.

# Timers in structs

A Timer can be a field of a struct. Init prepares it once, and Reset arms it again and again without
allocating. A Timer must not be copied.

# Schedules

ScheduleFunc runs a callback at the times that a Scheduler returns: Every for a fixed period, or any
schedule of robfig/cron. ScheduleOptions decide what happens to runs that overlap or were missed.

# Values by key

A Map holds values by key until they expire: sessions, leases, presence, a debounce. Touch extends a
key without a lock. Each Set has exactly one outcome.

# Contexts, channels and connections

WithTimeout, WithDeadline and their Cause forms make contexts that behave like those of package
context. They cost less until Done is called, and more afterwards. After, NewTimer and NewTicker
send on channels as those of package time do. When the wheel is stopped, package time takes over its
contexts and channels. Package netidle closes idle connections.

# Looking inside

Stats returns counters, ready for expvar. Package wheeldebug serves a page that shows a running
wheel. Package wheelprom, a module of its own, is a Prometheus collector. WithSlowCallback reports
callbacks that run too long. In an execution trace of runtime/trace, the driver and each callback
have regions, and log messages say how late the alarm was.

# Lifecycle

A wheel made by New runs from its first timer. One made by NewTimingWheel runs from Start. Between
wake-ups it has no goroutine. A wheel with nothing pending is garbage collected when it is no longer
referenced, so it need not be stopped. Stop drops what is pending, Drain hands it back, and Shutdown
waits for running callbacks. All three are final.

# Tests

A wheel made inside a testing/synctest bubble follows the bubble's clock. Its deadlines round up to
the tick there too: with a tick of one nanosecond, timers fire at their exact instant.

	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New(timingwheel.WithTick(time.Nanosecond))
		start := time.Now()
		<-tw.After(5 * time.Minute)
		fmt.Println(time.Since(start)) // 5m0s
	})

# Cost

	AfterFunc, AtFunc    one allocation, one clock reading, one mutex
	Reset to later       no allocation, one clock reading, one compare-and-swap
	ResetAt to later     no allocation, one compare-and-swap
	other Resets         no allocation, one clock reading, one mutex
	Stop                 no allocation, one mutex
	Pending              one atomic load
	Map.Touch            no allocation, one clock reading, one compare-and-swap
	Map.Get              no allocation, no lock
	Map.Set, Map.Delete  one allocation for Set, two mutexes
	Len, Stats           one mutex per processor; Stats looks at each slot in use
	a pending timer      48 bytes and its closure; moved once per level

None of this depends on the number of pending timers. README.md has the sizes of all allocations.

# Limits

A wheel lives in the memory of one process: what is pending when the process ends is lost. A
deadline more than 146 years after the wheel was made never comes. Timers of the same tick have no
order or priority. A pending timer cannot be moved from one wheel to another. A wheel made outside a
testing/synctest bubble panics when it is used inside.
*/
package timingwheel
