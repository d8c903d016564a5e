package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// What Watch tells.
var watchTests = []test{
	{name: "WatchTellsOfWhatIsDueEarlier", run: watchEarlier},
	{name: "WatchTellsAfterEveryKindOfOperation", run: watchKinds},
	{name: "WatchTellsOfAStepOfTheWallClock", run: watchStep, needs: steps},
}

// A told is what a watcher has heard.
type told struct {
	mu      sync.Mutex
	soonest map[string]time.Duration // in Elapsed's time
	clock   *Clock
}

func watch(s store.Store, clock *Clock) *told {
	w := &told{soonest: map[string]time.Duration{}, clock: clock}
	s.Watch(w.tell)
	return w
}

// tell notes that a queue may have something to claim so far from now.
func (w *told) tell(queue string, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := w.clock.Elapsed() + in
	if old, ok := w.soonest[queue]; !ok || end < old {
		w.soonest[queue] = end
	}
}

// asking notes that a Claim is about to say anew when to come.
func (w *told) asking(queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.soonest, queue)
}

// answered notes what the Claim said.
func (w *told) answered(queue string, next time.Duration) {
	if next >= 0 {
		w.tell(queue, next)
	}
}

// knows says whether the watcher will come in time for a job that is due so far from now.
func (w *told) knows(queue string, in time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.soonest[queue]
	return ok && at <= w.clock.Elapsed()+in
}

func watchEarlier(s *suite) {
	w := watch(s.store, s.clock)
	claim := func() {
		w.asking(q)
		w.answered(q, s.claimOp(1).Next)
	}
	claim()
	s.add(newJob("x"), in(time.Hour))
	require.True(s, w.knows(q, time.Hour))
	s.add(newJob("y"), in(time.Minute))
	require.True(s, w.knows(q, time.Minute))
	require.False(s, w.knows(q, time.Minute-1), "too early costs a wake-up for nothing")
	s.add(newJob("z"), at(s.clock.Now().Add(time.Second)))
	require.True(s, w.knows(q, time.Second))
	claim()
	s.clock.Advance(time.Second)
	s.add(newJob("now"), in(0))
	require.True(s, w.knows(q, 0))
}

func watchKinds(s *suite) {
	w := watch(s.store, s.clock)
	// heard says that the watcher comes at once after the operations, and claims what is there.
	heard := func(why string, ops ...store.Op) store.Job {
		s.Helper()
		w.asking(q)
		claim := s.claimOp(1)
		require.Empty(s, claim.Jobs)
		w.answered(q, claim.Next)
		require.False(s, w.knows(q, 0))
		s.do(ops...)
		require.True(s, w.knows(q, 0), why)
		return s.claimOne()
	}
	id := s.add(newJob("x"), in(time.Hour))
	j := heard("Reschedule", &store.Reschedule{Queue: q, Ref: byID(id), When: in(0)})
	j = heard("Retry", finish(j, store.Retry, in(0)))
	j = heard("Snooze", finish(j, store.Snooze, at(s.clock.Now())))
	j = heard("Again", finish(j, store.Again, in(0)))
	j = heard("Bury and Requeue", bury(j, "why"), &store.Requeue{Queue: q, Ref: byID(id)})
	s.do(bury(j, "why"))
	j = heard("Requeue of all", &store.Requeue{Queue: q, Max: 9})
	s.do(paused(q, true), finish(j, store.Retry, in(0)))
	j = heard("Resume", paused(q, false))
	s.do(&store.Extend{Queue: q, ID: id, Token: j.Token, Lease: time.Hour})
	w.asking(q)
	w.answered(q, s.claimOp(1).Next)
	s.do(&store.Extend{Queue: q, ID: id, Token: j.Token, Lease: time.Second})
	require.True(s, w.knows(q, time.Second), "Extend to earlier")
	s.do(ack(j))
	s.add(keyed("x", "key"), in(time.Hour))
	heard("Replace", &store.Add{Job: keyed("y", "key"), On: store.Replace})
}

func watchStep(s *suite) {
	w := watch(s.store, s.clock)
	s.add(newJob("x"), at(s.clock.Now().Add(time.Hour)))
	w.asking(q)
	w.answered(q, s.claimOp(1).Next)
	s.clock.Step(time.Hour)
	other := newJob("y") // any group notices
	other.Queue = "another"
	s.add(other, in(time.Hour))
	require.True(s, w.knows(q, 0))
	require.Equal(s, "x", string(s.claimOne().Body))
}

// Groups, callers at the same moment, and the end.
var callTests = []test{
	{name: "AnEmptyGroup", run: emptyGroup},
	{name: "AGroupSeesWhatItHasDone", run: groupOrder},
	{name: "ARefusedOperationLeavesTheOthers", run: groupRefused},
	{name: "OperationsCanBeUsedAgain", run: opsReused},
	{name: "EachJobIsClaimedOnce", run: claimedOnce},
	{name: "CancelOrClaimWins", run: cancelOrClaim},
	{name: "OneOfManyAddsOfAKeyWins", run: oneAddWins},
	{name: "AClosedStoreRefuses", run: closedStore},
	{name: "CloseEndsWhatIsUnderWay", run: closeMeanwhile},
	{name: "ASecondStoreInTheSamePlace", run: openTwice, needs: durable},
}

