package jobqueue

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Stats say what the store holds and what this Client has done since it was made, by queue.
type Stats struct {
	Queues     []QueueStats
	Namespaces []NamespaceStats // those that have limits
}

// QueueStats are those of a queue. The counters, and what follows them, are of this Client alone.
type QueueStats struct {
	Name   string
	Paused bool
	Limits Limits

	Delayed, Ready, Leased, Dead, Done int

	Bytes  int64         // of the bodies and keys of live jobs
	Next   time.Duration // until a job is due or a lease ends, negative if there is none
	Oldest time.Duration // how long the longest waiting ready job has been due

	Counters
	Running  int       // handlers under way
	Workers  int       // how many may be
	Lateness Histogram // from when a job was due to when its handler began, or Reserve returned it
	Duration Histogram // of handlers
}

// NamespaceStats are those of a namespace, all its queues together.
type NamespaceStats struct {
	Name   string // with the slash
	Limits Limits
	Jobs   int // live ones
	Bytes  int64
}

// Counters count what a Client has done with a queue.
type Counters struct {
	Added       int64 // jobs that were not there before
	Cancelled   int64
	Rescheduled int64 // by Reschedule
	Delivered   int64 // handlers begun, and jobs returned by Reserve
	Acked       int64 // successes, and runs of recurring jobs that were
	Retried     int64 // failed attempts after which there is another
	Snoozed     int64
	Buried      int64 // attempts or leases after which the job, or the run, was dead
	Panics      int64 // failed attempts that were panics
	Refused     int64 // outcomes that came after the lease was lost
	Returned    int64 // claimed, but given back before a handler began
}

// Stats returns the statistics.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	infos, err := c.store.Queues(ctx)
	if err != nil {
		return Stats{}, failed("stats of", "all queues", err)
	}
	var stats Stats
	seen := map[string]bool{}
	spaces := map[string]*NamespaceStats{}
	for _, info := range infos {
		if isNamespace(info.Name) {
			spaces[info.Name] = &NamespaceStats{Name: info.Name, Limits: info.Limits}
		}
	}
	for _, info := range infos {
		if isNamespace(info.Name) {
			continue
		}
		seen[info.Name] = true
		stats.Queues = append(stats.Queues, c.queueStats(info))
		name, _, _ := strings.Cut(info.Name, "/")
		if space := spaces[name+"/"]; space != nil && name != info.Name {
			space.Jobs += info.Delayed + info.Ready + info.Leased
			space.Bytes += info.Bytes
		}
	}
	c.local.Range(func(name, _ any) bool {
		if !seen[name.(string)] { // it is empty by now
			empty := store.QueueInfo{Name: name.(string), Next: -1}
			stats.Queues = append(stats.Queues, c.queueStats(empty))
		}
		return true
	})
	slices.SortFunc(stats.Queues, func(a, b QueueStats) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, space := range spaces {
		stats.Namespaces = append(stats.Namespaces, *space)
	}
	slices.SortFunc(stats.Namespaces, func(a, b NamespaceStats) int {
		return strings.Compare(a.Name, b.Name)
	})
	return stats, nil
}

func (c *Client) queueStats(info store.QueueInfo) QueueStats {
	s := QueueStats{
		Name:    info.Name,
		Paused:  info.Paused,
		Limits:  info.Limits,
		Delayed: info.Delayed,
		Ready:   info.Ready,
		Leased:  info.Leased,
		Dead:    info.Dead,
		Done:    info.Done,
		Bytes:   info.Bytes,
		Next:    info.Next,
		Oldest:  info.Oldest,
	}
	if l, ok := c.local.Load(info.Name); ok {
		l := l.(*local)
		s.Counters = l.counters.read()
		s.Lateness = l.counters.lateness.read()
		s.Duration = l.counters.duration.read()
		if d := l.dispatcher.Load(); d != nil {
			s.Running, s.Workers = d.count()
		}
	}
	return s
}

// DueIn counts the jobs of a queue that come due in consecutive spans of time, which end so far
// from now. The first count includes what is due already.
func (c *Client) DueIn(ctx context.Context, queue string, ends ...time.Duration) ([]int, error) {
	if err := c.check(queue); err != nil {
		return nil, failed("count in", queue, err)
	}
	counts, err := c.store.Due(ctx, queue, ends)
	if err != nil {
		return nil, failed("count in", queue, err)
	}
	return counts, nil
}

func isNamespace(name string) bool { return strings.HasSuffix(name, "/") }

// counters are the Counters of a queue while they are being counted.
type counters struct {
	added, cancelled, rescheduled, delivered, acked     atomic.Int64
	retried, snoozed, buried, panics, refused, returned atomic.Int64

	lateness, duration histogram
}

func (c *counters) read() Counters {
	return Counters{
		Added:       c.added.Load(),
		Cancelled:   c.cancelled.Load(),
		Rescheduled: c.rescheduled.Load(),
		Delivered:   c.delivered.Load(),
		Acked:       c.acked.Load(),
		Retried:     c.retried.Load(),
		Snoozed:     c.snoozed.Load(),
		Buried:      c.buried.Load(),
		Panics:      c.panics.Load(),
		Refused:     c.refused.Load(),
		Returned:    c.returned.Load(),
	}
}

// ended counts an outcome that was stored.
func (c *counters) ended(f *store.Finish) {
	switch {
	case f.Verdict == store.Retry:
		c.retried.Add(1)
	case f.Verdict == store.Snooze:
		c.snoozed.Add(1)
	case f.Verdict == store.Bury || f.Failed:
		c.buried.Add(1)
	default:
		c.acked.Add(1)
	}
}

// late counts how late a job is. One that was added after it was due has not been late before that.
func (c *counters) late(now time.Time, job *Job) {
	since := job.Due
	if job.Added.After(since) {
		since = job.Added
	}
	c.lateness.add(now.Sub(since))
}

// HistogramBound returns the upper bound of Histogram.Counts[i]: 1, 2 and 5 times each power of
// ten, from 100 us to 5,000 s; for the last it is the longest duration there is.
func HistogramBound(i int) time.Duration {
	if i >= histogramBounds {
		return math.MaxInt64
	}
	return bounds[i]
}

var bounds = func() (bounds [histogramBounds]time.Duration) {
	d := 100 * time.Microsecond
	for i := 0; i < histogramBounds; i += 3 {
		bounds[i], bounds[i+1], bounds[i+2] = d, 2*d, 5*d
		d *= 10
	}
	return bounds
}()

const histogramBounds = 24

// A Histogram counts durations. Counts[i] are those up to HistogramBound(i) and above the bound
// before.
type Histogram struct {
	Samples int64
	Sum     time.Duration
	Counts  [histogramBounds + 1]int64
}

// Quantile returns the bound below which a share q of the samples lies, q being between 0 and 1. It
// returns 0 if there are no samples, and the longest duration for what lies above all bounds.
func (h Histogram) Quantile(q float64) time.Duration {
	if h.Samples == 0 {
		return 0
	}
	rank := max(int64(math.Ceil(q*float64(h.Samples))), 1)
	for i, n := range h.Counts {
		if rank -= n; rank <= 0 {
			return HistogramBound(i)
		}
	}
	return math.MaxInt64
}

type histogram struct {
	sum    atomic.Int64
	counts [histogramBounds + 1]atomic.Int64
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	i, _ := slices.BinarySearch(bounds[:], d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) read() (r Histogram) {
	for i := range h.counts {
		r.Counts[i] = h.counts[i].Load()
		r.Samples += r.Counts[i]
	}
	r.Sum = time.Duration(h.sum.Load())
	return r
}
