/*
 * The protocol of a timer, the driver and the alarm, as a model for Spin.
 *
 * What a timing wheel can get wrong between goroutines is a matter of a few
 * steps in an unlucky order, and there are too many orders to test. This model
 * is small enough to try all of them: Spin explores every interleaving of the
 * steps below, for every choice of operations, deadlines and instants, and
 * checks the properties in each state. model_test.go runs the configurations.
 *
 *
 * What is modelled
 *
 *   here                          Go
 *   ----------------------------  --------------------------------------------
 *   caller                        a goroutine that calls AfterFunc, Reset and
 *                                 Stop on timers it shares with another one
 *   arm, catch_up, place          arm/armLocked, catchUpLocked, placeLocked and
 *                                 wheel.place
 *   wake_at, set_alarm            wakeAt, and the setting of the alarm
 *   stop                          Timer.Stop
 *   drive: turn, piece, settle,   drive, turn, piece, settle, leave
 *   leave
 *   mu, next, wheel_now ...       of each shard: its lock; the tick at which it
 *                                 wants a driver; its clock, delay queue and lists
 *   alarm_mu, armed               the lock of all that the shards share; the tick
 *                                 the alarm is set for, UNSET if none is, AWAKE if
 *                                 none is wanted: a driver is at work, or the
 *                                 wheel has not begun or is stopped
 *   alarm, rings                  the one time.AfterFunc: set or not, what its
 *                                 Stop and Reset return; rings counts the
 *                                 goroutines that it started and that have not
 *                                 got alarm_mu yet
 *   callback                      call and returned: f on its own goroutine
 *   stopper                       TimingWheel.Shutdown, which begins with
 *                                 TimingWheel.Stop (halt)
 *   starter                       TimingWheel.Start
 *   environment                   the monotonic clock, and the runtime that
 *                                 makes the alarm ring
 *   quiescent                     nobody: it looks at the end of each run
 *
 * A timer belongs to one shard for life, and the shards have nothing in common but
 * the alarm and the driver. Whoever holds the lock of a shard may take alarm_mu;
 * nobody holds the locks of two shards, nor takes one with alarm_mu held.
 *
 * Each shard's wheel is the real one at its smallest, a tick of 1 and 2 slots:
 * two fine buckets that take turns (ticks 1, 2, 3) and a coarse bucket of the
 * overflow wheel that spans ticks 2 and 3. With a clock of 0 to 3 a timer is
 * reinserted from coarse to fine, an extended one from fine to coarse, and a
 * fine bucket comes back for its next lap.
 *
 * Steps. Whatever Go does atomically is one step here: taking a lock, a load,
 * a store, a compare-and-swap, an atomic addition, a call of the alarm. Within a
 * hold of a lock, steps on what only its holders touch are joined to their
 * neighbours, as nobody can come between them; an access to what others touch
 * without the lock (the state word, stopped, next, armed, started, inflight, the
 * clock, the alarm) starts a step of its own, unless no one process could tell.
 * Nobody could where
 *
 *   - the look at stopped follows the lock, and the load of a word follows that:
 *     who sees the wheel stopped before it changes the word only calls on a wheel
 *     that is stopped, which does nothing to make a difference;
 *   - next is lowered in the step that links the timer: who holds no lock of the
 *     shard sees of the two only next;
 *   - a hold of alarm_mu in which armed is compared and set once is one step:
 *     who needs alarm_mu comes before or after it, and the others see only armed
 *     or only the alarm. leave and Start, which set armed twice and look at every
 *     next in between, do each of that in a step of its own;
 *   - the driver finds in several looks at next, or in one and then the lock, that a
 *     shard wants it: next rises by its own doing only, so that what it has seen
 *     stays true, and what it has missed leave sees;
 *   - the release of a lock, which keeps nobody from anything, is part of the step
 *     before it.
 *
 *
 * What is left out, and why that is fair
 *
 *   - Time goes by whole ticks, and rounding to the tick is exact arithmetic
 *     with tests of its own. Any two steps may be any time apart.
 *   - The alarm rings at any moment from the tick it is set for, so a late one
 *     is included: the platform's lateness, and that of a caller that set it by
 *     an old reading of the clock.
 *   - Flush and sweep take the timers of a bucket in any order, not in the
 *     list's. The links, and the levels above the second, belong to the oracle
 *     of the pure wheel.
 *   - Reinsertion ahead of time, and the wider span that goes with it. It is one
 *     more hold of the driver's that moves timers between lists, as reinsertion
 *     when a bucket is due is; where they may go is arithmetic, and the oracle's.
 *   - The goroutines of the default executor start with the claim. In Go the
 *     driver starts them once it has released the lock; until then it is at work,
 *     and that is what Shutdown looks at.
 *   - Callbacks do nothing. Whatever one may call, a caller calls at the same
 *     moment: the locks are free whenever user code runs.
 *   - The driver picks the shard of its next piece, and batch or a bucket within
 *     it, by the tick. Here it may pick any, after every hold and every callback.
 *   - More than two shards. They meet only at the alarm, which sees each of them
 *     as a next and a lock.
 *   - Schedules and wall-clock timers. They go through the same word and lists;
 *     what is their own is Next without the lock, which this model lacks.
 *   - A Shutdown whose context ends has only stopped looking.
 *   - The memory model: steps are sequentially consistent, which is what Go's
 *     mutexes and atomics give to programs without data races.
 *   - Loops that go on forever while others move too. A process that is stuck
 *     is found, one that runs in circles is not.
 *
 *
 * Properties, by the name of the flag that a violated assertion shows
 *
 *   two_outcomes      an arming fired, was stopped or was dropped, and had had
 *                     an outcome before
 *   no_outcome        at the end an arming has had none, though its time came or
 *                     the wheel was stopped
 *   wrong_true        Reset returned true, but the timer was not pending
 *   wrong_false       Stop or Reset returned false, but it was
 *   fired_early       the clock had not reached the deadline last asked for
 *   lost_wakeup       nothing can move, the wheel runs, and a timer is pending
 *   uncovered         the locks are free, no driver is at work, and the alarm is
 *                     set for later than a pending timer's deadline: that timer
 *                     would be late, or lost if the alarm is not set at all. It is
 *                     checked in three parts, each of which holds more often than
 *                     that; see IN_TIME
 *   passed_bucket     the clock went past a bucket that holds timers
 *   two_laps          a timer was filed in a bucket queued for another lap
 *   linked_twice, unlinked_twice
 *                     a timer entered a second list, or left one it was not in
 *   two_drivers       two drivers are at work
 *   alarm_after_stop  the alarm was set after TimingWheel.Stop had stopped it:
 *                     Shutdown would wait for its ring
 *   armed_after_stop, fired_after_stop, kept_after_stop
 *                     after TimingWheel.Stop returned, a timer became pending,
 *                     was handed over, or is still in a list
 *   quiet_too_early   Shutdown returned while a driver was at work, a ring was
 *                     under way or set, or a callback had not returned
 *   invalid end state nothing can move, but somebody still has work to do: a
 *                     deadlock, or a Shutdown that hangs
 *
 * A goroutine that has nothing left but to release a lock, or to find out
 * that it need not tell Shutdown, counts as gone.
 *
 *
 * Configurations: the switches are macros
 *
 *   EXECUTOR=GOROUTINE|INLINE|CUSTOM   where callbacks run (default GOROUTINE)
 *   SHARDS=1|2     shards (default 1); timer t belongs to shard t % SHARDS
 *   TIMERS=1|2     timers (default 2)
 *   CALLERS=n      goroutines that call (default 2)
 *   CALLS=n        calls of all of them together, at most (default 3)
 *   STOPPERS=n     goroutines that may shut the wheel down (default 0)
 *   HOLD=n         holdLimit (default 1: a lock is released at every chance)
 *   GOEXIT         inline callbacks may call runtime.Goexit
 *   LATE_START     made by NewTimingWheel: nothing fires until Start, if ever
 *   WITH_NEVER     deadlines that do not come, too
 *   EXTEND_CAS     as Go has it: Reset of a pending timer to a later deadline
 *                  takes no lock, it is one compare-and-swap of the word. Every
 *                  other transition is then a compare-and-swap too, under the
 *                  lock, and begins anew if it fails. Without it Reset extends
 *                  under the lock: the protocol that this one must not weaken
 *   NO_COVERAGE    do not check uncovered, to see what comes of it
 *   MARKS          have the verifier say which branches it reaches; see REACHED
 *
 * Each TRAP_ switch builds in a mistake that the design avoids, and that the
 * model has to find; they are explained where they are. A model that finds
 * nothing proves something only if it can find these. For the same reason every
 * statement, and every branch marked REACHED, is reached in some configuration
 * without a trap; the test checks that too.
 *
 *
 * By hand
 *
 *   spin -a -DSTOPPERS=1 protocol.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan
 *   spin -t -p -g -l -DSTOPPERS=1 protocol.pml     # replay the violation found
 *
 * with the same macros for both calls of spin, MARKS not among them; ./pan -i,
 * built with -DREACH, finds a shortest violation.
 */

