package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Claims, leases, and how attempts end.
var leaseTests = []test{
	{name: "AClaimCountsTheAttempt", run: claimCounts},
	{name: "ALeaseThatEndedIsClaimedAgain", run: leaseEnds},
	{name: "AStaleTokenIsRefused", run: staleToken},
	{name: "ALeaseCountsUntilAClaimEndsIt", run: lateFinish},
	{name: "ExtendMovesTheEnd", run: extendMoves},
	{name: "AJobThatHadAllAttemptsIsDead", run: lastAttempt},
	{name: "TheLastAttemptIsNotClaimedAhead", run: lastNotAhead},
	{name: "AnotherClaimsLimitOfAttempts", run: claimLimit},
	{name: "ARecurringJobIsClaimedBeyondItsAttempts", run: recurringBeyond},
	{name: "Retry", run: retryVerdict},
	{name: "SnoozeCostsNoAttempt", run: snoozeVerdict},
	{name: "Bury", run: buryVerdict},
	{name: "AckForgetsTheJob", run: ackVerdict},
	{name: "ADoneJobIsRetained", run: retained},
	{name: "AgainKeepsTheJob", run: againVerdict},
	{name: "AFailedRunLeavesADeadCopy", run: againFailed},
	{name: "NextSaysWhenToComeBack", run: nextClaim},
	{name: "APausedQueueHasNothingToClaim", run: pausedQueue},
	{name: "AnUnknownQueueHasNothingToClaim", run: unknownQueue},
	{name: "LeasesEndWhenTheStoreIsOpenedAnew", run: leasesReopened, needs: durable},
	{name: "TheAttemptIsCountedBeforeDelivery", run: countedAcrossReopen, needs: durable},
	{name: "TokensAreNotUsedTwice", run: tokensDiffer},
}

func claimCounts(s *suite) {
	id := s.add(newJob("x"), in(0))
	j := s.claimOne()
	require.Equal(s, id, j.ID)
	require.Equal(s, 1, j.Attempts)
	require.Equal(s, store.Leased, j.State)
	require.NotZero(s, j.Token)
	require.True(s, j.LeaseEnd.Equal(s.clock.Now().Add(lease)), "%v", j.LeaseEnd)
	kept := s.get(id)
	require.Equal(s, 1, kept.Attempts)
	require.Equal(s, store.Leased, kept.State)
	require.True(s, kept.LeaseEnd.Equal(j.LeaseEnd))
	require.Len(s, s.list(store.Leased), 1)
	require.Empty(s, s.list(store.Ready))
	s.none()
}

func leaseEnds(s *suite) {
	s.add(newJob("x"), in(0))
	var tokens []uint64
	for i := range 4 {
		j := s.claimOne()
		require.Equal(s, i+1, j.Attempts)
		require.NotContains(s, tokens, j.Token)
		tokens = append(tokens, j.Token)
		require.Equal(s, lease, s.claimOp(1).Next)
		s.clock.Advance(lease - 1)
		s.none()
		s.clock.Advance(1)
	}
}

// staleToken is what a worker meets that was too slow.
func staleToken(s *suite) {
	id := s.add(keyed("x", "key"), in(0))
	slow := s.claimOne()
	s.clock.Advance(lease)
	second := s.claimOne()
	require.NotEqual(s, slow.Token, second.Token)
	for verdict := store.Ack; verdict <= store.Again; verdict++ {
		s.refused(store.ErrLeaseLost, finish(slow, verdict, in(time.Hour)))
	}
	s.refused(store.ErrLeaseLost,
		&store.Extend{Queue: q, ID: id, Token: slow.Token, Lease: time.Hour})
	s.refused(store.ErrLeaseLost, &store.Finish{Queue: q, ID: id})
	s.refused(store.ErrLeaseLost, &store.Finish{Queue: q, ID: id, Token: second.Token + 1})
	s.refused(store.ErrLeaseLost, &store.Finish{Queue: q, ID: id + 1, Token: second.Token})
	s.refused(store.ErrLeaseLost, &store.Finish{Queue: "another", ID: id, Token: second.Token})

	kept := s.get(id)
	require.Equal(s, store.Leased, kept.State)
	require.Equal(s, 2, kept.Attempts)
	require.True(s, kept.LeaseEnd.Equal(second.LeaseEnd))
	s.do(ack(second))
	s.gone(id)
	s.refused(store.ErrLeaseLost, ack(second))
}

