// Package store defines what keeps the jobs of a job queue: the interface that package jobqueue
// calls, and the values that pass through it. Programs that use a job queue do not need it. Those
// that write a store do, and package storetest, which tests one.
package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// A Store keeps jobs. It decides what is due, who may work on a job, and in which order; its
// callers only ask. All methods may be called from any goroutine.
//
// # Time
//
// The store's clock is the only one. A store that many processes share uses a clock that they
// share too. An instant (When.At) follows the wall clock; a duration (When.In) is time that passes
// and is not moved by a wall clock that is stepped while the store is open. A job is never
// claimed before its time. Times have a resolution of a millisecond and round up.
//
// # Order
//
// The order of jobs is by due time, then by priority, then as they were added. A claim takes the
// first ones, but for a part that its caller may ask for of those that came due of late, and
// returns what it took in this order.
type Store interface {
	// Do carries out the operations, in order, as one group. It returns when all of them are
	// as durable as the store makes them. An operation that is refused, for instance because
	// there is no such job, has its Err set and changes nothing; the others are carried out all
	// the same.
	//
	// Do returns an error if the group failed as a whole. If errors.Is(err, ErrUnknown), the
	// operations may have been carried out or not; otherwise none was, now or later. Several
	// groups may be under way at once. They take effect one after the other.
	Do(ctx context.Context, ops []Op) error

	// Get returns the job, or ErrNotFound.
	Get(ctx context.Context, queue string, ref Ref) (Job, error)

	// List returns up to limit jobs of the queue in a state, in their order (those that
	// are Done or Dead by when they finished), beginning behind the cursor. The zero Cursor is
	// the beginning. The cursor that it returns is the zero Cursor at the end. Jobs that come,
	// go or move meanwhile may be missing or appear twice.
	List(ctx context.Context, queue string, state State, after Cursor, limit int,
	) ([]Job, Cursor, error)

	// Queues returns every queue that holds a job or has a setting, by name.
	Queues(ctx context.Context) ([]QueueInfo, error)

	// Due counts the jobs of a queue that come due in each of the consecutive spans of time that
	// end so far from now; the first also has what is due already.
	Due(ctx context.Context, queue string, ends []time.Duration) ([]int, error)

	// Watch has f called when a queue may have a job to claim earlier than the last Claim of that
	// queue said: after an Add, a Reschedule or a lease that was returned, say. in is how long it
	// is until then. f must not block and must not call the store. There is one watcher.
	Watch(f func(queue string, in time.Duration))

	// Close releases what the store holds. What was under way before ends first; calls after it
	// return ErrClosed. The jobs stay. A store that leases jobs to one process alone returns
	// them when it is opened anew.
	Close() error
}

// An Op is one operation for Store.Do: *Add, *Claim, *Finish, *Extend, *Cancel, *Reschedule,
// *Update, *Requeue, *Purge or *Configure.
type Op interface {
	// Outcome is where the store puts why the operation was refused.
	Outcome() *Result
}

// A Result is embedded in every operation. Err is nil if the operation was carried out.
type Result struct{ Err error }

// Outcome implements Op.
func (r *Result) Outcome() *Result { return r }

// A When is a time from the store's point of view: the instant At, or, if that is zero, the
// duration In from now. What has passed is due now. An instant that has passed stays the job's due
// time, so that overdue jobs keep their order; for a duration below zero the due time is now,
// rounded down. Package jobqueue passes no instant before 1970 and none beyond the year 9999.
type When struct {
	At time.Time
	In time.Duration
}

// A Ref names a job of a queue by its ID or, if that is 0, by its key.
type Ref struct {
	ID  ID
	Key string
}

// State is what a job is waiting for.
type State uint8

// The states of a job.
const (
	Delayed State = iota + 1 // its time has not come
	Ready                    // its time has come
	Leased                   // being worked on
	Dead                     // given up: after the last attempt, by Bury, or by a limit
	Done                     // acknowledged, and kept for the time its Retain asks for
)

// A Job is a job as a store keeps it. Times are wall clock times.
type Job struct {
	ID          ID
	Queue       string
	Key         string // unique among those of the queue that are Delayed, Ready or Leased
	Body        []byte
	State       State
	Due         time.Time
	Priority    uint8 // lower first; package jobqueue's default is 128
	Attempts    int   // deliveries so far, counted before the job is handed over
	MaxAttempts int   // 0 for what the Claim says
	Added       time.Time
	Retain      time.Duration // how long it is kept once it is done
	Repeat      []byte        // what package jobqueue keeps of a recurring job; opaque to a store
	LastError   string        // why the last attempt failed, or why the job is Dead

	Token    uint64    // of the lease, while Leased
	LeaseEnd time.Time // while Leased
	Finished time.Time // while Dead or Done
}

// Conflict says what Add does if a live job of the queue has the same key.
type Conflict uint8

// The policies for key conflicts.
const (
	Keep    Conflict = iota // the job that is there stays, and Add returns its ID
	Replace                 // the new job takes its place; a lease of the old one is lost
	Fail                    // Add is refused with ErrKeyExists
)

// Add adds a job: Queue, Key, Body, Priority, MaxAttempts, Retain and Repeat of Job are used.
// Retry says that an Add with this ID may have been carried out already; it is then not carried
// out twice. Refused with ErrKeyExists, ErrFull or ErrTooLarge.
type Add struct {
	Result
	Job   Job // ID, if not 0, is the caller's choice
	When  When
	On    Conflict
	Retry bool

	ID   ID   // the job's, or under Keep that of the job that was there
	Kept bool // the job that was there was kept
}

