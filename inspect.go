package timingwheel

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/internal/inspect"
)

func init() {
	inspect.Levels = func(tw any) []inspect.Level { return tw.(*TimingWheel).levels() }
}

// levels takes a picture of the wheels for internal/inspect. The lock is held for
// one level at a time.
func (tw *TimingWheel) levels() []inspect.Level {
	var levels []inspect.Level
	tw.mu.Lock()
	defer tw.mu.Unlock()
	for w := tw.wheel; w != nil; w = w.overflow {
		levels = append(levels, tw.levelLocked(w))
		tw.mu.Unlock()
		tw.mu.Lock()
	}
	return levels
}

func (tw *TimingWheel) levelLocked(w *wheel) inspect.Level {
	level := inspect.Level{
		Tick: time.Duration(w.tick * tw.tick),
		Now:  time.Duration(w.now * tw.tick),
		Size: len(w.buckets),
	}
	for i := range w.buckets {
		b := &w.buckets[i]
		if b.empty() {
			continue
		}
		slot := inspect.Slot{Index: i, Expiration: time.Duration(b.expiration * tw.tick)}
		for t := b.front(); t != &b.root && slot.Timers < inspect.CountLimit; t = t.next {
			slot.Timers++
		}
		level.Slots = append(level.Slots, slot)
	}
	slices.SortFunc(level.Slots, func(a, b inspect.Slot) int { return cmp.Compare(a.Expiration, b.Expiration) })
	return level
}
