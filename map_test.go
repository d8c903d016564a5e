package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMapEntrySize: the figures in the documentation of Map.
func TestMapEntrySize(t *testing.T) {
	if bits := 32 << (^uint(0) >> 63); bits != 64 {
		t.Skip("sizes on 64-bit machines")
	}
	require.EqualValues(t, 72+16+8, sizeOf(entry[string, *int]{}))
	require.EqualValues(t, 72+8, sizeOf(entry[int, struct{}]{}), "a value of no size takes no room")
}

// A mapTape notes what expires, and when.
type mapTape[K comparable, V any] struct {
	start time.Time
	mu    sync.Mutex
	got   []mapExpiry[K, V]
}

type mapExpiry[K comparable, V any] struct {
	at    time.Duration
	key   K
	value V
}

func newMapTape[K comparable, V any]() *mapTape[K, V] { return &mapTape[K, V]{start: time.Now()} }

func (p *mapTape[K, V]) expired(key K, value V) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, mapExpiry[K, V]{time.Since(p.start), key, value})
}

func (p *mapTape[K, V]) all() []mapExpiry[K, V] {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// TestMap goes through the calls, on every executor.
func TestMap(t *testing.T) {
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(append(ex.opts(), WithTick(time.Nanosecond))...)
				p := newMapTape[string, int]()
				m := NewMap(tw, p.expired)
				type expiry = mapExpiry[string, int]
				set := func(key string, value int, d time.Duration) {
					t.Helper()
					_, replaced := m.Set(key, value, d)
					require.False(t, replaced)
				}

				set("a", 1, time.Second)
				value, ok := m.Get("a")
				require.True(t, ok)
				require.Equal(t, 1, value)
				require.Equal(t, 1, m.Len())
				require.Equal(t, 1, tw.Len())
				pass(t, tw, time.Second-1)
				require.Empty(t, p.all(), "not early")
				pass(t, tw, 1)
				require.Equal(t, []expiry{{time.Second, "a", 1}}, p.all())
				_, ok = m.Get("a")
				require.False(t, ok)
				require.Zero(t, m.Len())

				set("b", 2, time.Second)
				pass(t, tw, time.Second-1)
				value, ok = m.Touch("b", time.Second)
				require.True(t, ok)
				require.Equal(t, 2, value)
				pass(t, tw, time.Second-1)
				_, ok = m.Touch("b", time.Millisecond)
				require.True(t, ok)
				_, ok = m.Touch("b", -time.Hour)
				require.True(t, ok, "does not bring it forward")
				pass(t, tw, time.Millisecond-1)
				require.Len(t, p.all(), 1)
				pass(t, tw, time.Second)
				require.Equal(t, "b", p.all()[1].key)

				set("c", 3, time.Hour)
				old, replaced := m.Set("c", 4, 2*time.Hour)
				require.True(t, replaced)
				require.Equal(t, 3, old)
				require.Equal(t, 1, m.Len())
				require.True(t, m.Reset("c", time.Second))
				pass(t, tw, time.Second)
				require.Equal(t, 4, p.all()[2].value, "brought forward")
				require.False(t, m.Reset("c", time.Second))
				require.Len(t, p.all(), 3)

				set("d", 5, time.Hour)
				value, ok = m.Delete("d")
				require.True(t, ok)
				require.Equal(t, 5, value)
				_, ok = m.Delete("d")
				require.False(t, ok)
				_, ok = m.Touch("d", time.Second)
				require.False(t, ok)

				set("e", 6, time.Hour)
				require.True(t, m.Expire("e"))
				_, ok = m.Get("e")
				require.False(t, ok, "gone when Expire returns")
				require.False(t, m.Expire("e"))
				require.Equal(t, 6, p.all()[3].value)

				actual, touched := m.TouchOrSet("f", 7, time.Second)
				require.False(t, touched)
				require.Equal(t, 7, actual)
				pass(t, tw, time.Second-1)
				actual, touched = m.TouchOrSet("f", 8, time.Second)
				require.True(t, touched)
				require.Equal(t, 7, actual)
				pass(t, tw, time.Second)
				require.Equal(t, 7, p.all()[4].value)
				require.Len(t, p.all(), 5)
				require.Zero(t, tw.Len())
				require.NoError(t, m.verify(true))
			})
		})
	}
}

