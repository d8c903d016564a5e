package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

// FuzzModel carries out random groups of operations on the store and on the one in memory, and
// compares what they answer and what they hold.
func FuzzModel(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, uint16(150))
	}
	f.Fuzz(func(t *testing.T, seed uint64, groups uint16) {
		c := newComparison(t, seed)
		for range groups % 1000 {
			c.step()
		}
		c.sameContent(context.Background())
		c.close()
	})
}

// A comparison has both stores and one clock. ids and tokens map the model's to the store's.
type comparison struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	clock  atomic.Int64 // now, for the store's goroutines
	fs     vfs.FS
	model  store.Store
	real   *Store
	ids    map[store.ID]store.ID
	tokens map[uint64]uint64
	seen   []store.ID  // the keys of ids
	held   []store.Job // of the model: leased once
	chosen store.ID
}

var (
	queues = []string{"a", "ns/b", "ns/c"}
	keys   = []string{"", "", "k1", "k2", "k3", "k4", "k5"}
)

func newComparison(t *testing.T, seed uint64) *comparison {
	c := &comparison{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0).UTC(),
		fs: vfs.NewMem(), ids: map[store.ID]store.ID{}, tokens: map[uint64]uint64{},
		chosen: 1 << 40,
	}
	c.model = memory.New(memory.WithClock(func() time.Time { return c.now }))
	c.open()
	return c
}

func (c *comparison) open() {
	start := c.now
	c.clock.Store(start.UnixNano())
	var err error
	c.real, err = Open("db", WithFS(c.fs), WithClock(
		func() time.Time { return time.Unix(0, c.clock.Load()) },
		func() time.Duration { return time.Duration(c.clock.Load() - start.UnixNano()) }))
	require.NoError(c.t, err)
}

func (c *comparison) step() {
	ctx := context.Background()
	c.now = c.now.Add(time.Duration(c.r.IntN(4)*c.r.IntN(30)) * time.Millisecond)
	c.clock.Store(c.now.UnixNano())
	if c.r.IntN(40) == 0 {
		c.reopen()
	}
	var a, b []store.Op
	for range 1 + c.r.IntN(6) {
		x, y := c.op()
		a, b = append(a, x), append(b, y)
	}
	require.NoError(c.t, c.model.Do(ctx, a))
	require.NoError(c.t, c.real.Do(ctx, b))
	for i := range a {
		c.sameOutcome(a[i], b[i])
	}
	if c.r.IntN(3) == 0 {
		c.sameContent(ctx)
	}
}

// reopen closes the store and opens it anew. Leases end by this; the model's are ended before.
func (c *comparison) reopen() {
	for _, name := range queues {
		jobs, _, err := c.model.List(context.Background(), name, store.Leased, "", 1000)
		require.NoError(c.t, err)
		for _, j := range jobs {
			x := &store.Finish{Queue: name, ID: j.ID, Token: j.Token, Verdict: store.Retry,
				When: store.When{In: time.Millisecond}}
			y := *x
			y.ID, y.Token = c.ids[j.ID], c.tokens[j.Token]
			require.NoError(c.t, c.model.Do(context.Background(), []store.Op{x}))
			require.NoError(c.t, c.real.Do(context.Background(), []store.Op{&y}))
			require.NoError(c.t, errors.Join(x.Err, y.Err))
		}
	}
	c.close()
	c.open()
}

// close closes the store and verifies it.
func (c *comparison) close() {
	require.NoError(c.t, c.real.Close())
	report, err := Verify("db", WithFS(c.fs))
	require.NoError(c.t, err)
	require.Empty(c.t, report.Problems)
}

func (c *comparison) queue() string { return queues[c.r.IntN(len(queues))] }

func (c *comparison) body() []byte { return make([]byte, c.r.IntN(20)) }

func (c *comparison) when() store.When {
	d := time.Duration(c.r.IntN(60_000)-10_000) * time.Microsecond
	if c.r.IntN(2) == 0 {
		return store.When{In: d}
	}
	return store.When{At: c.now.Add(d)}
}