#define GOROUTINE 0
#define INLINE    1
#define CUSTOM    2

#ifndef EXECUTOR
#define EXECUTOR GOROUTINE
#endif
#ifndef SHARDS
#define SHARDS 1
#endif
#ifndef TIMERS
#define TIMERS 2
#endif
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef STOPPERS
#define STOPPERS 0
#endif
#ifndef HOLD
#define HOLD 1
#endif

/* Nobody asks how many callbacks are under way unless the wheel is stopped. */
#define COUNTED (STOPPERS > 0)

#define LAST  3    /* the clock's last tick */
#define NEVER 6    /* the deadline that does not come */
#define UNSET 7    /* as a tick, later than any */
#define AWAKE (-1) /* as the alarm's tick, earlier than any */

/* The state word: state and deadline in one value. The deadline of an idle
   timer is left at 0, as nobody asks for it. */
#define IDLE          0
#define PENDING       1
#define WORD(s, d)    ((d) * 2 + (s))
#define STATE(w)      ((w) & 1)
#define DEADLINE(w)   ((w) >> 1)
#define IS_PENDING(w) (STATE(w) == PENDING)

/* The shard that timer t belongs to, for life. */
#define SHARD(t) ((t) % SHARDS)

/* The lists of a shard. Only the first three belong to its wheel and its delay
   queue, and Q is their place in the arrays of all shards. Tick e lies in fine
   bucket e%2 if it is the clock's next, otherwise in the coarse one. */
#define FINE    0
#define COARSE  2
#define DUE     3
#define BATCH   4
#define BEYOND  5
#define NOWHERE 6
#define Q(s, b) ((s) * 3 + (b))
#define IS_IN(t, s, b) (SHARD(t) == (s) && bucket[t] == (b))
#define EMPTY(s, b) (!IS_IN(0, s, b) && !IS_IN(1, s, b))
#define IS_OUT(t, s) (SHARD(t) != (s) || bucket[t] == NOWHERE)
#define EMPTY_SHARD(s) (IS_OUT(0, s) && IS_OUT(1, s))
#define EMPTY_WHEEL (bucket[0] == NOWHERE && bucket[1] == NOWHERE)

/* Within a d_step Spin does not record what is reached. With MARKS each branch
   that matters says so when it is reached first. */
#ifdef MARKS
#define REACHED(what) c_code { static int seen; if (!seen) { seen = 1; printf("reached: %s\n", #what); } }
#else
#define REACHED(what) skip
#endif

/* What the library's variables are called there, they are called here. */

unsigned called : 3;           /* calls that callers have begun */
unsigned clock : 2;            /* the time of day, nobody's to write but environment's */

byte word[2];                  /* of each timer; loads need no lock */
byte bucket[2] = NOWHERE;      /* the list each timer is in */

/* Of each shard; next is written under mu, read by the driver without. */
bit mu[SHARDS];
byte wheel_now[SHARDS];
bit queued[3 * SHARDS];
byte expiration[3 * SHARDS];   /* of a queued bucket, otherwise 0 */
byte next[SHARDS] = UNSET;

