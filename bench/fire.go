package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// fire is a crowd of timers that all come to their end.
var fire = Workload{
	Name:    "Fire",
	What:    "a million timers due at random within 3 s, all with the same trivial callback: CPU after the last was started, and lateness",
	Pending: []int{0},
	Procs:   []int{1},
	Lacks:   lacks(needFiring),
	Run:     runFire,
}

// fireSpread is the time the deadlines are spread over.
const fireSpread = 3 * time.Second

// punctual is few enough timers that each finds the processors free: how late it
// is comes of when the implementation wakes up, and hardly of what it does then.
var punctual = Workload{
	Name:    "Punctual",
	What:    "20,000 timers due at random within 3 s (fine is the wheel with a tick of 100 us, precise is that with WithPreciseWakeup): CPU after the last was started, lateness, and how often the driver woke up",
	Pending: []int{0},
	Procs:   []int{1},
	Lacks:   lacks(needFiring),
	Run:     runPunctual,
}

// runFire fires a million timers by default.
func runFire(c Case) (Result, error) { return c.fire(1_000_000, false) }

// runPunctual fires 20,000 timers by default.
func runPunctual(c Case) (Result, error) { return c.fire(20_000, true) }

// fire fires c.N timers, usual by default, within c.Duration, 3 s by default, and
// may count the driver's wake-ups too.
func (c Case) fire(usual int, wakeups bool) (Result, error) {
	n, spread := or(c.N, usual), or(c.Duration, fireSpread)
	b := c.open()
	defer b.close()
	r := rand.NewPCG(7, 8)
	s := newSalvo(b.in, n)
	s.load(func() time.Duration { return time.Duration(below(r, int(spread/time.Microsecond))) * time.Microsecond })
	c.progress(0.3)

	before, ok := processUsage()
	woken := b.in.wakeups()
	left := s.left.Load() // all but those of an implementation that is slow to start them
	if err := s.wait(spread); err != nil {
		return Result{}, err
	}
	after, _ := processUsage()

	var res Result
	if ok && left > 0 {
		res.add("cpu", "ns/timer", float64(after.since(before).cpu)/float64(left))
	}
	s.addTo(&res)
	if wakeups && b.in.Stats != nil && left > 0 {
		res.add("wake-ups", "1/timer", float64(b.in.wakeups()-woken)/float64(left))
	}
	c.progress(1)
	return res, nil
}

// or returns v, or what is usual if v is zero.
func or[T int | time.Duration](v, usual T) T {
	if v == 0 {
		return usual
	}
	return v
}

// A salvo is many timers that are started now and fire later, each after an
// instant that lies after the last is started, as far as that can be foreseen.
type salvo struct {
	in   Instance
	n    int
	base time.Time
	due  time.Duration // since base; the first deadline

	left atomic.Int64
	done chan struct{}
	over *atomic.Bool // the same, for callers to poll; not in the cache line of left
	all  atomic.Int64 // see allFired
	late []time.Duration
}

// unknown marks a sampled timer whose lateness tells nothing: its deadline had
// passed when it was started.
const unknown = math.MinInt64

func newSalvo(in Instance, n int) *salvo {
	s := &salvo{in: in, n: n, base: time.Now(), done: make(chan struct{}), over: new(atomic.Bool)}
	s.left.Store(int64(n))
	s.late = make([]time.Duration, (n+s.stride()-1)/s.stride())
	for i := range s.late {
		s.late[i] = unknown
	}
	return s
}

// stride is the distance from one sampled timer to the next.
func (s *salvo) stride() int { return (s.n + sampleSize - 1) / sampleSize }

// fired is the trivial callback.
func (s *salvo) fired() {
	if s.left.Add(-1) == 0 {
		s.all.Store(int64(time.Since(s.base)))
		s.over.Store(true)
		close(s.done)
	}
}

// allFired returns when the last fired, since base; zero if it has not.
func (s *salvo) allFired() time.Duration { return time.Duration(s.all.Load()) }

// load starts the timers, due the offset after s.due, and collects the garbage of
// that.
func (s *salvo) load(offset func() time.Duration) {
	lead := s.lead()
	s.due = time.Since(s.base) + lead
	shared := s.fired
	for i := range s.n {
		due, f := s.due+offset(), shared
		if i%s.stride() == 0 {
			f = s.sampled(due, &s.late[i/s.stride()])
		}
		// The clock is read before the call, so whatever fires before due is early.
		s.in.Start(due-time.Since(s.base), f)
	}
	runtime.GC()
}

func (s *salvo) sampled(due time.Duration, late *time.Duration) func() {
	if due < time.Since(s.base) {
		return s.fired
	}
	return func() {
		*late = time.Since(s.base) - due
		s.fired()
	}
}

// An Unstoppable is a timer of an implementation that has no Stop. A salvo never
// stops its timers but for the few that lead starts, and those it leaves pending
// then: of a hundredth of the timers, an hour away, none fires in the measure.
type Unstoppable interface {
	Timer
	Unstoppable()
}

// lead returns how long it takes to load, found by a hundredth of it, with much to
// spare: other programs may want the processors too.
func (s *salvo) lead() time.Duration {
	some := make([]Timer, s.n/100+10)
	start := time.Now()
	for i := range some {
		some[i] = s.in.Start(time.Hour, nothing)
	}
	each := time.Since(start) / time.Duration(len(some))
	if _, ok := some[0].(Unstoppable); !ok {
		stopAll(some)
	}
	const collection = 300 // nanoseconds for each timer
	return 50*time.Millisecond + time.Duration(s.n)*(3*each+collection)
}

// wait returns once all have fired, or an error if that takes far too long after
// the last deadline.
func (s *salvo) wait(spread time.Duration) error {
	const patience = 30 * time.Second
	select {
	case <-s.done:
		return nil
	case <-time.After(s.due - time.Since(s.base) + spread + patience):
		return fmt.Errorf("%d of %d timers had not fired %v after the last deadline", s.left.Load(), s.n, patience)
	}
}

// addTo adds the latenesses, and how many of the sample were early.
func (s *salvo) addTo(r *Result) {
	late := slices.DeleteFunc(s.late, func(d time.Duration) bool { return d == unknown })
	slices.Sort(late)
	early, _ := slices.BinarySearch(late, 0)
	r.addQuantiles("late", "ms", time.Millisecond, late)
	r.add("early", "timers", float64(early))
	r.add("sample", "timers", float64(len(late)))
	r.Lateness = late
}
