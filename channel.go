package timingwheel

import (
	"time"
	"unsafe"
)

// This file holds timers that send the time on a channel. The driver sends itself, without a
// goroutine, under the lock of the timer's shard, in the same hold in which it claims the timer.
// Stop and Reset take that lock to end the arming and to take back what was sent. So nothing stale
// is sent after they have returned. If the claim and the send were apart, Stop could find the timer
// fired and the channel empty, and the stale value would come after it. The channel has room for
// one value. If it is full the driver leaves the send out, so sending never blocks.
//
// A channel does not end with its wheel, because a receiver would wait forever. On a stopped wheel
// package time sends (see halt.go), in one hold of the same lock.

// sending is the kind of a Timer that is part of a channel.
var sending = newKind(behaviour{
	name:  "a channel",
	due:   (*shard).sendLocked,
	inert: true, // the channel's own Stop and Reset arm it
	ring:  ringChannel,
})

// After returns a channel on which the time is sent once d has passed, even if the wheel is stopped
// before that. It is NewTimer(d).C. The timer cannot be stopped, so the wheel holds it until it
// fires, even if no goroutine waits any more.
func (tw *TimingWheel) After(d time.Duration) <-chan time.Time {
	return tw.newChanTimer("After", d).C
}

// A ChanTimer sends the time on C when it fires, as a time.Timer does. NewTimer makes one. Its
// methods may be called from any goroutine.
type ChanTimer struct {
	C       <-chan time.Time
	channel channel
}

// NewTimer returns a ChanTimer that sends the time on its channel once d has passed. It is never
// early, and late by at most one tick plus what the platform takes to wake up. If the wheel is
// stopped, package time does the sending; Stop and Reset go on as before.
//
// As with time.NewTimer since Go 1.23, no value from before a Stop or Reset is received after it.
// There are two differences, which only package time can avoid. The wheel holds a pending timer,
// and what waits for it, until it fires or is stopped, even if the program has dropped it. And the
// channel has room for one value, which len and cap show.
//
// Cost: that of AfterFunc, with three allocations of 216 bytes together. It fires without a
// goroutine and does not use the executor.
func (tw *TimingWheel) NewTimer(d time.Duration) *ChanTimer {
	return tw.newChanTimer("NewTimer", d)
}

func (tw *TimingWheel) newChanTimer(what string, d time.Duration) *ChanTimer {
	tw.check(what)
	t := &ChanTimer{}
	t.C = t.channel.start(tw, d)
	return t
}

// Stop prevents the ChanTimer from firing, and returns true if it does. If the timer has fired and
// its value has not been received, Stop discards the value and returns true as well. After that
// nothing is received on C until the next Reset. Stop returns false if there was nothing to
// prevent.
func (t *ChanTimer) Stop() bool { return t.channel.stop("Stop") }

// Reset arms the ChanTimer to fire d from now, whether it is pending, has fired or was stopped. It
// returns true if the ChanTimer was pending. If it had fired and its value was not received, Reset
// discards the value and returns true as well. So what is received on C afterwards belongs to the
// new arming.
//
// Cost: that of Timer.Reset: no lock if a pending timer is moved to later.
func (t *ChanTimer) Reset(d time.Duration) bool {
	c := &t.channel
	s := c.timer.home("Reset")
	now := s.engine.now()
	deadline := deadlineAfter(now, d)
	// While the timer is pending the channel is empty.
	return c.timer.extend(deadline, now) || c.rearm(deadline, now, 0)
}

// A Ticker sends the time on C again and again, as a time.Ticker does. NewTicker makes one. Its
// methods may be called from any goroutine.
type Ticker struct {
	C       <-chan time.Time
	channel channel
}