// TestMapDurations: no duration is early, lost or too large.
func TestMapDurations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		p := newMapTape[time.Duration, string]()
		m := NewMap(tw, p.expired)
		type expiry = mapExpiry[time.Duration, string]
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			m.Set(d, "", d)
			require.Equal(t, []expiry{{0, d, ""}}, p.all())
			m.Set(d, "", time.Hour)
			require.True(t, m.Reset(d, d))
			require.Len(t, p.all(), 2)
			actual, touched := m.TouchOrSet(d, "new", d)
			require.False(t, touched)
			require.Equal(t, "new", actual)
			require.Len(t, p.all(), 3)
			p.got = nil
		}
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1} {
			m.Set(d, "never", d)
			m.Set(d+1, "never", time.Second)
			_, ok := m.Touch(d+1, d)
			require.True(t, ok)
		}
		time.Sleep(100 * 365 * 24 * time.Hour)
		require.Empty(t, p.all())
		_, ok := m.Touch(math.MaxInt64, -1)
		require.True(t, ok)
		require.True(t, m.Reset(math.MaxInt64, time.Second))
		time.Sleep(time.Second)
		require.Len(t, p.all(), 1)
		require.NoError(t, m.verify(true))
	})
}

// TestMapAtTheEdge: a timer has been claimed and its callback has not begun. The key is gone; what
// comes now belongs to another Set, and the callback to the one before.
func TestMapAtTheEdge(t *testing.T) {
	type expiry = mapExpiry[string, int]
	const first, second = time.Second, 3 * time.Second
	for name, tc := range map[string]struct {
		act  func(t *testing.T, m *Map[string, int])
		want []expiry // after the first
	}{
		"touched": {func(t *testing.T, m *Map[string, int]) {
			_, ok := m.Touch("a", time.Hour)
			require.False(t, ok)
		}, nil},
		"reset": {func(t *testing.T, m *Map[string, int]) {
			require.False(t, m.Reset("a", time.Hour))
		}, nil},
		"expired": {func(t *testing.T, m *Map[string, int]) {
			require.False(t, m.Expire("a"))
		}, nil},
		"deleted": {func(t *testing.T, m *Map[string, int]) {
			_, ok := m.Delete("a")
			require.False(t, ok, "or it would have two outcomes")
		}, nil},
		"got": {func(t *testing.T, m *Map[string, int]) {
			_, ok := m.Get("a")
			require.False(t, ok)
			require.Empty(t, maps.Collect(m.All()))
			require.Zero(t, m.Len())
		}, nil},
		"set": {func(t *testing.T, m *Map[string, int]) {
			_, replaced := m.Set("a", 2, second-first)
			require.False(t, replaced)
		}, []expiry{{second, "a", 2}}},
		"touched or set": {func(t *testing.T, m *Map[string, int]) {
			actual, touched := m.TouchOrSet("a", 2, second-first)
			require.False(t, touched)
			require.Equal(t, 2, actual)
		}, []expiry{{second, "a", 2}}},
		"set and deleted": {func(t *testing.T, m *Map[string, int]) {
			m.Set("a", 2, second-first)
			value, ok := m.Delete("a")
			require.True(t, ok)
			require.Equal(t, 2, value)
		}, nil},
		"drained": {func(t *testing.T, m *Map[string, int]) { require.Empty(t, m.Drain()) }, nil},
		"the wheel drained": {func(t *testing.T, m *Map[string, int]) {
			require.Empty(t, m.tw.Drain())
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				handedOver := make(chan func(), 10)
				tw := New(WithExecutor(func(f func()) { handedOver <- f }))
				p := newMapTape[string, int]()
				m := NewMap(tw, p.expired)
				m.Set("a", 1, first)
				callback := <-handedOver
				tc.act(t, m)
				callback()
				require.Equal(t, []expiry{{first, "a", 1}}, p.all())
				time.Sleep(time.Minute)
				synctest.Wait()
				for len(handedOver) > 0 {
					p.start = p.start.Add(time.Since(p.start) - second) // it was handed over then
					(<-handedOver)()
				}
				require.Equal(t, tc.want, append([]expiry(nil), p.all()[1:]...))
				require.Zero(t, m.Len())
				require.NoError(t, m.verify(true))
			})
		})
	}
}

