package manage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// Local is the Service of a Client in this process.
type Local struct{ Client *jobqueue.Client }

// Overview implements Service.
func (l Local) Overview(ctx context.Context, queue string) (*Overview, error) {
	stats, err := l.Client.Stats(ctx)
	if err != nil {
		return nil, err
	}
	o := &Overview{Time: time.Now().Round(0), Queues: []Queue{}, Namespaces: []Namespace{}}
	for i := range stats.Queues {
		if queue == "" || stats.Queues[i].Name == queue {
			o.Queues = append(o.Queues, queueOf(&stats.Queues[i]))
		}
	}
	if queue != "" && len(o.Queues) == 0 {
		return nil, NoQueue(queue)
	}
	for _, n := range stats.Namespaces {
		if queue == "" || len(queue) > len(n.Name) && queue[:len(n.Name)] == n.Name {
			o.Namespaces = append(o.Namespaces,
				Namespace{Name: n.Name, Limits: limitsOf(n.Limits), Jobs: n.Jobs, Bytes: n.Bytes})
		}
	}
	return o, nil
}

// NoQueue returns the error for a queue that is not there, which is an ErrNotFound too.
func NoQueue(name string) error { return &notFound{name} }

type notFound struct{ queue string }

func (e *notFound) Error() string { return "no queue " + Quote(e.queue) }
func (e *notFound) Unwrap() error { return jobqueue.ErrNotFound }

func queueOf(s *jobqueue.QueueStats) Queue {
	q := Queue{
		Name:     s.Name,
		Paused:   s.Paused,
		Limits:   limitsOf(s.Limits),
		Delayed:  s.Delayed,
		Ready:    s.Ready,
		Leased:   s.Leased,
		Dead:     s.Dead,
		Done:     s.Done,
		Bytes:    s.Bytes,
		Oldest:   s.Oldest,
		Running:  s.Running,
		Workers:  s.Workers,
		Counters: Counters(s.Counters),
		Lateness: timesOf(&s.Lateness),
		Duration: timesOf(&s.Duration),
	}
	if s.Next >= 0 {
		q.Next = &s.Next
	}
	return q
}

func limitsOf(l jobqueue.Limits) *Limits {
	if l.Jobs == 0 && l.Bytes == 0 {
		return nil
	}
	return &Limits{Jobs: l.Jobs, Bytes: l.Bytes, DropOldest: l.DropOldest}
}

func timesOf(h *jobqueue.Histogram) Times {
	t := Times{
		Samples: h.Samples, P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99),
	}
	if h.Samples > 0 {
		t.Mean = h.Sum / time.Duration(h.Samples)
	}
	return t
}

// spans are those of a Due. Each step is a whole number of those of the span before.
var spans = []struct {
	name string
	step time.Duration
	n    int
}{
	{"minute", time.Second, 60},
	{"hour", time.Minute, 60},
	{"day", time.Hour, 24},
}

// ends returns the ends of time for which to count so that the counts of each span are sums of
// these, without counting any job twice.
var ends = func() (ends []time.Duration) {
	ends = append(ends, 0)
	for _, s := range spans {
		for i := range s.n {
			if end := time.Duration(i+1) * s.step; end > ends[len(ends)-1] {
				ends = append(ends, end)
			}
		}
	}
	return ends
}()

// Due implements Service.
func (l Local) Due(ctx context.Context, queue string) (*Due, error) {
	o, err := l.Overview(ctx, queue)
	if err != nil {
		return nil, err
	}
	d := &Due{Time: o.Time}
	counts := make([]int, len(ends))
	for _, q := range o.Queues {
		pending := q.Delayed + q.Ready
		if pending == 0 {
			continue
		}
		some, err := l.Client.DueIn(ctx, q.Name, ends...)
		if err != nil {
			return nil, err
		}
		for i, n := range some {
			counts[i] += n
			pending -= n
		}
		d.Later += max(pending, 0) // the two readings are not of one moment
	}
	d.Overdue = counts[0]
	for _, s := range spans {
		span := Span{Name: s.name, Step: s.step, Counts: make([]int, s.n)}
		for i, end := range ends {
			if end > 0 && end <= s.step*time.Duration(s.n) {
				span.Counts[(end-1)/s.step] += counts[i]
			}
		}
		d.Spans = append(d.Spans, span)
	}
	return d, nil
}

