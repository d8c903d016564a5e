// Package manage is what people do with a job queue: look at queues and jobs, and change them. The
// command and the page are made of it.
//
// A Service is one of two: Local calls a jobqueue.Client, and Remote asks the page of another
// process. Their values are the JSON of the page, so this file is also the definition of that JSON.
// README.md of package page explains each field; a test compares the two. Names do not change, and
// new ones may be added. Names that end in _ns are nanoseconds.
package manage

import (
	"context"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// A Service shows and changes the jobs of a store. Its errors match those of package jobqueue with
// errors.Is.
type Service interface {
	// Overview returns the queues, or the one with that name. A queue that is not there is
	// ErrNotFound.
	Overview(ctx context.Context, queue string) (*Overview, error)

	// Due counts the jobs that come due within a day, of a queue or, without a name, of all.
	Due(ctx context.Context, queue string) (*Due, error)

	// Jobs returns up to limit jobs of a queue in a state, with the first PreviewBytes of their
	// bodies. after is the Next of the page before.
	Jobs(ctx context.Context, queue, state, after string, limit int) (*Jobs, error)

	// Job returns a job with its body. It is named by its ID or, if that is 0, by its key.
	Job(ctx context.Context, queue string, ref jobqueue.Ref) (*Job, error)

	// Do changes something.
	Do(ctx context.Context, a Action) (*Result, error)
}

// PreviewBytes is how much of a body a list of jobs has.
const PreviewBytes = 256

// An Overview has the queues.
type Overview struct {
	Time       time.Time   `json:"time"`
	ReadOnly   bool        `json:"read_only"`
	Queues     []Queue     `json:"queues"`
	Namespaces []Namespace `json:"namespaces"`
}

// A Queue is a queue of an Overview. Counters, Lateness and Duration are those of one process since
// it started.
type Queue struct {
	Name   string  `json:"name"`
	Paused bool    `json:"paused"`
	Limits *Limits `json:"limits"`

	Delayed int `json:"delayed"`
	Ready   int `json:"ready"`
	Leased  int `json:"leased"`
	Dead    int `json:"dead"`
	Done    int `json:"done"`

	Bytes  int64          `json:"bytes"`
	Next   *time.Duration `json:"next_ns"`
	Oldest time.Duration  `json:"oldest_ns"`

	Running  int      `json:"running"`
	Workers  int      `json:"workers"`
	Counters Counters `json:"counters"`
	Rate     *Rate    `json:"rate"`
	Lateness Times    `json:"lateness"`
	Duration Times    `json:"duration"`
}

// Limits are those of a queue or a namespace.
type Limits struct {
	Jobs       int   `json:"jobs"`
	Bytes      int64 `json:"bytes"`
	DropOldest bool  `json:"drop_oldest"`
}

// A Namespace is one that has limits.
type Namespace struct {
	Name   string  `json:"name"`
	Limits *Limits `json:"limits"`
	Jobs   int     `json:"jobs"`
	Bytes  int64   `json:"bytes"`
}

// Counters are jobqueue.Counters.
type Counters struct {
	Added       int64 `json:"added"`
	Cancelled   int64 `json:"cancelled"`
	Rescheduled int64 `json:"rescheduled"`
	Delivered   int64 `json:"delivered"`
	Acked       int64 `json:"acked"`
	Retried     int64 `json:"retried"`
	Snoozed     int64 `json:"snoozed"`
	Buried      int64 `json:"buried"`
	Panics      int64 `json:"panics"`
	Refused     int64 `json:"refused"`
	Returned    int64 `json:"returned"`
}

// A Rate is how fast counters grew between two readings.
type Rate struct {
	Over      time.Duration `json:"over_ns"`
	Added     float64       `json:"added"` // a second
	Delivered float64       `json:"delivered"`
	Acked     float64       `json:"acked"`
	Retried   float64       `json:"retried"`
	Buried    float64       `json:"buried"`
}

// Times is what a histogram says. The percentiles are upper bounds: the real ones are at most two
// and a half times smaller.
type Times struct {
	Samples int64         `json:"samples"`
	Mean    time.Duration `json:"mean_ns"`
	P50     time.Duration `json:"p50_ns"`
	P90     time.Duration `json:"p90_ns"`
	P99     time.Duration `json:"p99_ns"`
}

// Due says how many jobs come due when.
type Due struct {
	Time    time.Time `json:"time"`
	Overdue int       `json:"overdue"` // ready now
	Later   int       `json:"later"`   // after the longest span
	Spans   []Span    `json:"spans"`   // the next minute, hour and day
}

// Soon returns how many jobs come due within a day.
func (d *Due) Soon() (n int) {
	for _, count := range d.Spans[len(d.Spans)-1].Counts {
		n += count
	}
	return n
}

// A Span of time, cut into equal steps. It begins now, so a longer span includes the shorter ones.
type Span struct {
	Name   string        `json:"name"`
	Step   time.Duration `json:"step_ns"`
	Counts []int         `json:"counts"`
}

// Jobs is a page of a list.
type Jobs struct {
	Time  time.Time `json:"time"`
	Queue string    `json:"queue"`
	State string    `json:"state"`
	Jobs  []Job     `json:"jobs"`
	Next  string    `json:"next"` // for the next page; empty at the end
}

// A Job is a job. A body that is UTF-8 is in Body, another one in BodyBase64. In a list both have
// the first PreviewBytes only.
type Job struct {
	ID          jobqueue.ID   `json:"id"`
	Queue       string        `json:"queue"`
	Key         string        `json:"key"`
	State       string        `json:"state"`
	Due         time.Time     `json:"due"`
	Priority    int           `json:"priority"`
	Attempts    int           `json:"attempts"`
	MaxAttempts int           `json:"max_attempts"`
	Added       time.Time     `json:"added"`
	Retain      time.Duration `json:"retain_ns"`
	Repeat      *Repeat       `json:"repeat,omitempty"`
	LastError   string        `json:"last_error"`
	LeaseEnd    time.Time     `json:"lease_end,omitzero"`
	Finished    time.Time     `json:"finished,omitzero"`

	BodyBytes  int    `json:"body_bytes"`
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"body_base64,omitempty"`
	BodyCut    bool   `json:"body_cut,omitempty"`
	BodyHidden bool   `json:"body_hidden,omitempty"`
}

// Repeat is jobqueue.Repeat.
type Repeat struct {
	Every     time.Duration `json:"every_ns,omitempty"`
	Cron      string        `json:"cron,omitempty"`
	Scheduler string        `json:"scheduler,omitempty"`
	Zone      string        `json:"zone,omitempty"`
	Times     int           `json:"times,omitempty"`
	Until     time.Time     `json:"until,omitzero"`
	Run       time.Time     `json:"run"`
	Runs      int           `json:"runs"`
}

// An Action asks for a change. Do is one of the constants below; Queue is the queue of all of them
// but DoBackup. Durations are texts that ParseDuration reads.
type Action struct {
	Do     string      `json:"do"`
	Queue  string      `json:"queue,omitempty"`
	ID     jobqueue.ID `json:"id,omitzero"`      // of a job; or
	Key    string      `json:"key,omitempty"`    // its key; of DoAdd that of the new job
	All    bool        `json:"all,omitempty"`    // DoRequeue: all dead jobs
	State  string      `json:"state,omitempty"`  // DoPurge; DoCancel: dead, if it is to be dead
	Backup string      `json:"backup,omitempty"` // DoBackup: where to; for Remote a name

	In string    `json:"in,omitempty"` // DoAdd, DoReschedule: when; or
	At time.Time `json:"at,omitzero"`

	Body       string    `json:"body,omitempty"` // DoAdd: the body as text; or
	BodyBase64 []byte    `json:"body_base64,omitempty"`
	OnConflict string    `json:"on_conflict,omitempty"` // keep, replace or fail
	Priority   int       `json:"priority,omitempty"`
	Attempts   int       `json:"max_attempts,omitempty"`
	Retain     string    `json:"retain,omitempty"`
	Every      string    `json:"every,omitempty"`
	Cron       string    `json:"cron,omitempty"`
	Scheduler  string    `json:"scheduler,omitempty"`
	Zone       string    `json:"zone,omitempty"`
	Times      int       `json:"times,omitempty"`
	Until      time.Time `json:"until,omitzero"`
}

// What an Action does.
const (
	DoAdd        = "add"
	DoCancel     = "cancel"
	DoReschedule = "reschedule"
	DoRequeue    = "requeue"
	DoPause      = "pause"
	DoResume     = "resume"
	DoPurge      = "purge"
	DoBackup     = "backup"
)

// A Result says what an Action did.
type Result struct {
	N       int         `json:"n"`                 // how many jobs, or 1
	ID      jobqueue.ID `json:"id,omitzero"`       // of the job, if it was named by its ID or added
	Running bool        `json:"running,omitempty"` // DoCancel: the job was being worked on
	Backup  string      `json:"backup,omitempty"`  // DoBackup: where it is
}