bit stopped;                   /* written without a lock, read with and without */
unsigned inflight : 3;

/* Of the alarm; armed and started are written under alarm_mu, read by callers
   without. */
bit alarm_mu;
#ifdef LATE_START
bit started;
short armed = AWAKE;
#else
bit started = 1;
short armed = UNSET;
#endif
unsigned ringing : 3;
bit driving;
bit quiet_made, quiet;         /* the channel exists; it is closed */

bit alarm_on;                  /* the runtime's side of the alarm */
unsigned alarm_at : 2;
unsigned rings : 3;

unsigned counting : 3;         /* callbacks between counting down and looking at stopped */
unsigned telling : 3;          /* callbacks that wait for alarm_mu to tell Shutdown */

/* What the properties need to remember; no process acts on it. */

bit open[2];                   /* the timer's last arming has had no outcome */
byte asked[2];                 /* its deadline, as the caller wanted it */
unsigned calls : 3;            /* callbacks handed over that have not returned */
unsigned at_work : 2;          /* drivers */
bit silenced;                  /* TimingWheel.Stop has stopped the alarm */
bit stop_returned;             /* of TimingWheel.Stop */

/* Callers are alike, so it is enough to look at the runs in which the first is
   the first to act. The timers of one shard are alike too, and timer 0 is the
   first to be used; those of two are not, as shards are looked at in order. */
bit used = SHARDS > 1;

hidden byte two_outcomes, no_outcome, wrong_true, wrong_false, fired_early;
hidden byte lost_wakeup, uncovered, passed_bucket, two_laps;
hidden byte linked_twice, unlinked_twice, two_drivers;
hidden byte armed_after_stop, alarm_after_stop, fired_after_stop, kept_after_stop, quiet_too_early;

/* ---- Outcomes, noted in the step that decides them ---- */

inline note_armed(t, d, was_pending) {
	armed_after_stop = stop_returned;
	assert(!armed_after_stop);
	wrong_true = (was_pending) && !open[t];
	assert(!wrong_true);
	wrong_false = !(was_pending) && open[t];
	assert(!wrong_false);
	open[t] = 1;
	asked[t] = d
}

inline note_outcome(t) {
	two_outcomes = !open[t];
	assert(!two_outcomes);
	open[t] = 0;
	asked[t] = 0
}

inline note_fired(t) {
	fired_early = clock < asked[t];
	assert(!fired_early);
	fired_after_stop = stop_returned;
	assert(!fired_after_stop);
	note_outcome(t);
	calls = calls + COUNTED
}

inline note_false(t) {
	wrong_false = open[t];
	assert(!wrong_false)
}

/* ---- The locks ----

   To take one is always the first thing in a step: mu[s] == 0 -> mu[s] = 1. A
   hold in which nothing is changed is a step that only asks for mu[s] == 0, and
   one that is over within the step only asks for it as well. */

/* Three invariants make up uncovered. The first two are the halves of one
   statement, that the alarm is early enough for every pending timer; the third
   says that armed can be relied on.

   IN_TIME(t): whenever the lock of timer t's shard is free, the shard's next is
   early enough for t, also while a driver is at work. What it speaks of changes
   under that lock only; extend, which takes none, moves a deadline later.

   COVERED(s): whenever alarm_mu and the lock of shard s are free, armed is early
   enough for the shard's next. A caller that has lowered next and not yet come to
   the alarm holds the one, a driver that has published armed and still looks at
   every next holds the other. armed changes under alarm_mu and next under the
   shard's lock.

   ALARM_TRUE: whenever alarm_mu is free and the wheel runs, there is what armed
   speaks of: a driver, the alarm, or a ring of it that will see to things.

   So it is enough to check all of them whenever a lock is released, and the first
   after an extension. With every lock free they say together that no driver is at
   work only if the alarm is set, or has rung, for no later than any pending timer
   wants: what a caller or a driver is in the middle of is left out, and nothing
   else. */
#define IN_TIME(t) (mu[SHARD(t)] || !IS_PENDING(word[t]) || DEADLINE(word[t]) == NEVER || \
	next[SHARD(t)] <= DEADLINE(word[t]) || next[SHARD(t)] <= wheel_now[SHARD(t)])
#define COVERED(s) (alarm_mu || mu[s] || armed <= next[s])
#define ALARM_TRUE (alarm_mu || stopped || !started || driving || armed == UNSET || rings > 0 || \
	alarm_on && alarm_at == armed)

#if SHARDS > 1
#define ALL_COVERED (COVERED(0) && COVERED(1))
#else
#define ALL_COVERED COVERED(0)
#endif

inline check_covered() {
#ifndef NO_COVERAGE
	uncovered = !(IN_TIME(0) && IN_TIME(1) && ALL_COVERED && ALARM_TRUE);
	assert(!uncovered)
#else
	skip
#endif
}

inline unlock(s) {
	mu[s] = 0;
	check_covered()
}

inline unlock_alarm() {
	alarm_mu = 0;
	check_covered()
}

/* ---- The state word ----

   UNCHANGED says whether a transition that somebody prepared from the word w
   may take place. If only holders of the lock write the word, then under the lock
   it is always as it was read, and a store will do. With EXTEND_CAS it is the
   comparison of a compare-and-swap.

   TRAP_RESET_BY_STORE: the slow path stores over a word that has changed since
   it was read. Without EXTEND_CAS Reset reads it before it has the lock. With
   EXTEND_CAS all read it under the lock, and an extension comes between. (It is
   the claim that breaks: a Reset or Stop that overwrites an extension only looks
   as if it had come after it.) */
#if defined(EXTEND_CAS) && !defined(TRAP_RESET_BY_STORE)
#define UNCHANGED(t, w) (word[t] == (w))
#else
#define UNCHANGED(t, w) true
#endif

/* HELD encloses taking a shard's lock, the look at stopped, a load of the word and
   the transition prepared from it. With EXTEND_CAS the word may change between the
   last two, and with a stopper stopped, which is written without the lock;
   otherwise nobody can come in between. */
#if defined(EXTEND_CAS) || STOPPERS > 0
#define HELD
#else
#define HELD atomic
#endif

