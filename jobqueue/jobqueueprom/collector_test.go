package jobqueueprom

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// samples are the values of one scrape by name and labels, in the form name{a="b",c="d"} with the
// labels in order, and without that of the client.
type samples map[string]float64

// scrape reads the text that a program would serve.
func scrape(t *testing.T, collectors ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // it also compares Collect with Describe
	registry.MustRegister(collectors...)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).
		ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	require.NoError(t, err)
	return families
}

func flatten(families map[string]*dto.MetricFamily) samples {
	all := samples{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				if l.GetName() != "client" {
					labels[l.GetName()] = l.GetValue()
				}
			}
			switch {
			case m.Gauge != nil:
				all[key(name, labels)] = m.GetGauge().GetValue()
			case m.Counter != nil:
				all[key(name, labels)] = m.GetCounter().GetValue()
			case m.Histogram != nil:
				all[key(name+"_count", labels)] = float64(m.GetHistogram().GetSampleCount())
				all[key(name+"_sum", labels)] = m.GetHistogram().GetSampleSum()
				for _, b := range m.GetHistogram().GetBucket() {
					labels["le"] = strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
					all[key(name+"_bucket", labels)] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return all
}

func key(name string, labels map[string]string) string {
	var pairs []string
	for _, l := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, l+"="+strconv.Quote(labels[l]))
	}
	return strings.TrimPrefix(name, prefix) + "{" + strings.Join(pairs, ",") + "}"
}

// TestClient scrapes a client at work, on the fake clock.
func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := jobqueue.NewMemory(jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		add := func(queue string, opts ...jobqueue.AddOption) jobqueue.ID {
			id, err := q.Add(ctx, queue, []byte("12345"), opts...)
			require.NoError(t, err)
			return id
		}
		q.Handle("ok", func(context.Context, *jobqueue.Job) error {
			time.Sleep(3 * time.Second)
			return nil
		}, jobqueue.Workers(1))
		q.Handle("bad", func(context.Context, *jobqueue.Job) error { panic("bad") },
			jobqueue.Attempts(2), jobqueue.Backoff(time.Second))
		require.NoError(t, q.Limit(ctx, "ns/", jobqueue.Limits{Jobs: 10, Bytes: 100}))
		require.NoError(t, q.Limit(ctx, "ns/x", jobqueue.Limits{Jobs: 7, Bytes: 70}))
		require.NoError(t, q.Pause(ctx, "ns/x"))
		ended := make(chan error, 1)
		go func() { ended <- q.Run(ctx) }()
		for range 3 {
			add("ok")
		}
		add("bad")
		add("ns/x", jobqueue.Key("k"))
		gone := add("ns/x", jobqueue.In(time.Hour))
		later := add("ns/x", jobqueue.In(time.Hour))
		require.NoError(t, q.Reschedule(ctx, "ns/x", jobqueue.ByID(later), 2*time.Hour))
		require.NoError(t, q.Cancel(ctx, "ns/x", jobqueue.ByID(gone)))
		time.Sleep(5 * time.Second)
		synctest.Wait()

		got := flatten(scrape(t, NewCollector(q)))
		for name, want := range map[string]float64{
			`up{}`:                                                     1,
			`jobs{queue="ok",state="leased"}`:                          1,
			`jobs{queue="ok",state="ready"}`:                           1,
			`jobs{queue="bad",state="dead"}`:                           1,
			`jobs{queue="ns/x",state="ready"}`:                         1,
			`jobs{queue="ns/x",state="delayed"}`:                       1,
			`outcomes_total{outcome="acked",queue="ok"}`:               1,
			`outcomes_total{outcome="retried",queue="bad"}`:            1,
			`outcomes_total{outcome="buried",queue="bad"}`:             1,
			`panics_total{queue="bad"}`:                                2,
			`deliveries_total{queue="ok"}`:                             2,
			`handlers_running{queue="ok"}`:                             1,
			`handlers_limit{queue="ok"}`:                               1,
			`handlers_limit{queue="ns/x"}`:                             0,
			`jobs_added_total{queue="ns/x"}`:                           3,
			`jobs_cancelled_total{queue="ns/x"}`:                       1,
			`jobs_rescheduled_total{queue="ns/x"}`:                     1,
			`live_bytes{queue="ns/x"}`:                                 11,
			`oldest_ready_seconds{queue="ns/x"}`:                       5,
			`paused{queue="ns/x"}`:                                     1,
			`paused{queue="ok"}`:                                       0,
			`limit_jobs{queue="ns/x"}`:                                 7,
			`limit_bytes{queue="ns/x"}`:                                70,
			`namespace_jobs{namespace="ns"}`:                           2,
			`namespace_bytes{namespace="ns"}`:                          11,
			`namespace_limit_jobs{namespace="ns"}`:                     10,
			`namespace_limit_bytes{namespace="ns"}`:                    100,
			`lateness_seconds_count{queue="ok"}`:                       2,
			`lateness_seconds_sum{queue="ok"}`:                         3,
			`lateness_seconds_bucket{le="2",queue="ok"}`:               1,
			`lateness_seconds_bucket{le="5",queue="ok"}`:               2,
			`lateness_seconds_bucket{le="+Inf",queue="ok"}`:            2,
			`handler_duration_seconds_count{queue="ok"}`:               1,
			`handler_duration_seconds_sum{queue="ok"}`:                 3,
			`handler_duration_seconds_bucket{le="2",queue="ok"}`:       0,
			`handler_duration_seconds_bucket{le="0.0001",queue="bad"}`: 2,
		} {
			require.Contains(t, got, name)
			require.Equal(t, want, got[name], name)
		}
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, q.Close())
		require.Equal(t, samples{"up{}": 0}, flatten(scrape(t, NewCollector(q))), "it is closed")
	})
}