// TestMapGoroutineAtTheEdge is the same with goroutines, whose callbacks leave the table
// themselves: a dead entry is still in the table when its key is set again.
func TestMapGoroutineAtTheEdge(t *testing.T) {
	for name, again := range map[string]func(m *Map[string, int]){
		"set":            func(m *Map[string, int]) { m.Set("a", 2, time.Hour) },
		"touched or set": func(m *Map[string, int]) { m.TouchOrSet("a", 2, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			tw := New()
			defer tw.Stop()
			p := newMapTape[string, int]()
			m := NewMap(tw, p.expired)
			m.Set("a", 1, time.Hour)
			s, hash := m.home("test", "a")
			e, _ := s.find(hash, "a")
			_, was := e.end() // the driver has claimed it, and its goroutine has not begun
			require.True(t, was)

			_, ok := m.Get("a")
			require.False(t, ok)
			require.False(t, m.Reset("a", time.Hour))
			require.False(t, m.Expire("a"))
			_, ok = m.Delete("a")
			require.False(t, ok)
			require.Empty(t, maps.Collect(m.All()))
			again(m)
			require.Equal(t, 1, m.Len())
			require.NoError(t, m.verify(true))
			e.fire()
			require.Equal(t, 1, m.Len(), "it has left the other alone")
			value, ok := m.Get("a")
			require.True(t, ok)
			require.Equal(t, 2, value)
			require.Equal(t, 1, p.got[0].value)
		})
	}
}

// TestMapReadersMeetWriters: a reader stands on an entry that is taken out, or is about to look
// where entries are moved from. It does not answer that a key is missing which is there.
func TestMapReadersMeetWriters(t *testing.T) {
	tw := New()
	defer tw.Stop()
	m := NewMap(tw, func(int, int) {})
	s := &m.shards[0]
	// Three keys of one chain.
	var keys []int
	for key := 0; len(keys) < 3; key++ {
		if other, hash := m.home("test", key); other == s && bucketOf(hash, firstSegment) == 0 {
			keys = append(keys, key)
			m.Set(key, key, time.Hour)
		}
	}
	_, hash := m.home("test", keys[2])
	entries := make([]*entry[int, int], 3)
	for i := range entries {
		_, hash := m.home("test", keys[i])
		entries[i], _ = s.find(hash, keys[i])
	}
	sure := func() bool { _, sure := s.find(hash, -1); return sure }
	require.True(t, sure())

	// What keeps an entry, such as its callback, does not keep what came after it.
	require.Same(t, entries[1], entries[0].next.Load())
	m.Set(keys[0], 0, time.Hour)
	require.Nil(t, entries[0].next.Load())
	_, hash0 := m.home("test", keys[0])
	entries[0], _ = s.find(hash0, keys[0])
	entries[1].end()
	m.take(&entries[1].keyedTimer)
	require.Nil(t, entries[1].next.Load())
	require.Same(t, entries[2], entries[0].next.Load())
	m.Set(keys[2], 0, time.Hour)
	require.Nil(t, entries[2].next.Load())
	require.True(t, sure())

	// A reader that stood on the last entry when it ended looks again.
	last, _ := s.find(hash, keys[2])
	last.end()
	require.False(t, sure())
	_, ok := m.Get(-1)
	require.False(t, ok)

	// A reader that looks while entries are moved looks again.
	m.take(&last.keyedTimer)
	require.True(t, sure())
	s.moves.Add(1)
	require.False(t, sure())
	s.moves.Add(1)
	require.True(t, sure())
	moves := s.moves.Load()
	require.True(t, s.sure(moves, nil))
	for key := 1000; s.buckets.Load() == firstSegment; key++ {
		m.Set(key, 0, time.Hour)
	}
	require.False(t, s.sure(moves, nil), "a bucket was split meanwhile")
	moves = s.moves.Load()
	for key := 1000; s.buckets.Load() > firstSegment; key++ {
		m.Delete(key)
	}
	require.False(t, s.sure(moves, nil), "a bucket was merged meanwhile")
}

// TestMapSetMeetsDrain: the Map is stopped and has not been swept. A Set ends what was there and
// leaves nothing behind.
func TestMapSetMeetsDrain(t *testing.T) {
	tw := New()
	defer tw.Stop()
	m := NewMap(tw, func(int, int) {})
	m.Set(1, 1, time.Hour)
	m.stopped.Store(true)
	old, replaced := m.Set(1, 2, time.Hour)
	require.True(t, replaced)
	require.Equal(t, 1, old)
	require.Zero(t, m.Len())
	require.NoError(t, m.verify(true))
}

