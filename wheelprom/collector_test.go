package wheelprom

import (
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

const patience = 60 * time.Second // bounds waits that must end, even on a busy machine

// TestScrapeHasStats scrapes a wheel in use, in each of the formats that Prometheus asks for.
func TestScrapeHasStats(t *testing.T) {
	queue := make(chan func(), 1000) // without workers, so there is a backlog
	tw := timingwheel.New(timingwheel.WithWheelSize(16),
		timingwheel.WithExecutor(func(f func()) { queue <- f }))
	server := serve(t, NewCollector(tw, WithName("sessions"), WithShards()))
	f := func() {}
	for range 5 {
		tw.AfterFunc(time.Hour, f)
	}
	for range 20 {
		tw.AfterFunc(time.Millisecond, f)
	}
	for range 3 {
		require.True(t, tw.AfterFunc(30*time.Minute, f).Stop())
	}
	tw.AfterFunc(100*time.Millisecond, f) // in the second level
	require.Eventually(t, func() bool { return tw.Stats().Fired == 21 }, patience, time.Millisecond)

	for _, accept := range []string{asText, asProtobuf} {
		var stats timingwheel.Stats
		var got samples
		require.Eventually(t, func() bool {
			stats = tw.Stats()
			got = server.scrape(t, accept)
			return reflect.DeepEqual(stats, tw.Stats()) // nothing happened in between
		}, patience, time.Millisecond)
		require.Equal(t, expected(stats, "sessions", true), got, accept)
		for _, name := range []string{"timers_pending", "timers_started_total",
			"timers_fired_total",
			"timers_stopped_total", "wakeups_total", "longest_hold_timers", "callbacks_running",
			"callbacks_waiting", "lateness_seconds_count", "lateness_seconds_sum"} {
			require.NotZero(t, got.of(t, name, "sessions"), name)
		}
		require.Equal(t, 5.0, got.of(t, "timers_pending", "sessions"))
		require.Equal(t, 21.0, got.of(t, "callbacks_waiting", "sessions"))
	}

	response := server.get(t, asOpenMetrics)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, response.Header.Get("Content-Type"), "application/openmetrics-text")
	require.Contains(t, string(body), "# TYPE timingwheel_timers_fired counter\n")
	require.Contains(t, string(body), "timingwheel_timers_fired_total{wheel=\"sessions\"} 21.0\n")
	require.True(t, strings.HasSuffix(string(body), "# EOF\n"))

	// A stopped wheel can still be scraped.
	tw.Stop()
	got := server.scrape(t, asText)
	require.Zero(t, got.of(t, "timers_pending", "sessions"))
	require.Equal(t, 5.0, got.of(t, "timers_dropped_total", "sessions"))
	for range 21 {
		(<-queue)()
	}
	require.NoError(t, tw.Shutdown(t.Context()))
	require.Zero(t, server.scrape(t, asText).of(t, "callbacks_running", "sessions"))
}

// TestEveryFieldIsSent gives each number of Stats a value of its own, to find numbers that are
// missing or mixed up, even in fields that are added later.
func TestEveryFieldIsSent(t *testing.T) {
	leftOut := []string{
		// The whole wheel or its levels have these; they are not repeated for each lock.
		"Shards.Fired", "Shards.Stopped", "Shards.Dropped", "Shards.Reinserted", "Shards.Extended",
		"Levels.Slots", // follows from the wheel size
	}
	var s timingwheel.Stats
	s.Levels = make([]timingwheel.LevelStats, 3)
	s.Shards = make([]timingwheel.ShardStats, 2)
	next := int64(1000)
	want := map[int64]string{}
	fill(reflect.ValueOf(&s).Elem(), "", func(path string, v reflect.Value) {
		next++
		v.SetInt(next)
		switch {
		case slices.Contains(leftOut, path), strings.HasSuffix(path, "Lateness.Counts"):
		case v.Type() == reflect.TypeFor[time.Duration]():
			v.SetInt(next * int64(time.Second))
			want[next] = path
		default:
			want[next] = path
		}
	})
	for _, l := range []*timingwheel.Lateness{&s.Lateness, &s.CallbackLateness} {
		l.Samples = 0
		for _, n := range l.Counts {
			l.Samples += n
		}
	}

	c := NewCollector(timingwheel.New(), WithName("w"), WithShards())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectorOf{c, &s})
	families, err := registry.Gather()
	require.NoError(t, err)
	got := flatten(families)
	require.Equal(t, expected(s, "w", true), got)
	sent := map[int64]bool{}
	for _, v := range got {
		sent[int64(v)] = true
	}
	for v, path := range want {
		if !strings.HasSuffix(path, "Lateness.Samples") { // set above
			require.True(t, sent[v], path)
		}
	}
}