// Jobs implements Service.
func (l Local) Jobs(ctx context.Context, queue, state, after string, limit int) (*Jobs, error) {
	s, err := ParseState(state)
	if err != nil {
		return nil, err
	}
	found, next, err := l.Client.List(ctx, queue, s, jobqueue.Cursor(after), limit)
	if err != nil {
		return nil, err
	}
	jobs := &Jobs{
		Time: time.Now().Round(0), Queue: queue, State: state, Jobs: []Job{}, Next: string(next),
	}
	for _, j := range found {
		jobs.Jobs = append(jobs.Jobs, jobOf(j, PreviewBytes))
	}
	return jobs, nil
}

// Job implements Service.
func (l Local) Job(ctx context.Context, queue string, ref jobqueue.Ref) (*Job, error) {
	found, err := l.Client.Get(ctx, queue, ref)
	if err != nil {
		return nil, err
	}
	job := jobOf(found, len(found.Body))
	return &job, nil
}

// jobOf returns a job with up to so many bytes of its body.
func jobOf(j *jobqueue.Job, most int) Job {
	job := Job{
		ID:          j.ID,
		Queue:       j.Queue,
		Key:         j.Key,
		State:       StateName(j.State),
		Due:         j.Due,
		Priority:    j.Priority,
		Attempts:    j.Attempts,
		MaxAttempts: j.MaxAttempts,
		Added:       j.Added,
		Retain:      j.Retain,
		LastError:   j.LastError,
		LeaseEnd:    j.LeaseEnd,
		Finished:    j.Finished,
		BodyBytes:   len(j.Body),
	}
	if r := j.Repeat; r != nil {
		job.Repeat = &Repeat{
			Every: r.Every, Cron: r.Cron, Scheduler: r.Scheduler, Zone: r.Zone,
			Times: r.Times, Until: r.Until, Run: r.Run, Runs: r.Runs,
		}
	}
	isText := utf8.Valid(j.Body)
	body := j.Body[:min(len(j.Body), most)]
	for isText && !utf8.Valid(body) {
		body = body[:len(body)-1] // it was cut within a character
	}
	if job.BodyCut = len(body) < len(j.Body); isText {
		job.Body = string(body)
	} else {
		job.BodyBase64 = body
	}
	return job
}

// Bytes returns the body, or what there is of it.
func (j *Job) Bytes() []byte {
	if j.BodyBase64 != nil {
		return j.BodyBase64
	}
	return []byte(j.Body)
}

var stateNames = []string{"delayed", "ready", "leased", "dead", "done"}

// StateName returns the name of a state.
func StateName(s jobqueue.State) string { return stateNames[s-jobqueue.Delayed] }

// ParseState is the inverse of StateName.
func ParseState(name string) (jobqueue.State, error) {
	i := slices.Index(stateNames, name)
	if i < 0 {
		return 0, invalid("%q is not a state: delayed, ready, leased, dead or done", name)
	}
	return jobqueue.Delayed + jobqueue.State(i), nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", jobqueue.ErrInvalid, fmt.Sprintf(format, args...))
}

