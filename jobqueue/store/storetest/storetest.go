// Package storetest tests stores of a job queue. A store's package calls it from tests of its own:
//
//	Run         the promises of store.Store, each as a named test
//	Fuzz        random operations, compared with store/memory
//	Concurrent  callers at the same moment, whose history must be linearizable
//
// Package history, below this one, kills a process under load and checks what it was told.
package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// A Config describes a store to be tested.
type Config struct {
	// Open opens a store that keeps its jobs in the directory, if it keeps them at all, and has its
	// time from the clock.
	Open func(dir string, clock *Clock) (store.Store, error)

	// Durable says that the jobs are there again when the store was closed and is opened in the
	// same directory, that leases have then ended, and that only one store may have the directory
	// open.
	Durable bool

	// Steps says that instants follow a wall clock that is stepped, and durations do not.
	Steps bool

	// IDsByQueue says that an ID which a caller chose is unique within its queue only.
	IDsByQueue bool
}

// A Clock is moved by hand. It begins at a whole millisecond.
type Clock struct {
	mu      sync.Mutex
	wall    time.Time
	elapsed time.Duration
}

func newClock() *Clock {
	return &Clock{wall: time.Date(2031, 5, 7, 11, 13, 17, 19e6, time.UTC)}
}

// Now returns the time of the wall clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Elapsed returns the time that has passed, which Step does not change.
func (c *Clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// Advance lets time pass.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
	c.elapsed += d
}

// Step steps the wall clock.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// Run tests all that store.Store promises.
func Run(t *testing.T, config Config) {
	for _, group := range testGroups {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) {
				if test.needs != nil && !test.needs(config) {
					t.Skip("not a promise of this store")
				}
				t.Parallel()
				test.run(newSuite(t, config))
			})
		}
	}
}

var testGroups = [][]test{
	timeTests, orderTests, leaseTests, keyTests, manageTests, limitTests, readTests, watchTests,
	callTests,
}

// A test is one promise.
type test struct {
	name  string
	run   func(s *suite)
	needs func(Config) bool
}

func durable(c Config) bool      { return c.Durable }
func steps(c Config) bool        { return c.Steps }
func durableSteps(c Config) bool { return c.Durable && c.Steps }

// A suite is a store under test.
type suite struct {
	*testing.T
	config Config
	clock  *Clock
	dir    string
	store  store.Store
}

func newSuite(t *testing.T, config Config) *suite {
	s := &suite{T: t, config: config, clock: newClock(), dir: t.TempDir()}
	s.open()
	t.Cleanup(func() {
		if s.store != nil {
			require.NoError(t, s.store.Close())
		}
	})
	return s
}

func (s *suite) open() {
	s.Helper()
	var err error
	s.store, err = s.config.Open(s.dir, s.clock)
	require.NoError(s, err)
}

// reopen closes the store, lets time pass, and opens it again.
func (s *suite) reopen(closed time.Duration) {
	s.Helper()
	require.NoError(s, s.store.Close())
	s.store = nil
	s.clock.Advance(closed)
	s.open()
}

// do carries out a group, of which every operation must succeed.
func (s *suite) do(ops ...store.Op) {
	s.Helper()
	require.NoError(s, s.store.Do(s.Context(), ops))
	for i, op := range ops {
		require.NoError(s, op.Outcome().Err, "operation %d, %T", i, op)
	}
}

// refused carries out one operation, which must be refused.
func (s *suite) refused(why error, op store.Op) {
	s.Helper()
	require.NoError(s, s.store.Do(s.Context(), []store.Op{op}))
	require.ErrorIs(s, op.Outcome().Err, why)
}

const q = "orders/expire" // the queue of most tests

func in(d time.Duration) store.When { return store.When{In: d} }
func at(t time.Time) store.When     { return store.When{At: t} }

func byID(id store.ID) store.Ref   { return store.Ref{ID: id} }
func byKey(key string) store.Ref   { return store.Ref{Key: key} }
func newJob(body string) store.Job { return store.Job{Queue: q, Body: []byte(body), Priority: 128} }

func keyed(body, key string) store.Job {
	j := newJob(body)
	j.Key = key
	return j
}

// add adds a job and returns its ID.
func (s *suite) add(j store.Job, when store.When) store.ID {
	s.Helper()
	op := &store.Add{Job: j, When: when}
	s.do(op)
	require.NotZero(s, op.ID)
	require.False(s, op.Kept)
	return op.ID
}

const lease = time.Minute

// claim claims up to most jobs, with no limit of attempts.
func (s *suite) claim(most int) []store.Job {
	s.Helper()
	return s.claimOp(most).Jobs
}

func (s *suite) claimOp(most int) *store.Claim {
	s.Helper()
	op := &store.Claim{Queue: q, Max: most, Lease: lease}
	s.do(op)
	return op
}

// claimOne claims a job, which must be there.
func (s *suite) claimOne() store.Job {
	s.Helper()
	jobs := s.claim(1)
	require.Len(s, jobs, 1)
	return jobs[0]
}

// none checks that nothing is to be claimed.
func (s *suite) none() {
	s.Helper()
	require.Empty(s, s.claim(1))
}

// finish returns the operation that ends a lease.
func finish(j store.Job, verdict store.Verdict, when store.When) *store.Finish {
	return &store.Finish{Queue: j.Queue, ID: j.ID, Token: j.Token, Verdict: verdict, When: when}
}

func ack(j store.Job) *store.Finish { return finish(j, store.Ack, store.When{}) }

func bury(j store.Job, why string) *store.Finish {
	op := finish(j, store.Bury, store.When{})
	op.Error = why
	return op
}

func (s *suite) get(id store.ID) store.Job {
	s.Helper()
	j, err := s.store.Get(s.Context(), q, byID(id))
	require.NoError(s, err)
	require.Equal(s, id, j.ID)
	return j
}

func (s *suite) gone(id store.ID) {
	s.Helper()
	_, err := s.store.Get(s.Context(), q, byID(id))
	require.ErrorIs(s, err, store.ErrNotFound)
}

// all returns the jobs of a queue in a state, read page by page.
func all(
	ctx context.Context, s store.Store, queue string, state store.State, page int,
) (jobs []store.Job, err error) {
	var after store.Cursor
	for {
		some, next, err := s.List(ctx, queue, state, after, page)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, some...)
		if next == "" {
			return jobs, nil
		}
		after = next
	}
}

func (s *suite) list(state store.State) []store.Job {
	s.Helper()
	jobs, err := all(s.Context(), s.store, q, state, 100)
	require.NoError(s, err)
	return jobs
}

// info returns what Queues says of a queue.
func (s *suite) info(name string) store.QueueInfo {
	s.Helper()
	infos, err := s.store.Queues(s.Context())
	require.NoError(s, err)
	i := slices.IndexFunc(infos, func(i store.QueueInfo) bool { return i.Name == name })
	if i < 0 {
		return store.QueueInfo{}
	}
	return infos[i]
}

func bodies(jobs []store.Job) (texts []string) {
	for _, j := range jobs {
		texts = append(texts, string(j.Body))
	}
	return texts
}

func paused(queue string, is bool) *store.Configure {
	return &store.Configure{Queue: queue, Paused: &is}
}

func limit(name string, limits store.Limits) *store.Configure {
	return &store.Configure{Queue: name, Limits: &limits}
}
