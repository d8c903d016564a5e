package timingwheel

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// This file holds the timers that are more than one arming: recurring schedules, and timers that
// follow the wall clock. Both are a Timer that is part of a schedule, whose behaviour says what the
// driver does when the Timer is due. The lock of the Timer's shard guards a schedule, except for
// the fields that only the driver uses.
//
// The Timer stays linked and pending while the driver is in the Scheduler's Next without the
// lock. So Stop, Reset and the wheel's Stop need not know about Next. Afterwards the driver goes
// on only if it can swap the state word that it had read before.

// A Scheduler says when a schedule runs next. Every Schedule of robfig/cron is a Scheduler. Next
// receives the wall time of the previous run, in that time's location and without a monotonic
// reading, and returns the time of the next run. For the first run it receives the time of the call
// of ScheduleFunc. The time of a run is the one that Next returned, without the delay of Jitter.
// Next is called once for every run, also for missed runs that do not take place. After a thousand
// of these in a row, it receives the present time instead. The schedule ends if Next returns the
// zero time or one that is not after the time that it received. Next must not block: ScheduleFunc
// makes the first call, and the driver makes the later ones. With StartNow the driver makes the
// first call too.
type Scheduler interface {
	Next(time.Time) time.Time
}

// Every returns a Scheduler with a run every d on the monotonic clock, so a step of the wall clock
// does not move it. It panics if d is not positive. If d is below the tick, one run takes place
// each tick and the others count as missed. With RunMissed they all take place, and if d is too
// small no machine can keep up.
func Every(d time.Duration) Scheduler {
	if d <= 0 {
		panic("timingwheel: Every with the non-positive interval " + d.String())
	}
	return every(d)
}

type every time.Duration

// Next makes every a Scheduler for code that wraps it in a Scheduler of its own. ScheduleFunc
// recognises the type and counts on the monotonic clock instead.
func (d every) Next(t time.Time) time.Time { return t.Add(time.Duration(d)) }

// maxMissedSteps is how many missed runs are passed over one by one, which keeps
// the phase of a Scheduler that only adds to the time it is given. The rest is
// skipped at once, as the driver has other timers too.
const maxMissedSteps = 1000

// A schedule is a Timer that needs more than firing. It lives as long as its Timer is pending or in
// use.
type schedule struct {
	timer Timer // the first field: see Timer.schedule

	f       func() // the caller's
	overlap overlapPolicy
	missed  missedPolicy
	grace   time.Duration
	busy    atomic.Int64 // runs in progress or queued, unless they may overlap
	offset  *offset      // nil without StartNow and Jitter

	// Only the driver uses scheduler once the timer is armed. It is nil while its Next runs, so
	// that a Scheduler that panics or exits is not asked again.
	scheduler Scheduler

	// at is the wall time of the pending run while the state is onWall, jitter
	// included. Written by the driver under the shard's lock.
	at time.Time
}

// schedule returns what a Timer of the kinds below is part of. A pointer back would cost every
// timer eight bytes.
var _ = [1]struct{}{}[unsafe.Offsetof(schedule{}.timer)] // out of range if it is not

func (t *Timer) schedule() *schedule { return (*schedule)(unsafe.Pointer(t)) }

// The kinds of a Timer that is part of a schedule: oneShot if it follows the wall clock to its only
// run, recurring if there is a Scheduler.
var (
	oneShot = newKind(behaviour{
		name:    "a timer for a wall time",
		due:     (*shard).fireOnWallLocked,
		unfired: unfiredSchedule,
	})
	recurring = newKind(behaviour{
		name:    "a schedule",
		due:     (*shard).runLocked,
		stopped: ended,
		inert:   true,
		unfired: unfiredSchedule,
	})
)

func unfiredSchedule(t *Timer, word uint64, u *Unfired) {
	r := t.schedule()
	u.F = r.f
	if stateOf(word) == onWall {
		u.Deadline = r.at
	}
}