/* ---- Lists, wheel and delay queue of shard s; all under its lock ---- */

inline link(t, b) {
	linked_twice = bucket[t] != NOWHERE;
	assert(!linked_twice);
	bucket[t] = b
}

inline unlink(t) {
	unlinked_twice = bucket[t] == NOWHERE;
	assert(!unlinked_twice);
	bucket[t] = NOWHERE
}

/* head sets b to the first queued bucket, empty or not; NOWHERE if none is. */
inline head(s, b) {
	b = NOWHERE;
	if
	:: queued[Q(s, 0)] -> b = 0
	:: else
	fi;
	if
	:: queued[Q(s, 1)] && (b == NOWHERE || expiration[Q(s, 1)] < expiration[Q(s, b)]) -> b = 1
	:: else
	fi;
	if
	:: queued[Q(s, 2)] && (b == NOWHERE || expiration[Q(s, 2)] < expiration[Q(s, b)]) -> b = 2
	:: else
	fi
}

inline drop(s, b) {
	queued[Q(s, b)] = 0;
	expiration[Q(s, b)] = 0
}

/* next_busy drops emptied buckets from the top and sets b to the first that
   holds a timer; NOWHERE if none does. */
inline next_busy(s, b) {
	head(s, b);
	do
	:: b != NOWHERE && EMPTY(s, b) ->
	   drop(s, b);
	   head(s, b)
	:: else -> break
	od;
	skip
}

#define PASSED(s, b, to) (queued[Q(s, b)] && !EMPTY(s, b) && expiration[Q(s, b)] < (to))

inline advance(s, to) {
	passed_bucket = PASSED(s, 0, to) || PASSED(s, 1, to) || PASSED(s, 2, to);
	assert(!passed_bucket);
	if
	:: to > wheel_now[s] -> REACHED(clock_advanced); wheel_now[s] = to
	:: else
	fi
}

/* catch_up moves the clock of a shard with nothing to do, short of the first
   queued bucket. b is scratch.

   TRAP_CATCH_UP: it does not stop short. */
inline catch_up(s, now, b) {
	head(s, b);
	if
#ifndef TRAP_CATCH_UP
	:: b != NOWHERE && expiration[Q(s, b)] <= now ->
	   REACHED(caught_up_short_of_a_bucket);
	   advance(s, expiration[Q(s, b)] - 1)
#endif
	:: else -> advance(s, now)
	fi;
	b = 0
}

/* place links t where its deadline d belongs by the clock at, the shard's own,
   or among what is due if it has come at the instant come, and sets e to the tick
   that wants a driver. b is scratch.

   TRAP_LAP: the span is a slot longer than the wheel, so that the slot the
   clock stands on takes timers for its next lap, even while it is flushed. */
#ifdef TRAP_LAP
#define SPAN 3
#else
#define SPAN 2
#endif

inline place(s, t, d, come, at, e, b) {
	if
	:: d == NEVER -> REACHED(placed_beyond); link(t, BEYOND); e = UNSET
	:: d != NEVER && (d <= come || d <= at) -> REACHED(placed_due); link(t, DUE); e = at
	:: else ->
	   if
	   :: d - at < SPAN -> REACHED(placed_fine); b = FINE + d % 2; e = d
	   :: else -> REACHED(placed_coarse); b = COARSE; e = d - d % 2
	   fi;
#ifndef TRAP_STALE_CLOCK /* it gets here as well; what follows from it is to be seen */
	   two_laps = queued[Q(s, b)] && expiration[Q(s, b)] != e;
	   assert(!two_laps);
#endif
	   link(t, b);
	   if
	   :: queued[Q(s, b)] -> REACHED(bucket_was_queued); e = expiration[Q(s, b)]
	   :: else -> REACHED(bucket_queued); queued[Q(s, b)] = 1; expiration[Q(s, b)] = e
	   fi;
	   b = 0
	fi
}

/* want lowers the shard's next to e. */
inline want(s, e) {
	if
	:: e < next[s] -> REACHED(next_lowered); next[s] = e
	:: else -> REACHED(next_low_enough)
	fi
}

/* ---- The alarm; all under alarm_mu but for the first look of wake_at ---- */

/* Reset of the alarm returns true if it was set: then the ring that was to come
   has been moved, and there is none more to count.

   TRAP_ALARM_RESET: every setting is counted as a ring to come. */
#ifdef TRAP_ALARM_RESET
#define MOVED false
#else
#define MOVED alarm_on
#endif

inline set_alarm(e) {
	alarm_after_stop = silenced;
	assert(!alarm_after_stop);
	armed = e;
	alarm_at = e;
	if
	:: MOVED -> REACHED(alarm_moved)
	:: else -> REACHED(alarm_set); ringing++
	fi;
	alarm_on = 1
}

/* wake_at is how a caller that has filed a timer, and lowered its shard's next,
   sees to the alarm and releases the shard's lock. What it saw without alarm_mu
   may be out of date once it has that, so it looks again.

   TRAP_WAKE_UNCOMPARED: it does not.
   TRAP_WAKE_BEFORE_NEXT: the first look is before next is lowered; see arm. */
#ifdef TRAP_WAKE_UNCOMPARED
#define EARLIER(e) true
#else
#define EARLIER(e) (e < armed)
#endif
#ifdef TRAP_WAKE_BEFORE_NEXT
#define SEEN seen
#else
#define SEEN armed
#endif

inline wake_at(s, e) {
	if
	:: d_step { e >= SEEN -> unlock(s) }
	:: e < SEEN ->
	   d_step {
	      alarm_mu == 0 ->
	      if
	      :: EARLIER(e) -> REACHED(driver_woken); set_alarm(e)
	      :: else -> REACHED(driver_woken_by_another)
	      fi;
	      unlock(s)
	   }
	fi
}

/* publish_and_look is how leave and Start, which hold alarm_mu, find the tick for
   the alarm: m is lowered to the earliest next. A caller stores next and then loads
   armed, here armed is stored and then every next loaded: one of the two sees the
   other, or both.

   TRAP_LOST_WAKEUP: armed says that a driver is at work until every next has been
   looked at. A caller that files a timer meanwhile leaves it to that driver. */
