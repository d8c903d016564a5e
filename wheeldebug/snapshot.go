package wheeldebug

import (
	"encoding/json"
	"io"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inside"
)

// This file reads a wheel, within bounds, and encodes the reading as JSON. view.mu guards the
// latest reading; requests that come during a reading wait for it.

const (
	// shared is the shortest time for which a reading serves all requests. At ten requests a second
	// each gets its own reading.
	shared = 50 * time.Millisecond

	// restFactor is the ratio of how long a reading serves all requests to how long it took. So
	// readings use at most one part in restFactor of one processor, whatever a wheel holds and
	// however many people look at it.
	restFactor = 50

	// longestShared keeps the page alive on a machine so loaded that a reading takes long because
	// it waits for a processor.
	longestShared = time.Second

	// budget is about how many timers one reading counts. Counting one takes 40 ns when the wheel
	// is too large for the caches (measured with a million timers), so all of them take two
	// milliseconds.
	budget = 50_000

	// leastLimit and mostLimit bound how many timers of a bucket a reading counts. It counts a
	// bucket in one hold of the lock; mostLimit keeps that to about forty microseconds. With
	// leastLimit, a few timers still look different from many even if too many buckets are in use
	// for the budget.
	leastLimit = 4
	mostLimit  = 1024

	// mostParts bounds the number of parts in which a wheel is counted, and so the age of a count:
	// a minute at one reading a second.
	mostParts = 64

	// maxCells bounds the numbers that an answer has for the slots of a level. The default wheel
	// has as many slots; the largest has 131,072, which would make an answer a megabyte.
	maxCells = 512
)

// A view is a wheel and its latest reading.
type view struct {
	name string
	tw   *timingwheel.TimingWheel

	mu    sync.Mutex
	data  []byte // the latest reading as JSON; nil before the first
	until time.Time
	tally tally
}

// read returns the latest reading of the wheel, as JSON, or a new one if that is no longer shared.
// The caller must not change it.
func (v *view) read() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	began := time.Now()
	if v.data != nil && began.Before(v.until) {
		return v.data
	}
	r := v.tally.take(v.name, v.tw)
	data, err := json.Marshal(r)
	if err != nil {
		panic("wheeldebug: " + err.Error()) // JSON can hold every reading
	}
	v.data = data
	now := time.Now()
	v.until = now.Add(sharedFor(now.Sub(began)))
	return data
}

// sharedFor returns how long a reading that took so long serves all requests.
func sharedFor(took time.Duration) time.Duration {
	return min(max(shared, restFactor*took), longestShared)
}

func serveJSON(w http.ResponseWriter, chosen []*view) {
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, chosen)
}

func writeJSON(w io.Writer, chosen []*view) {
	w.Write([]byte(`{"wheels":[`))
	for i, v := range chosen {
		if i > 0 {
			w.Write([]byte(`,`))
		}
		w.Write(v.read())
	}
	w.Write([]byte("]}\n"))
}