// ScheduleFunc calls f at the times that s returns. It ends when the Timer or the wheel is stopped,
// or when s has no further run. Each run is handed to the executor like the callback of AfterFunc,
// and the next run is fixed before that. Unless options say otherwise, runs may overlap, and runs
// that were missed become one.
//
// A Scheduler follows the wall clock as AtFunc does, except for that of Every. If the clock is
// stepped forward, the runs in between count as missed. If it is stepped back, the next run keeps
// its time, and no run is repeated.
//
// The Timer is never nil. If s has no run at all, such as cron's for the 30th of February, the
// Timer is inert: Pending and Stop return false from the beginning, and f is never called. While
// the schedule lives, Reset moves its next run, and s continues from there.
//
// Cost: that of AfterFunc, but with an allocation of 128 bytes, and a call of s.Next on the caller.
// StartNow, Jitter and SkipMissed allocate too; README.md has the sizes.
func (tw *TimingWheel) ScheduleFunc(s Scheduler, f func(), opts ...ScheduleOption) *Timer {
	tw.check("ScheduleFunc")
	switch {
	case s == nil:
		panic("timingwheel: ScheduleFunc with a nil Scheduler")
	case f == nil:
		panic("timingwheel: ScheduleFunc with a nil callback")
	}
	r := &schedule{scheduler: s, f: f}
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: ScheduleFunc with a nil ScheduleOption")
		}
		opt(r)
	}
	if r.missed == joinMissed {
		r.missed = tw.missed
	}
	now := tw.now()
	p := r.first(&tw.engine, now)
	r.fix(p)
	tw.armNew(&r.timer, recurring, p.state, p.deadline, now)
	return &r.timer
}

// atWall is AtFunc for a time without monotonic reading.
func (tw *TimingWheel) atWall(at time.Time, f func()) *Timer {
	r := &schedule{f: f, at: at}
	r.timer.f = f
	now := tw.now()
	tw.armNew(&r.timer, oneShot, onWall, wallDeadline(at, tw.wall(), now), now)
	return &r.timer
}

// nextAfter asks s for the run after the wall time from; ok is false if there is none.
func nextAfter(s Scheduler, from time.Time) (at time.Time, ok bool) {
	at = s.Next(from)
	return at.Round(0), !at.IsZero() && at.After(from)
}

// wallDeadline returns the instant at which to look at the wall clock again on
// the way to at; if at has gone by, the instant at which it did.
func wallDeadline(at, wall time.Time, now int64) int64 {
	d := at.Sub(wall)
	if d < 0 {
		return max(now+int64(d), 0)
	}
	return deadlineAfter(now, min(d, wallRecheck))
}

// later returns the instant shift after the given one, which may be never.
func later(instant int64, shift time.Duration) int64 {
	if shift == 0 {
		return instant
	}
	return deadlineAfter(instant, shift)
}

// plan is what becomes of a schedule whose timer is due, or new.
type plan struct {
	run      bool          // the run that is due takes place
	state    state         // pending or onWall, or idle if no other run follows
	deadline int64         // of the next run
	at       time.Time     // the same on the wall clock, if onWall
	shift    time.Duration // how much of that is jitter
}

// fix notes the run that p is about, before the timer is armed for it or under
// the same hold of the lock.
func (r *schedule) fix(p plan) {
	r.at = p.at
	if o := r.offset; o != nil {
		o.shift, o.planned = p.shift, -1
		if p.state == pending {
			o.planned = p.deadline
		}
	}
}

