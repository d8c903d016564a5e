package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

// Fuzz carries out random groups of operations on the store and on one in memory. After each group
// it compares what they answer and all that they hold, and checks that the watcher would come in
// time. A store that is Durable is closed and opened now and then.
func Fuzz(f *testing.F, config Config) {
	for seed := range uint64(20) {
		f.Add(randomBytes(seed, 1000))
	}
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, config, data) })
}

func compare(t *testing.T, config Config, data []byte) {
	c := newComparison(t, config, data)
	for len(c.data) > 0 {
		c.step()
	}
	require.NoError(t, c.real.Close())
	require.NoError(t, c.model.Close())
}

func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// A comparison has two stores and one clock. The data decide what is done: each choice takes a
// byte. Times are whole milliseconds, as stores need not keep more.
type comparison struct {
	t      *testing.T
	config Config
	dir    string
	data   []byte
	clock  *Clock
	model  *memory.Store
	real   store.Store
	told   *told

	ids    map[store.ID]store.ID // from the model's to the store's
	names  map[store.ID]bool     // the store's that are in ids
	seen   []store.ID            // of the model, in the order in which they were seen first
	tokens map[uint64]uint64
	held   []store.Job // of the model: each that was ever leased
}

var (
	fuzzQueues = []string{"a", "ns/b", "ns/c"}
	fuzzKeys   = []string{"", "", "k", "k1", "k2", "k\x00"}
	fuzzEnds   = []time.Duration{0, time.Millisecond, 20 * time.Millisecond, time.Second}
)

const noID = 1 << 50 // of no job

func newComparison(t *testing.T, config Config, data []byte) *comparison {
	c := &comparison{
		t:      t,
		config: config,
		dir:    t.TempDir(),
		data:   data,
		clock:  newClock(),
		ids:    map[store.ID]store.ID{},
		names:  map[store.ID]bool{},
		tokens: map[uint64]uint64{},
	}
	c.model = memory.New(memory.WithClock(c.clock.Now))
	c.open()
	return c
}

func (c *comparison) open() {
	var err error
	c.real, err = c.config.Open(c.dir, c.clock)
	require.NoError(c.t, err)
	c.told = watch(c.real, c.clock)
}

// n takes a choice out of so many from the data.
func (c *comparison) n(of int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % of
}

func (c *comparison) once(in int) bool { return c.n(in) == in-1 }

// step lets time pass and carries out a group.
func (c *comparison) step() {
	c.clock.Advance([]time.Duration{0, 0, 1, 2, 5, 20, 100, 4000}[c.n(8)] * time.Millisecond)
	if c.once(40) && c.config.Durable {
		c.reopen()
	}
	var x, y []store.Op
	if c.once(8) {
		a, b := c.many()
		x, y = []store.Op{a}, []store.Op{b}
	} else {
		for range 1 + c.n(6) {
			a, b := c.op()
			x, y = append(x, a), append(y, b)
		}
	}
	for _, op := range y {
		if claim, ok := op.(*store.Claim); ok {
			c.told.asking(claim.Queue)
		}
	}
	require.NoError(c.t, c.model.Do(c.t.Context(), x))
	require.NoError(c.t, c.real.Do(c.t.Context(), y))
	for i := range x {
		c.sameOutcome(x[i], y[i])
	}
	c.sameContent()
}

// reopen closes the store and opens it anew, which ends the leases and loses no attempt.
func (c *comparison) reopen() {
	for _, name := range fuzzQueues {
		for _, j := range c.inModel(name, store.Leased) {
			op := finish(j, store.Retry, at(j.Due))
			op.Error = j.LastError
			require.NoError(c.t, c.model.Do(c.t.Context(), []store.Op{op}))
			require.NoError(c.t, op.Err)
		}
	}
	require.NoError(c.t, c.real.Close())
	c.open()
	for _, name := range fuzzQueues {
		c.told.tell(name, 0) // a client asks at once when it begins
	}
	c.sameContent()
}

func (c *comparison) inModel(queue string, state store.State) []store.Job {
	jobs, err := all(c.t.Context(), c.model, queue, state, 1000)
	require.NoError(c.t, err)
	return jobs
}

func (c *comparison) queue() string { return fuzzQueues[c.n(len(fuzzQueues))] }
func (c *comparison) key() string   { return fuzzKeys[c.n(len(fuzzKeys))] }
func (c *comparison) body() []byte  { return randomBytes(uint64(len(c.data)), c.n(20)) }