// A reading is a wheel in the JSON. README.md explains each field, and page.js shows it. Names do
// not change, and new ones may be added. Durations are in nanoseconds.
type reading struct {
	Name     string        `json:"name"`
	Time     time.Time     `json:"time"`
	At       time.Duration `json:"at_ns"`
	State    string        `json:"state"`
	Executor string        `json:"executor"`

	Driving bool           `json:"driving"`
	AlarmIn *time.Duration `json:"alarm_in_ns"` // nil if the alarm is not set

	counters
	Wakeups     int64 `json:"wakeups"`
	IdleWakeups int64 `json:"idle_wakeups"`
	LongestHold int   `json:"longest_hold"`
	Running     int64 `json:"running"`
	Waiting     int64 `json:"waiting"`

	Lateness         lateness `json:"lateness"`
	CallbackLateness lateness `json:"callback_lateness"`

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
	Estimate     int           `json:"estimate"`
	Placed       int64         `json:"placed"`
	Reinserted   int64         `json:"reinserted"`
	Extended     int64         `json:"extended"`
	SlotsPerCell int           `json:"slots_per_cell"`
	Cells        []int         `json:"cells"`
	Full         []int         `json:"full"`

	inFull int // timers counted in slots that hold more
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

// A tally counts the timers in the slots of a wheel. If there are too many for one reading, each
// reading counts one part of the slots up to mostLimit and the others up to a lower limit, and the
// tally keeps the counts of the readings before. It belongs to a view, whose lock guards it.
type tally struct {
	parts int // 0 before the first reading
	turn  int // the part that the next reading counts
	kept  map[slotKey]kept
}

type slotKey struct {
	level      int
	expiration time.Duration
}

// A kept is the count of a slot that holds too many timers for the lower limit.
type kept struct {
	timers int
	full   bool
}

// count returns what the next reading counts if so many timers are pending in so many buckets.
func (t *tally) count(pending int64, buckets int) inside.Count {
	if pending <= budget {
		return inside.Count{Limit: mostLimit}
	}
	if t.parts == 0 {
		t.parts = int(min((2*pending+budget-1)/budget, mostParts))
	}
	t.turn = (t.turn + 1) % t.parts
	limit := 1 << bits.Len(uint(budget/2/max(buckets, 1))) / 2
	limit = min(max(limit, leastLimit), mostLimit)
	return inside.Count{Limit: limit, DeepLimit: mostLimit, Parts: t.parts, Turn: t.turn}
}

// adapt changes the number of parts after a reading. It goes by the timers counted, because the
// slots of one part may hold far more or far less than their share.
func (t *tally) adapt(counted int) {
	switch {
	case t.parts == 0:
	case counted > budget:
		t.parts = min(2*t.parts, mostParts)
	case counted < budget/8:
		t.parts = max(t.parts/2, 1)
	}
}

// merge puts the kept count of an earlier reading, if there is one, into each slot that is now too
// full for the lower limit. It returns for each level whether all counts are of this reading. It
// forgets slots that are gone.
func (t *tally) merge(levels []inside.Level, limit int) (current []bool) {
	next := map[slotKey]kept{}
	for i := range levels {
		all := true
		for j := range levels[i].Slots {
			s := &levels[i].Slots[j]
			key := slotKey{i, s.Expiration}
			switch before, known := t.kept[key]; {
			case s.Deep && s.Timers >= limit: // else the lower limit suffices
				next[key] = kept{s.Timers, s.Full}
			case s.Full && known:
				next[key] = before
				s.Timers, s.Full = max(s.Timers, before.timers), before.full
				all = false
			}
		}
		current = append(current, all)
	}
	t.kept = next
	return current
}

// estimate estimates how many timers each level holds. The timers that were not counted must be in
// full slots; each level gets a share of them in proportion to the timers counted in its full
// slots.
func (r *reading) estimate() {
	rest, full := int(r.Pending)-r.Due-r.Beyond, 0
	for _, l := range r.Levels {
		rest -= l.Timers
		full += l.inFull
	}
	for i := range r.Levels {
		l := &r.Levels[i]
		l.Estimate = l.Timers
		if rest > 0 && full > 0 {
			l.Estimate += int(float64(rest) * float64(l.inFull) / float64(full))
			// A level holds no more than was filed in it and has not left it.
			l.Estimate = max(min(l.Estimate, int(l.Placed-l.Reinserted-l.Extended)), l.Timers)
		}
	}
}

// take reads a wheel. It visits each slot of each shard and the timers that it counts.
func (t *tally) take(name string, tw *timingwheel.TimingWheel) *reading {
	stats := tw.Stats()
	buckets := 0
	for _, l := range stats.Levels {
		buckets += l.Busy
	}
	c := t.count(stats.Pending, buckets)
	p := inside.Hooks.Picture(tw, c)
	t.adapt(p.Deep)
	current := t.merge(p.Levels, c.Limit)

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

		CallbackLateness: latenessOf(&stats.CallbackLateness),

		CountLimit: c.Limit,
		Due:        p.Due,
		Beyond:     p.Beyond,
		Levels:     make([]level, len(p.Levels)),
		Queue:      queue{Buckets: p.Queued, Head: make([]entry, len(p.Queue))},
		Shards:     make([]shard, len(stats.Shards)),
	}
	switch {
	case p.Stopped:
		r.State = "stopped"
	case !p.Started:
		r.State = "not started"
	}
	if p.Alarm != inside.Unset {
		in := p.Alarm - p.At
		r.AlarmIn = &in
	}
	for i := range p.Levels {
		r.Levels[i] = levelOf(i, &p.Levels[i])
		r.Levels[i].Exact = r.Levels[i].Exact && current[i]
		if i < len(stats.Levels) { // the picture is younger, and may have one more
			l, s := &r.Levels[i], &stats.Levels[i]
			l.Placed, l.Reinserted, l.Extended = s.Placed, s.Reinserted, s.Extended
		}
	}
	r.estimate()
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

// levelOf sums several slots in one cell if there are more than maxCells.
func levelOf(i int, p *inside.Level) level {
	l := level{
		Level: i, Tick: p.Tick, Now: p.Now, Slots: p.Size, Busy: len(p.Slots), Exact: true,
		Lap:          math.MaxInt64,
		SlotsPerCell: (p.Size + maxCells - 1) / maxCells,
		Cells:        []int{},
		Full:         []int{},
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
		cell := s.Index / l.SlotsPerCell
		l.Cells[cell] += s.Timers
		l.Timers += s.Timers
		if s.Full {
			l.Full = append(l.Full, cell)
			l.inFull += s.Timers
		}
	}
	slices.Sort(l.Full)
	l.Full = slices.Compact(l.Full)
	l.Exact = len(l.Full) == 0
	return l
}
