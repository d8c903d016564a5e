package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// Fire is a crowd of timers that all fire.
var Fire = Workload{
	Name: "Fire",
	What: "{N} timers due at random within {D}, all with the same trivial callback: CPU per " +
		"timer, from when the last one is started, and lateness.",
	Pending:  []int{0},
	Procs:    []int{1},
	N:        1_000_000,
	Duration: 3 * time.Second,
	needs:    needFiring,
	run:      func(c Case) (Result, error) { return c.fire(false) },
}

// Punctual has so few timers that each finds the processors free. Its lateness comes from when the
// implementation wakes up, and hardly from what it does then.
var Punctual = Workload{
	Name: "Punctual",
	What: "{N} timers due at random within {D}: CPU per timer, from when the last one is " +
		"started, lateness, and wake-ups of the driver. Here fine is the wheel with a tick of " +
		"100 us, and precise is fine with WithPreciseWakeup.",
	Pending:  []int{0},
	Procs:    []int{1},
	N:        20_000,
	Duration: 3 * time.Second,
	needs:    needFiring,
	run:      func(c Case) (Result, error) { return c.fire(true) },
}

// fire fires c.N timers within c.Duration. It counts the driver's wake-ups too, if told to.
func (c Case) fire(wakeups bool) (Result, error) {
	b := c.open()
	defer b.close()
	r := rand.NewPCG(7, 8)
	s := newSalvo(b.in, c.N)
	s.load(func() time.Duration {
		return time.Duration(below(r, int(c.Duration/time.Microsecond))) * time.Microsecond
	})
	c.progress(0.3)

	before, ok := processUsage()
	woken := b.in.wakeups()
	left := s.left.Load() // all, unless starting them took so long that some have fired
	if err := s.wait(c.Duration); err != nil {
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

// A salvo is many timers that are started now and fire later. Each is due after the last one has
// been started, as far as lead can foresee.
type salvo struct {
	in   Instance
	n    int
	base time.Time
	due  time.Duration // the first deadline, since base

	left atomic.Int64
	done chan struct{}
	over *atomic.Bool // the same, for callers to poll, and not in the cache line of left
	all  atomic.Int64 // see allFired
	late []time.Duration
}

// unknown marks a sampled timer that was started after its deadline, so its lateness means nothing.
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

// allFired returns when the last timer fired, since base, or zero if it has not.
func (s *salvo) allFired() time.Duration { return time.Duration(s.all.Load()) }

// load starts the timers and collects the garbage. Each is due an offset after s.due.
func (s *salvo) load(offset func() time.Duration) {
	lead := s.lead()
	s.due = time.Since(s.base) + lead
	shared := s.fired
	for i := range s.n {
		due, f := s.due+offset(), shared
		if i%s.stride() == 0 {
			f = s.sampled(due, &s.late[i/s.stride()])
		}
		// The clock is read before the call, so a timer that fires before due is early.
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

// lead returns how long load will take. It starts a hundredth of the timers to find out, and adds a
// wide margin, because other programs may want the processors too.
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

// wait returns once all timers have fired, or an error if some have not long after the last
// deadline.
func (s *salvo) wait(spread time.Duration) error {
	const patience = 30 * time.Second
	select {
	case <-s.done:
		return nil
	case <-time.After(s.due - time.Since(s.base) + spread + patience):
		return fmt.Errorf("%d of %d timers had not fired %v after the last deadline",
			s.left.Load(), s.n, patience)
	}
}

// addTo adds the latenesses, and how many timers of the sample were early.
func (s *salvo) addTo(r *Result) {
	late := slices.DeleteFunc(s.late, func(d time.Duration) bool { return d == unknown })
	slices.Sort(late)
	early, _ := slices.BinarySearch(late, 0)
	r.addLateness("late", late)
	r.add("early", "timers", float64(early))
	r.add("sample", "timers", float64(len(late)))
	r.Lateness = late
}