func emptyGroup(s *suite) {
	require.NoError(s, s.store.Do(s.Context(), nil))
}

func groupOrder(s *suite) {
	add := &store.Add{Job: keyed("a", "key")}
	again := &store.Add{Job: keyed("b", "key")}
	claim := &store.Claim{Queue: q, Max: 9, Lease: lease}
	cancel := &store.Cancel{Queue: q, Ref: byKey("key")}
	third := &store.Add{Job: keyed("c", "key"), On: store.Fail, When: in(time.Hour)}
	move := &store.Reschedule{Queue: q, Ref: byKey("key")}
	update := &store.Update{Queue: q, Ref: byKey("key"), Body: []byte("d")}
	last := &store.Claim{Queue: q, Max: 9, Lease: lease}
	s.do(add, again, claim, cancel, third, move, update, last)
	require.True(s, again.Kept)
	require.Equal(s, add.ID, again.ID)
	require.Equal(s, []string{"a"}, bodies(claim.Jobs))
	require.True(s, cancel.Running)
	require.Equal(s, []string{"d"}, bodies(last.Jobs))
	require.Equal(s, third.ID, last.Jobs[0].ID)
	s.gone(add.ID)

	// A cancel and a claim in one group, both orders.
	s.do(ack(last.Jobs[0]), &store.Add{Job: keyed("e", "key")})
	claim.Max = 1
	s.do(cancel, claim)
	require.False(s, cancel.Running)
	require.Empty(s, claim.Jobs)
	s.add(keyed("f", "key"), in(0))
	s.do(claim, cancel)
	require.True(s, cancel.Running)
	require.Equal(s, []string{"f"}, bodies(claim.Jobs))
	s.refused(store.ErrLeaseLost, ack(claim.Jobs[0]))

	// An acknowledgement frees the key for the next of its group.
	s.add(keyed("g", "key"), in(0))
	j := s.claimOne()
	s.do(ack(j), &store.Add{Job: keyed("h", "key"), On: store.Fail}, claim)
	require.Equal(s, []string{"h"}, bodies(claim.Jobs))
	twice := ack(claim.Jobs[0])
	s.do(twice)
	require.NoError(s, s.store.Do(s.Context(), []store.Op{twice}))
	require.ErrorIs(s, twice.Err, store.ErrLeaseLost)
	if s.config.Durable {
		s.reopen(0)
	}
	require.Zero(s, s.info(q))
	require.Negative(s, s.claimOp(1).Next)
}

func groupRefused(s *suite) {
	ops := []store.Op{
		&store.Add{Job: keyed("a", "key")},
		&store.Cancel{Queue: q, Ref: byKey("none")},
		&store.Add{Job: keyed("b", "key"), On: store.Fail},
		&store.Finish{Queue: q, ID: 77, Token: 77},
		&store.Add{Job: keyed("c", "other")},
	}
	require.NoError(s, s.store.Do(s.Context(), ops))
	for i, why := range []error{nil, store.ErrNotFound, store.ErrKeyExists, store.ErrLeaseLost,
		nil} {
		require.ErrorIs(s, ops[i].Outcome().Err, why, "operation %d", i)
	}
	require.Equal(s, []string{"a", "c"}, bodies(s.claim(9)))
}

// opsReused uses operations again, as callers do to save memory: what they said before is gone.
func opsReused(s *suite) {
	add := &store.Add{Job: keyed("x", "key")}
	s.do(add)
	s.do(add)
	require.True(s, add.Kept)
	claim := &store.Claim{Queue: q, Max: 9, Lease: lease}
	s.do(claim)
	require.Len(s, claim.Jobs, 1)
	s.do(claim)
	require.Empty(s, claim.Jobs)
	cancel := &store.Cancel{Queue: q, Ref: byKey("key")}
	s.do(cancel)
	require.True(s, cancel.Running)
	s.refused(store.ErrNotFound, cancel)
	s.do(add)
	require.False(s, add.Kept)
	require.NoError(s, add.Err)
	s.do(cancel)
	require.False(s, cancel.Running)
}

func claimedOnce(s *suite) {
	const jobs, workers = 400, 8
	var seen sync.Map
	var n atomic.Int64
	var adding, group sync.WaitGroup
	var added atomic.Bool
	for w := range workers {
		adding.Go(func() {
			for i := range jobs / workers {
				op := &store.Add{Job: newJob(fmt.Sprint(w, ".", i))}
				if err := s.store.Do(s.Context(), []store.Op{op}); err != nil || op.Err != nil {
					s.Errorf("add: %v, %v", err, op.Err)
				}
			}
		})
		group.Go(func() {
			for last := false; !last; {
				last = added.Load()
				claim := &store.Claim{Queue: q, Max: 1 + w, Lease: time.Hour}
				if err := s.store.Do(s.Context(), []store.Op{claim}); err != nil ||
					claim.Err != nil {
					s.Errorf("claim: %v, %v", err, claim.Err)
					return
				}
				last = last && len(claim.Jobs) == 0
				for _, j := range claim.Jobs {
					if _, twice := seen.LoadOrStore(string(j.Body), true); twice {
						s.Errorf("job %s was claimed twice", j.Body)
					}
					n.Add(1)
					done := ack(j)
					if err := s.store.Do(s.Context(), []store.Op{done}); err != nil ||
						done.Err != nil {
						s.Errorf("ack: %v, %v", err, done.Err)
					}
				}
			}
		})
	}
	adding.Wait()
	added.Store(true)
	group.Wait()
	require.EqualValues(s, jobs, n.Load())
	require.Zero(s, s.info(q))
}

