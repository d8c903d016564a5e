package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Concurrent has callers work on a few keys at the same moment, and checks that there is an order
// of their calls, each between its beginning and its end, in which every answer is right.
//
// Each key has a queue of its own, so that a Claim is about one key too, and the history of a key
// can be checked apart. The clock stands still. Leases either last or have ended at once.
func Concurrent(t *testing.T, config Config) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	start := uint64(time.Now().UnixNano())
	for round := range rounds {
		seed := start + uint64(round)
		checkLinear(t, record(t, config, seed), seed)
		if t.Failed() {
			return
		}
	}
}

func checkLinear(t testing.TB, history []porcupine.Operation, seed uint64) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(keyModel, history, time.Minute)
	if result == porcupine.Ok {
		return
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("jobqueue-linear-%d.html", seed))
	if err := porcupine.VisualizePath(keyModel, info, path); err != nil {
		t.Log(err)
	}
	t.Errorf("seed %d: the history is not linearizable: %v; see %s", seed, result, path)
}

// record lets callers go, and returns what they asked and were told.
func record(t *testing.T, config Config, seed uint64) []porcupine.Operation {
	const callers, calls, keys = 5, 24, 3
	s, err := config.Open(t.TempDir(), newClock())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()

	var ticks atomic.Int64 // a clock on which no two moments are the same
	var versions atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	leases := make([][]store.Job, keys) // that there were, for everyone to finish
	var group sync.WaitGroup
	for caller := range callers {
		r := rand.New(rand.NewPCG(seed, uint64(caller)))
		group.Go(func() {
			for range calls {
				key := r.IntN(keys)
				queue := fmt.Sprint("queue/", key)
				var known []store.Job
				mu.Lock()
				known = append(known, leases[key]...)
				mu.Unlock()
				call := randomCall(r, queue, known, &versions)
				o := porcupine.Operation{ClientId: caller, Input: call, Call: ticks.Add(1)}
				answer, err := call.do(t, s)
				o.Return = ticks.Add(1)
				if err != nil {
					t.Errorf("%+v: %v", call, err)
					return
				}
				o.Output = answer
				mu.Lock()
				history = append(history, o)
				if answer.token != 0 {
					leases[key] = append(leases[key],
						store.Job{Queue: queue, ID: answer.id, Token: answer.token})
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return history
}

// A call is an operation on the one key of a queue.
type call struct {
	what    string // add, cancel, reschedule, update, claim, finish, get
	queue   string
	body    string // of add and update
	on      store.Conflict
	later   bool // add, reschedule, finish: due in an hour, not now
	brief   bool // claim: the lease has ended at once
	verdict store.Verdict
	id      store.ID // of finish; of cancel and get 0 for the key
	token   uint64
}

// An answer is what the store said.
type answer struct {
	err      string
	id       store.ID
	kept     bool
	running  bool
	token    uint64
	body     string
	attempts int
	state    store.State
}

func randomCall(r *rand.Rand, queue string, known []store.Job, versions *atomic.Int64) call {
	c := call{queue: queue, later: r.IntN(4) == 0}
	what := r.IntN(100)
	switch {
	case what < 25:
		c.what, c.on, c.body = "add", store.Conflict(r.IntN(3)), fmt.Sprint(versions.Add(1))
	case what < 35:
		c.what = "cancel"
	case what < 43:
		c.what = "reschedule"
	case what < 50:
		c.what, c.body = "update", fmt.Sprint(versions.Add(1))
	case what < 70:
		c.what, c.brief = "claim", r.IntN(3) == 0
	case what < 90 && len(known) > 0:
		j := known[max(0, len(known)-1-r.IntN(3))]
		c.what, c.id, c.token = "finish", j.ID, j.Token
		c.verdict = []store.Verdict{store.Ack, store.Retry, store.Snooze, store.Bury}[r.IntN(4)]
	default:
		c.what = "get"
	}
	return c
}

func (c call) do(t *testing.T, s store.Store) (a answer, err error) {
	const key = "key"
	when := in(0)
	if c.later {
		when = in(time.Hour)
	}
	var op store.Op
	switch c.what {
	case "add":
		j := store.Job{Queue: c.queue, Key: key, Body: []byte(c.body)}
		op = &store.Add{Job: j, On: c.on, When: when}
	case "cancel":
		op = &store.Cancel{Queue: c.queue, Ref: byKey(key)}
	case "reschedule":
		op = &store.Reschedule{Queue: c.queue, Ref: byKey(key), When: when}
	case "update":
		op = &store.Update{Queue: c.queue, Ref: byKey(key), Body: []byte(c.body)}
	case "claim":
		d := time.Hour
		if c.brief {
			d = 0
		}
		op = &store.Claim{Queue: c.queue, Max: 2, Lease: d}
	case "finish":
		op = &store.Finish{Queue: c.queue, ID: c.id, Token: c.token, Verdict: c.verdict, When: when}
	case "get":
		j, err := s.Get(t.Context(), c.queue, byKey(key))
		if err != nil {
			return answer{err: class(err)}, nil
		}
		return answer{id: j.ID, body: string(j.Body), attempts: j.Attempts, state: j.State}, nil
	}
	if err := s.Do(t.Context(), []store.Op{op}); err != nil {
		return a, err
	}
	if err := op.Outcome().Err; err != nil {
		a.err = class(err)
		return a, nil
	}
	switch op := op.(type) {
	case *store.Add:
		a.id, a.kept = op.ID, op.Kept
	case *store.Cancel:
		a.id, a.running = op.ID, op.Running
	case *store.Claim:
		if len(op.Jobs) > 1 {
			return a, fmt.Errorf("%d jobs with one key", len(op.Jobs))
		}
		for _, j := range op.Jobs {
			a.id, a.token, a.body, a.attempts = j.ID, j.Token, string(j.Body), j.Attempts
		}
	}
	return a, nil
}

// A keyState is what the model has of a key: the live job, if there is one.
type keyState struct {
	id       store.ID // 0 for none
	body     string
	later    bool
	attempts int
	token    uint64 // of its lease, 0 for none
	brief    bool   // the lease has ended: the next claim takes it
}

// state returns the job's State. A lease that ended counts until a Claim.
func (k keyState) state() store.State {
	switch {
	case k.token != 0:
		return store.Leased
	case k.later:
		return store.Delayed
	}
	return store.Ready
}

var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, o := range history {
			queue := o.Input.(call).queue
			parts[queue] = append(parts[queue], o)
		}
		var list [][]porcupine.Operation
		for _, part := range parts {
			list = append(list, part)
		}
		return list
	},
	Init: func() any { return keyState{} },
	Step: func(state, input, output any) (bool, any) {
		ok, next := state.(keyState).step(input.(call), output.(answer))
		return ok, next
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// step says whether an answer is right, and what is then.
func (k keyState) step(c call, a answer) (bool, keyState) {
	is := func(want answer) bool { return a == want }
	refused := func(err error) (bool, keyState) { return is(answer{err: err.Error()}), k }
	switch c.what {
	case "add":
		if k.id != 0 && c.on == store.Keep {
			return is(answer{id: k.id, kept: true}), k
		}
		if k.id != 0 && c.on == store.Fail {
			return refused(store.ErrKeyExists)
		}
		fresh := a.err == "" && !a.kept && a.id != 0 && a.id != k.id
		return fresh, keyState{id: a.id, body: c.body, later: c.later}
	case "get":
		if k.id == 0 {
			return refused(store.ErrNotFound)
		}
		return is(answer{id: k.id, body: k.body, attempts: k.attempts, state: k.state()}), k
	case "cancel":
		if k.id == 0 {
			return refused(store.ErrNotFound)
		}
		return is(answer{id: k.id, running: k.token != 0}), keyState{}
	case "reschedule", "update":
		if k.id == 0 {
			return refused(store.ErrNotFound)
		}
		if k.token != 0 {
			return refused(store.ErrLeased)
		}
		if c.what == "update" {
			k.body = c.body
		} else {
			k.later = c.later
		}
		return is(answer{}), k
	case "claim":
		if k.brief {
			k.token, k.brief = 0, false
		}
		if k.id == 0 || k.token != 0 || k.later {
			return is(answer{}), k
		}
		k.attempts++
		k.token, k.brief = a.token, c.brief
		return a.token != 0 &&
			is(answer{id: k.id, token: a.token, body: k.body, attempts: k.attempts}), k
	case "finish":
		if k.token != c.token || k.id != c.id {
			return refused(store.ErrLeaseLost)
		}
		switch c.verdict {
		case store.Ack, store.Bury:
			return is(answer{}), keyState{}
		case store.Snooze:
			k.attempts--
		}
		k.token, k.brief, k.later = 0, false, c.later
		return is(answer{}), k
	}
	return false, k
}
