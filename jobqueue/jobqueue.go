package jobqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

// A Client adds jobs to the queues of a store and works on them. It is made by New, NewMemory or
// Open. All its methods may be called from any goroutine, handlers included, except that a handler
// must not call Close.
//
// The errors that its methods return match the Err variables of this package with errors.Is.
type Client struct {
	store store.Store
	group group
	tw    *timingwheel.TimingWheel // wakes dispatchers and pullers
	set   settings
	local sync.Map // *local by queue name: what this process does with a queue

	closing chan struct{} // closed by Close, which pullers that wait look at
	closed  sync.Once

	mu         sync.Mutex
	middleware []Middleware
	schedulers map[string]Scheduler
	crons      map[[2]string]zoned // crontab lines that were read, by line and zone
	run        *run                // the Run under way
}

// local is what this process knows of a queue.
type local struct {
	counters   counters
	dispatcher atomic.Pointer[dispatcher]
	gate       gate
	asked      atomic.Int64 // the sum of Max of the claims
}

// fresh returns how many jobs of a claim are to be fresh: a quarter of all that is claimed, so that
// a backlog and new jobs both make progress.
func (l *local) fresh(most int) int {
	asked := l.asked.Add(int64(most))
	return int(asked/4 - (asked-int64(most))/4)
}

// New returns a Client of a store, which has one Client only: it tells the last one that was made
// when to look for jobs. The Client closes the store when it is closed. New panics if an option
// makes no sense.
func New(s store.Store, opts ...Option) *Client {
	c := &Client{
		store:      s,
		set:        defaultSettings(),
		closing:    make(chan struct{}),
		schedulers: map[string]Scheduler{},
		crons:      map[[2]string]zoned{},
	}
	for _, opt := range opts {
		opt(&c.set)
	}
	c.group.store = s
	c.tw = timingwheel.New(timingwheel.WithTick(tick()), timingwheel.WithPreciseWakeup())
	s.Watch(c.wake)
	return c
}

// NewMemory returns a Client of a new store in memory, for tests and for jobs that may end with the
// process. Inside a testing/synctest bubble it follows the bubble's clock, and jobs are handed over
// at their exact instants. Its instants do not follow a wall clock that is stepped.
func NewMemory(opts ...Option) *Client {
	return New(memory.New(), append(slices.Clip(opts), withoutSteps)...)
}

// withoutSteps is for a store that does not follow a step of the wall clock: its client need not
// look for one. In a bubble, where years pass in a test, that would be a wake-up for each minute.
func withoutSteps(s *settings) { s.steady = true }

// tick returns the tick of the wheel. It is what rounding may add to a job's lateness. A quarter of
// a millisecond is what a precise wake-up can make use of; finer ticks take more wake-ups. A
// synctest bubble, whose times have no monotonic reading, has wake-ups that cost nothing.
func tick() time.Duration {
	if now := time.Now(); now == now.Round(0) {
		return time.Nanosecond
	}
	return 250 * time.Microsecond
}

// Close ends Run as the end of its context does and waits for it, stores what is under way, and
// closes the store. It waits for a handler or the store however long they take. Calls of Reserve
// that wait return ErrClosed, as do all calls afterwards. Closing a Client twice does nothing.
func (c *Client) Close() (err error) {
	c.closed.Do(func() {
		close(c.closing)
		c.mu.Lock()
		r := c.run
		c.mu.Unlock()
		if r != nil {
			r.stop()
			<-r.over
		}
		err = c.store.Close()
		c.tw.Stop()
	})
	return err
}

// An Option changes what New, NewMemory and Open make.
type Option func(*settings)

type settings struct {
	log     *slog.Logger
	maxBody int
	grace   time.Duration
	known   map[string]bool // nil for any
	handle  []HandleOption

	syncEvery time.Duration // for Open; 0 for always
	steady    bool          // for NewMemory: no alarm follows the wall clock
}

func defaultSettings() settings {
	return settings{log: slog.Default(), maxBody: 1 << 20}
}

// WithLogger has events logged to log instead of slog.Default(): failed attempts as warnings,
// dead letters and failures of the store as errors, single deliveries at the debug level.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("jobqueue: WithLogger of nil")
	}
	return func(s *settings) { s.log = log }
}

// WithMaxBody sets the size of a body from which on a job is refused with ErrTooLarge, by default
// 1 MiB.
func WithMaxBody(bytes int) Option {
	if bytes < 0 {
		panic("jobqueue: WithMaxBody of a negative size")
	}
	return func(s *settings) { s.maxBody = bytes }
}

