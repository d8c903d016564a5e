package bench

import (
	"math/rand/v2"
	"time"
)

// A touch pushes a pending timer's deadline on by the same timeout every time, as
// a connection does with every packet.

// touchTimeout is so long that no timer of a benchmark fires for want of touches.
const touchTimeout = 5 * time.Minute

// newTouched makes an armed timer that will only be pushed on.
func (in Instance) newTouched() Timer {
	make := in.NewTouch
	if make == nil {
		make = in.New
	}
	t := make(nothing)
	t.Reset(touchTimeout)
	return t
}

var touchHot = Workload{
	Name:    "TouchHot",
	What:    "push one timer on by the same timeout again and again",
	Pending: []int{0, 1_000_000},
	Procs:   []int{1, 2},
	Lacks:   lacks(needTouch),
	Run:     prepare(prepareTouchHot).run,
	calls:   prepareTouchHot,
}

func prepareTouchHot(c Case) (*calls, error) {
	b := c.open()
	k := &calls{close: b.close}
	for _, t := range b.eachOwn(Instance.newTouched) {
		k.loops = append(k.loops, func(n int) {
			for range n {
				t.Reset(touchTimeout)
			}
		})
	}
	return k, nil
}

// batch is how many connections had something to read when a server looked.
const batch = 64

var touchAt = Workload{
	Name:    "TouchAt",
	What:    "push 64 timers on to an instant the caller read once for all of them, as a server does for a batch of ready connections",
	Pending: []int{0, 1_000_000},
	Procs:   []int{1, 2},
	Lacks:   lacks(needTouchAt),
	Run:     prepare(prepareTouchAt).run,
	calls:   prepareTouchAt,
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

func prepareTouchAt(c Case) (*calls, error) {
	b := c.open()
	k := &calls{close: b.close}
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

var touchRandom = Workload{
	Name:    "TouchRandom",
	What:    "push a random one of the pending timers on, cold in the cache",
	Pending: []int{1_000_000},
	Procs:   []int{1, 2},
	Lacks: lacks(func(in Instance) string {
		if in.Max > 0 {
			return "a million timers"
		}
		return needTouch(in)
	}),
	Run:   prepare(prepareTouchRandom).run,
	calls: prepareTouchRandom,
}

func prepareTouchRandom(c Case) (*calls, error) {
	if c.Pending == 0 {
		c.Pending = 1_000_000
	}
	share := max(c.Pending/max(c.Procs, 1), 1)
	c.Pending = 0 // the pending timers are those that are touched
	b := c.open()
	k := &calls{close: b.close}
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