func lateFinish(s *suite) {
	id := s.add(newJob("x"), in(0))
	j := s.claimOne()
	s.clock.Advance(10 * lease)
	s.do(&store.Extend{Queue: q, ID: id, Token: j.Token, Lease: lease})
	s.none()
	s.clock.Advance(10 * lease)
	s.do(ack(j))
	s.gone(id)
	s.none()
}

func extendMoves(s *suite) {
	id := s.add(newJob("x"), in(0))
	other := s.add(newJob("y"), in(0))
	jobs := s.claim(2)
	s.do(&store.Extend{Queue: q, ID: id, Token: jobs[0].Token, Lease: 3 * lease})
	require.True(s, s.get(id).LeaseEnd.Equal(s.clock.Now().Add(3*lease)))
	s.do(&store.Extend{Queue: q, ID: other, Token: jobs[1].Token, Lease: time.Second})
	require.Equal(s, time.Second, s.claimOp(1).Next)
	s.clock.Advance(time.Second)
	require.Equal(s, other, s.claimOne().ID)
	s.clock.Advance(3*lease - time.Second - 1)
	require.NotContains(s, bodies(s.claim(9)), "x")
	s.clock.Advance(1)
	require.Contains(s, bodies(s.claim(9)), "x")
}

func lastAttempt(s *suite) {
	poison := newJob("poison")
	poison.MaxAttempts = 2
	id := s.add(poison, in(0))
	for range 2 {
		require.Equal(s, id, s.claimOne().ID)
		s.clock.Advance(lease)
	}
	good := s.add(newJob("good"), in(0))
	claim := s.claimOp(1)
	require.Len(s, claim.Jobs, 1, "a job that becomes Dead does not count as claimed")
	require.Equal(s, good, claim.Jobs[0].ID)
	require.Equal(s, 1, claim.Buried)
	j := s.get(id)
	require.Equal(s, store.Dead, j.State)
	require.Equal(s, 2, j.Attempts)
	require.NotEmpty(s, j.LastError)
	require.True(s, j.Finished.Equal(s.clock.Now()))
	require.Zero(s, j.Token)
	s.clock.Advance(24 * time.Hour)
	require.Equal(s, []string{"good"}, bodies(s.claim(9)))
}

// lastNotAhead: what a caller claims before a worker is free may be lost with the caller.
func lastNotAhead(s *suite) {
	claim := func(most, ahead int) (bodies []string) {
		op := &store.Claim{Queue: q, Max: most, Ahead: ahead, Lease: lease, MaxAttempts: 3}
		s.do(op)
		for _, j := range op.Jobs {
			bodies = append(bodies, string(j.Body))
		}
		if len(op.Jobs) < most {
			require.Zero(s, op.Next, "there are more")
		}
		return bodies
	}
	for i := range 6 {
		j := newJob(fmt.Sprint(i))
		j.MaxAttempts = []int{0, 2, 0, 1, 0, 0}[i]
		s.add(j, in(0))
	}
	require.Equal(s, []string{"0", "1", "2"}, claim(5, 4))
	require.Empty(s, claim(3, 3))
	require.Equal(s, []string{"3", "4"}, claim(2, 1), "a worker is free for it")
	s.clock.Advance(lease)
	require.Equal(s, []string{"0"}, claim(6, 6), "1 is on its last attempt")
	require.Equal(s, []string{"1", "2", "4", "5"}, claim(4, 3))
	require.Equal(s, []string{"3"}, bodies(s.list(store.Dead)))
	s.clock.Advance(lease)
	require.Empty(s, claim(3, 3), "0 by the claim's limit")
	require.Equal(s, []string{"0"}, claim(1, 0))
}