// TestMapExpireMeetsTouch: a Touch that has found the entry before does not put its expiry off.
func TestMapExpireMeetsTouch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newMapTape[int, int]()
		tw := NewTimingWheel(time.Millisecond, 20)
		m := NewMap(tw, p.expired)
		m.Set(1, 1, time.Hour)
		s, hash := m.home("test", 1)
		e, _ := s.find(hash, 1)
		require.True(t, m.Expire(1))
		require.False(t, e.timer.keep(int64(time.Minute)))
		tw.Start()
		pass(t, tw, 0)
		require.Len(t, p.all(), 1)
	})
}

// TestMapCallbackActs: no lock is held, and the key is gone, while a callback runs.
func TestMapCallbackActs(t *testing.T) {
	for _, ex := range executors {
		for name, act := range map[string]func(m *Map[string, int], key string, value int){
			"set again": func(m *Map[string, int], key string, value int) {
				m.Set(key, value+1, time.Second)
			},
			"touch or set": func(m *Map[string, int], key string, value int) {
				m.TouchOrSet(key, value+1, time.Second)
			},
			"at once": func(m *Map[string, int], key string, value int) {
				if m.Set(key, value+1, 0); value < 3 {
					m.Expire(key)
				}
			},
			"the others": func(m *Map[string, int], key string, value int) {
				if _, ok := m.Get(key); ok || m.Len() != 1 {
					panic("it is not gone")
				}
				for other := range m.All() {
					m.Delete(other)
				}
				m.Set("other", 0, time.Hour)
				m.Set(key, value+1, time.Second)
			},
		} {
			t.Run(ex.name+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					tw := New(ex.opts()...)
					n := 0
					var m *Map[string, int]
					m = NewMap(tw, func(key string, value int) {
						if n++; n < 5 {
							act(m, key, value)
						}
					})
					m.Set("other", 0, time.Hour)
					m.Set("a", 0, time.Second)
					pass(t, tw, 10*time.Second)
					require.Equal(t, 5, n)
					require.NoError(t, m.verify(true))
				})
			})
		}
		t.Run(ex.name+"/drain", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(ex.opts()...)
				var left []MapEntry[string, int]
				var m *Map[string, int]
				m = NewMap(tw, func(string, int) { left = m.Drain(); tw.Stop() })
				m.Set("a", 1, time.Second)
				m.Set("b", 2, time.Hour)
				pass(t, tw, time.Second)
				require.Equal(t, []MapEntry[string, int]{{"b", 2, tw.start.Add(time.Hour)}}, left)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		})
	}
}

// TestMapOnAStoppedWheel: the Map is empty, lets go of what it held, and stays so.
func TestMapOnAStoppedWheel(t *testing.T) {
	for name, stop := range map[string]func(tw *TimingWheel) []Unfired{
		"stopped": func(tw *TimingWheel) []Unfired { tw.Stop(); return nil },
		"drained": (*TimingWheel).Drain,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New()
				p := newMapTape[string, int]()
				m := NewMap(tw, p.expired)
				m.Set("a", 1, 2*time.Hour)
				m.Set("b", 2, time.Hour)
				quiet := NewMap[string, int](tw, nil)
				quiet.Set("c", 3, 3*time.Hour)
				unfired := stop(tw)
				require.Zero(t, m.Len())
				_, ok := m.Get("a")
				require.False(t, ok)
				_, ok = m.Touch("a", time.Hour)
				require.False(t, ok)
				require.False(t, m.Reset("a", time.Hour))
				_, replaced := m.Set("a", 5, time.Hour)
				require.False(t, replaced)
				_, touched := m.TouchOrSet("a", 5, time.Hour)
				require.False(t, touched)
				require.False(t, m.Expire("a"))
				require.Zero(t, m.Len())
				require.Empty(t, m.Drain())
				time.Sleep(24 * time.Hour)
				require.Empty(t, p.all())
				if name == "drained" {
					require.Len(t, unfired, 3)
					for i, u := range unfired {
						require.Equal(t, time.Duration(i+1)*time.Hour, u.Deadline.Sub(tw.start))
						require.False(t, u.Timer.Reset(time.Second))
						u.F()
					}
					require.Equal(t, []mapExpiry[string, int]{{24 * time.Hour, "b", 2},
						{24 * time.Hour, "a", 1}}, p.all())
				}
				require.NoError(t, m.verify(true))
			})
		})
	}
}

func TestMapDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		p := newMapTape[int, string]()
		m := NewMap(tw, p.expired)
		const n = 1000
		for key := range n {
			m.Set(key, fmt.Sprint(key), time.Duration(n-key)*time.Second)
		}
		m.Touch(n-1, 2*n*time.Second)
		left := m.Drain()
		require.Len(t, left, n)
		first, last := tw.start.Add(2*time.Second), tw.start.Add(2*n*time.Second)
		require.Equal(t, MapEntry[int, string]{n - 2, fmt.Sprint(n - 2), first}, left[0])
		require.Equal(t, MapEntry[int, string]{n - 1, fmt.Sprint(n - 1), last}, left[n-1])
		require.Zero(t, m.Len())
		require.Zero(t, tw.Len())
		m.Set(1, "dropped", time.Second)
		_, touched := m.TouchOrSet(1, "dropped", time.Second)
		require.False(t, touched)
		_, ok := m.Get(1)
		require.False(t, ok)
		require.Empty(t, m.Drain())
		pass(t, tw, time.Hour)
		require.Empty(t, p.all())
		require.NoError(t, m.verify(true))

		other := NewMap(tw, p.expired) // the wheel goes on
		other.Set(1, "", time.Second)
		pass(t, tw, time.Second)
		require.Len(t, p.all(), 1)
	})
}

// TestMapDrainIsLinear: Drain does not look at the same empty buckets for each key.
func TestMapDrainIsLinear(t *testing.T) {
	tw := New()
	defer tw.Stop()
	m := NewMap[int, int](tw, nil)
	const n = 200_000
	start := time.Now()
	for key := range n {
		m.Set(key, key, time.Hour)
	}
	filled := time.Since(start)
	start = time.Now()
	require.Len(t, m.Drain(), n)
	require.Less(t, time.Since(start), 10*filled)
	require.NoError(t, m.verify(true))
}

// TestMapWaitsForStart: on such a wheel nothing expires before Start, and everything is there.
func TestMapWaitsForStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := NewTimingWheel(time.Millisecond, 20)
		p := newMapTape[string, int]()
		m := NewMap(tw, p.expired)
		m.Set("a", 1, 0)
		m.Set("b", 1, time.Second)
		pass(t, tw, time.Hour)
		require.Equal(t, 2, m.Len())
		_, ok := m.Touch("a", time.Second)
		require.True(t, ok)
		require.True(t, m.Expire("b"))
		tw.Start()
		pass(t, tw, 0)
		require.Equal(t, []mapExpiry[string, int]{{time.Hour, "b", 1}}, p.all())
		pass(t, tw, time.Second)
		require.Len(t, p.all(), 2)
	})
}

// TestMapExecutorDrops: what an executor drops has expired, and is not kept.
func TestMapExecutorDrops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithExecutor(func(func()) {}))
		m := NewMap(tw, func(int, int) { panic("dropped") })
		for key := range 100 {
			m.Set(key, key, time.Second)
		}
		pass(t, tw, time.Second)
		require.Zero(t, m.Len())
		require.NoError(t, m.verify(true))
	})
}

// TestMapWithoutCallback: values of a Map without a callback expire on every executor.
func TestMapWithoutCallback(t *testing.T) {
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tw := New(ex.opts()...)
				m := NewMap[string, int](tw, nil)
				m.Set("a", 1, time.Second)
				m.Set("b", 1, time.Hour)
				require.True(t, m.Expire("b"))
				require.Equal(t, 1, m.Len())
				pass(t, tw, time.Second)
				require.Zero(t, m.Len())
				require.Zero(t, tw.Len())
			})
		})
	}
}

// TestMapCallbackPanics: with a handler no other key suffers.
func TestMapCallbackPanics(t *testing.T) {
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				var recovered []any
				tw := New(append(ex.opts(), WithPanicHandler(func(r any, _ []byte) {
					mu.Lock()
					defer mu.Unlock()
					recovered = append(recovered, r)
				}))...)
				m := NewMap(tw, func(key int, value error) {
					if key == 0 {
						runtime.Goexit()
					}
					panic(value)
				})
				boom := errors.New("boom")
				for key := range 5 {
					m.Set(key, boom, time.Second)
				}
				pass(t, tw, time.Second)
				require.Equal(t, []any{boom, boom, boom, boom}, recovered)
				require.Zero(t, m.Len())
			})
		})
	}
}

