package jobqueueprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// This file has the names of the metrics, their help texts, and their values. A released name does
// not change, because other people's dashboards and alerts use it. README.md and dashboard.json use
// the names too; tests compare them with this file.

// prefix begins every name.
const prefix = "jobqueue_"

// metric is one number of a T.
type metric[T any] struct {
	name string
	kind prometheus.ValueType
	of   func(*T) float64
	help string
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

type (
	queueStats     = jobqueue.QueueStats
	namespaceStats = jobqueue.NamespaceStats
)

const (
	upHelp       = "1 if the store answered this scrape. If it is 0, there are no other metrics."
	jobsHelp     = "Jobs of the queue in the store, by what they wait for."
	outcomesHelp = "How attempts of this process ended."
)

// states are the values of the label state of jobqueue_jobs.
var states = []struct {
	name string
	of   func(*queueStats) int
}{
	{"delayed", func(s *queueStats) int { return s.Delayed }},
	{"ready", func(s *queueStats) int { return s.Ready }},
	{"leased", func(s *queueStats) int { return s.Leased }},
	{"dead", func(s *queueStats) int { return s.Dead }},
	{"done", func(s *queueStats) int { return s.Done }},
}

// outcomes are the values of the label outcome of jobqueue_outcomes_total.
var outcomes = []struct {
	name string
	of   func(*queueStats) int64
}{
	{"acked", func(s *queueStats) int64 { return s.Acked }},
	{"retried", func(s *queueStats) int64 { return s.Retried }},
	{"snoozed", func(s *queueStats) int64 { return s.Snoozed }},
	{"buried", func(s *queueStats) int64 { return s.Buried }},
	{"refused", func(s *queueStats) int64 { return s.Refused }},
	{"returned", func(s *queueStats) int64 { return s.Returned }},
}

var queueMetrics = []metric[queueStats]{
	{"jobs_added_total", counter, func(s *queueStats) float64 { return float64(s.Added) },
		"Jobs that this process added and that were not there before."},
	{"jobs_cancelled_total", counter, func(s *queueStats) float64 { return float64(s.Cancelled) },
		"Jobs that this process cancelled."},
	{"jobs_rescheduled_total", counter,
		func(s *queueStats) float64 { return float64(s.Rescheduled) },
		"Times that this process moved the due time of a job."},
	{"deliveries_total", counter, func(s *queueStats) float64 { return float64(s.Delivered) },
		"Handlers begun in this process, and jobs returned by Reserve."},
	{"panics_total", counter, func(s *queueStats) float64 { return float64(s.Panics) },
		"Handlers that panicked. jobqueue_outcomes_total includes them."},

	{"handlers_running", gauge, func(s *queueStats) float64 { return float64(s.Running) },
		"Handlers of this process under way."},
	{"handlers_limit", gauge, func(s *queueStats) float64 { return float64(s.Workers) },
		"How many handlers of this process may run at a time. 0 if the queue has no handler here."},

	{"live_bytes", gauge, func(s *queueStats) float64 { return float64(s.Bytes) },
		"Bytes of the bodies and keys of jobs that are delayed, ready or leased."},
	{"oldest_ready_seconds", gauge, func(s *queueStats) float64 { return s.Oldest.Seconds() },
		"How long the longest waiting ready job has been due. 0 if none waits."},
	{"paused", gauge, func(s *queueStats) float64 { return truth(s.Paused) },
		"1 if the queue is paused."},
	{"limit_jobs", gauge, func(s *queueStats) float64 { return float64(s.Limits.Jobs) },
		"How many jobs may be delayed, ready or leased. 0 if there is no limit."},
	{"limit_bytes", gauge, func(s *queueStats) float64 { return float64(s.Limits.Bytes) },
		"How large jobqueue_live_bytes may be. 0 if there is no limit."},
}

// namespaceMetrics are those of namespaces that have limits.
var namespaceMetrics = []metric[namespaceStats]{
	{"namespace_jobs", gauge, func(s *namespaceStats) float64 { return float64(s.Jobs) },
		"Jobs of all queues of the namespace that are delayed, ready or leased."},
	{"namespace_bytes", gauge, func(s *namespaceStats) float64 { return float64(s.Bytes) },
		"Bytes of their bodies and keys."},
	{"namespace_limit_jobs", gauge,
		func(s *namespaceStats) float64 { return float64(s.Limits.Jobs) },
		"How large jobqueue_namespace_jobs may be. 0 if there is no limit."},
	{"namespace_limit_bytes", gauge,
		func(s *namespaceStats) float64 { return float64(s.Limits.Bytes) },
		"How large jobqueue_namespace_bytes may be. 0 if there is no limit."},
}

// histogramMetrics are the histograms of a queue.
var histogramMetrics = []struct {
	name string
	of   func(*queueStats) *jobqueue.Histogram
	help string
}{
	{"lateness_seconds", func(s *queueStats) *jobqueue.Histogram { return &s.Lateness },
		"How long after their jobs were due handlers began, or Reserve returned them. " +
			"For a job that was added overdue it counts from then."},
	{"handler_duration_seconds", func(s *queueStats) *jobqueue.Histogram { return &s.Duration },
		"How long handlers took."},
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