inline publish_and_look(m) {
#ifndef TRAP_LOST_WAKEUP
	armed = UNSET;
#endif
	look_at(0, m)
#if SHARDS > 1
	;
	look_at(1, m)
#endif
}

inline look_at(s, m) {
	d_step {
		if
		:: next[s] < m -> m = next[s]
		:: else
		fi
	}
}

inline set_alarm_if(m) {
	armed = UNSET; /* as it is, if it has been published */
	if
	:: m != UNSET -> set_alarm(m)
	:: else -> REACHED(nothing_to_wait_for)
	fi
}

/* announce_quiet closes Shutdown's channel if nothing of the stopped wheel runs.

   TRAP_RING_UNCOUNTED: an alarm that has rung and not reached the driver is
   forgotten. */
#ifdef TRAP_RING_UNCOUNTED
#define NO_RING true
#else
#define NO_RING (ringing == 0)
#endif

inline announce_quiet() {
	if
	:: quiet_made && inflight == 0 && !driving && NO_RING -> REACHED(quiet); quiet = 1
	:: else -> REACHED(not_quiet)
	fi
}

/* The clock moves at any moment, up to its last tick; the alarm rings at any
   moment from its tick on. */
active proctype environment() {
end:
	do
	:: clock < LAST -> clock++
	:: d_step { alarm_on && clock >= alarm_at -> alarm_on = 0; alarm_at = 0; rings++ }
	od
}

/* ---- The driver ---- */

/* A goroutine that the alarm started does nothing before it has alarm_mu, so
   those that wait for it are a mere number, rings. The first of these processes
   drives; the second takes the rings that find a driver at work or the wheel
   stopped, and leave.

   TRAP_TWO_DRIVERS: they do not look whether one is. */
#ifdef TRAP_TWO_DRIVERS
#define MAY_DRIVE true
#else
#define MAY_DRIVE (!driving && _pid == 1)
#endif

/* A round begins with each shard in which something may be due: what waits in
   due is taken into batch. next does not rise but by the driver, so a shard that
   was seen to want one still does when its lock is free. */
inline take_due(s) {
	if
	:: next[s] > tick
	:: d_step {
	      next[s] <= tick && mu[s] == 0 ->
	      if
	      :: IS_IN(0, s, DUE) -> bucket[0] = BATCH
	      :: else
	      fi;
	      if
	      :: IS_IN(1, s, DUE) -> bucket[1] = BATCH
	      :: else
	      fi;
	      todo = todo | 1 << s;
	      unsettled = unsettled | 1 << s
	   }
	fi
}

/* The lock of shard s is free, and the round has not done with it. */
#define READY(s) ((todo >> (s) & 1) && mu[s] == 0)

/* settle says exactly when the shard wants a driver again, and gives up its lock.

   TRAP_SETTLE: it says so when it has given it up. */
inline settle(s) {
	if
	:: !(unsettled >> (s) & 1)
	:: d_step {
	      (unsettled >> (s) & 1) && mu[s] == 0 ->
	      next_busy(s, b);
	      if
	      :: !EMPTY(s, DUE) -> REACHED(settled_with_something_due); e = wheel_now[s]
	      :: EMPTY(s, DUE) && b != NOWHERE -> REACHED(settled_with_a_bucket); e = expiration[Q(s, b)]
	      :: else -> REACHED(settled_with_nothing); e = UNSET
	      fi;
	      b = 0;
#ifndef TRAP_SETTLE
	      next[s] = e;
	      e = 0;
#endif
	      unlock(s)
	   }
#ifdef TRAP_SETTLE
	   ;
	   next[s] = e;
	   e = 0
#endif
	fi
}

#if SHARDS > 1
#define WANTED (next[0] <= clock || next[1] <= clock)
#else
#define WANTED (next[0] <= clock)
#endif

/* TRAP_ALARM_AFTER_STOP: a driver that leaves does not look again whether the
   wheel has been stopped before it sets the alarm. */
#ifdef TRAP_ALARM_AFTER_STOP
#define LOOKED_STOPPED_AGAIN false
#else
#define LOOKED_STOPPED_AGAIN stopped
#endif

