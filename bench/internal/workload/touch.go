package workload

import (
	"math/rand/v2"
	"time"
)

// A touch extends a pending timer by the same timeout every time, as a connection does with every
// packet.

// touchTimeout is so long that no timer fires for lack of touches.
const touchTimeout = 5 * time.Minute

// newTouched makes an armed timer that will only be extended.
func (in Instance) newTouched() Timer {
	make := in.NewTouch
	if make == nil {
		make = in.New
	}
	t := make(nothing)
	t.Reset(touchTimeout)
	return t
}

// TouchHot touches a timer that stays in the cache.
var TouchHot = Workload{
	Name:     "TouchHot",
	What:     "Extend one timer by the same timeout again and again.",
	Pending:  []int{0, 1_000_000},
	Procs:    []int{1, 2},
	Duration: callsFor,
	needs:    needTouch,
	calls:    prepareTouchHot,
}

func prepareTouchHot(c Case) (*Calls, error) {
	b := c.open()
	k := &Calls{bed: b}
	for _, t := range b.eachOwn(Instance.newTouched) {
		k.loops = append(k.loops, func(n int) {
			for range n {
				t.Reset(touchTimeout)
			}
		})
	}
	return k, nil
}

// batch is how many connections a server finds readable at once.
const batch = 64

// TouchAt touches timers for a caller that has already read the clock.
var TouchAt = Workload{
	Name: "TouchAt",
	What: "Extend 64 timers to one instant, for which the caller reads the clock once, " +
		"as a server does for a batch of readable connections.",
	Pending:  []int{0, 1_000_000},
	Procs:    []int{1, 2},
	Duration: callsFor,
	needs:    needTouchAt,
	calls:    prepareTouchAt,
}

func needTouchAt(in Instance) string {
	if missing := needTouch(in); missing != "" {
		return missing
	}
	t := in.newTouched()
	defer t.Stop()
	if _, ok := t.(Toucher); !ok {
		return "a timer that can be reset to an instant"
	}
	return ""
}

func prepareTouchAt(c Case) (*Calls, error) {
	b := c.open()
	k := &Calls{bed: b}
	for _, in := range b.workers {
		var touchers [batch]Toucher
		for i := range touchers {
			t := in.newTouched()
			b.kept = append(b.kept, t)
			touchers[i] = t.(Toucher)
		}
		k.loops = append(k.loops, func(n int) {
			for ; n > 0; n -= batch {
				at := time.Now().Add(touchTimeout)
				for _, t := range touchers[:min(n, batch)] {
					t.ResetAt(at)
				}
			}
		})
	}
	return k, nil
}

// TouchRandom touches timers that are cold in the cache.
var TouchRandom = Workload{
	Name:     "TouchRandom",
	What:     "Extend a random one of the pending timers, cold in the cache.",
	Pending:  []int{1_000_000},
	Procs:    []int{1, 2},
	Duration: callsFor,
	needs: func(in Instance) string {
		if in.Max > 0 {
			return "a million timers"
		}
		return needTouch(in)
	},
	calls: prepareTouchRandom,
}

func prepareTouchRandom(c Case) (*Calls, error) {
	share := max(c.Pending/c.Procs, 1)
	c.Pending = 0 // the timers to touch are the pending ones
	b := c.open()
	k := &Calls{bed: b}
	for w, in := range b.workers {
		own := make([]Timer, share)
		for i := range own {
			own[i] = in.newTouched()
		}
		b.kept = append(b.kept, own...)
		r := rand.NewPCG(6, uint64(w))
		k.loops = append(k.loops, func(n int) {
			for range n {
				own[below(r, share)].Reset(touchTimeout)
			}
		})
	}
	return k, nil
}