// TestEveryFieldIsSent gives each number of Stats a value of its own, to find numbers that are
// missing or mixed up, also in fields that are added later.
func TestEveryFieldIsSent(t *testing.T) {
	leftOut := []string{
		"Queues.Next",              // an alert or a graph of it says nothing
		"Queues.Limits.DropOldest", // a setting, not a number
	}
	s := jobqueue.Stats{
		Queues:     []jobqueue.QueueStats{{Name: "q", Paused: true}},
		Namespaces: []jobqueue.NamespaceStats{{Name: "n/"}},
	}
	next, want := int64(1000), map[int64]string{}
	fill(reflect.ValueOf(&s).Elem(), "", func(path string, v reflect.Value) {
		next++
		v.SetInt(next)
		if v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(next * int64(time.Second))
		}
		if !slices.Contains(leftOut, path) && !strings.HasSuffix(path, ".Counts") {
			want[next] = path
		}
	})
	for _, h := range []*jobqueue.Histogram{&s.Queues[0].Lateness, &s.Queues[0].Duration} {
		delete(want, h.Samples)
		h.Samples = 0
		for _, n := range h.Counts {
			h.Samples += n
		}
		want[h.Samples] = "Samples"
	}
	got := flatten(scrape(t, collectorOf(s)))
	sent := map[int64]bool{}
	for _, v := range got {
		sent[int64(v)] = true
	}
	for v, path := range want {
		require.True(t, sent[v], path)
	}
	for _, h := range []*jobqueue.Histogram{&s.Queues[0].Lateness, &s.Queues[0].Duration} {
		name, below := "lateness_seconds", int64(0)
		if h == &s.Queues[0].Duration {
			name = "handler_duration_seconds"
		}
		for i, n := range h.Counts {
			below += n
			le := "+Inf"
			if i < len(h.Counts)-1 {
				le = strconv.FormatFloat(jobqueue.HistogramBound(i).Seconds(), 'g', -1, 64)
			}
			require.EqualValues(t, below, got[name+`_bucket{le="`+le+`",queue="q"}`], le)
		}
	}
}

// collectorOf returns a Collector that sends s.
func collectorOf(s jobqueue.Stats) *Collector {
	c := NewCollector(new(jobqueue.Client))
	c.stats = func(context.Context) (jobqueue.Stats, error) { return s, nil }
	return c
}

// fill calls set for every number in v, with the path of fields that leads to it, without embedded
// ones.
func fill(v reflect.Value, path string, set func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field, p := v.Type().Field(i), path
			if !field.Anonymous {
				p = strings.TrimPrefix(path+"."+field.Name, ".")
			}
			fill(v.Field(i), p, set)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), path, set)
		}
	case reflect.Int, reflect.Int64:
		set(path, v)
	}
}

// TestStoreDoesNotAnswer: the scrape ends, and the other metrics of the program are there.
func TestStoreDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "other"})
		for limit, opts := range map[time.Duration][]Option{
			5 * time.Second: nil, time.Second: {WithTimeout(time.Second)},
		} {
			c := NewCollector(new(jobqueue.Client), opts...)
			c.stats = func(ctx context.Context) (jobqueue.Stats, error) {
				<-ctx.Done()
				return jobqueue.Stats{}, errors.Join(jobqueue.ErrFailed, ctx.Err())
			}
			began := time.Now()
			got := scrape(t, c, other)
			require.Equal(t, limit, time.Since(began))
			require.Len(t, got, 2)
			require.Contains(t, got, "other")
			require.Zero(t, flatten(got)["up{}"])
		}
	})
}

func TestSeveralClients(t *testing.T) {
	a, b := jobqueue.NewMemory(), jobqueue.NewMemory()
	defer a.Close()
	defer b.Close()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewCollector(a)))
	var already prometheus.AlreadyRegisteredError
	require.ErrorAs(t, registry.Register(NewCollector(b)), &already)
	require.NoError(t, registry.Register(NewCollector(b, WithName("b"))))
	require.True(t, registry.Unregister(NewCollector(a)))
	require.NoError(t, registry.Register(NewCollector(b)))
}

// TestLint: the names, units and types follow the conventions of Prometheus.
func TestLint(t *testing.T) {
	families := slices.Collect(maps.Values(scrape(t, collectorOf(everything))))
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

// everything has all metrics.
var everything = jobqueue.Stats{
	Queues:     []jobqueue.QueueStats{{Name: "q"}},
	Namespaces: []jobqueue.NamespaceStats{{Name: "n/"}},
}

func TestMisuse(t *testing.T) {
	q := jobqueue.NewMemory()
	defer q.Close()
	for message, f := range map[string]func(){
		"jobqueueprom: nil Client":             func() { NewCollector(nil) },
		"jobqueueprom: nil Option":             func() { NewCollector(q, nil) },
		"jobqueueprom: empty name of a client": func() { WithName("") },
		`jobqueueprom: name of a client is not valid UTF-8: "\xff"`: func() {
			WithName("\xff")
		},
		"jobqueueprom: timeout that is not positive: 0s": func() { WithTimeout(0) },
	} {
		require.PanicsWithValue(t, message, f)
	}
}

func BenchmarkCollect(b *testing.B) {
	c := collectorOf(everything)
	ch := make(chan prometheus.Metric, 200)
	b.ReportAllocs()
	for b.Loop() {
		c.Collect(ch)
		for len(ch) > 0 {
			<-ch
		}
	}
}