func (c *comparison) when() store.When {
	d := []time.Duration{
		-time.Hour, -5 * time.Millisecond, 0, 1, time.Millisecond, 1500 * time.Microsecond,
		7 * time.Millisecond, 30 * time.Millisecond, time.Second, 200 * 365 * 24 * time.Hour,
	}[c.n(10)]
	if c.n(2) == 0 {
		return in(d)
	}
	return at(c.clock.Now().Add(d % (1000 * time.Hour)))
}

// ref names a job of a queue for the model and for the store: mostly one that is there.
func (c *comparison) ref(queue string, states ...store.State) (x, y store.Ref) {
	switch c.n(8) {
	case 0:
		return byID(noID), byID(noID)
	case 1, 2:
		k := c.key()
		return byKey(k), byKey(k)
	case 3:
		if n := len(c.seen); n > 0 {
			id := c.seen[c.n(n)]
			return byID(id), byID(c.ids[id])
		}
	}
	var jobs []store.Job
	for _, state := range states {
		jobs = append(jobs, c.inModel(queue, state)...)
	}
	if len(jobs) == 0 {
		return byID(noID), byID(noID)
	}
	id := jobs[c.n(len(jobs))].ID
	return byID(id), byID(c.ids[id])
}

// lease names a lease that there was once, for the model and for the store.
func (c *comparison) lease() (x, y store.Job) {
	if len(c.held) == 0 {
		x = store.Job{Queue: "a", ID: noID, Token: 7777}
		return x, x
	}
	x = c.held[max(0, len(c.held)-1-c.n(6))]
	if c.once(30) {
		x.Queue = c.queue()
	}
	y = x
	y.ID, y.Token = c.ids[x.ID], c.tokens[x.Token]
	return x, y
}

// op returns a random operation for the model and for the store.
func (c *comparison) op() (store.Op, store.Op) {
	switch n := c.n(100); {
	case n < 30:
		j := store.Job{Queue: c.queue(), Key: c.key(), Body: c.body(), MaxAttempts: c.n(4)}
		j.Priority = []uint8{0, 1, 128, 255}[c.n(4)]
		j.Retain = []time.Duration{0, 0, time.Millisecond, 50 * time.Millisecond}[c.n(4)]
		if c.once(5) {
			j.Repeat = []byte("again")
		}
		op := store.Add{Job: j, On: store.Conflict(c.n(3)), When: c.when()}
		if c.once(8) {
			op.Job.ID = 1<<40 + store.ID(c.n(10))
			if c.config.IDsByQueue {
				op.Job.ID += 100 * store.ID(slices.Index(fuzzQueues, j.Queue))
			}
			op.Retry = c.n(2) == 0
		}
		return pair(op)
	case n < 48:
		lease := []time.Duration{0, time.Millisecond, 10 * time.Millisecond, time.Hour}[c.n(4)]
		part := c.n(16)
		return pair(store.Claim{Queue: c.queue(), Max: c.n(5), Fresh: part % 4, Ahead: part / 4,
			Lease: lease, MaxAttempts: c.n(4)})
	case n < 66:
		x, y := c.lease()
		op := finish(x, store.Verdict(c.n(5)), c.when())
		op.Error = []string{"", "bad luck"}[c.n(2)]
		op.Failed, op.Lazy = c.n(2) == 0, c.n(2) == 0
		op.Repeat = []byte{byte(c.n(9))}
		other := *op
		other.ID, other.Token = y.ID, y.Token
		return op, &other
	case n < 69:
		x, y := c.lease()
		d := []time.Duration{0, time.Millisecond, 20 * time.Millisecond, time.Hour}[c.n(4)]
		return &store.Extend{Queue: x.Queue, ID: x.ID, Token: x.Token, Lease: d},
			&store.Extend{Queue: y.Queue, ID: y.ID, Token: y.Token, Lease: d}
	case n < 77:
		q := c.queue()
		x, y := c.ref(q, store.Delayed, store.Ready, store.Leased, store.Dead)
		return &store.Cancel{Queue: q, Ref: x}, &store.Cancel{Queue: q, Ref: y}
	case n < 85:
		q, w := c.queue(), c.when()
		x, y := c.ref(q, store.Delayed, store.Ready, store.Leased)
		return &store.Reschedule{Queue: q, Ref: x, When: w},
			&store.Reschedule{Queue: q, Ref: y, When: w}
	case n < 89:
		q, body := c.queue(), c.body()
		x, y := c.ref(q, store.Delayed, store.Ready, store.Leased)
		return &store.Update{Queue: q, Ref: x, Body: body},
			&store.Update{Queue: q, Ref: y, Body: body}
	case n < 94:
		q := c.queue()
		x, y := c.ref(q, store.Dead)
		return &store.Requeue{Queue: q, Ref: x}, &store.Requeue{Queue: q, Ref: y}
	case n < 97:
		limits := store.Limits{DropOldest: c.n(2) == 0}
		limits.Jobs = []int{0, 0, 1, 5, 12}[c.n(5)]
		limits.Bytes = []int64{0, 0, 10, 80}[c.n(4)]
		return pair2(limit(append(fuzzQueues, "ns/")[c.n(4)], limits))
	}
	return pair2(paused(c.queue(), c.once(3)))
}