active [2] proctype drive() {
	unsigned s : 1, b : 3, t : 1, w : 4, tick : 2, up_to : 2, e : 3, scratch : 2;
	unsigned held : 2, todo : 2, unsettled : 2, m : 3;

end:
	do
	:: d_step {
	      rings > 0 && alarm_mu == 0 && (driving || stopped) && _pid == 2 -> /* in vain */
	      rings--;
	      ringing--;
	      if
	      :: stopped -> REACHED(ring_of_a_stopped_wheel); announce_quiet()
	      :: else -> REACHED(ring_for_nothing)
	      fi
	   }
	:: atomic {
	      rings > 0 && alarm_mu == 0 && MAY_DRIVE && !stopped ->
	      d_step {
	         rings--;
	         ringing--;
	         driving = 1;
	         armed = AWAKE;
	         at_work++;
	         two_drivers = at_work > 1;
	         assert(!two_drivers)
	      };
	      goto turn
	   }
	od;

turn:
	atomic {
		if
		:: stopped -> m = UNSET; goto leave
		:: !stopped -> tick = clock
		fi
	};
	take_due(0);
#if SHARDS > 1
	take_due(1);
#endif

	/* A hold of the lock of some shard that the round has not done with. The
	   driver may pick any; Go picks by the tick. */
piece:
	HELD {
		atomic {
			if
			:: todo == 0 -> goto done
			:: d_step { READY(0) -> s = 0 }
#if SHARDS > 1
			:: d_step { READY(1) -> s = 1 }
#endif
			fi;
			if
			:: d_step { stopped -> s = 0; tick = 0; todo = 0; unsettled = 0; m = UNSET }; goto leave
			:: !stopped -> mu[s] = 1
			fi;

			/* The next timer of batch or of a bucket that has expired, whose clock
			   says what fires. Emptied buckets are dropped on the way, which counts
			   like timers. */
look:
			t = 0;
			d_step { head(s, b) };
			if
			:: d_step {
			      b != NOWHERE && EMPTY(s, b) ->
			      REACHED(emptied_bucket_dropped);
			      drop(s, b);
			      b = NOWHERE
			   }
			:: d_step {
			      !(b != NOWHERE && EMPTY(s, b)) && !EMPTY(s, BATCH) ->
			      b = BATCH;
			      up_to = tick
			   }
			:: d_step {
			      b != NOWHERE && !EMPTY(s, b) && expiration[Q(s, b)] <= tick ->
			      advance(s, expiration[Q(s, b)]);
			      up_to = expiration[Q(s, b)]
			   }
			:: d_step {
			      (b == NOWHERE || !EMPTY(s, b) && expiration[Q(s, b)] > tick) && EMPTY(s, BATCH) ->
			      todo = todo & ~(1 << s);
			      unlock(s);
			      s = 0; b = 0; held = 0
			   };
			   goto piece
			fi;
			if
			:: d_step { IS_IN(0, s, b) -> t = 0; w = word[0] }
			:: d_step { IS_IN(1, s, b) -> t = 1; w = word[1] }
			:: b == NOWHERE
			fi
		};
		atomic {
			if
			:: b == NOWHERE -> held++
			:: d_step { b != NOWHERE && DEADLINE(w) > up_to -> /* reinsert */
			      unlink(t);
			      place(s, t, DEADLINE(w), up_to, wheel_now[s], e, scratch);
			      if
			      :: bucket[t] < COARSE -> REACHED(reinserted_fine)
			      :: bucket[t] == COARSE -> REACHED(reinserted_coarse)
			      :: bucket[t] == BEYOND -> REACHED(reinserted_beyond)
			      :: bucket[t] == DUE -> REACHED(reinserted_due)
			      fi;
			      want(s, e);
			      held++; w = 0; e = 0
			   }
			:: d_step { b != NOWHERE && DEADLINE(w) <= up_to && !UNCHANGED(t, w) -> /* extended: once more */
			      held++; w = 0
			   }
			:: d_step { b != NOWHERE && DEADLINE(w) <= up_to && UNCHANGED(t, w) -> /* claim */
			      word[t] = WORD(IDLE, 0);
			      note_fired(t);
			      unlink(t);
			      w = 0;
			      if
			      :: EXECUTOR == GOROUTINE -> held++; inflight = inflight + COUNTED
			      :: else -> unlock(s)
			      fi
			   };
			   if
			   :: EXECUTOR == GOROUTINE
			   :: d_step { EXECUTOR != GOROUTINE -> s = 0; b = 0; t = 0; up_to = 0; held = 0 }; goto call
			   fi
			fi;
			up_to = 0;
			if
			:: held < HOLD -> goto look
			:: d_step { held == HOLD -> unlock(s); s = 0; t = 0; b = 0; held = 0 }
			fi;
			goto piece
		}
	};

done:
	tick = 0;
	settle(0);
#if SHARDS > 1
	settle(1);
#endif
	atomic {
		unsettled = 0;
		if
		:: WANTED -> goto turn
		:: else -> m = UNSET
		fi
	};

	/* Here m is UNSET, or 0 if user code ended the goroutine. */
leave:
	if
	:: d_step {
	      alarm_mu == 0 && LOOKED_STOPPED_AGAIN -> /* armed stays, and no alarm */
	      driving = 0;
	      at_work--;
	      announce_quiet();
	      check_covered();
	      m = 0
	   };
	   goto end
	:: d_step { alarm_mu == 0 && !LOOKED_STOPPED_AGAIN -> alarm_mu = 1 }
	fi;
	publish_and_look(m);
	d_step {
		set_alarm_if(m);
		driving = 0;
		at_work--;
		announce_quiet();
		unlock_alarm();
		m = 0
	};
	goto end;

	/* User code, without a lock. It returns at any moment. */
call:
	if
	:: EXECUTOR == CUSTOM -> inflight = inflight + COUNTED
	:: EXECUTOR == INLINE -> calls = calls - COUNTED
	fi;
	if
#ifdef GOEXIT
	:: goto exited
#endif
	:: goto piece
	fi;

#ifdef GOEXIT
	/* A callback called runtime.Goexit: leave runs deferred. The shard is as far
	   as the round has got, and its next still says that something is due.

	   TRAP_GOEXIT: nothing is deferred, the goroutine is gone. */
exited:
	atomic {
		tick = 0;
		todo = 0;
		unsettled = 0;
#ifdef TRAP_GOEXIT
		at_work--;
		goto end
#else
		m = 0;
		goto leave
#endif
	}
#endif
}

/* The callbacks that were handed over, on goroutines that are not the driver's.
   Each returns at any moment and counts down; the one that came to zero looks
   at stopped; if that is set it has to tell Shutdown. All at one point of that
   way are alike, so a number says how many there are.

   TRAP_QUIET_ORDER: a callback looks at stopped before it counts down. */
active proctype callback() {
#ifdef TRAP_QUIET_ORDER
	unsigned looked : 3;
#endif
end:
	do
#ifdef TRAP_QUIET_ORDER
	:: d_step { inflight > looked + counting ->
	      if
	      :: stopped -> counting++
	      :: else -> looked++
	      fi
	   }
	:: d_step { looked > 0 -> looked--; inflight--; calls-- }
	:: d_step { counting > 0 ->
	      counting--;
	      inflight--;
	      calls--;
	      if
	      :: inflight == 0 -> telling++
	      :: else
	      fi
	   }
#else
	:: d_step { inflight > 0 ->
	      inflight--;
	      calls--;
	      if
	      :: inflight == 0 -> counting++
	      :: else
	      fi
	   }
	:: d_step { counting > 0 ->
	      counting--;
	      if
	      :: stopped -> REACHED(last_callback_tells); telling++
	      :: else -> REACHED(last_callback_need_not_tell)
	      fi
	   }
#endif
	:: d_step { telling > 0 && alarm_mu == 0 -> telling--; announce_quiet() }
	od
}

#define FIRST_CALLER 4 /* after environment, drive twice, callback */

/* ---- The callers ---- */