// ref returns a Ref for the model and for the store.
func (c *comparison) ref() (x, y store.Ref) {
	if c.r.IntN(2) == 0 {
		x.Key = keys[c.r.IntN(len(keys))]
		return x, x
	}
	if n := len(c.seen); n > 0 && c.r.IntN(20) > 0 {
		a := c.seen[max(c.r.IntN(n), c.r.IntN(n))] // rather a late one
		return store.Ref{ID: a}, store.Ref{ID: c.ids[a]}
	}
	return store.Ref{ID: 1 << 50}, store.Ref{ID: 1 << 50}
}

func (c *comparison) op() (store.Op, store.Op) {
	name := c.queue()
	x, y := c.ref()
	switch n := c.r.IntN(100); {
	case n < 30:
		op := store.Add{On: store.Conflict(c.r.IntN(3)), When: c.when()}
		op.Job = store.Job{Queue: name, Key: keys[c.r.IntN(len(keys))], Body: c.body(),
			Priority: uint8(c.r.IntN(3)), MaxAttempts: c.r.IntN(4)}
		if c.r.IntN(3) == 0 {
			op.Job.Retain = time.Duration(c.r.IntN(50)) * time.Millisecond
		}
		if c.r.IntN(5) == 0 {
			op.Job.Repeat = []byte("again")
		}
		if c.r.IntN(10) == 0 {
			op.Job.ID = c.chosen + store.ID(c.r.IntN(20))
			op.Retry = c.r.IntN(2) == 0
		}
		other := op
		return &op, &other
	case n < 45:
		op := store.Claim{Queue: name, Max: c.r.IntN(4),
			Lease: time.Duration(c.r.IntN(100)) * time.Millisecond, MaxAttempts: c.r.IntN(3)}
		other := op
		return &op, &other
	case n < 65 && len(c.held) > 0:
		j := c.held[max(c.r.IntN(len(c.held)), c.r.IntN(len(c.held)))]
		op := store.Finish{
			Queue: j.Queue, ID: j.ID, Token: j.Token, Verdict: store.Verdict(c.r.IntN(5)),
			When: c.when(), Error: "bad", Repeat: []byte("new"),
			Failed: c.r.IntN(2) == 0, Lazy: c.r.IntN(2) == 0,
		}
		other := op
		other.ID, other.Token = c.ids[j.ID], c.tokens[j.Token]
		return &op, &other
	case n < 68 && len(c.held) > 0:
		j := c.held[c.r.IntN(len(c.held))]
		op := store.Extend{Queue: j.Queue, ID: j.ID, Token: j.Token, Lease: 50 * time.Millisecond}
		other := op
		other.ID, other.Token = c.ids[j.ID], c.tokens[j.Token]
		return &op, &other
	case n < 76:
		return &store.Cancel{Queue: name, Ref: x}, &store.Cancel{Queue: name, Ref: y}
	case n < 84:
		w := c.when()
		return &store.Reschedule{Queue: name, Ref: x, When: w}, &store.Reschedule{Queue: name,
			Ref: y, When: w}
	case n < 88:
		body := c.body()
		return &store.Update{Queue: name, Ref: x, Body: body}, &store.Update{Queue: name, Ref: y,
			Body: body}
	case n < 93:
		most := c.r.IntN(3)
		if c.r.IntN(2) == 0 {
			x, y = store.Ref{}, store.Ref{}
		}
		return &store.Requeue{Queue: name, Ref: x, Max: most}, &store.Requeue{Queue: name, Ref: y,
			Max: most}
	case n < 95:
		op := store.Purge{Queue: name, State: store.State(1 + c.r.IntN(5)), Max: c.r.IntN(3)}
		other := op
		return &op, &other
	}
	op := store.Configure{Queue: name}
	if c.r.IntN(3) == 0 {
		op.Queue = "ns/"
	}
	if c.r.IntN(2) == 0 {
		paused := c.r.IntN(3) == 0
		op.Paused = &paused
	} else {
		op.Limits = &store.Limits{Jobs: c.r.IntN(3) * c.r.IntN(8),
			Bytes: int64(c.r.IntN(2) * c.r.IntN(200)), DropOldest: c.r.IntN(2) == 0}
	}
	other := op
	return &op, &other
}

// sameID says that an ID of the model is one of the store's from now on, or compares them.
func (c *comparison) sameID(x, y store.ID) {
	if known, ok := c.ids[x]; ok {
		require.Equal(c.t, known, y, "id of %d", x)
	} else if x != 0 {
		require.NotZero(c.t, y)
		c.ids[x] = y
		c.seen = append(c.seen, x)
	}
}