// many returns an operation on several jobs. Which of those that finished in the same millisecond
// comes first is the store's affair, so it takes all of these or none.
func (c *comparison) many() (store.Op, store.Op) {
	q, most, requeue := c.queue(), 1+c.n(2), c.n(3) == 0
	state := []store.State{store.Dead, store.Done, store.Ready, store.Delayed, store.Leased}[c.n(5)]
	if requeue {
		state = store.Dead
	}
	jobs := c.inModel(q, state)
	finished := state == store.Dead || state == store.Done
	if finished && len(jobs) > most && jobs[most].Finished.Equal(jobs[most-1].Finished) {
		most = 1000
	}
	if !requeue {
		return pair(store.Purge{Queue: q, State: state, Max: most})
	}
	keys := map[string]bool{}
	for _, j := range jobs {
		if j.Key != "" && keys[j.Key] { // which of them gets the key is the store's affair too
			return pair(store.Purge{Queue: q, State: store.Dead, Max: 1000})
		}
		keys[j.Key] = true
	}
	return pair(store.Requeue{Queue: q, Max: 1000})
}

func pair[T any, P interface {
	*T
	store.Op
}](op T) (store.Op, store.Op) {
	other := op
	return P(&op), P(&other)
}

func pair2(op *store.Configure) (store.Op, store.Op) { return pair(*op) }

var refusals = []error{
	store.ErrNotFound, store.ErrKeyExists, store.ErrLeaseLost, store.ErrLeased, store.ErrFull,
	store.ErrTooLarge,
}

// class returns which of the reasons an error is.
func class(err error) string {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return r.Error()
		}
	}
	return fmt.Sprint(err)
}

func (c *comparison) sameOutcome(a, b store.Op) {
	require.Equal(c.t, class(a.Outcome().Err), class(b.Outcome().Err), "%T %+v\n%T %+v", a, a, b, b)
	if a.Outcome().Err != nil {
		return
	}
	switch x := a.(type) {
	case *store.Add:
		y := b.(*store.Add)
		require.Equal(c.t, x.Kept, y.Kept, "%+v\n%+v", x, y)
		c.sameID(x.ID, y.ID)
	case *store.Claim:
		y := b.(*store.Claim)
		c.told.answered(y.Queue, y.Next)
		require.Equal(c.t, []any{x.Buried, x.Next}, []any{y.Buried, y.Next}, "%+v\n%+v", x, y)
		require.Len(c.t, y.Jobs, len(x.Jobs), "%+v\n%+v", x, y)
		for i := range x.Jobs {
			_, used := c.tokens[x.Jobs[i].Token]
			require.False(c.t, used)
			c.tokens[x.Jobs[i].Token] = y.Jobs[i].Token
			c.sameJob(x.Jobs[i], y.Jobs[i])
		}
		c.held = append(c.held, x.Jobs...)
	case *store.Cancel:
		y := b.(*store.Cancel)
		require.Equal(c.t, x.Running, y.Running, "%+v\n%+v", x, y)
		c.sameID(x.ID, y.ID)
	case *store.Requeue:
		require.Equal(c.t, x.N, b.(*store.Requeue).N, "%+v\n%+v", x, b)
	case *store.Purge:
		require.Equal(c.t, x.N, b.(*store.Purge).N, "%+v\n%+v", x, b)
	}
}

// sameID says that an ID of the store is the one of the model from now on, or that it is still.
func (c *comparison) sameID(x, y store.ID) {
	if known, ok := c.ids[x]; ok {
		require.Equal(c.t, known, y, "the model's id is %d", x)
		return
	}
	require.NotZero(c.t, y)
	require.False(c.t, c.names[y], "id %d is used twice", y)
	c.ids[x], c.names[y] = y, true
	c.seen = append(c.seen, x)
}