// TestMapKeys: a NaN is not equal to itself, and some keys cannot be hashed.
func TestMapKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		p := newMapTape[any, int]()
		m := NewMap(tw, p.expired)
		const n = 100 // enough for buckets to be split and merged
		for i := range n {
			_, replaced := m.Set(math.NaN(), i, time.Second)
			require.False(t, replaced)
		}
		require.Equal(t, n, m.Len())
		_, ok := m.Get(math.NaN())
		require.False(t, ok)
		_, ok = m.Delete(math.NaN())
		require.False(t, ok)
		seen := 0
		for key := range m.All() {
			require.True(t, math.IsNaN(key.(float64)))
			seen++
		}
		require.Equal(t, n, seen)
		require.NoError(t, m.verify(true))
		pass(t, tw, time.Second)
		require.Len(t, p.all(), n)
		require.Zero(t, m.Len())

		m.Set(math.NaN(), 1, time.Second)
		require.Len(t, m.Drain(), 1)

		m = NewMap(tw, p.expired)
		require.Panics(t, func() { m.Set([]int{}, 1, time.Second) })
		require.Panics(t, func() { m.Get(func() {}) })
		m.Set(0.0, 1, time.Second)
		old, replaced := m.Set(math.Copysign(0, -1), 2, time.Second)
		require.True(t, replaced, "-0 is equal to 0")
		require.Equal(t, 1, old)
		m.Set(nil, 3, time.Second)
		require.Equal(t, 2, m.Len())
		require.NoError(t, m.verify(true))
	})
}

// TestMapKeep: of two touches at once the later time holds, whichever comes last.
func TestMapKeep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline())
		m := NewMap(tw, func(int, int) {})
		m.Set(1, 1, time.Second)
		s, hash := m.home("test", 1)
		e, _ := s.find(hash, 1)
		require.True(t, e.timer.keep(int64(10*time.Second)))
		require.True(t, e.timer.keep(int64(5*time.Second)), "it had read the clock first")
		pass(t, tw, 10*time.Second-1)
		require.Equal(t, 1, m.Len())
		pass(t, tw, 1)
		require.Zero(t, m.Len())
		require.False(t, e.timer.keep(never))
	})
}

// TestMapTouchOfOverdue: the driver is late, and the touch comes before it. The key stays, and
// those that are due with it expire in time.
func TestMapTouchOfOverdue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New(WithInline(), withShards(1))
		p := newMapTape[int, int]()
		m := NewMap(tw, p.expired)
		tw.AfterFunc(time.Second, func() {
			// On the driver: these wait in due for its next round.
			for key := range 3 {
				m.Set(key, 0, 0)
			}
			_, ok := m.Touch(1, time.Minute)
			require.True(t, ok)
			require.Equal(t, 3, m.Len())
		})
		pass(t, tw, time.Second)
		require.Len(t, p.all(), 2)
		pass(t, tw, time.Minute)
		require.Equal(t, mapExpiry[int, int]{time.Second + time.Minute, 1, 0}, p.all()[2])
	})
}

// TestMapAll: a loop may stop, may change the Map, and meets what is there all the time once,
// though buckets are split and merged on the way.
func TestMapAll(t *testing.T) {
	for name, change := range map[string]func(m *Map[int, int], n int){
		"nothing": func(*Map[int, int], int) {},
		"grows": func(m *Map[int, int], n int) {
			for i := range 20 {
				m.Set(1_000_000+20*n+i, 0, time.Hour)
			}
		},
		"shrinks": func(m *Map[int, int], n int) {
			for i := range 20 {
				m.Delete(-20*n - i - 1)
			}
		},
		"replaces": func(m *Map[int, int], n int) { m.Set(n, n, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			tw := New()
			defer tw.Stop()
			m := NewMap(tw, func(int, int) {})
			const n = 1000
			for key := -10 * n; key < n; key++ {
				m.Set(key, key, time.Hour)
			}
			seen := map[int]int{}
			for key, value := range m.All() {
				require.Zero(t, seen[key], "twice")
				if seen[key]++; key < n {
					require.Equal(t, key, value)
				}
				change(m, len(seen)%n)
			}
			for key := range n {
				require.Equal(t, 1, seen[key], "%d", key)
			}
			require.NoError(t, m.verify(true))
			for range m.All() {
				break
			}
		})
	}
}

