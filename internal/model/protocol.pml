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
 *   arm, catch_up, place          arm/rearm -> armLocked, catchUpLocked,
 *                                 placeLocked and wheel.place
 *   stop                          Timer.Stop
 *   drive: turn, flush, leave     drive and turn, flushUpTo, flush and fireLocked,
 *                                 leave
 *   wake_at, set_alarm            wakeAtLocked, setAlarmLocked
 *   alarm, rings                  the one time.AfterFunc: set or not, what its
 *                                 Stop and Reset return; rings counts the
 *                                 goroutines that it started and that have not
 *                                 got the lock yet
 *   callback                      call and returned: f on its own goroutine
 *   stopper                       TimingWheel.Shutdown, which begins with
 *                                 TimingWheel.Stop (halt)
 *   starter                       TimingWheel.Start
 *   environment                   the monotonic clock, and the runtime that
 *                                 makes the alarm ring
 *   quiescent                     nobody: it looks at the end of each run
 *
 * The wheel is the real one at its smallest, a tick of 1 and 2 slots a wheel:
 * two fine buckets that take turns (ticks 1, 2, 3) and a coarse bucket of the
 * overflow wheel that spans ticks 2 and 3. With a clock of 0 to 3 a timer is
 * reinserted from coarse to fine, an extended one from fine to coarse, and a
 * fine bucket comes back for its next lap.
 *
 * Steps. Whatever Go does atomically is one step here: taking the lock, a load,
 * a store, a compare-and-swap, an atomic addition, a call of the alarm. Within a
 * hold of the lock, steps on what only holders of the lock touch are joined to
 * their neighbours, as nobody can come between them; an access to what others
 * touch without the lock (the state word, stopped, inflight, the clock, the
 * alarm) starts a step of its own, unless no one process could see both.
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
 *   - The goroutines of the default executor start with the claim. In Go the
 *     driver starts them once it has released the lock; until then it is at work,
 *     and that is what Shutdown looks at.
 *   - Callbacks do nothing. Whatever one may call, a caller calls at the same
 *     moment: the lock is free whenever user code runs.
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
 *   uncovered         the lock is free, no driver is at work, and the alarm is
 *                     set for later than a pending timer's deadline: that timer
 *                     would be late, or lost if the alarm is not set at all
 *   passed_bucket     the clock went past a bucket that holds timers
 *   two_laps          a timer was filed in a bucket queued for another lap
 *   linked_twice, unlinked_twice
 *                     a timer entered a second list, or left one it was not in
 *   two_drivers       two drivers are at work
 *   alarm_after_stop  the alarm was set although the wheel is stopped: Shutdown
 *                     would wait for its ring
 *   armed_after_stop, fired_after_stop, kept_after_stop
 *                     after TimingWheel.Stop returned, a timer became pending,
 *                     was handed over, or is still in a list
 *   quiet_too_early   Shutdown returned while a driver was at work, a ring was
 *                     under way or set, or a callback had not returned
 *   invalid end state nothing can move, but somebody still has work to do: a
 *                     deadlock, or a Shutdown that hangs
 *
 * A goroutine that has nothing left but to release the lock, or to find out
 * that it need not tell Shutdown, counts as gone.
 *
 *
 * Configurations: the switches are macros
 *
 *   EXECUTOR=GOROUTINE|INLINE|CUSTOM   where callbacks run (default GOROUTINE)
 *   TIMERS=1|2     timers (default 2)
 *   CALLERS=n      goroutines that call (default 2)
 *   CALLS=n        calls of all of them together, at most (default 3)
 *   STOPPERS=n     goroutines that may shut the wheel down (default 0)
 *   HOLD=n         holdLimit (default 1: the lock is released at every chance)
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

#define LAST  3 /* the clock's last tick */
#define NEVER 6 /* the deadline that does not come */
#define UNSET 7 /* an alarm's tick, later than any */

/* The state word: state and deadline in one value. The deadline of an idle
   timer is left at 0, as nobody asks for it. */