func (c *comparison) sameJob(x, y store.Job) {
	c.sameID(x.ID, y.ID)
	require.Equal(c.t, c.tokens[x.Token], y.Token, "token of %+v", x)
	require.Equal(c.t, fuzzed(x), fuzzed(y))
}

// fuzzed returns what two stores must agree on, as a text that is easily compared.
func fuzzed(j store.Job) string {
	ms := func(t time.Time) string { return t.UTC().Format("15:04:05.000 2006-01-02") }
	return fmt.Sprintf("%s %q state %d, body %x, due %s, priority %d, attempts %d of %d, ",
		j.Queue, j.Key, j.State, j.Body, ms(j.Due), j.Priority, j.Attempts, j.MaxAttempts) +
		fmt.Sprintf("added %s, retain %v, repeat %q, error %q, lease ends %s, finished %s",
			ms(j.Added), j.Retain, j.Repeat, j.LastError, ms(j.LeaseEnd), ms(j.Finished))
}

func (c *comparison) sameContent() {
	ctx := c.t.Context()
	x, err := c.model.Queues(ctx)
	require.NoError(c.t, err)
	y, err := c.real.Queues(ctx)
	require.NoError(c.t, err)
	require.Equal(c.t, x, y)
	for _, info := range y {
		if info.Next >= 0 {
			require.True(c.t, c.told.knows(info.Name, info.Next),
				"the watcher was not told that %s has something in %v", info.Name, info.Next)
		}
	}
	for _, name := range fuzzQueues {
		for state := store.Delayed; state <= store.Done; state++ {
			c.sameList(name, state)
		}
		x, err := c.model.Due(ctx, name, fuzzEnds)
		require.NoError(c.t, err)
		y, err := c.real.Due(ctx, name, fuzzEnds)
		require.NoError(c.t, err)
		require.Equal(c.t, x, y, "due in %s", name)
		for _, key := range fuzzKeys {
			x, errX := c.model.Get(ctx, name, byKey(key))
			y, errY := c.real.Get(ctx, name, byKey(key))
			require.Equal(c.t, class(errX), class(errY), "key %q", key)
			if errX == nil {
				c.sameJob(x, y)
			}
		}
	}
}

func (c *comparison) sameList(name string, state store.State) {
	x := c.inModel(name, state)
	y, err := all(c.t.Context(), c.real, name, state, 1+c.n(5))
	require.NoError(c.t, err)
	require.Len(c.t, y, len(x), "jobs of %s in state %d: %+v", name, state, x)
	if state == store.Dead || state == store.Done {
		for i := 1; i < len(y); i++ {
			require.False(c.t, y[i].Finished.Before(y[i-1].Finished),
				"%s is not listed by when its jobs finished", name)
		}
		// Those that finished in the same millisecond have no order. A dead copy has an ID that the
		// model does not know yet; its text tells it apart, or is that of another that will do.
		byText := func(a, b store.Job) int {
			return bytes.Compare([]byte(fuzzed(a)), []byte(fuzzed(b)))
		}
		c.matchKnown(x, y)
		slices.SortStableFunc(x, byText)
		slices.SortStableFunc(y, byText)
		for i := range x {
			require.Equal(c.t, fuzzed(x[i]), fuzzed(y[i]))
		}
		return
	}
	for i := range x {
		c.sameJob(x[i], y[i])
	}
	for i := range x {
		got, err := c.real.Get(c.t.Context(), name, byID(y[i].ID))
		require.NoError(c.t, err)
		c.sameJob(x[i], got)
	}
}

// matchKnown compares the finished jobs whose IDs are known, and pairs the others by their texts.
func (c *comparison) matchKnown(x, y []store.Job) {
	left := map[store.ID]store.Job{}
	for _, j := range y {
		left[j.ID] = j
	}
	var unknown []store.Job
	for _, j := range x {
		id, ok := c.ids[j.ID]
		if !ok {
			unknown = append(unknown, j)
			continue
		}
		other, ok := left[id]
		require.True(c.t, ok, "%+v is not listed", j)
		c.sameJob(j, other)
		delete(left, id)
	}
	for _, j := range unknown {
		for _, other := range y {
			if _, ok := left[other.ID]; ok && fuzzed(j) == fuzzed(other) {
				c.sameID(j.ID, other.ID)
				delete(left, other.ID)
				break
			}
		}
	}
	require.Empty(c.t, left)
}