// cancelOrClaim has a Cancel and a Claim of the same job at the same moment. Either the Claim gets
// the job, and the Cancel says so and takes the lease, or it does not.
func cancelOrClaim(s *suite) {
	const rounds = 100
	for i := range rounds {
		id := s.add(keyed("x", "key"), in(0))
		cancel := &store.Cancel{Queue: q, Ref: byKey("key")}
		if i%2 == 0 {
			cancel.Ref = byID(id)
		}
		claim := &store.Claim{Queue: q, Max: 1, Lease: lease}
		var group sync.WaitGroup
		var errs [2]error
		for i, op := range []store.Op{cancel, claim} {
			group.Go(func() { errs[i] = s.store.Do(s.Context(), []store.Op{op}) })
		}
		group.Wait()
		require.Equal(s, [2]error{}, errs)
		require.NoError(s, cancel.Err)
		require.NoError(s, claim.Err)
		require.Equal(s, cancel.Running, len(claim.Jobs) == 1)
		for _, j := range claim.Jobs {
			s.refused(store.ErrLeaseLost, ack(j))
		}
		s.gone(id)
	}
}

func oneAddWins(s *suite) {
	for range 20 {
		const callers = 8
		ops := make([]store.Add, callers)
		var group sync.WaitGroup
		for i := range ops {
			ops[i] = store.Add{Job: keyed("x", "key"),
				On: []store.Conflict{store.Keep, store.Fail}[i%2]}
			group.Go(func() {
				if err := s.store.Do(s.Context(), []store.Op{&ops[i]}); err != nil {
					s.Error(err)
				}
			})
		}
		group.Wait()
		won := 0
		j := s.claimOne()
		for i := range ops {
			switch {
			case ops[i].Err != nil:
				require.ErrorIs(s, ops[i].Err, store.ErrKeyExists)
			default:
				require.Equal(s, j.ID, ops[i].ID)
				if !ops[i].Kept {
					won++
				}
			}
		}
		require.Equal(s, 1, won)
		s.none()
		s.do(ack(j))
	}
}

func closedStore(s *suite) {
	s.add(newJob("x"), in(0))
	kept := s.store
	require.NoError(s, kept.Close())
	s.store = nil
	require.ErrorIs(s, kept.Do(s.Context(), []store.Op{&store.Add{Job: newJob("y")}}),
		store.ErrClosed)
	_, err := kept.Get(s.Context(), q, byID(1))
	require.ErrorIs(s, err, store.ErrClosed)
	_, _, err = kept.List(s.Context(), q, store.Ready, "", 1)
	require.ErrorIs(s, err, store.ErrClosed)
	_, err = kept.Queues(s.Context())
	require.ErrorIs(s, err, store.ErrClosed)
	_, err = kept.Due(s.Context(), q, []time.Duration{0})
	require.ErrorIs(s, err, store.ErrClosed)
	if err := kept.Close(); err != nil {
		require.ErrorIs(s, err, store.ErrClosed)
	}
}

// closeMeanwhile closes the store while callers add. Each is told that its job was added or that
// the store is closed, and that is true.
func closeMeanwhile(s *suite) {
	const callers = 8
	var added [callers]int
	var group sync.WaitGroup
	started := make(chan struct{}, callers)
	for c := range callers {
		group.Go(func() {
			for i := 0; ; i++ {
				op := &store.Add{Job: keyed("x", fmt.Sprint(c, ".", i))}
				err := s.store.Do(s.Context(), []store.Op{op})
				if err == nil && op.Err == nil {
					added[c]++
				} else {
					require.ErrorIs(s, err, store.ErrClosed)
					return
				}
				if i == 3 {
					started <- struct{}{}
				}
			}
		})
	}
	for range callers {
		<-started
	}
	require.NoError(s, s.store.Close())
	group.Wait()
	if !s.config.Durable {
		s.store = nil
		return
	}
	s.store = nil
	s.open()
	want := 0
	for c, n := range added {
		want += n
		for i := range n {
			_, err := s.store.Get(s.Context(), q, byKey(fmt.Sprint(c, ".", i)))
			require.NoError(s, err)
		}
	}
	require.Equal(s, want, s.info(q).Ready, "what was refused is not there")
}

func openTwice(s *suite) {
	s.add(newJob("x"), in(0))
	other, err := s.config.Open(s.dir, s.clock)
	if err == nil {
		require.NoError(s, other.Close())
	}
	require.ErrorIs(s, err, store.ErrLocked)
	s.claimOne()
	s.reopen(0)
	s.claimOne()
}