// first plans the first run of a schedule that is made at the instant now.
func (r *schedule) first(e *engine, now int64) (p plan) {
	p.shift = r.offset.draw()
	d, monotonic := r.scheduler.(every)
	switch {
	case r.offset != nil && r.offset.startNow:
		// By the monotonic clock: a wall clock that is stepped back just now must not delay this
		// run for hours.
		p.state, p.deadline = pending, later(now, p.shift)
		p.at = e.wall().Round(0) // for its location
	case monotonic:
		p.state, p.deadline = pending, later(deadlineAfter(now, time.Duration(d)), p.shift)
	default:
		wall := e.wall().Round(0)
		at, ok := time.Time{}, false
		e.executor.invoke(func() { at, ok = nextAfter(r.scheduler, wall) })
		if ok {
			p.state, p.at = onWall, at.Add(p.shift)
			p.deadline = wallDeadline(p.at, wall, now)
		}
	}
	return p
}

// waitLocked puts off r, whose timer is due by this word, if the time on the wall clock has not
// come, and reports whether it did. now is the instant the driver has got to.
func (s *shard) waitLocked(r *schedule, word uint64, now int64) bool {
	if stateOf(word) != onWall {
		return false
	}
	wall := s.engine.wall()
	if !r.at.After(wall) {
		return false
	}
	deadline := wallDeadline(r.at, wall, s.engine.now())
	if s.takeLocked(&r.timer, word, makeWord(onWall, deadline)) {
		s.placeLocked(&r.timer, deadline, now)
	}
	return true
}

// fireOnWallLocked handles a timer for a wall time, and may release the lock on the way.
func (s *shard) fireOnWallLocked(t *Timer, word uint64, now int64) {
	if !s.waitLocked(t.schedule(), word, now) {
		s.fireLocked(t, word)
	}
}

// runLocked handles the timer of a schedule, which is due, and releases the lock on the way: it
// fixes the next run and hands over the present one. A next run that is not after the tick of now
// waits in due for the next round. One within the tick waits for the next tick, or the driver would
// not come to rest.
func (s *shard) runLocked(t *Timer, word uint64, now int64) {
	r := t.schedule()
	if s.waitLocked(r, word, now) {
		return
	}
	s.unlock()
	p := r.next(word)
	s.lock()
	if s.engine.stopped.Load() {
		return // the sweep of halt has dropped it or is about to
	}
	// If either of these fails it was stopped, reset or dropped meanwhile, which was its outcome.
	timed, ok, to := untimed, false, makeWord(p.state, p.deadline)
	if p.run {
		timed, ok = s.claimLocked(t, word, to)
	} else {
		ok = s.takeLocked(t, word, to)
	}
	if !ok {
		return
	}
	if p.state != idle {
		r.fix(p)
		s.placeLocked(t, p.deadline, now-now%s.engine.tick)
	}
	switch {
	case p.run:
		s.handOverLocked(r.run, r.f, timed) // which has r.f observed
	case p.state == idle:
		s.count.dropped++
	}
}

// next asks the Scheduler what follows the run that is due. It runs on the
// driver without the lock. If Next panics and that is handled, or if it ends the
// goroutine, the run that is due becomes the last.
func (r *schedule) next(word uint64) (p plan) {
	e := r.timer.shard.engine
	if e.executor.onPanic != nil {
		defer e.executor.recovered()
	}
	p.run = true
	scheduler := r.scheduler
	if scheduler == nil {
		return p
	}
	r.scheduler = nil
	// What counts as missed goes by the tick that has begun: a run that was due
	// within it is on time at the next.
	now := e.now()
	begun := now - now%e.tick
	deadline := deadlineOf(word)
	shift, planned := r.offset.of(word)
	if d, monotonic := scheduler.(every); monotonic {
		p = r.nextEvery(deadline, deadline-int64(shift), int64(d), begun)
	} else {
		present := e.wall().Round(0).In(r.at.Location())
		at := r.at
		switch {
		case stateOf(word) == onWall:
		case planned: // StartNow's first run, by the monotonic clock
			at = present.Add(time.Duration(deadline - now))
		default: // Reset moved this run here
			at = present
		}
		wall := present.Add(time.Duration(begun - now))
		p = r.nextWall(scheduler, at, at.Add(-shift), wall)
		p.deadline = wallDeadline(p.at, wall, begun)
	}
	r.scheduler = scheduler
	return p
}

