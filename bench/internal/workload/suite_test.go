package workload

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/go-timingwheel/timingwheel"
	"github.com/stretchr/testify/require"
)

// Every workload runs on every implementation and measures what it should. The tests do not check
// how fast anything is.
func TestWorkloads(t *testing.T) {
	for _, w := range All {
		for _, im := range Impls {
			t.Run(w.Name+"/"+im.Name, func(t *testing.T) {
				if missing := w.Lacks(im); missing != "" {
					t.Skip("lacks " + missing)
				}
				for _, procs := range []int{1, 2} {
					if procs > 1 && !slices.Contains(w.Procs, procs) {
						continue
					}
					var r Result
					for range 20 {
						var err error
						r, err = w.Run(tiny(w, im, procs))
						require.NoError(t, err)
						if w.Name != Burst.Name || timedCalls(r) {
							break
						}
						// On an overloaded machine a tiny burst may end before a caller begins.
					}
					checkResult(t, w, im, r)
				}
			})
		}
	}
}

// An implementation that is meant for one workload runs only that one. Every other runs all of
// them. Inline differs from the wheel only when timers fire.
func TestTakes(t *testing.T) {
	for _, w := range All {
		require.True(t, w.Takes(Wheel), w.Name)
		require.Equal(t, !w.PerCall(), w.Takes(Inline), w.Name)
		for _, im := range []Impl{Precise, Fine} {
			require.Equal(t, w.Name == "Punctual", w.Takes(im), "%s, %s", w.Name, im.Name)
		}
	}
}

// tiny is a case of some milliseconds.
func tiny(w Workload, im Impl, procs int) Case {
	c := Case{Impl: im, Pending: 300, Procs: procs, Duration: 5 * time.Millisecond}
	switch w.Name {
	case Punctual.Name, Fire.Name, Burst.Name:
		c.N = 2_000
	case IdleServer.Name:
		c.N, c.Duration = 2_000, 50*time.Millisecond
	case GC.Name:
		c.N = 1
	case Idle.Name:
		c.N = 100
	}
	return c
}

func checkResult(t *testing.T, w Workload, im Impl, r Result) {
	require.NotEmpty(t, r.Metrics)
	names := map[string]bool{}
	for _, m := range r.Metrics {
		require.False(t, names[m.Name], "%s twice", m.Name)
		names[m.Name] = true
		require.False(t, math.IsNaN(m.Value) || math.IsInf(m.Value, 0), "%+v", m)
	}
	require.True(t, slices.IsSorted(r.Lateness))
	require.LessOrEqual(t, len(r.Lateness), sampleSize)

	ours := slices.Contains([]string{Wheel.Name, Inline.Name, Precise.Name, Fine.Name}, im.Name)
	switch {
	case w.PerCall():
		require.Positive(t, value(t, r, "time"))
	case w.Name == Punctual.Name || w.Name == Fire.Name || w.Name == Burst.Name:
		require.NotEmpty(t, r.Lateness)
		if ours || im.Name == Time.Name {
			require.Zero(t, value(t, r, "early"))
			require.GreaterOrEqual(t, r.Lateness[0], time.Duration(0))
		}
		if w.Name == Punctual.Name {
			_, counted := r.Get("wake-ups")
			require.Equal(t, ours, counted)
		}
		if w.Name == Burst.Name {
			require.Positive(t, value(t, r, "response p99.9"))
			require.Positive(t, value(t, r, "control response p99.9"))
		}
	case w.Name == IdleServer.Name:
		require.NotEmpty(t, r.Lateness)
		require.GreaterOrEqual(t, r.Lateness[0], time.Duration(0))
		require.Positive(t, value(t, r, "touches"))
	case w.Name == Idle.Name && ours:
		require.Zero(t, value(t, r, "empty wake-ups"))
		require.Zero(t, value(t, r, "empty goroutines"))
	}
}

// timedCalls reports whether a burst timed calls beside the timers and beside the control.
func timedCalls(r Result) bool {
	_, own := r.Get("response p99.9")
	_, control := r.Get("control response p99.9")
	return own && control
}

func value(t *testing.T, r Result, name string) float64 {
	v, ok := r.Get(name)
	require.True(t, ok, "no metric %q in %v", name, r.Metrics)
	return v
}