func claimLimit(s *suite) {
	own := newJob("own limit")
	own.MaxAttempts = 3
	ids := []store.ID{s.add(newJob("x"), in(0)), s.add(own, in(0))}
	op := func() *store.Claim {
		claim := &store.Claim{Queue: q, Max: 9, Lease: lease, MaxAttempts: 1}
		s.do(claim)
		s.clock.Advance(lease)
		return claim
	}
	require.Len(s, op().Jobs, 2)
	claim := op()
	require.Equal(s, []string{"own limit"}, bodies(claim.Jobs))
	require.Equal(s, 1, claim.Buried)
	require.Len(s, op().Jobs, 1)
	require.Equal(s, 1, op().Buried)
	for _, id := range ids {
		require.Equal(s, store.Dead, s.get(id).State)
	}
}

func recurringBeyond(s *suite) {
	j := newJob("x")
	j.MaxAttempts = 1
	j.Repeat = []byte("every minute")
	s.add(j, in(0))
	for i := range 3 {
		claim := s.claimOp(1)
		require.Len(s, claim.Jobs, 1)
		require.Equal(s, i+1, claim.Jobs[0].Attempts)
		require.Equal(s, "every minute", string(claim.Jobs[0].Repeat))
		require.Zero(s, claim.Buried)
		s.clock.Advance(lease)
	}
}

func retryVerdict(s *suite) {
	id := s.add(keyed("x", "key"), in(0))
	first := s.claimOne()
	op := finish(first, store.Retry, in(time.Minute))
	op.Error = "no luck"
	s.do(op)
	j := s.get(id)
	require.Equal(s, store.Delayed, j.State)
	require.Equal(s, 1, j.Attempts)
	require.Equal(s, "no luck", j.LastError)
	require.Zero(s, j.Token)
	require.True(s, j.LeaseEnd.IsZero())
	require.True(s, j.Due.Equal(s.clock.Now().Add(time.Minute)))
	s.refused(store.ErrKeyExists, &store.Add{Job: keyed("y", "key"), On: store.Fail})
	s.refused(store.ErrLeaseLost, ack(first))
	s.none()
	s.clock.Advance(time.Minute)
	second := s.claimOne()
	require.Equal(s, 2, second.Attempts)
	require.Equal(s, "no luck", second.LastError)
	s.do(finish(second, store.Retry, at(s.clock.Now().Add(time.Hour))))
	s.clock.Advance(time.Hour - 1)
	s.none()
	s.clock.Advance(1)
	require.Equal(s, 3, s.claimOne().Attempts)
}

func snoozeVerdict(s *suite) {
	j := newJob("x")
	j.MaxAttempts = 1
	id := s.add(j, in(0))
	for range 5 {
		j := s.claimOne()
		require.Equal(s, 1, j.Attempts)
		s.do(finish(j, store.Snooze, in(time.Second)))
		require.Zero(s, s.get(id).Attempts)
		s.none()
		s.clock.Advance(time.Second)
	}
}

func buryVerdict(s *suite) {
	id := s.add(keyed("x", "key"), in(0))
	s.do(bury(s.claimOne(), "beyond help"))
	j := s.get(id)
	require.Equal(s, store.Dead, j.State)
	require.Equal(s, "beyond help", j.LastError)
	require.Equal(s, "x", string(j.Body))
	require.Equal(s, "key", j.Key)
	require.Equal(s, 1, j.Attempts)
	require.True(s, j.Finished.Equal(s.clock.Now()))
	s.clock.Advance(1000 * time.Hour)
	s.none()
}

