package timingwheel

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel/internal/inspect"
	"github.com/go-timingwheel/timingwheel/internal/survive"
)

func init() {
	inspect.Levels = func(tw any) []inspect.Level { return tw.(*TimingWheel).levels() }
	survive.Mark = func(timer any) { timer.(*Timer).kind = surviving }
}

// levels takes a picture of the wheels for internal/inspect, all shards laid over
// each other. A lock is held for one level at a time.
func (tw *TimingWheel) levels() []inspect.Level {
	var levels []inspect.Level
	for i := range tw.shards {
		s := &tw.shards[i]
		s.mu.Lock()
		for w := s.wheel; w != nil; w = w.overflow {
			if int(w.level) == len(levels) {
				levels = append(levels, inspect.Level{Tick: time.Duration(w.tick * tw.tick), Size: 2 * w.size})
			}
			s.addLevelLocked(&levels[w.level], w)
			s.mu.Unlock()
			s.mu.Lock()
		}
		s.mu.Unlock()
	}
	for _, l := range levels {
		slices.SortFunc(l.Slots, func(a, b inspect.Slot) int { return cmp.Compare(a.Expiration, b.Expiration) })
	}
	return levels
}

func (s *shard) addLevelLocked(level *inspect.Level, w *wheel) {
	level.Now = max(level.Now, time.Duration(w.now*s.tw.tick))
	for i := range w.buckets {
		b := &w.buckets[i]
		if b.empty() {
			continue
		}
		expiration := time.Duration(w.expiration(b) * s.tw.tick)
		at := slices.IndexFunc(level.Slots, func(other inspect.Slot) bool { return other.Expiration == expiration })
		if at < 0 {
			at = len(level.Slots)
			index := w.expiration(b) / w.tick % int64(2*w.size)
			level.Slots = append(level.Slots, inspect.Slot{Index: int(index), Expiration: expiration})
		}
		slot := &level.Slots[at]
		for l := b.root.next; l != &b.root && slot.Timers < inspect.CountLimit; l = l.next {
			slot.Timers++
		}
	}
}