// TestMapWalkIsBounded: a walk that began in a small table does not hold the lock of a large one
// for longer than any other does, nor meet a key twice as the table grows and shrinks.
func TestMapWalkIsBounded(t *testing.T) {
	tw := New()
	defer tw.Stop()
	m := NewMap[int, int](tw, nil)
	for key := range 100 {
		m.Set(key, key, time.Hour)
	}
	s := &m.shards[0]
	seen := map[int]int{}
	var some []*entry[int, int]
	holds := 0
	for w := s.walk(); !w.done; holds++ {
		switch holds {
		case 0:
			for key := range 100_000 {
				m.Set(1000+key, 0, time.Hour)
			}
		case 40:
			for key := range 100_000 {
				m.Delete(1000 + key)
			}
		}
		some = w.next(some[:0])
		require.Less(t, len(some), 2*holdLimit)
		for _, e := range some {
			seen[e.key]++
		}
	}
	require.Greater(t, holds, 40)
	require.Less(t, holds, 200, "a walk through a table that has shrunk takes larger steps")
	for key := range 100 {
		if other, _ := m.home("test", key); other == s {
			require.Equal(t, 1, seen[key])
		}
	}
	for key, times := range seen {
		require.Equal(t, 1, times, "%d", key)
	}
}

// TestMapGrowsOnce: of many callers that find no room for another bucket one makes it; each would
// take as much memory as the whole table has. The others' keys are made up for.
func TestMapGrowsOnce(t *testing.T) {
	tw := New()
	defer tw.Stop()
	m := NewMap[int, int](tw, nil)
	s := &m.shards[0]
	put := func() (full bool) {
		key := rand.Int()
		for other, _ := m.home("test", key); other != s; other, _ = m.home("test", key) {
			key = rand.Int()
		}
		_, hash := m.home("test", key)
		e := m.newEntry(hash, key, 0)
		s.mu.Lock()
		defer s.mu.Unlock()
		m.tw.armNew(&e.timer, keyed, pending, int64(time.Hour), 0)
		return s.putLocked(s.atLocked(hash, key), e)
	}
	for range firstSegment {
		require.False(t, put())
	}
	require.True(t, put())
	for range 5 {
		require.False(t, put(), "another is about to make it")
	}
	for s.n < 2*firstSegment {
		put()
	}
	require.True(t, put(), "the other is late")
	s.addSegment()
	s.addSegment()
	for range 2 * firstSegment {
		if put() {
			s.addSegment()
		}
	}
	require.NoError(t, m.verify(true))

	// A segment for the size that the table had, which comes now, is too late.
	for !put() {
	}
	for i := range 4 {
		s.putSegment(i, newSegment[int, int](i))
		require.NoError(t, m.verify(true))
	}
	for i := s.segments[4].Load(); i == nil; i = s.segments[4].Load() {
		if put() {
			s.addSegment()
		}
	}
	for key := range m.All() {
		m.Delete(key)
	}
	s.putSegment(1, newSegment[int, int](1))
	require.Nil(t, s.segments[1].Load(), "there is no need for it any more")
}

// TestMapAllocations: 0 for a touch, 1 for a Set, and Go's map would need more.
func TestMapAllocations(t *testing.T) {
	tw := New()
	defer tw.Stop()
	m := NewMap(tw, func(string, *int) {})
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
		m.Set(keys[i], nil, time.Hour)
	}
	i := 0
	next := func() string { i++; return keys[i%len(keys)] }
	for name, tc := range map[string]struct {
		want float64
		f    func()
	}{
		"Touch":           {0, func() { m.Touch(next(), time.Hour) }},
		"TouchOrSet":      {0, func() { m.TouchOrSet(next(), nil, time.Hour) }},
		"Touch, missing":  {0, func() { m.Touch("missing", time.Hour) }},
		"Get":             {0, func() { m.Get(next()) }},
		"Get, missing":    {0, func() { m.Get("missing") }},
		"Reset to later":  {0, func() { m.Reset(next(), 2*time.Hour) }},
		"Reset to sooner": {0, func() { m.Reset(next(), time.Hour-time.Duration(i)) }},
		"Len":             {0, func() { m.Len() }},
		"Set":             {1, func() { m.Set(next(), nil, time.Hour) }},
		"Set and Delete":  {1, func() { m.Set("new", nil, time.Hour); m.Delete("new") }},
	} {
		require.Equal(t, tc.want, testing.AllocsPerRun(1000, tc.f), name)
	}
}

