package wheeldebug

import (
	"encoding/json"
	"math"
	"math/bits"
	"net/http"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inspect"
)

// This file reads a wheel, within bounds, and turns what it has read into JSON. view.mu
// guards the latest reading and makes those who ask meanwhile wait for it.

const (
	// shared is how long a reading serves everybody who asks, at least. At ten requests a
	// second each gets one of its own.
	shared = 50 * time.Millisecond

	// restFactor is how many times as long as a reading took it serves everybody who
	// asks. So readings take one part in so many of one processor, whatever a wheel
	// holds and however many look at it.
	restFactor = 50

	// longestShared keeps the page alive on a machine so loaded that a reading, most of it
	// spent waiting for a processor, takes long.
	longestShared = time.Second

	// budget is about how many timers are counted in one reading. Counting one takes
	// 40 ns when the wheel is too large for the caches (with a million timers, measured),
	// so all of them take two milliseconds.
	budget = 50_000

	// leastLimit and mostLimit bound how many timers of a bucket are counted. A bucket
	// is counted in one hold of its lock: the upper one keeps that to ten or twenty
	// microseconds. The lower one tells a few timers from many when the buckets in use
	// are too many for the budget. Powers of two, as the limit doubles and halves.
	leastLimit = 16
	mostLimit  = 256

	// maxCells is how many numbers there are for the slots of a level. The default wheel
	// has as many slots; the largest, with 131,072, is not worth a megabyte for each answer.
	maxCells = 512
)

// A view is a wheel and its latest reading.
type view struct {
	name string
	tw   *timingwheel.TimingWheel

	mu    sync.Mutex
	data  []byte // the latest reading as JSON; nil before the first
	until time.Time
	limit int // of timers of a bucket that the next reading counts; 0 before the first
}

// read returns a reading of the wheel, as JSON, that is no older than how long it is
// shared. Nobody may change it.
func (v *view) read() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	began := time.Now()
	if v.data != nil && began.Before(v.until) {
		return v.data
	}
	r := take(v.name, v.tw, v.limit)
	data, err := json.Marshal(r)
	if err != nil {
		panic("wheeldebug: " + err.Error()) // there is nothing in it that JSON cannot hold
	}
	v.data = data
	v.limit = r.nextLimit()
	now := time.Now()
	v.until = now.Add(sharedFor(now.Sub(began)))
	return data
}

// sharedFor returns how long a reading that took so long serves everybody who asks.
func sharedFor(took time.Duration) time.Duration {
	return min(max(shared, restFactor*took), longestShared)
}