func ackVerdict(s *suite) {
	for _, lazy := range []bool{false, true} {
		id := s.add(newJob("x"), in(0))
		op := ack(s.claimOne())
		op.Lazy = lazy
		s.do(op)
		s.gone(id)
		s.clock.Advance(10 * lease)
		s.none()
		require.Zero(s, s.info(q))
	}
}

func retained(s *suite) {
	j := keyed("x", "key")
	j.Retain = time.Hour
	id := s.add(j, in(0))
	s.do(ack(s.claimOne()))
	s.clock.Advance(time.Hour - time.Millisecond)
	kept := s.get(id)
	require.Equal(s, store.Done, kept.State)
	require.Equal(s, "x", string(kept.Body))
	require.True(s, kept.Finished.Equal(s.clock.Now().Add(time.Millisecond-time.Hour)))
	require.Len(s, s.list(store.Done), 1)
	require.Equal(s, 1, s.info(q).Done)
	s.none()
	s.refused(store.ErrNotFound, &store.Cancel{Queue: q, Ref: byID(id)})
	s.refused(store.ErrNotFound, &store.Reschedule{Queue: q, Ref: byID(id)})
	s.refused(store.ErrNotFound, &store.Requeue{Queue: q, Ref: byID(id)})
	s.clock.Advance(time.Millisecond)
	s.gone(id)
	require.Empty(s, s.list(store.Done))
	require.Zero(s, s.info(q).Done)
}

func againVerdict(s *suite) {
	j := keyed("x", "key")
	j.Repeat = []byte("run 1")
	id := s.add(j, in(0))
	s.clock.Advance(time.Second)
	first := s.claimOne()
	op := finish(first, store.Again, in(time.Minute))
	op.Repeat = []byte("run 2")
	s.do(op)
	kept := s.get(id)
	require.Equal(s, store.Delayed, kept.State)
	require.Zero(s, kept.Attempts)
	require.Equal(s, "run 2", string(kept.Repeat))
	require.Empty(s, s.list(store.Dead))
	s.refused(store.ErrLeaseLost, ack(first))
	s.refused(store.ErrKeyExists, &store.Add{Job: keyed("y", "key"), On: store.Fail})
	s.none()
	s.clock.Advance(time.Minute)
	second := s.claimOne()
	require.Equal(s, id, second.ID)
	require.Equal(s, 1, second.Attempts)
	require.Equal(s, "run 2", string(second.Repeat))
}

func againFailed(s *suite) {
	j := keyed("x", "key")
	j.Repeat = []byte("run 1")
	id := s.add(j, in(0))
	op := finish(s.claimOne(), store.Again, in(time.Minute))
	op.Repeat = []byte("run 2")
	op.Error = "why"
	op.Failed = true
	s.do(op)
	dead := s.list(store.Dead)
	require.Len(s, dead, 1)
	require.NotEqual(s, id, dead[0].ID)
	require.Equal(s, "x", string(dead[0].Body))
	require.Equal(s, "why", dead[0].LastError)
	require.Equal(s, 1, dead[0].Attempts)
	require.Empty(s, dead[0].Key)
	require.Empty(s, dead[0].Repeat)
	require.Equal(s, store.Delayed, s.get(id).State)
	found, err := s.store.Get(s.Context(), q, byKey("key"))
	require.NoError(s, err)
	require.Equal(s, id, found.ID)

	// The copy is a job of its own.
	s.do(&store.Requeue{Queue: q, Ref: byID(dead[0].ID)})
	again := s.claimOne()
	require.Equal(s, dead[0].ID, again.ID)
	s.do(ack(again))
	s.clock.Advance(time.Minute)
	require.Equal(s, id, s.claimOne().ID)
}