/* stop: a load without the lock, the lock, and the transition.

   TRAP_STOP_IDENTITY: it notes the timer's bucket before it has the lock and
   looks for the timer there. */
inline stop() {
	if
	:: d_step { !IS_PENDING(word[t]) -> note_false(t) }
	:: else ->
#ifdef TRAP_STOP_IDENTITY
	   b = bucket[t];
#endif
	   HELD {
	      d_step { mu[SHARD(t)] == 0 -> mu[SHARD(t)] = 1; w = word[t] };
	      do
#ifdef TRAP_STOP_IDENTITY
	      :: d_step { bucket[t] != b -> note_false(t); unlock(SHARD(t)) };
	         break
#endif
	      :: d_step { !IS_PENDING(w) -> note_false(t); unlock(SHARD(t)) };
	         break
	      :: d_step { IS_PENDING(w) && UNCHANGED(t, w) ->
	            word[t] = WORD(IDLE, 0);
	            note_outcome(t);
	            unlink(t);
	            unlock(SHARD(t))
	         };
	         break
	      :: d_step { IS_PENDING(w) && !UNCHANGED(t, w) -> w = word[t] } /* extended: once more */
	      od
	   }
	fi
}

/* arm is AfterFunc and Reset: of a timer that was never armed, that fired, was
   stopped or is pending. now is the caller's reading of the clock, d the
   deadline.

   TRAP_STOP_ADD: it looks at stopped before it has the lock, and only then.
   TRAP_STALE_CLOCK: the caller's reading decides where the timer belongs. */
#ifdef TRAP_STALE_CLOCK
#define PLACE_BY now
#else
#define PLACE_BY wheel_now[SHARD(t)]
#endif
#ifdef TRAP_STOP_ADD
#define LOOKED_STOPPED false
#else
#define LOOKED_STOPPED stopped
#endif

#define EXTENDS (IS_PENDING(w) && d >= DEADLINE(w) && DEADLINE(w) > now)

/* Due at once on a goroutine, which needs no driver. */
#define FIRES (d <= now && EXECUTOR == GOROUTINE && started)

inline arm() {
#ifdef EXTEND_CAS
	extend();
#endif
#ifdef TRAP_STOP_ADD
	if
	:: stopped -> goto over
	:: else
	fi;
#endif
#if defined(TRAP_RESET_BY_STORE) && !defined(EXTEND_CAS)
	w = word[t];
#endif
	HELD {
		if
		:: mu[SHARD(t)] == 0 && LOOKED_STOPPED -> goto over
		:: d_step {
		      mu[SHARD(t)] == 0 && !LOOKED_STOPPED -> mu[SHARD(t)] = 1;
		      catch_up(SHARD(t), now, b);
#if !defined(TRAP_RESET_BY_STORE) || defined(EXTEND_CAS)
		      w = word[t]
#endif
		   }
		fi;
		do
		:: d_step { !UNCHANGED(t, w) -> w = word[t] } /* extended: once more */
#ifndef EXTEND_CAS
		:: d_step { UNCHANGED(t, w) && EXTENDS -> /* extend in place */
		      word[t] = WORD(PENDING, d);
		      note_armed(t, d, true);
		      unlock(SHARD(t))
		   };
		   goto over
#define MOVES (!EXTENDS)
#else
#define MOVES true /* extend has tried before */
#endif
		:: d_step { UNCHANGED(t, w) && MOVES && FIRES ->
		      note_armed(t, d, IS_PENDING(w));
		      if
		      :: IS_PENDING(w) -> REACHED(moved_and_fired); unlink(t)
		      :: else -> REACHED(fired_at_once)
		      fi;
		      word[t] = WORD(IDLE, 0);
		      note_fired(t);
		      inflight = inflight + COUNTED;
		      unlock(SHARD(t))
		   };
		   goto over
		:: d_step { UNCHANGED(t, w) && MOVES && !FIRES ->
		      word[t] = WORD(PENDING, d);
		      note_armed(t, d, IS_PENDING(w));
		      if
		      :: IS_PENDING(w) -> REACHED(moved); unlink(t)
		      :: else -> REACHED(armed)
		      fi;
		      if
		      :: d <= now && wheel_now[SHARD(t)] < d -> REACHED(due_before_the_wheel_knows)
		      :: else
		      fi;
		      place(SHARD(t), t, d, now, PLACE_BY, e, b);
#ifdef TRAP_WAKE_BEFORE_NEXT
		      seen = armed
#else
		      want(SHARD(t), e)
#endif
		   };
		   break
		od
	};
#ifdef TRAP_WAKE_BEFORE_NEXT
	d_step { want(SHARD(t), e) };
#endif
	wake_at(SHARD(t), e)
}

/* extend is the compare-and-swap without the lock. It compares with what is
   inside the word it swaps, so that a success means the comparison still holds.
   It need not look at stopped: while the word says pending, the sweep of the
   wheel's Stop has not come by.

   TRAP_EXTEND_COMPARE: it compares with the expiration of the timer's bucket,
   which it read before it read the word. */
#ifdef TRAP_EXTEND_COMPARE
#define EXTEND_FROM from
#else
#define EXTEND_FROM DEADLINE(w)
#endif

inline extend() {
	do
	::
#ifdef TRAP_EXTEND_COMPARE
	   d_step {
	      from = NEVER;
	      if
	      :: bucket[t] <= COARSE -> from = expiration[Q(SHARD(t), bucket[t])]
	      :: else
	      fi
	   };
#endif
	   d_step {
	      w = word[t];
	      if
	      :: IS_PENDING(w) && d >= EXTEND_FROM && DEADLINE(w) > now
	      :: else -> w = 0
	      fi;
	      from = 0
	   };
	   if
	   :: w == 0 -> break
	   :: d_step { w != 0 && word[t] == w ->
	         word[t] = WORD(PENDING, d);
	         note_armed(t, d, true);
	         check_covered()
	      };
	      goto over
	   :: w != 0 && word[t] != w -> skip /* look again */
	   fi
	od
}

inline select_deadline() {
	if
	:: d = now
	:: now < LAST -> d = now + 1
	:: now + 1 < LAST -> d = now + 2
	:: now + 2 < LAST -> d = now + 3
#ifdef WITH_NEVER
	:: d = NEVER
#endif
	fi
}

