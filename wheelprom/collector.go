// Package wheelprom is a Prometheus collector for timing wheels.
//
//	tw := timingwheel.New()
//	prometheus.MustRegister(wheelprom.NewCollector(tw))
//
// README.md lists the metrics, has rules for alerts, and explains the use with OpenTelemetry.
// dashboard.json is a dashboard for Grafana.
package wheelprom

import (
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-timingwheel/timingwheel"
)

// This file has the collector, which turns one Stats of a wheel into the metrics of one scrape. It
// needs no lock: a Collector does not change after construction. metrics.go has the names.

// A Collector is a prometheus.Collector for one wheel. All values of a scrape come from one call of
// Stats, so
//
//	timers_pending == timers_started_total - timers_fired_total -
//		timers_stopped_total - timers_dropped_total
//
// holds exactly in each scrape. A Collector is safe for concurrent use.
//
// A Collector keeps its wheel alive, and the registry keeps the Collector. If a wheel ends before
// the program does, call Unregister, before or after the wheel is stopped. A stopped wheel can
// still be scraped.
//
// A scrape costs one call of Stats, and 10 to 20 microseconds and 10 KiB for the metrics of the
// client library. Between scrapes a Collector does nothing.
type Collector struct {
	tw *timingwheel.TimingWheel

	whole      []described[timingwheel.Stats]
	levels     []described[timingwheel.LevelStats]
	shards     []described[timingwheel.ShardStats]
	histograms []*prometheus.Desc // in the order of latenessMetrics
}

var _ prometheus.Collector = (*Collector)(nil)

// An Option configures a Collector.
type Option func(*config)

type config struct {
	name   string
	shards bool
}

// WithName sets the label wheel of all metrics to name. The default is "default". Wheels in the
// same registry need different names. WithName panics if name is empty, because Prometheus treats
// an empty label as none, or if it is not valid UTF-8.
func WithName(name string) Option {
	if name == "" {
		panic("wheelprom: empty name of a wheel")
	}
	if !utf8.ValidString(name) {
		panic("wheelprom: name of a wheel is not valid UTF-8: " + strconv.Quote(name))
	}
	return func(c *config) { c.name = name }
}

// WithShards adds three metrics for each shard of the wheel. A wheel has about as many shards as
// there are processors, at most 16. The metrics show whether the load is spread evenly, which few
// people need to know.
func WithShards() Option {
	return func(c *config) { c.shards = true }
}

// NewCollector returns a Collector for tw. It panics if tw or an option is nil, or if New did not
// make tw.
func NewCollector(tw *timingwheel.TimingWheel, opts ...Option) *Collector {
	if tw == nil {
		panic("wheelprom: nil TimingWheel")
	}
	tw.Len() // panics if New did not make tw; better now than in a scrape
	config := config{name: "default"}
	for _, opt := range opts {
		if opt == nil {
			panic("wheelprom: nil Option")
		}
		opt(&config)
	}
	wheel := prometheus.Labels{"wheel": config.name}
	c := &Collector{
		tw:     tw,
		whole:  describe(wholeMetrics, wheel),
		levels: describe(levelMetrics, wheel, "level"),
	}
	for _, m := range latenessMetrics {
		c.histograms = append(c.histograms, prometheus.NewDesc(prefix+m.name, m.help, nil, wheel))
	}
	if config.shards {
		c.shards = describe(shardMetrics, wheel, "shard")
	}
	return c
}

// described is a metric with its description for Prometheus.
type described[T any] struct {
	metric[T]
	desc *prometheus.Desc
}

func describe[T any](in []metric[T], wheel prometheus.Labels, labels ...string) []described[T] {
	all := make([]described[T], len(in))
	for i, m := range in {
		all[i] = described[T]{m, prometheus.NewDesc(prefix+m.name, m.help, labels, wheel)}
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	sendDescs(ch, c.whole)
	sendDescs(ch, c.levels)
	sendDescs(ch, c.shards)
	for _, desc := range c.histograms {
		ch <- desc
	}
}

func sendDescs[T any](ch chan<- *prometheus.Desc, metrics []described[T]) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.tw.Stats()
	c.collect(ch, &s)
}

func (c *Collector) collect(ch chan<- prometheus.Metric, s *timingwheel.Stats) {
	send(ch, c.whole, s)
	for i := range s.Levels {
		send(ch, c.levels, &s.Levels[i], strconv.Itoa(i))
	}
	if c.shards != nil {
		for i := range s.Shards {
			send(ch, c.shards, &s.Shards[i], strconv.Itoa(i))
		}
	}
	for i, desc := range c.histograms {
		ch <- latenessOf(desc, latenessMetrics[i].of(s))
	}
}

func send[T any](ch chan<- prometheus.Metric, metrics []described[T], stats *T, labels ...string) {
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(stats), labels...)
	}
}

// latenessOf returns the histogram in the form of Prometheus: each bucket includes those below it,
// and the last one, which has no bound, is the count.
//
// A sample that equals a bound belongs to the bucket below the bound in Prometheus, and to the one
// above it in Lateness. That concerns only samples late by exactly that power of two of
// nanoseconds.
func latenessOf(desc *prometheus.Desc, l *timingwheel.Lateness) prometheus.Metric {
	last := len(l.Counts) - 1
	buckets := make(map[float64]uint64, last)
	below := uint64(0)
	for i, n := range l.Counts[:last] {
		below += uint64(n)
		buckets[timingwheel.LatenessBound(i).Seconds()] = below
	}
	return prometheus.MustNewConstHistogram(desc, uint64(l.Samples), l.Sum.Seconds(), buckets)
}