func nextClaim(s *suite) {
	require.Negative(s, s.claimOp(1).Next)
	s.add(newJob("a"), in(0))
	s.add(newJob("b"), in(0))
	s.add(newJob("c"), in(time.Hour))
	require.Zero(s, s.claimOp(1).Next, "there is more")
	require.Equal(s, lease, s.claimOp(1).Next, "a lease ends")
	s.clock.Advance(time.Second)
	require.Equal(s, lease-time.Second, s.claimOp(9).Next)
	for _, j := range s.list(store.Leased) {
		s.do(&store.Cancel{Queue: q, Ref: byID(j.ID)})
	}
	require.Equal(s, time.Hour-time.Second, s.claimOp(9).Next)
	require.Equal(s, time.Hour-time.Second, s.info(q).Next)
	s.clock.Advance(time.Hour - time.Second)
	require.Zero(s, s.info(q).Next)
	require.Equal(s, lease, s.claimOp(1).Next)
	s.do(ack(s.list(store.Leased)[0]))
	require.Negative(s, s.claimOp(1).Next)
}

func pausedQueue(s *suite) {
	s.add(newJob("x"), in(0))
	s.add(newJob("y"), in(0))
	j := s.claimOne()
	s.do(paused(q, true))
	require.True(s, s.info(q).Paused)
	claim := s.claimOp(9)
	require.Empty(s, claim.Jobs)
	require.Negative(s, claim.Next)
	s.do(ack(j)) // what was claimed goes on
	s.add(newJob("z"), in(0))
	require.Empty(s, s.claim(9))
	if s.config.Durable {
		s.reopen(time.Second)
		require.Empty(s, s.claim(9))
	}
	s.do(paused(q, false))
	require.False(s, s.info(q).Paused)
	require.Equal(s, []string{"y", "z"}, bodies(s.claim(9)))
}

func unknownQueue(s *suite) {
	claim := s.claimOp(9)
	require.Empty(s, claim.Jobs)
	require.Negative(s, claim.Next)
	infos, err := s.store.Queues(s.Context())
	require.NoError(s, err)
	require.Empty(s, infos, "asking does not make a queue")
}

func leasesReopened(s *suite) {
	id := s.add(newJob("x"), in(0))
	s.add(newJob("y"), in(time.Hour))
	op := &store.Claim{Queue: q, Max: 1, Lease: 1000 * time.Hour}
	s.do(op)
	s.do(&store.Extend{Queue: q, ID: id, Token: op.Jobs[0].Token, Lease: 2000 * time.Hour})
	s.reopen(time.Second)
	require.Equal(s, store.Ready, s.get(id).State)
	s.refused(store.ErrLeaseLost, ack(op.Jobs[0]))
	j := s.claimOne()
	require.Equal(s, id, j.ID)
	require.Equal(s, 2, j.Attempts)
	s.refused(store.ErrLeaseLost, ack(op.Jobs[0]))
	s.do(ack(j))
	s.reopen(time.Second)
	s.gone(id)
	s.none()
}

func countedAcrossReopen(s *suite) {
	poison := newJob("poison")
	poison.MaxAttempts = 3
	id := s.add(poison, in(0))
	for i := range 3 {
		require.Equal(s, i+1, s.claimOne().Attempts)
		s.reopen(0)
		require.Equal(s, i+1, s.get(id).Attempts)
	}
	require.Equal(s, 1, s.claimOp(1).Buried)
	s.reopen(0)
	require.Equal(s, store.Dead, s.get(id).State)
	s.none()
}

func tokensDiffer(s *suite) {
	for i := range 20 {
		s.add(newJob(fmt.Sprint(i)), in(0))
	}
	seen := map[uint64]bool{}
	for range 3 {
		for _, n := range []int{1, 19} {
			for _, j := range s.claim(n) {
				require.False(s, seen[j.Token])
				seen[j.Token] = true
			}
		}
		s.clock.Advance(lease)
		if s.config.Durable {
			s.reopen(0)
		}
	}
	require.Len(s, seen, 60)
}