// collectorOf is a Collector that sends s instead of the Stats of its wheel.
type collectorOf struct {
	*Collector
	s *timingwheel.Stats
}

func (c collectorOf) Collect(ch chan<- prometheus.Metric) { c.collect(ch, c.s) }

// fill calls set for every number in v, with the path of fields that leads to it, without embedded
// ones.
func fill(v reflect.Value, path string, set func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			p := path
			if !field.Anonymous {
				p = strings.TrimPrefix(path+"."+field.Name, ".")
			}
			fill(v.Field(i), p, set)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), path, set)
		}
	default:
		set(path, v)
	}
}

// TestBusyWheel runs several scrapers while the wheel is at work. Each scrape is consistent, and no
// counter goes back.
func TestBusyWheel(t *testing.T) {
	tw := timingwheel.New(timingwheel.WithWheelSize(8))
	server := serve(t, NewCollector(tw, WithShards()))
	var stop atomic.Bool
	var workers, scrapers sync.WaitGroup
	workers.Go(func() { // so fast that no two Stats agree
		for !stop.Load() {
			tw.AfterFunc(time.Hour, func() {}).Stop()
		}
	})
	for range 2 {
		workers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				x := tw.AfterFunc(time.Duration(i%200)*time.Millisecond, func() {})
				switch i % 4 {
				case 0:
					x.Stop()
				case 1:
					x.Reset(time.Duration(300+i%300) * time.Millisecond)
				}
				if i%50 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return tw.Stats().Fired > 0 }, patience, time.Millisecond)
	for range 3 {
		scrapers.Go(func() {
			before := samples{}
			for range 15 {
				families := server.families(t, asProtobuf)
				now := flatten(families)
				requireConsistent(t, now)
				for k, v := range before {
					if strings.Contains(k, "_total{") || strings.Contains(k, "_lateness_seconds_") {
						require.GreaterOrEqual(t, now[k], v, k)
					}
				}
				before = now
				time.Sleep(5 * time.Millisecond)
			}
			require.NotZero(t, before.of(t, "timers_fired_total", "default"))
		})
	}
	scrapers.Wait()
	stop.Store(true)
	workers.Wait()
	require.NoError(t, tw.Shutdown(t.Context()))
	end := server.scrape(t, asText)
	requireConsistent(t, end)
	require.Zero(t, end.of(t, "timers_pending", "default"))
}

// requireConsistent fails if metrics of the same scrape contradict each other.
func requireConsistent(t *testing.T, s samples) {
	of := func(name string) float64 { return s.of(t, name, "default") }
	sum := func(name string) (total float64) {
		for k, v := range s {
			if strings.HasPrefix(k, "timingwheel_"+name+"{") {
				total += v
			}
		}
		return total
	}
	require.Equal(t, of("timers_pending"), of("timers_started_total")-of("timers_fired_total")-
		of("timers_stopped_total")-of("timers_dropped_total"))
	require.Equal(t, of("timers_pending"), sum("shard_timers_pending"))
	require.Equal(t, of("timers_started_total"), sum("shard_timers_started_total"))
	require.Equal(t, of("timers_reinserted_total"), sum("level_reinserted_total"))
	require.LessOrEqual(t, of("lateness_seconds_count"), of("timers_fired_total"))
}

