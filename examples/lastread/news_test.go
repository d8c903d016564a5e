package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

type firing struct {
	at  time.Duration
	key string
}

// tape collects digests.
type tape struct {
	mu    sync.Mutex
	start time.Time
	fired []firing
}

func newTape() *tape { return &tape{start: time.Now()} }

func (p *tape) mail(key string, _ []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fired = append(p.fired, firing{time.Since(p.start), key})
}

func (p *tape) all() []firing {
	p.mu.Lock()
	defer p.mu.Unlock()
	sort.Slice(p.fired, func(i, j int) bool {
		a, b := p.fired[i], p.fired[j]
		return a.at < b.at || a.at == b.at && a.key < b.key
	})
	return append([]firing(nil), p.fired...)
}

func TestTwoHoursAfterTheLastRead(t *testing.T) {
	const h, ms = time.Hour, time.Millisecond
	type event struct {
		at  time.Duration
		key string
	}
	for name, c := range map[string]struct {
		events []event
		want   []firing
	}{
		"one event":             {[]event{{0, "a"}}, []firing{{2 * h, "a"}}},
		"every event pushes":    {[]event{{0, "a"}, {h, "a"}, {2 * h, "a"}, {2*h + 1*ms, "a"}}, []firing{{4*h + ms, "a"}}},
		"just in time":          {[]event{{0, "a"}, {2*h - ms, "a"}}, []firing{{4*h - ms, "a"}}},
		"just too late":         {[]event{{0, "a"}, {2*h + ms, "a"}}, []firing{{2 * h, "a"}, {4*h + ms, "a"}}},
		"keys do not meet":      {[]event{{0, "a"}, {h, "b"}, {h, "c"}, {2*h - ms, "c"}}, []firing{{2 * h, "a"}, {3 * h, "b"}, {4*h - ms, "c"}}},
		"comes back much later": {[]event{{0, "a"}, {240 * h, "a"}}, []firing{{2 * h, "a"}, {242 * h, "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newTape()
				tw := timingwheel.New()
				n := newNews(tw, quiet, p.mail)
				for _, e := range c.events {
					time.Sleep(e.at - time.Since(p.start))
					n.read(e.key)
				}
				time.Sleep(1000 * h)
				synctest.Wait()
				require.Equal(t, c.want, p.all())
				require.Zero(t, n.digests.Len())
				require.Zero(t, tw.Len())
			})
		})
	}
}

// The read at the very moment of the digest, step by step: the callback has been handed over and
// has not begun.
func TestReadMeetsDigest(t *testing.T) {
	type setup struct {
		n    *news
		p    *tape
		next func() (callback func()) // waits for the next that is handed over
	}
	for name, play := range map[string]func(t *testing.T, s setup){
		"read first": func(t *testing.T, s setup) {
			digest := s.next()
			s.n.read("a")
			digest()
			require.Equal(t, []firing{{quiet, "a"}}, s.p.all(), "for the reads before")
			s.next()()
			require.Equal(t, []firing{{quiet, "a"}, {2 * quiet, "a"}}, s.p.all(), "for this one")
		},
		"digest first": func(t *testing.T, s setup) {
			s.next()()
			s.n.read("a")
			require.Equal(t, []firing{{quiet, "a"}}, s.p.all())
			s.next()()
			require.Equal(t, []firing{{quiet, "a"}, {2 * quiet, "a"}}, s.p.all())
		},
		"held up for another two hours": func(t *testing.T, s setup) {
			first := s.next()
			s.n.read("a")
			second := s.next()
			first()
			second()
			require.Equal(t, []firing{{2 * quiet, "a"}, {2 * quiet, "a"}}, s.p.all())
		},
		"forgotten": func(t *testing.T, s setup) {
			digest := s.next()
			require.False(t, s.n.forget("a"), "too late")
			digest()
			require.Equal(t, []firing{{quiet, "a"}}, s.p.all())
		},
		"drained": func(t *testing.T, s setup) {
			digest := s.next()
			require.Empty(t, s.n.digests.Drain(), "too late")
			digest()
			require.Equal(t, []firing{{quiet, "a"}}, s.p.all())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handedOver := make(chan func(), 10)
				p := newTape()
				tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { handedOver <- f }))
				n := newNews(tw, quiet, p.mail)
				n.read("a")
				play(t, setup{n, p, func() func() { return <-handedOver }})
				require.Zero(t, n.digests.Len())
				require.Zero(t, tw.Len())
			})
		})
	}
}

func TestForgetAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTape()
		tw := timingwheel.New()
		n := newNews(tw, quiet, p.mail)
		for _, key := range []string{"a", "b", "c"} {
			n.read(key)
		}
		require.True(t, n.forget("b"))
		require.False(t, n.forget("b"))
		require.False(t, n.forget("nobody"))
		require.Equal(t, 2, tw.Len())
		time.Sleep(time.Hour)
		require.Len(t, n.digests.Drain(), 2)
		require.Empty(t, n.digests.Drain())
		n.read("a")
		require.False(t, n.forget("a"))
		require.Zero(t, tw.Len())
		time.Sleep(24 * time.Hour)
		require.Empty(t, p.all())
	})
}

// Few keys, many events, most of them at the very moment of a firing: those of a key
// come a whole number of quiet times after one another. The record of the events of a
// key says when its firings had to be.
func TestHammer(t *testing.T) {
	const keys, writers, events = 20, 8, 40
	synctest.Test(t, func(t *testing.T) {
		p := newTape()
		tw := timingwheel.New()
		n := newNews(tw, quiet, p.mail)
		var mu sync.Mutex
		touched := make(map[string]map[time.Duration]bool)
		var writing sync.WaitGroup
		for range writers {
			writing.Go(func() {
				for range events {
					key := fmt.Sprint("key", rand.IntN(keys))
					n.read(key)
					mu.Lock()
					if touched[key] == nil {
						touched[key] = make(map[time.Duration]bool)
					}
					touched[key][time.Since(p.start)] = true
					mu.Unlock()
					time.Sleep(time.Duration(rand.IntN(2)) * quiet)
				}
			})
		}
		writing.Wait()
		time.Sleep(2 * quiet)
		require.NoError(t, tw.Shutdown(context.Background()))

		fired := make(map[string]map[time.Duration]bool)
		for _, f := range p.all() {
			if fired[f.key] == nil {
				fired[f.key] = make(map[time.Duration]bool)
			}
			require.False(t, fired[f.key][f.at], "%s twice at %v", f.key, f.at)
			fired[f.key][f.at] = true
			require.True(t, touched[f.key][f.at-quiet], "%s at %v, which is no quiet time after an event", f.key, f.at)
		}
		for key, at := range touched {
			for event := range at {
				// At the moment of its firing another event may have pushed it on.
				require.True(t, fired[key][event+quiet] || at[event+quiet], "the event of %s at %v is lost", key, event)
			}
		}
		require.Zero(t, n.digests.Len())
		t.Logf("%d events, %d firings", writers*events, len(p.fired))
	})
}