// nextEvery plans the run after the one that was due at deadline, and whose place in
// the rhythm was place, at the instant now.
func (r *schedule) nextEvery(deadline, place, d, now int64) plan {
	p := plan{run: true, state: pending}
	past := int64(-1) // runs up to here are passed over
	switch {
	case r.missed == joinMissed:
		past = now
	case r.missed == skipMissed && now-deadline > int64(r.grace):
		p.run = false
		past = now - int64(r.grace) - 1
	}
	next := everyAfter(deadlineAfter(place, time.Duration(d)), d, past-int64(r.offset.most()))
	p.shift = r.offset.draw()
	for steps := 1; later(next, p.shift) <= past; steps++ {
		next = deadlineAfter(next, time.Duration(d))
		if steps >= maxMissedSteps {
			next = everyAfter(next, d, past)
		}
		p.shift = r.offset.draw()
	}
	p.deadline = max(later(next, p.shift), deadline) // runs keep their order
	p.shift = time.Duration(p.deadline - next)
	return p
}

// nextWall plans the run after the one that was due at the wall time at, and whose
// place in the rhythm was place, except for the new deadline. wall is the present time.
func (r *schedule) nextWall(scheduler Scheduler, at, place, wall time.Time) plan {
	p := plan{run: true, state: onWall}
	var past time.Time // runs up to here are passed over
	switch {
	case r.missed == joinMissed:
		past = wall
	case r.missed == skipMissed && wall.Sub(at) > r.grace:
		p.run = false
		past = wall.Add(-r.grace - 1)
	}
	next, ok := nextAfter(scheduler, place)
	p.shift = r.offset.draw()
	for steps := 1; ok && !next.Add(p.shift).After(past); steps++ {
		if steps >= maxMissedSteps {
			next = past
		}
		next, ok = nextAfter(scheduler, next)
		p.shift = r.offset.draw()
	}
	if !ok {
		p.state = idle
		return p
	}
	p.at = next.Add(p.shift)
	if p.at.Before(at) { // runs keep their order
		p.at = at.In(next.Location())
		p.shift = at.Sub(next)
	}
	return p
}

// run is one run of a recurring schedule, on its executor. It begins if it finds the schedule
// alive, which one load of the state word decides: a Stop that comes first keeps it from beginning,
// one that comes later does not wait for it. A schedule that has run out, or whose wheel was
// stopped, is not ended in this sense: what was handed over may still begin.
func (r *schedule) run() {
	switch r.overlap {
	case allowOverlap:
		r.begin()
	case skipOverlap:
		if r.busy.CompareAndSwap(0, 1) {
			defer r.busy.Store(0)
			r.begin()
		}
	case queueOverlap:
		if r.busy.Add(1) == 1 {
			r.runQueue(true)
		}
	}
}

// runQueue runs until no run is waiting; first says that none has begun yet.
// The goroutine that makes busy 1 runs all that come meanwhile.
func (r *schedule) runQueue(first bool) {
	e := r.timer.shard.engine
	done := false
	defer func() {
		// f called runtime.Goexit: the runs that wait must not suffer. They get
		// a goroutine of ours, as this one can only end and only the driver calls the
		// executor. (They do not run here, in case f panicked: nothing must hold up the crash.)
		if !done && r.busy.Add(-1) > 0 {
			e.executor.inflight.Add(1)
			go e.executor.call(func() { r.runQueue(false) })
		}
	}()
	for ; !done; first = false {
		if first || !e.stopped.Load() {
			e.executor.invoke(r.begin)
		}
		done = r.busy.Add(-1) == 0
	}
}

func (r *schedule) begin() {
	if stateOf(r.timer.word.Load()) != ended {
		r.timer.shard.engine.executor.observed(r.f)()
	}
}