// NewTicker returns a Ticker that sends the time on its channel every d, without drift, until its
// Stop. It outlives the wheel. It leaves out the values that a slow receiver has no room for and
// the ticks that a late driver has missed. If d is below the tick, it sends once a tick. NewTicker
// panics if d is not positive.
//
// A Ticker must be stopped: the wheel, and package time after it, holds it until then. To call a
// function every d, use ScheduleFunc and Every. Cost: that of NewTimer.
func (tw *TimingWheel) NewTicker(d time.Duration) *Ticker {
	tw.check("NewTicker")
	mustBePeriod("NewTicker", d)
	t := &Ticker{}
	t.channel.period = d
	t.C = t.channel.start(tw, d)
	return t
}

// Stop turns the Ticker off. No value from before the Stop is received after it. Stop does not
// close the channel.
func (t *Ticker) Stop() { t.channel.stop("Stop") }

// Reset sets the period to d and arms the Ticker to send d from now, also if it was stopped. No
// value from before the Reset is received after it. Reset panics if d is not positive.
func (t *Ticker) Reset(d time.Duration) {
	c := &t.channel
	s := c.timer.home("Reset")
	mustBePeriod("Ticker.Reset", d)
	now := s.engine.now()
	c.rearm(deadlineAfter(now, d), now, d)
}

func mustBePeriod(what string, d time.Duration) {
	if d <= 0 {
		panic("timingwheel: " + what + " with the non-positive interval " + d.String())
	}
}

// channel is what ChanTimer and Ticker have in common.
type channel struct {
	timer  Timer // the first field: see Timer.channel
	c      chan time.Time
	period time.Duration // of a Ticker, else 0; guarded by the shard's lock
}

// channel returns what a Timer that is sending is part of.
func (t *Timer) channel() *channel { return (*channel)(unsafe.Pointer(t)) }

var _ = [1]struct{}{}[unsafe.Offsetof(channel{}.timer)] // out of range if it is not the first

func (c *channel) start(tw *TimingWheel, d time.Duration) <-chan time.Time {
	c.c = make(chan time.Time, 1)
	now := tw.now()
	tw.armNew(&c.timer, sending, pending, deadlineAfter(now, d), now)
	return c.c
}

func (c *channel) stop(what string) (prevented bool) {
	s := c.timer.home(what)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, prevented = s.stopLocked(&c.timer)
	return c.discardLocked() || prevented
}

func (c *channel) rearm(deadline, now int64, period time.Duration) (prevented bool) {
	s := c.timer.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	c.period = period
	prevented = c.discardLocked()
	return s.armLocked(&c.timer, pending, deadline, now) || prevented
}

// discardLocked takes back what was sent and has not been received.
func (c *channel) discardLocked() (found bool) {
	select {
	case <-c.c:
		return true
	default:
		return false
	}
}

// put sends now, unless there is no room.
func (c *channel) put(now time.Time) {
	select {
	case c.c <- now:
	default:
	}
}

// sendLocked claims the timer of a channel, which is due by this word, and sends.
func (s *shard) sendLocked(t *Timer, word uint64, _ int64) {
	c, now := t.channel(), time.Now()
	next, to := never, makeWord(idle, 0)
	begun := s.engine.tickBegun(now)
	if c.period > 0 {
		next = c.nextTick(deadlineOf(word), begun)
		to = makeWord(pending, next)
	}
	if _, ok := s.claimLocked(t, word, to); !ok {
		return
	}
	if c.period > 0 {
		s.placeLocked(t, next, begun)
	}
	c.put(now)
}

// ringChannel is sendLocked on a stopped wheel.
func ringChannel(s *shard, t *Timer, deadline int64) func() {
	c, now := t.channel(), time.Now()
	if c.period > 0 {
		begun := s.engine.tickBegun(now)
		s.relayLocked(t, c.nextTick(deadline, begun), begun)
	}
	c.put(now)
	return nil
}

// nextTick returns the deadline of a Ticker after the one that was due at deadline. What
// is due up to the instant begun, at which the present tick began, has been missed; what
// is due later waits for the next tick.
func (c *channel) nextTick(deadline, begun int64) int64 {
	return everyAfter(deadlineAfter(deadline, c.period), int64(c.period), begun)
}
