package wheelprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-timingwheel/timingwheel"
)

// This file has the names of the metrics, their help texts, and their values. A released name does
// not change, because other people's dashboards and alerts use it. README.md and dashboard.json use
// the names too; tests compare them with this file.

// prefix begins every name.
const prefix = "timingwheel_"

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
	stats      = timingwheel.Stats
	levelStats = timingwheel.LevelStats
	shardStats = timingwheel.ShardStats
	lateness   = timingwheel.Lateness
)

var wholeMetrics = []metric[stats]{
	{"timers_pending", gauge, func(s *stats) float64 { return float64(s.Pending) },
		"Timers that are pending. A live schedule or ticker counts as one."},
	{"timers_started_total", counter, func(s *stats) float64 { return float64(s.Started) },
		"Armings of timers that were not pending."},
	{"timers_fired_total", counter, func(s *stats) float64 { return float64(s.Fired) },
		"Timers that fired."},
	{"timers_stopped_total", counter, func(s *stats) float64 { return float64(s.Stopped) },
		"Pending timers that Stop kept from firing."},
	{"timers_dropped_total", counter, func(s *stats) float64 { return float64(s.Dropped) },
		"Timers that were pending when the wheel was stopped."},
	{"timers_reinserted_total", counter, func(s *stats) float64 { return float64(s.Reinserted) },
		"Moves of timers to a finer level as their deadlines approached."},
	{"timers_extended_total", counter, func(s *stats) float64 { return float64(s.Extended) },
		"Timers that the driver found to be due later, because Reset had extended them. " +
			"A timer counts once, however often Reset extended it before."},

	{"wakeups_total", counter, func(s *stats) float64 { return float64(s.Wakeups) },
		"Times the alarm rang."},
	{"idle_wakeups_total", counter, func(s *stats) float64 { return float64(s.IdleWakeups) },
		"Times the alarm rang and there was nothing to do. wakeups_total includes them."},
	{"longest_hold_timers", gauge, func(s *stats) float64 { return float64(s.LongestHold) },
		"Most timers handled under one hold of a lock since the wheel was made. " +
			"A caller may have waited for that many."},

	{"callbacks_running", gauge, func(s *stats) float64 { return float64(s.Running) },
		"Callbacks that were handed over and have not returned, including those that wait. " +
			"Inline callbacks do not count."},
	{"callbacks_waiting", gauge, func(s *stats) float64 { return float64(s.Waiting) },
		"Callbacks that were handed to a custom executor and have not begun. " +
			"It is 0 with other executors."},
}

var levelMetrics = []metric[levelStats]{
	{"level_tick_seconds", gauge, func(l *levelStats) float64 { return l.Tick.Seconds() },
		"Duration of one slot of the level."},
	{"level_slots_busy", gauge, func(l *levelStats) float64 { return float64(l.Busy) },
		"Slots of the level that hold timers, summed over all shards."},
	{"level_placed_total", counter, func(l *levelStats) float64 { return float64(l.Placed) },
		"Timers filed in the level, by callers and by the driver."},
	{"level_reinserted_total", counter,
		func(l *levelStats) float64 { return float64(l.Reinserted) },
		"Moves of timers from the level to a finer one."},
	{"level_extended_total", counter, func(l *levelStats) float64 { return float64(l.Extended) },
		"Timers that the driver found in the level to be due later, because Reset had " +
			"extended them."},
}

var shardMetrics = []metric[shardStats]{
	{"shard_timers_pending", gauge, func(s *shardStats) float64 { return float64(s.Pending) },
		"Timers of the shard that are pending."},
	{"shard_timers_started_total", counter,
		func(s *shardStats) float64 { return float64(s.Started) },
		"Armings of timers of the shard that were not pending."},
	{"shard_longest_hold_timers", gauge,
		func(s *shardStats) float64 { return float64(s.LongestHold) },
		"Most timers handled under one hold of the shard's lock since the wheel was made."},
}

// latenessMetrics are the histograms.
var latenessMetrics = []struct {
	name string
	of   func(*stats) *lateness
	help string
}{
	{"lateness_seconds", func(s *stats) *lateness { return &s.Lateness },
		"How long after their deadlines timers fired. Sampled: of timers that fire together " +
			"about an eighth, of those that fire alone nearly all. So _count does not count timers. " +
			"Timers that were due when they were armed are left out."},
	{"callback_lateness_seconds", func(s *stats) *lateness { return &s.CallbackLateness },
		"How long after the deadlines of their timers callbacks began, including their wait for " +
			"an executor. Sampled like lateness_seconds; if callbacks get a goroutine each, about " +
			"one in 64 of those that fire together."},
}
