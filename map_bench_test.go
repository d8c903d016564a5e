package timingwheel

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// A keyedTimers is what the benchmarks set beside a Map: an idle timeout by key.
type keyedTimers interface {
	set(key string)
	touch(key string) bool
	drop(key string) bool
}

// onMap is the subject.
type onMap struct{ *Map[string, *int] }

const idle10 = 10 * time.Minute

func (m onMap) set(key string)        { m.Set(key, nil, idle10) }
func (m onMap) touch(key string) bool { _, ok := m.Touch(key, idle10); return ok }
func (m onMap) drop(key string) bool  { _, ok := m.Delete(key); return ok }

// onMutex is what most programs write: a map, a mutex and time.AfterFunc.
type onMutex struct {
	mu     sync.Mutex
	timers map[string]*time.Timer
}

func (m *onMutex) set(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.timers[key]; t != nil {
		t.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(idle10, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.timers[key] == t {
			delete(m.timers, key)
		}
	})
	m.timers[key] = t
}

func (m *onMutex) touch(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.timers[key]
	return t != nil && t.Reset(idle10)
}

func (m *onMutex) drop(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.timers[key]
	delete(m.timers, key)
	return t != nil && t.Stop()
}

// onSyncMap is the same with a sync.Map.
type onSyncMap struct{ timers sync.Map }

func (m *onSyncMap) set(key string) {
	t := time.AfterFunc(idle10, func() { m.timers.Delete(key) })
	if was, _ := m.timers.Swap(key, t); was != nil {
		was.(*time.Timer).Stop()
	}
}

func (m *onSyncMap) touch(key string) bool {
	t, ok := m.timers.Load(key)
	return ok && t.(*time.Timer).Reset(idle10)
}

func (m *onSyncMap) drop(key string) bool {
	t, ok := m.timers.LoadAndDelete(key)
	return ok && t.(*time.Timer).Stop()
}

// BenchmarkMap sets a Map beside what is written by hand. Figures are in docs/design.md; they need
// short runs that alternate:
//
//	for i in 1 2 3 4 5 6 7 8 9; do go test -run '^$' -bench BenchmarkMap -benchtime 50ms .; done
func BenchmarkMap(b *testing.B) {
	const crowd = 1 << 20
	all := make([]string, crowd)
	for i := range all {
		all[i] = "session-" + string(rune('a'+i%26)) + time.Duration(i).String()
	}
	for _, subject := range []struct {
		name string
		make func() (keyedTimers, func())
	}{
		{"Map", func() (keyedTimers, func()) {
			tw := New()
			return onMap{NewMap[string, *int](tw, func(string, *int) {})}, tw.Stop
		}},
		{"mutex", func() (keyedTimers,
			func()) {
			return &onMutex{timers: map[string]*time.Timer{}}, func() {}
		}},
		{"syncMap", func() (keyedTimers, func()) { return &onSyncMap{}, func() {} }},
	} {
		run := func(name string, n int, f func(b *testing.B, m keyedTimers, keys []string)) {
			b.Run(name+"/"+subject.name, func(b *testing.B) {
				m, stop := subject.make()
				defer stop()
				for _, key := range all[:n] {
					m.set(key)
				}
				b.ReportAllocs()
				b.ResetTimer()
				f(b, m, all[:n])
				b.StopTimer()
				for _, key := range all[:n] {
					m.drop(key)
				}
			})
		}
		touch := func(b *testing.B, m keyedTimers, keys []string) {
			r := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				if !m.touch(keys[r.IntN(len(keys))]) {
					b.Fatal("gone")
				}
			}
		}
		run("touch one", 1, touch)
		run("touch 1000", 1000, touch)
		run("touch a million", crowd, touch)
		run("touch, in parallel", 1000, func(b *testing.B, m keyedTimers, keys []string) {
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(rand.Uint64(), 2))
				for pb.Next() {
					m.touch(keys[r.IntN(len(keys))])
				}
			})
		})
		run("set and delete", 1000, func(b *testing.B, m keyedTimers, _ []string) {
			for b.Loop() {
				m.set("another")
				m.drop("another")
			}
		})
		run("set and delete beside half a million", crowd/2,
			func(b *testing.B, m keyedTimers, _ []string) {
				r := rand.New(rand.NewPCG(1, 2))
				for b.Loop() {
					key := all[crowd/2+r.IntN(crowd/2)]
					m.set(key)
					m.drop(key)
				}
			})
	}
}
