package timingwheel

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// This file lets packages of this module look into a wheel, or ask of it what the exported API does
// not offer. Each lock is released every lookLimit steps: looking must not slow the wheel.

func init() {
	inside.Hooks.Picture = func(wheel any, c inside.Count) inside.Picture {
		return wheel.(*TimingWheel).picture(c)
	}
	inside.Hooks.Outlive = func(timer any) { timer.(*Timer).kind = outliving }
	inside.Hooks.Wall = func(wheel any, now func() time.Time) { wheel.(*TimingWheel).wall = now }
	inside.Hooks.Around = func(call func(name string, f func())) any {
		return Option(func(c *config) { c.around = call })
	}
}

// outliving is the kind of a Timer that Hooks.Outlive has marked.
var outliving = newKind(behaviour{
	name:     "a connection of netidle",
	ring:     func(_ *shard, t *Timer, _ int64) func() { return t.f },
	unlisted: true,
})

var executorNames = [...]string{goroutine: "goroutine", inline: "inline", custom: "custom"}

func (tw *TimingWheel) picture(c inside.Count) inside.Picture {
	p := inside.Picture{
		At:       time.Duration(tw.now()),
		Executor: executorNames[tw.executor.mode],
		Started:  tw.started.Load(),
		Stopped:  tw.stopped.Load(),
		Alarm:    inside.Unset,
	}
	slots := []map[time.Duration]int{} // of each level, where in Level.Slots an expiration is
	for i := range tw.shards {
		s := &tw.shards[i]
		h := &hold{s: s}
		s.mu.Lock()
		p.Due += h.count(&s.due, c.Limit) + h.count(&s.batch, c.Limit)
		p.Beyond += h.count(&s.beyond, c.Limit)
		for w := s.wheel; w != nil; w = w.overflow {
			if int(w.level) == len(p.Levels) {
				p.Levels = append(p.Levels, inside.Level{Tick: tw.duration(w.tick)})
				slots = append(slots, map[time.Duration]int{})
			}
			p.Deep += h.addLevel(&p.Levels[w.level], slots[w.level], w, c)
		}
		for _, b := range s.queue.buckets { // at most as many as slots, and only a few words each
			if !b.empty() {
				p.Queued++
				at := tw.duration(b.attention)
				head := inside.Bucket{Level: int(b.level), Shard: i, Attention: at}
				p.Queue = append(p.Queue, head)
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(p.Queue, func(a, b inside.Bucket) int {
		return cmp.Compare(a.Attention, b.Attention)
	})
	p.Queue = p.Queue[:min(len(p.Queue), inside.QueueHead)]
	for _, l := range p.Levels {
		slices.SortFunc(l.Slots, func(a, b inside.Slot) int {
			return cmp.Compare(a.Expiration, b.Expiration)
		})
	}
	a := &tw.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	p.Driving = a.driving
	if armed := a.armed.Load(); armed != unset && armed != awake {
		p.Alarm = tw.duration(armed)
	}
	return p
}

// hold is a shard's lock that is held, but released every so many steps.
type hold struct {
	s     *shard
	steps int
}

func (h *hold) step() {
	if h.steps++; h.steps >= lookLimit {
		h.s.mu.Unlock()
		h.s.mu.Lock()
		h.steps = 0
	}
}

// count returns how many timers l has, up to the limit. It does not release the lock on the way,
// because l could change.
func (h *hold) count(l *list, limit int) (n int) {
	if l.empty() {
		return 0
	}
	for at := l.root.next; at != &l.root && n < limit; at = at.next {
		n++
	}
	h.steps += n
	return n
}

// addLevel returns how many timers it has counted in the slots of c.Turn.
func (h *hold) addLevel(
	level *inside.Level, slots map[time.Duration]int, w *wheel, c inside.Count,
) (inTurn int) {
	e := h.s.engine
	level.Size = max(level.Size, len(w.buckets))
	for i := range w.buckets {
		h.step()
		b := &w.buckets[i]
		limit, deep := c.Of(i)
		n := 0
		for j := range b.lists {
			n += h.count(&b.lists[j], limit-n)
		}
		if n == 0 {
			continue
		}
		expiration := e.duration(w.expiration(b))
		at, ok := slots[expiration]
		if !ok {
			at = len(level.Slots)
			slots[expiration] = at
			slot := inside.Slot{Index: i, Expiration: expiration, Deep: deep}
			level.Slots = append(level.Slots, slot)
		}
		slot := &level.Slots[at]
		slot.Timers += n
		slot.Full = slot.Full || n >= limit
		if deep {
			inTurn += n
		}
	}
	level.Now = max(level.Now, e.duration(w.now))
	return inTurn
}