#define IDLE          0
#define PENDING       1
#define WORD(s, d)    ((d) * 2 + (s))
#define STATE(w)      ((w) & 1)
#define DEADLINE(w)   ((w) >> 1)
#define IS_PENDING(w) (STATE(w) == PENDING)

/* The buckets. Only the first three belong to the wheel and its delay queue.
   Tick e lies in fine bucket e%2 if it is the clock's next, otherwise in the
   coarse one. */
#define FINE    0
#define COARSE  2
#define DUE     3
#define BATCH   4
#define BEYOND  5
#define NOWHERE 6
#define EMPTY(b) (bucket[0] != (b) && bucket[1] != (b))
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
bit mu;

byte word[2];                  /* of each timer; loads need no lock */
byte bucket[2] = NOWHERE;      /* the list each timer is in */

unsigned wheel_now : 2;
bit queued[3];
byte expiration[3];            /* of a queued bucket, otherwise 0 */

bit stopped;                   /* written under mu, read by callbacks without */
unsigned inflight : 3;
#ifdef LATE_START
bit started;
#else
bit started = 1;
#endif

unsigned armed : 3 = UNSET;
unsigned ringing : 3;
bit driving;
unsigned held : 2;
bit quiet_made, quiet;         /* the channel exists; it is closed */

bit alarm_on;                  /* the runtime's side of the alarm */
unsigned alarm_at : 2;
unsigned rings : 3;

unsigned counting : 3;         /* callbacks between counting down and looking at stopped */
unsigned telling : 3;          /* callbacks that wait for the lock to tell Shutdown */

/* What the properties need to remember; no process acts on it. */

bit open[2];                   /* the timer's last arming has had no outcome */
byte asked[2];                 /* its deadline, as the caller wanted it */
unsigned calls : 3;            /* callbacks handed over that have not returned */
unsigned at_work : 2;          /* drivers */
bit stop_returned;             /* of TimingWheel.Stop */

/* Timers are alike and callers are alike, so it is enough to look at the runs in
   which timer 0 is the first to be used and the first caller the first to act. */
bit used;

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

/* ---- The lock ----

   To take it is always the first thing in a step: mu == 0 -> mu = 1. A hold in
   which nothing is changed is a step that only asks for mu == 0. */

/* COVERED is the invariant that driver.go states: whoever leaves the lock with
   no driver at work leaves an alarm that is early enough for timer t. */
#define COVERED(t) (!IS_PENDING(word[t]) || DEADLINE(word[t]) == NEVER || \
	armed <= DEADLINE(word[t]) || armed <= wheel_now)

inline check_covered() {
#ifndef NO_COVERAGE
	uncovered = started && !stopped && !driving && !(COVERED(0) && COVERED(1));
	assert(!uncovered)
#else
	skip
#endif
}

