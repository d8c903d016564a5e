// Package jobqueueprom is a Prometheus collector for job queues.
//
//	q, err := jobqueue.Open("orders.db")
//	prometheus.MustRegister(jobqueueprom.NewCollector(q))
//
// README.md lists the metrics and has rules for alerts. dashboard.json is a dashboard for Grafana.
package jobqueueprom

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// This file has the collector, which turns one Stats of a client into the metrics of one scrape. It
// needs no lock: a Collector does not change after construction. metrics.go has the names.

// A Collector is a prometheus.Collector for one client. A scrape calls Stats once. If that fails,
// because the store has failed or does not answer in time, jobqueue_up is 0 and there are no other
// metrics, so that the rest of the program can still be scraped.
//
// A scrape costs one call of Stats, and for each queue 40 microseconds and 12 KiB in the client
// library. A Collector keeps its client alive, and the registry keeps the Collector. If a client
// ends before the program does, call Unregister. A Collector is safe for concurrent use.
type Collector struct {
	stats   func(context.Context) (jobqueue.Stats, error)
	timeout time.Duration

	up         *prometheus.Desc
	jobs       *prometheus.Desc
	outcomes   *prometheus.Desc
	queues     []described[jobqueue.QueueStats]
	namespaces []described[jobqueue.NamespaceStats]
	histograms []*prometheus.Desc // in the order of histogramMetrics
}

var _ prometheus.Collector = (*Collector)(nil)

// An Option configures a Collector.
type Option func(*config)

type config struct {
	name    string
	timeout time.Duration
}

// WithName sets the label client of all metrics to name. The default is "default". Clients in the
// same registry need different names. WithName panics if name is empty, because Prometheus treats
// an empty label as none, or if it is not valid UTF-8.
func WithName(name string) Option {
	if name == "" {
		panic("jobqueueprom: empty name of a client")
	}
	if !utf8.ValidString(name) {
		panic("jobqueueprom: name of a client is not valid UTF-8: " + strconv.Quote(name))
	}
	return func(c *config) { c.name = name }
}

// WithTimeout sets how long a scrape waits for the store, by default 5 s.
func WithTimeout(d time.Duration) Option {
	if d <= 0 {
		panic("jobqueueprom: timeout that is not positive: " + d.String())
	}
	return func(c *config) { c.timeout = d }
}

// NewCollector returns a Collector for q. It panics if q or an option is nil.
func NewCollector(q *jobqueue.Client, opts ...Option) *Collector {
	if q == nil {
		panic("jobqueueprom: nil Client")
	}
	config := config{name: "default", timeout: 5 * time.Second}
	for _, opt := range opts {
		if opt == nil {
			panic("jobqueueprom: nil Option")
		}
		opt(&config)
	}
	client := prometheus.Labels{"client": config.name}
	c := &Collector{
		stats:      q.Stats,
		timeout:    config.timeout,
		up:         prometheus.NewDesc(prefix+"up", upHelp, nil, client),
		jobs:       prometheus.NewDesc(prefix+"jobs", jobsHelp, []string{"queue", "state"}, client),
		queues:     describe(queueMetrics, client, "queue"),
		namespaces: describe(namespaceMetrics, client, "namespace"),
		outcomes: prometheus.NewDesc(prefix+"outcomes_total", outcomesHelp,
			[]string{"queue", "outcome"}, client),
	}
	for _, m := range histogramMetrics {
		c.histograms = append(c.histograms,
			prometheus.NewDesc(prefix+m.name, m.help, []string{"queue"}, client))
	}
	return c
}

// described is a metric with its description for Prometheus.
type described[T any] struct {
	metric[T]
	desc *prometheus.Desc
}

func describe[T any](
	in []metric[T], client prometheus.Labels, labels ...string,
) []described[T] {
	all := make([]described[T], len(in))
	for i, m := range in {
		all[i] = described[T]{m, prometheus.NewDesc(prefix+m.name, m.help, labels, client)}
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	ch <- c.jobs
	ch <- c.outcomes
	for _, m := range c.queues {
		ch <- m.desc
	}
	for _, m := range c.namespaces {
		ch <- m.desc
	}
	for _, desc := range c.histograms {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	s, err := c.stats(ctx)
	if err != nil {
		ch <- prometheus.MustNewConstMetric(c.up, gauge, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.up, gauge, 1)
	for i := range s.Queues {
		c.collectQueue(ch, &s.Queues[i])
	}
	for i := range s.Namespaces {
		name := strings.TrimSuffix(s.Namespaces[i].Name, "/")
		send(ch, c.namespaces, &s.Namespaces[i], name)
	}
}

func (c *Collector) collectQueue(ch chan<- prometheus.Metric, s *jobqueue.QueueStats) {
	for _, state := range states {
		ch <- prometheus.MustNewConstMetric(c.jobs, gauge, float64(state.of(s)), s.Name, state.name)
	}
	for _, outcome := range outcomes {
		ch <- prometheus.MustNewConstMetric(c.outcomes, counter, float64(outcome.of(s)), s.Name,
			outcome.name)
	}
	send(ch, c.queues, s, s.Name)
	for i, desc := range c.histograms {
		ch <- histogramOf(desc, histogramMetrics[i].of(s), s.Name)
	}
}

func send[T any](ch chan<- prometheus.Metric, metrics []described[T], s *T, labels ...string) {
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(s), labels...)
	}
}

// histogramOf returns a histogram in the form of Prometheus: each bucket includes those below it,
// and the last one, which has no bound, is the count.
func histogramOf(
	desc *prometheus.Desc, h *jobqueue.Histogram, queue string,
) prometheus.Metric {
	last := len(h.Counts) - 1
	buckets := make(map[float64]uint64, last)
	below := uint64(0)
	for i, n := range h.Counts[:last] {
		below += uint64(n)
		buckets[jobqueue.HistogramBound(i).Seconds()] = below
	}
	return prometheus.MustNewConstHistogram(desc, uint64(h.Samples), h.Sum.Seconds(), buckets,
		queue)
}