// Claim leases up to Max ready jobs of a queue, and returns jobs whose leases have ended to Ready
// first. The attempt is counted in the same write. A job that has had all its attempts becomes
// Dead instead; one with a Repeat is returned all the same, with Attempts above the limit, and the
// caller ends its run. A paused queue has nothing to claim.
//
// A job that is claimed ahead waits with a caller that may die. It then has lost an attempt that
// never began. So that this cannot be its last one, a claim that has Max-Ahead jobs ends before a
// job that would have no attempt left.
type Claim struct {
	Result
	Queue       string
	Max         int
	Fresh       int // of Max, taken first and from the jobs that are due for less than FreshTime
	Ahead       int // of Max, for workers that are not free yet
	Lease       time.Duration
	MaxAttempts int // of a job that does not say; 0 for no limit

	Jobs   []Job
	Buried int // how many became Dead instead
	// Next is how long it is until the queue may have something to claim, by a due time or by the
	// end of a lease. It is 0 if there is more now, and negative if nothing will come.
	Next time.Duration
}

// FreshTime bounds which jobs are fresh. The rest of a claim is taken from the oldest jobs, so
// Fresh changes nothing where none has been due for so long.
const FreshTime = 10 * time.Second

// SortJobs brings jobs into the order of claims. Those with the same due time and priority stay as
// they are.
func SortJobs(jobs []Job) {
	slices.SortStableFunc(jobs, func(a, b Job) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Priority, b.Priority))
	})
}

// Verdict is how an attempt ended.
type Verdict uint8

// The verdicts.
const (
	Ack    Verdict = iota // the work is done
	Retry                 // the attempt failed; again at When
	Snooze                // the attempt does not count; again at When
	Bury                  // no further attempt: Dead
	Again                 // a run is done; the next at When, with no attempts and a new Repeat
)

// Finish ends a lease. Refused with ErrLeaseLost if the token is not that of the job's lease. A
// lease whose time is over still counts until a Claim returns its job to Ready.
type Finish struct {
	Result
	// Lazy says that no one waits for the Finish to be durable: a power loss may undo it, and the
	// job is then delivered again. It needs no sync of its own.
	Lazy    bool
	Queue   string
	ID      ID
	Token   uint64
	Verdict Verdict
	When    When   // for Retry, Snooze and Again
	Error   string // for Retry and Bury
	Repeat  []byte // for Again
	Failed  bool   // for Again: the run failed for good; a copy without key becomes Dead
}

// Extend has a lease end so far from now instead. Refused with ErrLeaseLost.
type Extend struct {
	Result
	Queue string
	ID    ID
	Token uint64
	Lease time.Duration
}

// Cancel removes a job that is Delayed, Ready, Leased or Dead. No delivery begins once it is
// carried out. Running says that one is under way; its lease is lost. Refused with ErrNotFound.
type Cancel struct {
	Result
	Queue string
	Ref   Ref

	ID      ID // of the job
	Running bool
}

// Reschedule moves the due time of a job that is Delayed or Ready. Refused with ErrNotFound, and
// with ErrLeased if the job is being worked on.
type Reschedule struct {
	Result
	Queue string
	Ref   Ref
	When  When
}

// Update replaces the body of a job that is Delayed or Ready. Refused like Reschedule, and with
// ErrTooLarge or ErrFull.
type Update struct {
	Result
	Queue string
	Ref   Ref
	Body  []byte
}

// Requeue makes dead jobs ready again, with no attempts: that of Ref or, if Ref is zero, up to Max
// of the queue, the oldest first. Refused with ErrNotFound, and with ErrKeyExists if a live job has
// the key by now.
type Requeue struct {
	Result
	Queue string
	Ref   Ref
	Max   int

	N int // how many
}

// Purge removes up to Max jobs of a queue in a state other than Leased.
type Purge struct {
	Result
	Queue string
	State State
	Max   int

	N int // how many; fewer than Max means that none is left
}

// Configure changes the settings of a queue, or of a namespace if Queue ends with a slash: what is
// nil stays as it is.
type Configure struct {
	Result
	Queue  string
	Paused *bool   // of a queue: nothing is claimed
	Limits *Limits // of a queue or a namespace
}

// Limits bound what a queue or a namespace holds of jobs that are Delayed, Ready or Leased. Zero is
// no limit.
type Limits struct {
	Jobs  int
	Bytes int64 // of bodies and keys

	// DropOldest has the jobs that are due first, and not leased, become Dead to make room;
	// otherwise an Add over the limit is refused with ErrFull.
	DropOldest bool
}

// A QueueInfo describes a queue, or a namespace's limits if Name ends with a slash.
type QueueInfo struct {
	Name   string
	Paused bool
	Limits Limits

	Delayed, Ready, Leased, Dead, Done int
	Bytes                              int64         // of live jobs
	Next                               time.Duration // as in Claim
	Oldest                             time.Duration // for how long it has been due
}

// A Cursor is a place in a List. Its content is the store's.
type Cursor string

// The reasons for which a store refuses an operation or fails. Errors match them with errors.Is.
var (
	ErrNotFound  = errors.New("no such job")
	ErrKeyExists = errors.New("a live job has this key")
	ErrLeaseLost = errors.New("the lease has ended or was taken away")
	ErrLeased    = errors.New("the job is being worked on")
	ErrFull      = errors.New("the queue or its namespace is full")
	ErrTooLarge  = errors.New("the job is too large")
	ErrClosed    = errors.New("the store is closed")
	ErrFailed    = errors.New("the store has failed and refuses further work")
	ErrUnknown   = errors.New("the operation may have been carried out or not")
	ErrLocked    = errors.New("another process has the store open")
	ErrCorrupt   = errors.New("the store is damaged")
	ErrNewer     = errors.New("the store was written by a newer version")
)