/* The callers make up to CALLS calls between them, each on any timer, and any of
   them may say that it is enough. */
active [CALLERS] proctype caller() {
	unsigned t : 1, w : 4, now : 2, d : 3, from : 3, e : 3, b : 3;
	bit arming;
#ifdef TRAP_WAKE_BEFORE_NEXT
	short seen;
#endif

end:
	do
	:: atomic {
	      called < CALLS && (called > 0 || _pid == FIRST_CALLER) ->
	      called++;
	      if
	      :: t = 0
	      :: TIMERS > 1 && used -> t = 1
	      fi;
	      used = 1;
	      if
	      :: arming = 1; now = clock; select_deadline()
	      :: arming = 0
	      fi
	   };
	   if
	   :: arming -> arm()
	   :: !arming -> stop()
	   fi;
over:
	   arming = 0; t = 0; w = 0; now = 0; d = 0; from = 0; e = 0; b = 0
	:: called < CALLS -> called = CALLS /* enough */
	od
}

/* ---- The wheel's own lifecycle ---- */

#if STOPPERS > 0
/* silence is the end of the alarm. A caller that saw the wheel running may yet file
   a timer, but finds that no alarm is wanted.

   TRAP_ALARM_STOP: it counts the ring as gone whether or not the alarm's Stop
   prevented it.
   TRAP_ALARM_OPEN: armed stays as it is. */
#ifdef TRAP_ALARM_STOP
#define PREVENTED (ringing > 0)
#else
#define PREVENTED alarm_on
#endif

inline silence() {
	d_step {
		alarm_mu == 0 ->
#ifndef TRAP_ALARM_OPEN
		armed = AWAKE;
#endif
		if
		:: PREVENTED -> REACHED(ring_prevented); alarm_on = 0; alarm_at = 0; ringing--
		:: else -> REACHED(ring_not_prevented)
		fi;
		silenced = 1
	}
}

/* sweep empties shard s, with the lock released after every HOLD timers. */
inline sweep(s) {
	do
	:: d_step { /* a hold that finds nothing, or the end of one, where n > 0 */
	      (n > 0 || mu[s] == 0) && EMPTY_SHARD(s) ->
	      stop_returned = stop_returned || s == SHARDS - 1;
	      n = 0;
	      unlock(s)
	   };
	   break
	:: HELD {
	      atomic {
	         (n > 0 || mu[s] == 0) && !EMPTY_SHARD(s) ->
	         mu[s] = 1;
	         if
	         :: !IS_OUT(0, s) -> t = 0
	         :: !IS_OUT(1, s) -> t = 1
	         fi;
	         w = word[t]
	      };
	      do
	      :: d_step { UNCHANGED(t, w) ->
	            word[t] = WORD(IDLE, 0);
	            note_outcome(t);
	            unlink(t);
	            t = 0; w = 0;
	            n++;
	            if
	            :: n == HOLD -> n = 0; unlock(s)
	            :: else
	            fi
	         };
	         break
	      :: d_step { !UNCHANGED(t, w) -> w = word[t] } /* extended: once more */
	      od
	   }
	od
}

/* halt stops the wheel, or leaves it alone. Every call does all of it: one that
   relied on another to have done its part would return before that had.

   TRAP_ALARM_FIRST: it stops the alarm before it sets stopped.
   TRAP_SILENCE_ONCE: only the first call sees to the alarm. The ring that it
   prevents is counted until then, and one that only stops tells nobody.
   TRAP_SWEEP_ONCE: only the first call sweeps. */
inline halt() {
	if
	:: goto done /* not this time */
#ifdef TRAP_ALARM_FIRST
	:: silence()
	fi;
	if
#endif
	:: d_step { true -> first = !stopped; stopped = 1 }
	fi;
#if defined(TRAP_SILENCE_ONCE)
	if
	:: first -> silence()
	:: !first
	fi;
#elif !defined(TRAP_ALARM_FIRST)
	silence();
#endif
#ifdef TRAP_SWEEP_ONCE
	if
	:: first
	:: !first -> stop_returned = 1; goto swept
	fi;
#endif
	first = 0;
	sweep(0)
#if SHARDS > 1
	;
	sweep(1)
#endif
}

/* A stopper may shut the wheel down, at any moment; if there is another, it may
   also just stop it. */
active [STOPPERS] proctype stopper() {
	bit first;                     /* what the swap says; only mistakes ask */
	unsigned t : 1, w : 4, n : 2;

	halt();
swept:
	atomic { kept_after_stop = !EMPTY_WHEEL || open[0] || open[1]; assert(!kept_after_stop) };
	if
#if STOPPERS > 1
	:: goto done
#endif
	:: d_step { alarm_mu == 0 -> quiet_made = 1; announce_quiet() }
	fi;
	d_step {
		quiet ->
		quiet_too_early = at_work > 0 || rings > 0 || alarm_on || calls > 0;
		assert(!quiet_too_early)
	};
done:
	skip
}
#endif

#ifdef LATE_START
/* A starter calls Start, at any moment or never. */
active proctype starter() {
	unsigned m : 3 = UNSET;

	if
	:: goto done /* never */
	:: alarm_mu == 0 && stopped -> goto done
	:: d_step { alarm_mu == 0 && !stopped -> alarm_mu = 1; started = 1 }
	fi;
	publish_and_look(m);
	d_step {
		set_alarm_if(m);
		unlock_alarm();
		m = UNSET
	};
done:
	skip
}
#endif

#define LEFT_OVER(t) (IS_PENDING(word[t]) && DEADLINE(word[t]) != NEVER)
#define UNDECIDED(t) (open[t] && (stopped || started && asked[t] != NEVER))

/* quiescent runs when nobody else can move any more. */
active proctype quiescent() {
	timeout;
	atomic {
		lost_wakeup = started && !stopped && (LEFT_OVER(0) || LEFT_OVER(1));
		assert(!lost_wakeup);
		no_outcome = UNDECIDED(0) || UNDECIDED(1);
		assert(!no_outcome)
	}
}
