package wheelprom

import (
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file has what the tests share: an endpoint as in a program, a scraper as in Prometheus, and
// the scrape expected for given Stats.

// samples are the values of one scrape by name and labels, in the form name{a="b",c="d"} with the
// labels in order.
type samples map[string]float64

// endpoint is a server on a real socket that exports collectors.
type endpoint struct {
	url    string
	client *http.Client
}

func serve(t *testing.T, collectors ...prometheus.Collector) *endpoint {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // it also compares Collect with Describe
	registry.MustRegister(collectors...)
	return serveRegistry(t, registry)
}

func serveRegistry(t *testing.T, registry *prometheus.Registry) *endpoint {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	mux := http.NewServeMux()
	opts := promhttp.HandlerOpts{EnableOpenMetrics: true}
	mux.Handle("/metrics", promhttp.HandlerFor(registry, opts))
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	client := &http.Client{Transport: transport}
	return &endpoint{"http://" + ln.Addr().String() + "/metrics", client}
}

const (
	asText     = "text/plain;version=0.0.4"
	asProtobuf = "application/vnd.google.protobuf;" +
		"proto=io.prometheus.client.MetricFamily;encoding=delimited"
	asOpenMetrics = "application/openmetrics-text;version=1.0.0"
)

func (e *endpoint) get(t require.TestingT, accept string) *http.Response {
	request, err := http.NewRequest(http.MethodGet, e.url, nil)
	require.NoError(t, err)
	request.Header.Set("Accept", accept)
	response, err := e.client.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return response
}

// families scrapes once.
func (e *endpoint) families(t require.TestingT, accept string) []*dto.MetricFamily {
	response := e.get(t, accept)
	defer response.Body.Close()
	decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
	var all []*dto.MetricFamily
	for {
		family := new(dto.MetricFamily)
		switch err := decoder.Decode(family); err {
		case nil:
			all = append(all, family)
		case io.EOF:
			return all
		default:
			require.NoError(t, err)
		}
	}
}

func (e *endpoint) scrape(t require.TestingT, accept string) samples {
	return flatten(e.families(t, accept))
}

func flatten(families []*dto.MetricFamily) samples {
	all := samples{}
	for _, family := range families {
		name := family.GetName()
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.Gauge != nil:
				all[key(name, labels)] = m.GetGauge().GetValue()
			case m.Counter != nil:
				all[key(name, labels)] = m.GetCounter().GetValue()
			case m.Histogram != nil:
				h := m.GetHistogram()
				all[key(name+"_count", labels)] = float64(h.GetSampleCount())
				all[key(name+"_sum", labels)] = h.GetSampleSum()
				labels = maps.Clone(labels)
				labels["le"] = "+Inf" // the protobuf form leaves it to the count
				all[key(name+"_bucket", labels)] = float64(h.GetSampleCount())
				for _, b := range h.GetBucket() {
					labels["le"] = bound(b.GetUpperBound())
					all[key(name+"_bucket", labels)] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return all
}

func bound(le float64) string { return strconv.FormatFloat(le, 'g', -1, 64) }

func key(name string, labels map[string]string) string {
	var pairs []string
	for _, l := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, l+"="+strconv.Quote(labels[l]))
	}
	return name + "{" + strings.Join(pairs, ",") + "}"
}

// of returns the value of a metric whose only label is the wheel's.
func (s samples) of(t require.TestingT, name, wheel string) float64 {
	k := key("timingwheel_"+name, map[string]string{"wheel": wheel})
	require.Contains(t, s, k)
	return s[k]
}

// expected returns the scrape expected for these Stats. It does not use the tables of metrics.go,
// so that it finds mistakes in them.
func expected(s timingwheel.Stats, wheel string, shards bool) samples {
	all := samples{}
	set := func(name string, v float64, labels ...string) {
		l := map[string]string{"wheel": wheel}
		for i := 0; i < len(labels); i += 2 {
			l[labels[i]] = labels[i+1]
		}
		all[key("timingwheel_"+name, l)] = v
	}
	set("timers_pending", float64(s.Pending))
	set("timers_started_total", float64(s.Started))
	set("timers_fired_total", float64(s.Fired))
	set("timers_stopped_total", float64(s.Stopped))
	set("timers_dropped_total", float64(s.Dropped))
	set("timers_reinserted_total", float64(s.Reinserted))
	set("timers_extended_total", float64(s.Extended))
	set("wakeups_total", float64(s.Wakeups))
	set("idle_wakeups_total", float64(s.IdleWakeups))
	set("longest_hold_timers", float64(s.LongestHold))
	set("callbacks_running", float64(s.Running))
	set("callbacks_waiting", float64(s.Waiting))
	for i, l := range s.Levels {
		level := strconv.Itoa(i)
		set("level_tick_seconds", l.Tick.Seconds(), "level", level)
		set("level_slots_busy", float64(l.Busy), "level", level)
		set("level_placed_total", float64(l.Placed), "level", level)
		set("level_reinserted_total", float64(l.Reinserted), "level", level)
		set("level_extended_total", float64(l.Extended), "level", level)
	}
	if shards {
		for i, h := range s.Shards {
			shard := strconv.Itoa(i)
			set("shard_timers_pending", float64(h.Pending), "shard", shard)
			set("shard_timers_started_total", float64(h.Started), "shard", shard)
			set("shard_longest_hold_timers", float64(h.LongestHold), "shard", shard)
		}
	}
	for name, l := range map[string]lateness{
		"lateness_seconds":          s.Lateness,
		"callback_lateness_seconds": s.CallbackLateness,
	} {
		for i := range l.Counts {
			below := int64(0)
			for _, n := range l.Counts[:i+1] {
				below += n
			}
			le := "+Inf"
			if i < len(l.Counts)-1 {
				le = bound(timingwheel.LatenessBound(i).Seconds())
			}
			set(name+"_bucket", float64(below), "le", le)
		}
		set(name+"_sum", l.Sum.Seconds())
		set(name+"_count", float64(l.Samples))
	}
	return all
}
