package wheelprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds the names of the metrics, their help, and what of Stats each of them
// is. A name does not change any more once it is released: dashboards and alerts of
// others are built on it. README.md and dashboard.json name them too; tests compare.

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

var wholeMetrics = []metric[timingwheel.Stats]{
	{"timers_pending", gauge, func(s *timingwheel.Stats) float64 { return float64(s.Pending) },
		"Timers that are armed and have neither fired nor been stopped; a live schedule or ticker is one."},
	{"timers_started_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.Started) },
		"Armings of timers that were not pending."},
	{"timers_fired_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.Fired) },
		"Timers that fired."},
	{"timers_stopped_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.Stopped) },
		"Pending timers that Stop prevented from firing."},
	{"timers_dropped_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.Dropped) },
		"Timers that were pending when the wheel itself was stopped."},
	{"timers_reinserted_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.Reinserted) },
		"Moves of timers to a finer level, as their deadlines came nearer."},
	{"timers_extended_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.Extended) },
		"Timers that the driver found to be due later, as Reset had pushed them on; pushes in between are not counted."},

	{"wakeups_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.Wakeups) },
		"Times that the alarm rang."},
	{"idle_wakeups_total", counter, func(s *timingwheel.Stats) float64 { return float64(s.IdleWakeups) },
		"Times that the alarm rang and nothing was to be done; they are in wakeups_total too."},
	{"longest_hold_timers", gauge, func(s *timingwheel.Stats) float64 { return float64(s.LongestHold) },
		"Most timers handled under one hold of a lock since the wheel was made, which is what a caller may have had to wait for."},

	{"callbacks_running", gauge, func(s *timingwheel.Stats) float64 { return float64(s.Running) },
		"Callbacks that were handed over and have not returned, the waiting ones included; inline callbacks are not counted."},
	{"callbacks_waiting", gauge, func(s *timingwheel.Stats) float64 { return float64(s.Waiting) },
		"Callbacks that were handed to a custom executor and have not begun; 0 with other executors."},
}

var levelMetrics = []metric[timingwheel.LevelStats]{
	{"level_tick_seconds", gauge, func(l *timingwheel.LevelStats) float64 { return l.Tick.Seconds() },
		"Duration of one slot of the level."},
	{"level_slots_busy", gauge, func(l *timingwheel.LevelStats) float64 { return float64(l.Busy) },
		"Slots of the level that hold timers, of all shards together."},
	{"level_placed_total", counter, func(l *timingwheel.LevelStats) float64 { return float64(l.Placed) },
		"Times that a timer was filed in the level, by a caller or by the driver."},
	{"level_reinserted_total", counter, func(l *timingwheel.LevelStats) float64 { return float64(l.Reinserted) },
		"Moves of timers from the level to a finer one."},
	{"level_extended_total", counter, func(l *timingwheel.LevelStats) float64 { return float64(l.Extended) },
		"Timers that the driver found in the level to be due later, as Reset had pushed them on."},
}

var shardMetrics = []metric[timingwheel.ShardStats]{
	{"shard_timers_pending", gauge, func(s *timingwheel.ShardStats) float64 { return float64(s.Pending) },
		"Timers of the shard that are armed and have neither fired nor been stopped."},
	{"shard_timers_started_total", counter, func(s *timingwheel.ShardStats) float64 { return float64(s.Started) },
		"Armings of timers of the shard that were not pending."},
	{"shard_longest_hold_timers", gauge, func(s *timingwheel.ShardStats) float64 { return float64(s.LongestHold) },
		"Most timers handled under one hold of the shard's lock since the wheel was made."},
}

// latenessMetrics are the histograms.
var latenessMetrics = []struct {
	name string
	of   func(*timingwheel.Stats) *timingwheel.Lateness
	help string
}{
	{"lateness_seconds", func(s *timingwheel.Stats) *timingwheel.Lateness { return &s.Lateness },
		"How long after their deadlines timers fired. Sampled: _count is about an eighth of the timers " +
			"that fire in crowds and nearly all that fire alone, so it is no count of timers. " +
			"Timers that were due when they were armed are not in it."},
	{"callback_lateness_seconds", func(s *timingwheel.Stats) *timingwheel.Lateness { return &s.CallbackLateness },
		"How long after the deadlines of their timers callbacks began, what they waited for an executor included. " +
			"Sampled as lateness_seconds is; of callbacks on goroutines of their own that fire in crowds about one in 64."},
}