// A case that leaves everything zero gets the values of a full run, and the description names them.
func TestComplete(t *testing.T) {
	c := Burst.complete(Case{})
	require.Equal(t, Case{Procs: 1, N: 1_000_000}, c)
	c = Churn.complete(Case{Procs: 2, Duration: time.Second})
	require.Equal(t, Case{Pending: 10_000, Procs: 2, Duration: time.Second}, c)

	require.Contains(t, Fire.Describe(Case{}), "1,000,000 timers due at random within 3 s,")
	require.Contains(t, Punctual.Describe(Case{N: 500, Duration: 300 * time.Millisecond}),
		"500 timers due at random within 300 ms:")
	for _, w := range All {
		require.Regexp(t, `^[A-Z1-9][^{}]+\.$`, w.Describe(Case{}))
	}
}

// The loops allocate nothing of their own, so the workloads measure the implementation.
func TestLoopsAllocateNothing(t *testing.T) {
	for _, w := range All {
		if !w.PerCall() {
			continue
		}
		k, err := w.Prepare(Case{Impl: Impl{Name: "none", Open: func() Instance {
			n := none{}
			return Instance{
				Start: func(time.Duration, func()) Timer { return n },
				New:   func(func()) Timer { return n },
				Close: func() {},
			}
		}}, Pending: 10})
		require.NoError(t, err)
		defer k.Close()
		require.Zero(t, testing.AllocsPerRun(10, func() { k.loops[0](chunk) }), w.Name)
	}
}

// Times makes exactly as many calls as asked for, however many goroutines share them, and during
// counts the calls that it made.
func TestCallsAreCounted(t *testing.T) {
	for of := range 4 {
		var made atomic.Int64
		k := &Calls{}
		for range of + 1 {
			k.loops = append(k.loops, func(n int) { made.Add(int64(n)) })
		}
		for _, n := range []int{1, 2, 3, 1000} {
			made.Store(0)
			k.Times(n)
			require.EqualValues(t, n, made.Load())
		}
		made.Store(0)
		n, took := k.during(time.Millisecond)
		require.EqualValues(t, made.Load(), n)
		require.GreaterOrEqual(t, took, time.Millisecond)
	}
}

type none struct{}

func (none) Stop() bool               { return true }
func (none) Reset(time.Duration) bool { return true }
func (none) ResetAt(time.Time) bool   { return true }

func TestFloorTimerHasTheSizeOfOurs(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the floor is laid out for 64 bits")
	}
	require.Equal(t, unsafe.Sizeof(timingwheel.Timer{}), unsafe.Sizeof(floorTimer{}))
	require.Equal(t, unsafe.Sizeof(timingwheel.Timer{}), unsafe.Sizeof(floorTouch{}))
}

func TestHistogram(t *testing.T) {
	for d := time.Duration(0); d < 1<<20; d += 1 + d/200 {
		low := least(place(d))
		require.LessOrEqual(t, low, d)
		require.LessOrEqual(t, d-low, d/64, "%d", d)
	}
	require.Less(t, place(math.MaxInt64), len(histogram{}.counts))

	var h, o histogram
	for d := range time.Duration(1000) {
		h.record(d)
		o.record(d + 1000)
	}
	h.merge(&o)
	require.EqualValues(t, 2000, h.n)
	require.InEpsilon(t, 1000, float64(h.quantile(0.5)), 0.02)
	require.InEpsilon(t, 1980, float64(h.quantile(0.99)), 0.02)
	require.EqualValues(t, 1999, h.quantile(1))
}

func TestQuantile(t *testing.T) {
	sorted := make([]time.Duration, 100)
	for i := range sorted {
		sorted[i] = time.Duration(i + 1)
	}
	require.EqualValues(t, 50, Quantile(sorted, 0.5))
	require.EqualValues(t, 99, Quantile(sorted, 0.99))
	require.EqualValues(t, 100, Quantile(sorted, 0.999))
	require.EqualValues(t, 100, Quantile(sorted, 1))
	require.EqualValues(t, 7, Quantile([]time.Duration{7}, 0.5))
}

func TestThin(t *testing.T) {
	sorted := make([]time.Duration, 3*sampleSize)
	for i := range sorted {
		sorted[i] = time.Duration(i)
	}
	few := thin(sorted)
	require.Len(t, few, sampleSize)
	require.True(t, slices.IsSorted(few))
	require.Equal(t, sorted[0], few[0])
	require.Equal(t, sorted[len(sorted)-1], few[len(few)-1])
}