func serveJSON(w http.ResponseWriter, chosen []*view) {
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"wheels":[`))
	for i, v := range chosen {
		if i > 0 {
			w.Write([]byte(`,`))
		}
		w.Write(v.read())
	}
	w.Write([]byte("]}\n"))
}

// A reading is what the JSON says of a wheel. README.md explains each field: names
// stay as they are, and new ones may come. Durations are in nanoseconds.
type reading struct {
	Name     string        `json:"name"`
	Time     time.Time     `json:"time"`
	At       time.Duration `json:"at_ns"`
	State    string        `json:"state"`
	Executor string        `json:"executor"`

	Driving bool           `json:"driving"`
	AlarmIn *time.Duration `json:"alarm_in_ns"` // nil if it is not set

	counters
	Wakeups     int64 `json:"wakeups"`
	IdleWakeups int64 `json:"idle_wakeups"`
	LongestHold int   `json:"longest_hold"`
	Running     int64 `json:"running"`
	Waiting     int64 `json:"waiting"`

	Lateness lateness `json:"lateness"`

	CountLimit int     `json:"count_limit"`
	Due        int     `json:"due"`
	Beyond     int     `json:"beyond"`
	Levels     []level `json:"levels"`
	Queue      queue   `json:"queue"`
	Shards     []shard `json:"shards"`
}

type counters struct {
	Pending    int64 `json:"pending"`
	Started    int64 `json:"started"`
	Fired      int64 `json:"fired"`
	Stopped    int64 `json:"stopped"`
	Dropped    int64 `json:"dropped"`
	Reinserted int64 `json:"reinserted"`
	Extended   int64 `json:"extended"`
}

type lateness struct {
	Samples int64         `json:"samples"`
	Sum     time.Duration `json:"sum_ns"`
	Mean    time.Duration `json:"mean_ns"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Bins    []bin         `json:"bins"`
}

type bin struct {
	Below *time.Duration `json:"below_ns"` // nil for the last
	Count int64          `json:"count"`
}

type level struct {
	Level        int           `json:"level"`
	Tick         time.Duration `json:"tick_ns"`
	Lap          time.Duration `json:"lap_ns"`
	Now          time.Duration `json:"now_ns"`
	Slots        int           `json:"slots"`
	Busy         int           `json:"busy"`
	Timers       int           `json:"timers"`
	Exact        bool          `json:"exact"`
	Placed       int64         `json:"placed"`
	Reinserted   int64         `json:"reinserted"`
	Extended     int64         `json:"extended"`
	SlotsPerCell int           `json:"slots_per_cell"`
	Cells        []int         `json:"cells"`
}

type queue struct {
	Buckets int     `json:"buckets"`
	Head    []entry `json:"head"`
}

type entry struct {
	In    time.Duration `json:"in_ns"`
	Level int           `json:"level"`
	Shard int           `json:"shard"`
}

type shard struct {
	Shard int `json:"shard"`
	counters
	LongestHold int `json:"longest_hold"`
}

// firstLimit returns how many timers of a bucket the first reading counts, if so many are
// pending in so many buckets: as many as fit into the budget in any case.
func firstLimit(pending int64, buckets int) int {
	if pending <= budget {
		return mostLimit
	}
	limit := 1 << bits.Len(uint(budget/max(buckets, 1))) / 2
	return min(max(limit, leastLimit), mostLimit)
}

// nextLimit returns how many timers of a bucket the reading after this one counts. Most
// wheels have a few full buckets and many with next to nothing, and it cannot be told
// without counting how full the others could be counted with what these have left of
// the budget. So the limit doubles as long as that cannot exceed the budget, and it gets
// somewhere.
func (r *reading) nextLimit() int {
	counted, exact := r.Due+r.Beyond, true
	for _, l := range r.Levels {
		counted += l.Timers
		exact = exact && l.Exact
	}
	switch {
	case counted > budget:
		return max(r.CountLimit/2, leastLimit)
	case counted <= budget/2 && !exact:
		return min(r.CountLimit*2, mostLimit)
	}
	return r.CountLimit
}

// take reads a wheel, and counts no more than limit timers of a bucket; 0 leaves it to
// take. Cost: that, and a look at each slot of each shard.
func take(name string, tw *timingwheel.TimingWheel, limit int) *reading {
	stats := tw.Stats()
	if limit == 0 {
		buckets := 0
		for _, l := range stats.Levels {
			buckets += l.Busy
		}
		limit = firstLimit(stats.Pending, buckets)
	}
	p := inspect.Take(tw, limit)

	r := &reading{
		Name: name, Time: time.Now(), At: p.At, State: "running", Executor: p.Executor,
		Driving:     p.Driving,
		counters:    counters(stats.Counters),
		Wakeups:     stats.Wakeups,
		IdleWakeups: stats.IdleWakeups,
		LongestHold: stats.LongestHold,
		Running:     stats.Running,
		Waiting:     stats.Waiting,
		Lateness:    latenessOf(&stats.Lateness),
		CountLimit:  limit,
		Due:         p.Due,
		Beyond:      p.Beyond,
		Levels:      make([]level, len(p.Levels)),
		Queue:       queue{Buckets: p.Queued, Head: make([]entry, len(p.Queue))},
		Shards:      make([]shard, len(stats.Shards)),
	}
	switch {
	case p.Stopped:
		r.State = "stopped"
	case !p.Started:
		r.State = "not started"
	}
	if p.Alarm != inspect.Unset {
		in := p.Alarm - p.At
		r.AlarmIn = &in
	}
	for i := range p.Levels {
		r.Levels[i] = levelOf(i, &p.Levels[i], limit)
		if i < len(stats.Levels) { // the picture is the younger one
			s := &stats.Levels[i]
			r.Levels[i].Placed, r.Levels[i].Reinserted, r.Levels[i].Extended = s.Placed, s.Reinserted, s.Extended
		}
	}
	for i, b := range p.Queue {
		r.Queue.Head[i] = entry{In: b.Attention - p.At, Level: b.Level, Shard: b.Shard}
	}
	for i, s := range stats.Shards {
		r.Shards[i] = shard{Shard: i, counters: counters(s.Counters), LongestHold: s.LongestHold}
	}
	return r
}

func latenessOf(l *timingwheel.Lateness) lateness {
	out := lateness{
		Samples: l.Samples, Sum: l.Sum,
		P50: l.Quantile(0.5), P99: l.Quantile(0.99),
		Bins: make([]bin, len(l.Counts)),
	}
	if l.Samples > 0 {
		out.Mean = l.Sum / time.Duration(l.Samples)
	}
	for i, n := range l.Counts {
		out.Bins[i].Count = n
		if i < len(l.Counts)-1 {
			below := timingwheel.LatenessBound(i)
			out.Bins[i].Below = &below
		}
	}
	return out
}

// levelOf lays several slots into one cell if there are too many.
func levelOf(i int, p *inspect.Level, limit int) level {
	l := level{
		Level: i, Tick: p.Tick, Now: p.Now, Slots: p.Size, Busy: len(p.Slots), Exact: true,
		Lap:          math.MaxInt64,
		SlotsPerCell: (p.Size + maxCells - 1) / maxCells,
		Cells:        []int{},
	}
	if p.Size == 0 {
		l.Lap = 0
		return l
	}
	if p.Tick <= math.MaxInt64/time.Duration(p.Size) {
		l.Lap = p.Tick * time.Duration(p.Size)
	}
	l.Cells = make([]int, (p.Size+l.SlotsPerCell-1)/l.SlotsPerCell)
	for _, s := range p.Slots {
		l.Cells[s.Index/l.SlotsPerCell] += s.Timers
		l.Timers += s.Timers
		// Counts below the limit are below it in every shard, so all timers were counted.
		l.Exact = l.Exact && s.Timers < limit
	}
	return l
}