// TestMapMemory: what a crowd took is given back, and a deleted value is garbage at once.
func TestMapMemory(t *testing.T) {
	const n = 100_000
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	tw := New()
	defer tw.Stop()
	m := NewMap[int, *int](tw, nil)
	m.Set(-1, nil, time.Hour) // makes the levels
	before := heap()
	for key := range n {
		m.Set(key, nil, time.Hour)
	}
	full := heap() - before
	t.Logf("%.1f bytes a key", float64(full)/n)
	require.Less(t, full, int64(n*120))
	for key := range n {
		m.Delete(key)
	}
	left := heap() - before
	t.Logf("%d bytes are left", left)
	require.Less(t, left, full/100)

	gone := func() <-chan struct{} {
		value := new(int)
		m.Set(-2, value, time.Hour)
		m.Delete(-2)
		return watch(value)
	}()
	require.True(t, collected(gone))
	gone = func() <-chan struct{} {
		value := new(int)
		m.Set(-2, value, time.Hour)
		m.Set(-2, nil, time.Hour)
		return watch(value)
	}()
	require.True(t, collected(gone))
	runtime.KeepAlive(m)
}

// TestMapIsCollected: an empty Map need not be stopped.
func TestMapIsCollected(t *testing.T) {
	tw := New()
	defer tw.Stop()
	gone := func() <-chan struct{} {
		m := NewMap(tw, func(int, int) {})
		m.Set(1, 1, time.Hour)
		m.Delete(1)
		return watch(m)
	}()
	require.True(t, collected(gone))
}

// TestMapShutdownWaits: a callback that was handed over is waited for.
func TestMapShutdownWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tw := New()
		done := false
		m := NewMap(tw, func(int, int) { time.Sleep(time.Hour); done = true })
		m.Set(1, 1, time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, tw.Shutdown(context.Background()))
		require.True(t, done)
	})
}

// dawdleOver is a callback that is found by its name.
func dawdleOver(int, string) { dawdle() }

// TestMapCallbackIsNamed: tools show the caller's function, and not ours that lead to it.
func TestMapCallbackIsNamed(t *testing.T) {
	for _, ex := range executors {
		t.Run(ex.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var l slowLog
				var names []string
				around := func(c *config) {
					c.around = func(name string, f func()) { names = append(names, name); f() }
				}
				tw := New(append(ex.opts(), WithSlowCallback(time.Second, l.add), around)...)
				m := NewMap(tw, dawdleOver)
				m.Set(1, "", time.Second)
				pass(t, tw, time.Minute)
				require.Equal(t, []string{inThisPackage + "dawdleOver"}, names)
				if ex.name == "custom, a goroutine each" {
					require.Empty(t, l.told(), "that executor's to watch")
					return
				}
				require.Len(t, l.told(), 2)
				for _, c := range l.told() {
					require.Equal(t, inThisPackage+"dawdleOver", c.Name)
				}
			})
		})
	}
}

func TestMapMisuseIsNamed(t *testing.T) {
	var none *TimingWheel
	require.PanicsWithValue(t, "timingwheel: NewMap on a nil TimingWheel",
		func() { NewMap[int, int](none, nil) })
	var m Map[int, int]
	for _, m := range []*Map[int, int]{nil, &m} {
		for what, call := range map[string]func(){
			"Set":        func() { m.Set(1, 1, 1) },
			"TouchOrSet": func() { m.TouchOrSet(1, 1, 1) },
			"Get":        func() { m.Get(1) },
			"Touch":      func() { m.Touch(1, 1) },
			"Reset":      func() { m.Reset(1, 1) },
			"Expire":     func() { m.Expire(1) },
			"Delete":     func() { m.Delete(1) },
			"Len":        func() { m.Len() },
			"All":        func() { m.All() },
			"Drain":      func() { m.Drain() },
		} {
			require.PanicsWithValue(t, "timingwheel: "+what+" on a Map that NewMap did not make",
				call)
		}
	}
}