func (c *comparison) sameOutcome(a, b store.Op) {
	require.Equal(c.t, a.Outcome().Err, b.Outcome().Err, "%T %+v", a, a)
	if a.Outcome().Err != nil {
		return
	}
	switch x := a.(type) {
	case *store.Add:
		y := b.(*store.Add)
		require.Equal(c.t, x.Kept, y.Kept, "%+v", x)
		c.sameID(x.ID, y.ID)
	case *store.Claim:
		y := b.(*store.Claim)
		require.Equal(c.t, []any{x.Buried, x.Next}, []any{y.Buried, y.Next}, "%+v", x)
		c.sameJobs(x.Jobs, y.Jobs)
		c.held = append(c.held, x.Jobs...)
	case *store.Cancel:
		y := b.(*store.Cancel)
		require.Equal(c.t, x.Running, y.Running)
		c.sameID(x.ID, y.ID)
	case *store.Requeue:
		require.Equal(c.t, x.N, b.(*store.Requeue).N)
	case *store.Purge:
		require.Equal(c.t, x.N, b.(*store.Purge).N, "%+v %+v", x, b)
	}
}

func (c *comparison) sameJobs(a, b []store.Job) {
	require.Equal(c.t, len(a), len(b), "\n%v\n%v", a, b)
	for i := range a {
		c.sameJob(a[i], b[i])
	}
}

func (c *comparison) sameJob(x, y store.Job) {
	c.sameID(x.ID, y.ID)
	if x.Token != 0 {
		if known, ok := c.tokens[x.Token]; ok {
			require.Equal(c.t, known, y.Token)
		}
		c.tokens[x.Token] = y.Token
	}
	x.ID, y.ID = 0, 0
	x.Token, y.Token = min(x.Token, 1), min(y.Token, 1)
	require.Equal(c.t, normal(x), normal(y))
}

func normal(j store.Job) string {
	return fmt.Sprintf("%s %q %q %d %v %d %d/%d %v %v %q %q lease %d %v finished %v", j.Queue,
		j.Key, j.Body, j.State, j.Due.UTC(), j.Priority,
		j.Attempts, j.MaxAttempts, j.Added.UTC(), j.Retain, j.Repeat, j.LastError, j.Token,
		j.LeaseEnd.UTC(), j.Finished.UTC())
}

func (c *comparison) sameContent(ctx context.Context) {
	a, err := c.model.Queues(ctx)
	require.NoError(c.t, err)
	b, err := c.real.Queues(ctx)
	require.NoError(c.t, err)
	require.Equal(c.t, a, b)
	ends := []time.Duration{0, time.Millisecond, 20 * time.Millisecond, time.Second}
	for _, q := range a {
		for state := store.Delayed; state <= store.Done; state++ {
			x, _, err := c.model.List(ctx, q.Name, state, "", 1000)
			require.NoError(c.t, err)
			var y []store.Job
			page, after := 1+c.r.IntN(5), store.Cursor("")
			for {
				jobs, next, err := c.real.List(ctx, q.Name, state, after, page)
				require.NoError(c.t, err)
				y = append(y, jobs...)
				if after = next; next == "" {
					break
				}
				require.Len(c.t, jobs, page)
			}
			c.sameJobs(x, y)
			for i, j := range x {
				got, err := c.real.Get(ctx, q.Name, store.Ref{ID: c.ids[j.ID]})
				require.NoError(c.t, err, "%v %v %+v now %v", c.ids[j.ID], j.ID, j, c.now)
				require.Equal(c.t, normal(y[i]), normal(got))
				if j.Key != "" && state <= store.Leased {
					got, err = c.real.Get(ctx, q.Name, store.Ref{Key: j.Key})
					require.NoError(c.t, err)
					require.Equal(c.t, normal(y[i]), normal(got))
				}
			}
		}
		x, err := c.model.Due(ctx, q.Name, ends)
		require.NoError(c.t, err)
		y, err := c.real.Due(ctx, q.Name, ends)
		require.NoError(c.t, err)
		require.Equal(c.t, x, y)
	}
}