inline unlock() {
	check_covered();
	mu = 0
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

/* HELD encloses a load of the word under the lock and the transition prepared
   from it. Only with EXTEND_CAS can anybody come in between. */
#ifdef EXTEND_CAS
#define HELD
#else
#define HELD atomic
#endif

/* ---- Lists, wheel and delay queue; all under the lock ---- */

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
inline head(b) {
	b = NOWHERE;
	if
	:: queued[0] -> b = 0
	:: else
	fi;
	if
	:: queued[1] && (b == NOWHERE || expiration[1] < expiration[b]) -> b = 1
	:: else
	fi;
	if
	:: queued[2] && (b == NOWHERE || expiration[2] < expiration[b]) -> b = 2
	:: else
	fi
}

/* next_busy drops emptied buckets from the top and sets b to the first that
   holds a timer; NOWHERE if none does. */
inline next_busy(b) {
	head(b);
	do
	:: b != NOWHERE && EMPTY(b) ->
	   queued[b] = 0;
	   expiration[b] = 0;
	   head(b)
	:: else -> break
	od;
	skip
}

#define PASSED(b, to) (queued[b] && !EMPTY(b) && expiration[b] < (to))

inline advance(to) {
	passed_bucket = PASSED(0, to) || PASSED(1, to) || PASSED(2, to);
	assert(!passed_bucket);
	if
	:: to > wheel_now -> REACHED(clock_advanced); wheel_now = to
	:: else
	fi
}

/* catch_up moves the clock of a wheel with nothing to do, short of the first
   queued bucket. b is scratch.

   TRAP_CATCH_UP: it does not stop short. */
inline catch_up(now, b) {
	head(b);
	if
#ifndef TRAP_CATCH_UP
	:: b != NOWHERE && expiration[b] <= now -> REACHED(caught_up_short_of_a_bucket); advance(expiration[b] - 1)
#endif
	:: else -> advance(now)
	fi;
	b = 0
}

/* place links t where its deadline d belongs by the clock at, the wheel's own,
   or among what is due if it has come at the instant come, and sets e to the tick
   that wants a driver. b is scratch.

   TRAP_LAP: the span is a slot longer than the wheel, so that the slot the
   clock stands on takes timers for its next lap, even while it is flushed. */
#ifdef TRAP_LAP
#define SPAN 3
#else
#define SPAN 2
#endif

inline place(t, d, come, at, e, b) {
	if
	:: d == NEVER -> REACHED(placed_beyond); link(t, BEYOND); e = UNSET
	:: d != NEVER && (d <= come || d <= at) -> REACHED(placed_due); link(t, DUE); e = at
	:: else ->
	   if
	   :: d - at < SPAN -> REACHED(placed_fine); b = FINE + d % 2; e = d
	   :: else -> REACHED(placed_coarse); b = COARSE; e = d - d % 2
	   fi;
#ifndef TRAP_STALE_CLOCK /* it gets here as well; what follows from it is to be seen */
	   two_laps = queued[b] && expiration[b] != e;
	   assert(!two_laps);
#endif
	   link(t, b);
	   if
	   :: queued[b] -> REACHED(bucket_was_queued); e = expiration[b]
	   :: else -> REACHED(bucket_queued); queued[b] = 1; expiration[b] = e
	   fi;
	   b = 0
	fi
}

/* ---- The alarm ---- */

/* Reset of the alarm returns true if it was set: then the ring that was to come
   has been moved, and there is none more to count.

   TRAP_ALARM_RESET: every setting is counted as a ring to come. */
#ifdef TRAP_ALARM_RESET
#define MOVED false
#else
#define MOVED alarm_on
#endif

inline set_alarm(e) {
	alarm_after_stop = stopped;
	assert(!alarm_after_stop);
	armed = e;
	alarm_at = e;
	if
	:: MOVED -> REACHED(alarm_moved)
	:: else -> REACHED(alarm_set); ringing++
	fi;
	alarm_on = 1
}

inline wake_at(e) {
	if
	:: started && !driving && e < armed -> REACHED(driver_woken); set_alarm(e)
	:: else -> REACHED(driver_not_needed)
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

/* A goroutine that the alarm started does nothing before it has the lock, so
   those that wait for it are a mere number, rings. One of these processes then
   drives; the other takes the rings that come while it does, which find a
   driver at work and leave.

   TRAP_TWO_DRIVERS: they do not look whether one is. */
#ifdef TRAP_TWO_DRIVERS
#define MAY_DRIVE true
#else
#define MAY_DRIVE (!driving && _pid == 1)
#endif

/* TRAP_ALARM_AFTER_STOP: a driver that was away from the lock while the wheel was
   stopped does not look again before it sets the alarm. The sweep is not over,
   so there are buckets left to set it for. */
#ifdef TRAP_ALARM_AFTER_STOP
#define LOOKED_STOPPED_AGAIN false
#else
#define LOOKED_STOPPED_AGAIN stopped
#endif

active [2] proctype drive() {
	unsigned b : 3, t : 1, w : 4, tick : 2, up_to : 2, e : 3, scratch : 2, dropped : 2;

end:
	do
	:: d_step { rings > 0 && mu == 0 && driving -> /* in vain */
	      held = 0;
	      rings--;
	      ringing--
	   }
	:: atomic {
	      rings > 0 && mu == 0 && MAY_DRIVE ->
	      d_step {
	         mu = 1;
	         held = 0;
	         rings--;
	         ringing--;
	         driving = 1;
	         armed = UNSET;
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
		:: stopped -> goto leave
		:: d_step {
		      !stopped -> /* take what is due */
		      tick = clock;
		      up_to = tick;
		      if
		      :: bucket[0] == DUE -> bucket[0] = BATCH
		      :: else
		      fi;
		      if
		      :: bucket[1] == DUE -> bucket[1] = BATCH
		      :: else
		      fi;
		      b = BATCH
		   }
		fi
	};

	/* Empty bucket b, first BATCH and then what has expired by tick: what is due
	   at up_to fires. The lock is released after every HOLD timers and around
	   user code. */
flush:
	do
	:: d_step { held == HOLD -> unlock() };
	   d_step { mu == 0 -> mu = 1; held = 0 }
	:: held < HOLD && (stopped || EMPTY(b)) -> break
	:: HELD {
	      atomic {
	         held < HOLD && !stopped && !EMPTY(b) ->
	         if
	         :: bucket[0] == b -> t = 0
	         :: bucket[1] == b -> t = 1
	         fi;
	         w = word[t]
	      };
	      if
	      :: d_step { DEADLINE(w) > up_to -> /* reinsert */
	            unlink(t);
	            place(t, DEADLINE(w), up_to, wheel_now, e, scratch);
	            if
	            :: bucket[t] < COARSE -> REACHED(reinserted_fine)
	            :: bucket[t] == COARSE -> REACHED(reinserted_coarse)
	            :: bucket[t] == BEYOND -> REACHED(reinserted_beyond)
	            fi;
	            held++; w = 0; e = 0
	         }
	      :: d_step { DEADLINE(w) <= up_to && !UNCHANGED(t, w) -> held++; w = 0 } /* extended: once more */
	      :: d_step { DEADLINE(w) <= up_to && UNCHANGED(t, w) -> /* claim */
	            word[t] = WORD(IDLE, 0);
	            note_fired(t);
	            unlink(t);
	            w = 0;
	            if
	            :: EXECUTOR == GOROUTINE -> held++; inflight = inflight + COUNTED
	            :: else -> unlock()
	            fi
	         };
	         if
	         :: EXECUTOR == GOROUTINE
	         :: EXECUTOR != GOROUTINE -> goto call
	         fi
	      fi
	   }
	od;

	/* The next bucket that has expired. Emptied ones are dropped on the way,
	   which counts like timers. */
look:
	atomic {
		t = 0;
		d_step { head(b) };
		if
		:: !stopped && b != NOWHERE && EMPTY(b) ->
		   d_step {
		      REACHED(emptied_bucket_dropped);
		      queued[b] = 0;
		      expiration[b] = 0;
		      dropped++
		   };
		   if
		   :: dropped == HOLD -> d_step { b = 0; dropped = 0; unlock() }; goto pause
		   :: else -> goto look
		   fi
		:: !stopped && b != NOWHERE && !EMPTY(b) && expiration[b] <= tick ->
		   d_step { advance(expiration[b]); up_to = expiration[b] };
		   goto flush
		:: else -> tick = 0; up_to = 0; dropped = 0
		fi;
		if
		:: !EMPTY(DUE) || LOOKED_STOPPED_AGAIN -> b = 0; goto turn
		:: else
		fi
	};
#ifdef TRAP_LOST_WAKEUP
	/* It has looked, and gives up the lock before it acts on what it saw: a
	   caller that files a timer now sees a driver at work and leaves it to it. */
	d_step {
		if
		:: b != NOWHERE -> tick = expiration[b]
		:: else
		fi;
		unlock()
	};
	d_step { mu == 0 -> mu = 1; held = 0 };
	if
	:: b == NOWHERE -> goto leave
	:: atomic { b != NOWHERE && tick <= clock -> tick = 0; b = 0; goto turn }
	:: d_step { b != NOWHERE && tick > clock -> set_alarm(tick); tick = 0 }
	fi;
#else
	if
	:: b == NOWHERE -> goto leave
	:: atomic { b != NOWHERE && expiration[b] <= clock -> b = 0; goto turn }
	:: d_step { b != NOWHERE && expiration[b] > clock -> set_alarm(expiration[b]) }
	fi;
#endif

leave:
	b = 0;
	d_step {
		held = 0;
		driving = 0;
		at_work--;
		announce_quiet();
		unlock()
	};
	goto end;

pause:
	atomic { mu == 0 -> mu = 1; held = 0 };
	goto look;

	/* User code, without the lock. It returns at any moment. */
call:
	if
	:: EXECUTOR == CUSTOM -> inflight = inflight + COUNTED
	:: EXECUTOR == INLINE -> calls = calls - COUNTED
	fi;
	if
#ifdef GOEXIT
	:: goto exited
#endif
	:: d_step { mu == 0 -> mu = 1; held = 1 }; /* this timer is the first of the new hold */
	   goto flush
	fi;

#ifdef GOEXIT
	/* A callback called runtime.Goexit: leave runs deferred, without the lock.

	   TRAP_GOEXIT: nothing is deferred, the goroutine is gone. */
exited:
	b = 0;
	t = 0;
	tick = 0;
	up_to = 0;
#ifdef TRAP_GOEXIT
	at_work--;
#else
	d_step {
		mu == 0 -> mu = 1;
		held = 0;
		driving = 0;
		if
		:: !stopped -> REACHED(goexit); wake_at(wheel_now)
		:: else -> REACHED(goexit_of_a_stopped_wheel)
		fi
	};
	d_step {
		at_work--;
		announce_quiet();
		unlock()
	};
#endif
	goto end
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
	:: d_step { telling > 0 && mu == 0 -> telling--; announce_quiet() }
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
	      d_step { mu == 0 -> mu = 1; w = word[t] };
	      do
#ifdef TRAP_STOP_IDENTITY
	      :: d_step { bucket[t] != b -> note_false(t); unlock() };
	         break
#endif
	      :: d_step { !IS_PENDING(w) -> note_false(t); unlock() };
	         break
	      :: d_step { IS_PENDING(w) && UNCHANGED(t, w) ->
	            word[t] = WORD(IDLE, 0);
	            note_outcome(t);
	            unlink(t);
	            unlock()
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
#define PLACE_BY wheel_now
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
	:: stopped -> goto next
	:: else
	fi;
#endif
#if defined(TRAP_RESET_BY_STORE) && !defined(EXTEND_CAS)
	w = word[t];
#endif
	HELD {
		if
		:: mu == 0 && LOOKED_STOPPED -> goto next
		:: d_step {
		      mu == 0 && !LOOKED_STOPPED -> mu = 1;
		      catch_up(now, b);
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
		      unlock()
		   };
		   goto next
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
		      unlock()
		   };
		   goto next
		:: d_step { UNCHANGED(t, w) && MOVES && !FIRES ->
		      word[t] = WORD(PENDING, d);
		      note_armed(t, d, IS_PENDING(w));
		      if
		      :: IS_PENDING(w) -> REACHED(moved); unlink(t)
		      :: else -> REACHED(armed)
		      fi;
		      if
		      :: d <= now && wheel_now < d -> REACHED(due_before_the_wheel_knows)
		      :: else
		      fi;
		      place(t, d, now, PLACE_BY, e, b)
		   };
		   break
		od
	};
	if
	:: d_step { wake_at(e); unlock() }
	fi
}

/* extend is the compare-and-swap without the lock. It compares with what is
   inside the word it swaps, so that a success means the comparison still holds.
   It need not look at stopped: while the word says pending, the sweep of the
   wheel's Stop has not come by.

   TRAP_EXTEND_COMPARE: it compares with the expiration of the timer's bucket,
   which it read before it read the word. */
#ifdef TRAP_EXTEND_COMPARE
#define EXTEND_FROM want
#else
#define EXTEND_FROM DEADLINE(w)
#endif

inline extend() {
	do
	::
#ifdef TRAP_EXTEND_COMPARE
	   d_step {
	      want = NEVER;
	      if
	      :: bucket[t] <= COARSE -> want = expiration[bucket[t]]
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
	      want = 0
	   };
	   if
	   :: w == 0 -> break
	   :: d_step { w != 0 && word[t] == w ->
	         word[t] = WORD(PENDING, d);
	         note_armed(t, d, true);
	         if
	         :: mu == 0 -> check_covered()
	         :: else
	         fi
	      };
	      goto next
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

/* The callers make up to CALLS calls between them, each on any timer. */
active [CALLERS] proctype caller() {
	unsigned t : 1, w : 4, now : 2, d : 3, want : 3, e : 3, b : 3;
	bit arming;

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
next:
	   arming = 0; t = 0; w = 0; now = 0; d = 0; want = 0; e = 0; b = 0
	:: break
	od
}

/* ---- The wheel's own lifecycle ---- */

#if STOPPERS > 0
/* halt stops the wheel, or leaves it alone, and sweeps, with the lock released after every HOLD
   timers. Others may sweep at the same time; each returns when nothing is left.

   TRAP_ALARM_STOP: it counts the ring as gone whether or not the alarm's Stop
   prevented it. */
#ifdef TRAP_ALARM_STOP
#define PREVENTED (ringing > 0)
#else
#define PREVENTED alarm_on
#endif

inline halt() {
	if
	:: goto done /* not this time */
	:: d_step { mu == 0 -> mu = 1; first = !stopped; stopped = 1 }
	fi;
	d_step {
		if
		:: first && PREVENTED -> REACHED(ring_prevented); alarm_on = 0; alarm_at = 0; ringing--
		:: else -> REACHED(ring_not_prevented)
		fi;
		first = 0
	};
	do
	:: d_step { n == HOLD -> n = 0; unlock() };
	   d_step { mu == 0 -> mu = 1 }
	:: d_step { n < HOLD && EMPTY_WHEEL -> stop_returned = 1; n = 0; unlock() };
	   break
	:: HELD {
	      atomic {
	         n < HOLD && !EMPTY_WHEEL ->
	         if
	         :: bucket[0] != NOWHERE -> t = 0
	         :: bucket[1] != NOWHERE -> t = 1
	         fi;
	         w = word[t]
	      };
	      if
	      :: d_step { UNCHANGED(t, w) ->
	            word[t] = WORD(IDLE, 0);
	            note_outcome(t);
	            unlink(t);
	            n++;
	            t = 0; w = 0
	         }
	      :: d_step { !UNCHANGED(t, w) -> t = 0; w = 0 } /* extended: once more */
	      fi
	   }
	od
}

/* A stopper may shut the wheel down, at any moment. */
active [STOPPERS] proctype stopper() {
	bit first;
	unsigned t : 1, w : 4, n : 2;

	halt();
	atomic { kept_after_stop = !EMPTY_WHEEL || open[0] || open[1]; assert(!kept_after_stop) };
	d_step { mu == 0 -> quiet_made = 1; announce_quiet() };
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
	unsigned b : 3;

	if
	:: goto done /* never */
	:: mu == 0 && stopped -> goto done
	:: d_step {
	      mu == 0 && !stopped -> mu = 1;
	      started = 1;
	      next_busy(b);
	      if
	      :: b != NOWHERE -> REACHED(start_finds_a_bucket); wake_at(expiration[b])
	      :: else
	      fi;
	      b = 0
	   }
	fi;
	d_step {
		if
		:: !EMPTY(DUE) -> REACHED(start_finds_what_is_due); wake_at(wheel_now)
		:: else
		fi;
		unlock()
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