// WithGrace sets how long handlers may go on after the context of Run has ended. Then their
// contexts end too; a handler that returns an error because of this gives its job back without
// losing an attempt. Run waits for those that go on nevertheless. By default they may go on for as
// long as they like.
func WithGrace(d time.Duration) Option {
	if d <= 0 {
		panic("jobqueue: WithGrace of a duration that is not positive")
	}
	return func(s *settings) { s.grace = d }
}

// WithQueues names the queues that there are. A call that names another one fails with
// ErrUnknownQueue, so that a misspelt name is noticed. By default a queue exists once it is used.
func WithQueues(names ...string) Option {
	return func(s *settings) {
		if s.known == nil {
			s.known = map[string]bool{}
		}
		for _, name := range names {
			s.known[name] = true
		}
	}
}

// WithDefaults sets options for every Handle of the Client, and for Reserve from queues without.
func WithDefaults(opts ...HandleOption) Option {
	return func(s *settings) { s.handle = append(s.handle, opts...) }
}

// The reasons for which calls fail.
var (
	ErrNotFound  = store.ErrNotFound  // no such job, or not in a state that the call is for
	ErrKeyExists = store.ErrKeyExists // a live job has the key, and the policy is Fail
	ErrLeaseLost = store.ErrLeaseLost // the lease ran out and the job went on, or it was cancelled
	ErrLeased    = store.ErrLeased    // the job is being worked on
	ErrFull      = store.ErrFull      // the queue or its namespace has reached its limits
	ErrTooLarge  = store.ErrTooLarge  // the body or the key is too long
	ErrClosed    = store.ErrClosed    // the Client or its store is closed
	ErrFailed    = store.ErrFailed    // the store has failed, and must be opened anew
	ErrUnknown   = store.ErrUnknown   // what was asked for may have been done or not
	ErrLocked    = store.ErrLocked    // another process has the file open
	ErrCorrupt   = store.ErrCorrupt   // the file is damaged
	ErrNewer     = store.ErrNewer     // the file was written by a newer version

	// ErrRunning is returned by Cancel if a worker had claimed the job: it is gone and no other
	// delivery begins, but the worker's handler may run.
	ErrRunning = errors.New("the job was being worked on")

	// ErrBadTime refuses a due time beyond the year 9999.
	ErrBadTime = errors.New("the time is beyond the year 9999")

	// ErrBadSchedule refuses a recurring job that has no next run: a period that is not positive, a
	// cron text that cannot be read, a scheduler that is not registered, an end that has passed.
	ErrBadSchedule = errors.New("the schedule is not valid")

	// ErrBadZone refuses a time zone that the system does not know.
	ErrBadZone = errors.New("unknown time zone")

	// ErrBadName refuses the name of a queue that is empty, longer than 255 bytes, begins or ends
	// with a slash, or holds characters that do not print.
	ErrBadName = errors.New("not the name of a queue")

	// ErrUnknownQueue refuses a queue that WithQueues does not name.
	ErrUnknownQueue = errors.New("unknown queue")

	// ErrInvalid refuses an option whose value makes no sense.
	ErrInvalid = errors.New("invalid option")
)

const maxKey = 1024 // bytes: keys are held in indexes

// check returns why a queue cannot be used.
func (c *Client) check(queue string) error {
	if c.set.known != nil && !c.set.known[queue] {
		return ErrUnknownQueue
	}
	if _, ok := c.local.Load(queue); ok {
		return nil
	}
	odd := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if queue == "" || len(queue) > 255 || strings.ContainsFunc(queue, odd) ||
		strings.HasPrefix(queue, "/") || strings.HasSuffix(queue, "/") {
		return ErrBadName
	}
	return nil
}

// of returns what this process knows of a queue. The name was checked.
func (c *Client) of(queue string) *local {
	if l, ok := c.local.Load(queue); ok {
		return l.(*local)
	}
	l := &local{}
	l.gate.init(c)
	actual, _ := c.local.LoadOrStore(queue, l)
	return actual.(*local)
}

// wake is called by the store, perhaps with a lock of it held, when a queue may have a job to
// claim.
func (c *Client) wake(queue string, in time.Duration) {
	l, ok := c.local.Load(queue)
	if !ok {
		return
	}
	if d := l.(*local).dispatcher.Load(); d != nil {
		d.wake(in)
	}
	l.(*local).gate.wake(in)
}

// do carries out one operation in a group and says what for if it fails.
func (c *Client) do(ctx context.Context, verb, queue string, op store.Op) error {
	if err := c.check(queue); err != nil {
		return failed(verb, queue, err)
	}
	if err := c.group.do(ctx, op); err != nil {
		return failed(verb, queue, err)
	}
	if err := op.Outcome().Err; err != nil {
		return failed(verb, queue, err)
	}
	return nil
}

func failed(verb, queue string, err error) error {
	return fmt.Errorf("jobqueue: %s %s: %w", verb, queue, err)
}
