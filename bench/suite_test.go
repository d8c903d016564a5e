package bench

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

// Every workload runs on every implementation and measures what it should. How
// fast that is, no test says.
func TestWorkloads(t *testing.T) {
	for _, w := range Workloads {
		for _, im := range Impls {
			if !w.Takes(im) {
				continue
			}
			t.Run(w.Name+"/"+im.Name, func(t *testing.T) {
				if missing := w.Lacks(im); missing != "" {
					t.Skip("lacks " + missing)
				}
				for _, procs := range []int{1, 2} {
					if procs > 1 && !slices.Contains(w.Procs, procs) {
						continue
					}
					r, err := w.Run(tiny(w, im, procs))
					require.NoError(t, err)
					checkResult(t, w, im, r)
				}
			})
		}
	}
}

// What is for one workload is in that one, and everything else is in all.
func TestTakes(t *testing.T) {
	for _, w := range Workloads {
		require.True(t, w.Takes(Wheel), w.Name)
		for _, im := range []Impl{Precise, Fine} {
			require.Equal(t, w.Name == "Punctual", w.Takes(im), "%s, %s", w.Name, im.Name)
		}
	}
	for _, im := range Impls { // a name that no workload has would keep it out of all
		require.True(t, slices.ContainsFunc(Workloads, func(w Workload) bool { return w.Takes(im) }), im.Name)
	}
}

// tiny is a case of some milliseconds.
func tiny(w Workload, im Impl, procs int) Case {
	c := Case{Impl: im, Pending: 300, Procs: procs, Duration: 5 * time.Millisecond}
	switch w.Name {
	case punctual.Name, fire.Name, burst.Name:
		c.N = 2_000
	case idleServer.Name:
		c.N, c.Duration = 2_000, 50*time.Millisecond
	case gc.Name:
		c.N = 1
	case idle.Name:
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
	case w.calls != nil:
		require.Positive(t, value(t, r, "time"))
	case w.Name == punctual.Name || w.Name == fire.Name || w.Name == burst.Name:
		require.NotEmpty(t, r.Lateness)
		if ours || im.Name == Time.Name {
			require.Zero(t, value(t, r, "early"))
			require.GreaterOrEqual(t, r.Lateness[0], time.Duration(0))
		}
		if w.Name == punctual.Name {
			_, counted := r.Get("wake-ups")
			require.Equal(t, ours, counted)
		}
		if w.Name == burst.Name {
			require.Positive(t, value(t, r, "response p99.9"))
			require.Positive(t, value(t, r, "control response p99.9"))
		}
	case w.Name == idleServer.Name:
		require.NotEmpty(t, r.Lateness)
		require.GreaterOrEqual(t, r.Lateness[0], time.Duration(0))
		require.Positive(t, value(t, r, "touches"))
	case w.Name == idle.Name && ours:
		require.Zero(t, value(t, r, "empty wake-ups"))
		require.Zero(t, value(t, r, "empty goroutines"))
	}
}

func value(t *testing.T, r Result, name string) float64 {
	v, ok := r.Get(name)
	require.True(t, ok, "no metric %q in %v", name, r.Metrics)
	return v
}

// The call workloads allocate nothing of their own: what is measured is the
// implementation's.
func TestHarnessAllocatesNothing(t *testing.T) {
	for _, w := range []Workload{churn, rearm, startStop, touchAt, touchHot, touchRandom} {
		k, err := w.calls(Case{Impl: Impl{Name: "none", Open: func() Instance {
			n := none{}
			return Instance{
				Start: func(time.Duration, func()) Timer { return n },
				New:   func(func()) Timer { return n },
				Close: func() {},
			}
		}}, Pending: 10})
		require.NoError(t, err)
		defer k.close()
		require.Zero(t, testing.AllocsPerRun(10, func() { k.loops[0](chunk) }), w.Name)
	}
}

// times makes exactly as many calls as asked for, however many goroutines share
// them, and during counts what it made.
func TestCallsAreCounted(t *testing.T) {
	for of := range 4 {
		var made atomic.Int64
		k := &calls{}
		for range of + 1 {
			k.loops = append(k.loops, func(n int) { made.Add(int64(n)) })
		}
		for _, n := range []int{1, 2, 3, 1000} {
			made.Store(0)
			k.times(n)
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
	require.EqualValues(t, 50, quantile(sorted, 0.5))
	require.EqualValues(t, 99, quantile(sorted, 0.99))
	require.EqualValues(t, 100, quantile(sorted, 0.999))
	require.EqualValues(t, 100, quantile(sorted, 1))
	require.EqualValues(t, 7, quantile([]time.Duration{7}, 0.5))
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
