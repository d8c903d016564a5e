/*
Package timingwheel runs callbacks when their time has come, as time.AfterFunc
does, at a cost that does not grow with the number of timers that are pending. It
is made for programs that keep many timers and let few of them fire: timeouts of
connections, requests, leases and sessions.

	tw := timingwheel.New()
	t := tw.AfterFunc(30*time.Second, func() { conn.Close() })
	t.Reset(30 * time.Second) // on every packet
	t.Stop()                  // when the connection ends in good order

It is a hierarchical timing wheel as Apache Kafka has it (after Varghese and
Lauck, "Hashed and Hierarchical Timing Wheels", 1987): timers lie in buckets, one
for each slot of a wheel; what lies beyond a wheel goes to a coarser one; a heap
of the buckets that are not empty, the delay queue, tells when to wake up next, so
that nothing has to tick while nothing is due.

	AfterFunc(140 s) at second 0, tick 1 ms, wheels of 256 slots

	overflow wheel  65,536 ms  [ ][ ][140s][ ] ...  due at 131.072 s, moves down during the slot before, to
	overflow wheel     256 ms  [ ] ...  [*] ...     due at 139.776 s, moves down during the slot before, to
	lowest wheel         1 ms  [ ] ...  [*] ...     fires at 140.000 s

	delay queue: the buckets with timers in them, by when they want attention
	alarm:       one time.AfterFunc, set for the first of them

There is one of all this for each processor, with a lock of its own, but one alarm
for all of them.

# When package time is the better choice

With a few thousand timers, or with timers that mostly fire, use package time and
think no more of it. Use it also for what has to be more punctual than a millisecond
or two, and where a dependency is not worth some hundred
nanoseconds. The wheel pays where timers are many, are mostly stopped or pushed on,
or are part of structs that are reused.

# Accuracy

A callback never begins before its deadline. Deadlines round up to the tick, a
millisecond by default; to that comes what the platform takes to wake a sleeping
program, about a millisecond on Linux. Callbacks of earlier ticks are handed over
before those of later ticks; within a tick there is no order. With the default
executor, which starts a goroutine for each callback, a timer that is due when it is
armed does not wait for the driver, and so may overtake earlier ticks if the driver is
late. A callback that blocks delays others only with WithInline, or with an executor
that blocks.

Durations run on the monotonic clock: a step of the wall clock moves nothing.
AtFunc with a time that has no monotonic reading, and ScheduleFunc but for Every,
follow the wall clock and notice a step within a minute.

# Tick and wheel size

Make the tick as coarse as your timeouts allow: a wheel of many timers wakes up
once per tick in which something is due, so 10 ms or 100 ms ticks save wake-ups
where timeouts are seconds. The wheel size trades memory (96 bytes a slot and level,
per processor) for reinsertion: a timer moves once per level it starts above the
lowest. With the defaults timeouts up to half a second never move, up to two minutes
once, up to nine hours twice. On Linux WithPreciseWakeup makes ticks down to 50 us worth while.

# Concurrency

Everything may be called from any goroutine, callbacks included. No lock is held
while user code runs, and none for more than a bounded number of timers. Each
arming of a timer has exactly one outcome: its callback was handed to the
executor, or Stop or Reset returned true, or the wheel was stopped.

# By key

A Map holds values by key, each until its time has come: sessions, leases, presence, a
debounce. Touch keeps a key without a lock, and each Set has exactly one outcome.

# Contexts and channels

WithTimeout, WithDeadline and their Cause forms make contexts as package context does,
the plain forms at half the cost unless they are waited for. The first call of Done
makes the context known to its parent and to package context: the whole then costs 1.2 to
1.5 times what package context takes, and 1.5 to 2.1 times below a cancellable parent of
package context's, as for an HTTP request. After, NewTimer and NewTicker send on channels
as those of package time do. Contexts and channels outlive their wheel: package time takes
them over, so no one waits for ever. Package netidle closes connections on which nothing
happens.

# Looking inside

Stats has the counters, ready for expvar; package wheeldebug serves a page that shows a
running wheel; a module of its own has a Prometheus collector. WithSlowCallback tells
which callback holds up the others. In an execution trace of runtime/trace the driver
and each callback have regions, and the log says how late the alarm was.

# Lifecycle

A wheel made by New runs from its first timer, one made by NewTimingWheel from
Start. Between wake-ups it has no goroutine. With nothing pending it is collected
once it is unreachable, so a wheel need not be stopped. Stop drops what is
pending, Drain hands it back, Shutdown waits for callbacks under way. All are
final. Contexts and channels go on, by package time.

# Tests

A wheel made inside a testing/synctest bubble follows the bubble's clock. Its deadlines round up
to the tick there, too: with a tick of a nanosecond, a timer fires at its exact instant.

	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New(timingwheel.WithTick(time.Nanosecond))
		start := time.Now()
		<-tw.After(5 * time.Minute)
		fmt.Println(time.Since(start)) // 5m0s
	})

# Cost

	AfterFunc, AtFunc    one allocation of 48 bytes, one clock reading, one mutex
	ScheduleFunc         2 allocations of 136 bytes with Every, one of 128 and a call of Next
	                     with another Scheduler; 32 bytes more with StartNow, 48 with Jitter,
	                     16 with SkipMissed
	Reset to later       no allocation, one clock reading, one compare-and-swap
	ResetAt to later     no allocation, one compare-and-swap
	Reset, ResetAt else  no allocation, one clock reading, one mutex
	Stop                 no allocation, one mutex
	Pending              an atomic load
	Map.Touch, Map.Get   no allocation, no lock; Touch a clock reading, one compare-and-swap
	Map.Set, Map.Delete  one allocation for Set, two mutexes
	WithTimeout          2 allocations of 176 bytes, the rest as AfterFunc; Done 6 to 9 more, once
	NewTimer, NewTicker  3 allocations of 216 bytes, the rest as AfterFunc
	Len, Stats           a mutex per processor; Stats looks at each slot in use
	a pending timer      48 bytes and its closure; moved once per level
	an empty wheel       3 KiB, and 24 KiB per processor for each level in use

None depends on how many timers are pending.

# Limits

A wheel is one process's memory: what is pending when the process ends is gone. A
deadline more than 146 years after the wheel was made never comes. There is no
priority among timers of one tick. A timer cannot be moved from one wheel to
another while it is pending. A wheel that was made outside a testing/synctest bubble
panics when it is used inside.
*/
package timingwheel