func TestSeveralWheels(t *testing.T) {
	a, b := timingwheel.New(), timingwheel.New()
	defer a.Stop()
	defer b.Stop()
	for range 3 {
		a.AfterFunc(time.Hour, func() {})
	}
	b.AfterFunc(time.Hour, func() {})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewCollector(a, WithName("a"))))
	differs := NewCollector(b, WithName("b"), WithShards()) // options may differ
	require.NoError(t, registry.Register(differs))
	require.NoError(t, registry.Register(NewCollector(timingwheel.New())))
	var already prometheus.AlreadyRegisteredError
	require.ErrorAs(t, registry.Register(NewCollector(timingwheel.New(), WithName("a"))), &already)

	server := serveRegistry(t, registry)
	got := server.scrape(t, asText)
	require.Equal(t, 3.0, got.of(t, "timers_pending", "a"))
	require.Equal(t, 1.0, got.of(t, "timers_pending", "b"))
	require.Zero(t, got.of(t, "timers_pending", "default"))

	// Another wheel takes over the name.
	require.True(t, registry.Unregister(NewCollector(a, WithName("a"))))
	require.NoError(t, registry.Register(NewCollector(b, WithName("a"))))
	require.Equal(t, 1.0, server.scrape(t, asText).of(t, "timers_pending", "a"))
}

// TestLint: the names, units and types follow the conventions of Prometheus.
func TestLint(t *testing.T) {
	tw := timingwheel.New()
	defer tw.Stop()
	tw.AfterFunc(time.Hour, func() {})
	families := serve(t, NewCollector(tw, WithShards())).families(t, asText)
	require.NotEmpty(t, families)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestMisuse(t *testing.T) {
	tw := timingwheel.New()
	for _, tc := range []struct {
		name, message string
		f             func()
	}{
		{"nil wheel", "wheelprom: nil TimingWheel", func() { NewCollector(nil) }},
		{"nil option", "wheelprom: nil Option", func() { NewCollector(tw, nil) }},
		{"empty name", "wheelprom: empty name of a wheel", func() { WithName("") }},
		{"bytes for a name", `wheelprom: name of a wheel is not valid UTF-8: "\xff"`,
			func() { WithName("\xff") }},
		{"wheel that New did not make", "timingwheel: Len on a TimingWheel that New did not make",
			func() { NewCollector(new(timingwheel.TimingWheel)) }},
	} {
		t.Run(tc.name, func(t *testing.T) { require.PanicsWithValue(t, tc.message, tc.f) })
	}
}

// TestNothingIsKeptAlive: a scrape keeps nothing alive. A collector keeps its wheel alive until it
// is unregistered.
func TestNothingIsKeptAlive(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	tw := timingwheel.New()
	wheelGone, closureGone := watch(tw), make(chan struct{})
	func() {
		payload := new([1 << 10]byte)
		runtime.AddCleanup(payload, func(c chan struct{}) { close(c) }, closureGone)
		done := make(chan struct{})
		tw.AfterFunc(time.Millisecond, func() { payload[0]++; close(done) })
		<-done
	}()
	registry.MustRegister(NewCollector(tw, WithName("short")))
	server := serveRegistry(t, registry)
	require.Equal(t, 1.0, server.scrape(t, asText).of(t, "timers_fired_total", "short"))
	requireCollected(t, closureGone)

	require.True(t, registry.Unregister(NewCollector(tw, WithName("short"))))
	require.Empty(t, server.scrape(t, asText))
	tw = nil
	requireCollected(t, wheelGone)
}

// watch returns a channel that is closed when p is collected.
func watch[T any](p *T) <-chan struct{} {
	gone := make(chan struct{})
	runtime.AddCleanup(p, func(c chan struct{}) { close(c) }, gone)
	return gone
}

func requireCollected(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, patience, 10*time.Millisecond)
}

func BenchmarkCollect(b *testing.B) {
	tw := timingwheel.New()
	defer tw.Stop()
	for _, d := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		tw.AfterFunc(d, func() {})
	}
	c := NewCollector(tw)
	ch := make(chan prometheus.Metric, 100)
	b.ReportAllocs()
	for b.Loop() {
		c.Collect(ch)
		for len(ch) > 0 {
			<-ch
		}
	}
}