// Do implements Service.
func (l Local) Do(ctx context.Context, a Action) (*Result, error) {
	r := &Result{N: 1, ID: a.ID}
	var err error
	switch a.Do {
	case DoAdd:
		r.ID, err = l.add(ctx, a)
	case DoCancel:
		if err = l.cancel(ctx, a); errors.Is(err, jobqueue.ErrRunning) {
			r.Running, err = true, nil
		}
	case DoReschedule:
		err = l.reschedule(ctx, a)
	case DoRequeue:
		switch {
		case a.All && a.ID == 0 && a.Key == "":
			r.N, err = l.Client.RequeueAll(ctx, a.Queue)
		case a.ID != 0 && a.Key == "" && !a.All:
			err = l.Client.Requeue(ctx, a.Queue, a.ID)
		default:
			err = invalid("requeue needs an id, or all")
		}
	case DoPause:
		err = l.Client.Pause(ctx, a.Queue)
	case DoResume:
		err = l.Client.Resume(ctx, a.Queue)
	case DoPurge:
		var s jobqueue.State
		if s, err = ParseState(a.State); err == nil {
			r.N, err = l.Client.Purge(ctx, a.Queue, s)
		}
	case DoBackup:
		r.Backup = a.Backup
		err = l.Client.Backup(ctx, a.Backup)
	default:
		err = invalid("%q is not something to do", a.Do)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (a *Action) ref() jobqueue.Ref { return jobqueue.Ref{ID: a.ID, Key: a.Key} }

// needsJob returns an error unless exactly one of ID and Key is set.
func (a *Action) needsJob() error {
	if (a.ID == 0) == (a.Key == "") {
		return invalid("%s needs the id or the key of a job", a.Do)
	}
	return nil
}

// cancel removes a job. A request that is about a dead one comes from a list, which may be old: a
// job that was requeued since then stays. The store is asked twice, so a Requeue at the same moment
// may still lose its job.
func (l Local) cancel(ctx context.Context, a Action) error {
	if err := a.needsJob(); err != nil {
		return err
	}
	switch a.State {
	case "":
	case StateName(jobqueue.Dead):
		job, err := l.Client.Get(ctx, a.Queue, a.ref())
		if err != nil {
			return err
		}
		if job.State != jobqueue.Dead {
			return ErrNotDead
		}
	default:
		return invalid("cancel of a job in a state: only dead")
	}
	return l.Client.Cancel(ctx, a.Queue, a.ref())
}

func (l Local) reschedule(ctx context.Context, a Action) error {
	if err := a.needsJob(); err != nil {
		return err
	}
	switch {
	case a.In != "" && a.At.IsZero():
		d, err := ParseDuration(a.In)
		if err != nil {
			return err
		}
		return l.Client.Reschedule(ctx, a.Queue, a.ref(), d)
	case a.In == "" && !a.At.IsZero():
		return l.Client.RescheduleAt(ctx, a.Queue, a.ref(), a.At)
	}
	return invalid("reschedule needs a time: either in or at")
}

func (l Local) add(ctx context.Context, a Action) (jobqueue.ID, error) {
	body := a.BodyBase64
	if a.Body != "" {
		if len(body) > 0 {
			return 0, invalid("a job has one body")
		}
		body = []byte(a.Body)
	}
	opts, err := a.options()
	if err != nil {
		return 0, err
	}
	return l.Client.Add(ctx, a.Queue, body, opts...)
}

// options returns those of Client.Add.
func (a *Action) options() (opts []jobqueue.AddOption, err error) {
	// text reads a duration, if there is one.
	text := func(s string, option func(time.Duration) jobqueue.AddOption) {
		if s == "" || err != nil {
			return
		}
		var d time.Duration
		if d, err = ParseDuration(s); err == nil {
			opts = append(opts, option(d))
		}
	}
	add := func(isSet bool, option func() jobqueue.AddOption) {
		if isSet {
			opts = append(opts, option())
		}
	}
	if a.In != "" && !a.At.IsZero() {
		return nil, invalid("a job has one time: either in or at")
	}
	if a.Every == "" && a.Cron == "" && a.Scheduler == "" &&
		(a.Zone != "" || a.Times != 0 || !a.Until.IsZero()) {
		return nil, invalid("zone, times and until are for recurring jobs")
	}
	text(a.In, jobqueue.In)
	text(a.Retain, jobqueue.Retain)
	text(a.Every, jobqueue.Every)
	add(!a.At.IsZero(), func() jobqueue.AddOption { return jobqueue.At(a.At) })
	add(a.Key != "", func() jobqueue.AddOption { return jobqueue.Key(a.Key) })
	add(a.Priority != 0, func() jobqueue.AddOption { return jobqueue.Priority(a.Priority) })
	add(a.Attempts != 0, func() jobqueue.AddOption { return jobqueue.MaxAttempts(a.Attempts) })
	add(a.Cron != "", func() jobqueue.AddOption { return jobqueue.Cron(a.Cron, a.Zone) })
	add(a.Scheduler != "", func() jobqueue.AddOption {
		return jobqueue.Scheduled(a.Scheduler,
			a.Zone)
	})
	add(a.Times != 0, func() jobqueue.AddOption { return jobqueue.Times(a.Times) })
	add(!a.Until.IsZero(), func() jobqueue.AddOption { return jobqueue.Until(a.Until) })
	switch a.OnConflict {
	case "", "keep":
	case "replace":
		opts = append(opts, jobqueue.OnConflict(jobqueue.Replace))
	case "fail":
		opts = append(opts, jobqueue.OnConflict(jobqueue.Fail))
	default:
		return nil, invalid("%q is not a policy: keep, replace or fail", a.OnConflict)
	}
	return opts, err
}
