package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// When jobs are due.
var timeTests = []test{
	{name: "NeverBeforeItsTime", run: neverEarly},
	{name: "ATimeRoundsUpToAMillisecond", run: roundsUp},
	{name: "AnInstantInThePastKeepsItsOrder", run: pastInstants},
	{name: "ADurationBelowZeroIsNow", run: negativeDuration},
	{name: "FarTimes", run: farTimes},
	{name: "DurationsDoNotFollowTheWallClock", run: durationsKeepTime, needs: steps},
	{name: "InstantsFollowTheWallClock", run: instantsFollow, needs: steps},
	{name: "ALeaseDoesNotFollowTheWallClock", run: leaseKeepsTime, needs: steps},
	{name: "AStepBackWhileTheStoreIsClosed", run: steppedWhileClosed, needs: durableSteps},
	{name: "TimePassesWhileTheStoreIsClosed", run: closedForAWhile, needs: durable},
}

func neverEarly(s *suite) {
	start := s.clock.Now()
	s.add(newJob("duration"), in(time.Second))
	s.add(newJob("instant"), at(start.Add(2*time.Second)))
	require.Equal(s, time.Second, s.claimOp(1).Next)
	s.clock.Advance(time.Second - 1)
	require.Equal(s, time.Duration(1), s.claimOp(1).Next)
	s.clock.Advance(1)
	require.Equal(s, "duration", string(s.claimOne().Body))
	s.clock.Advance(time.Second - 1)
	s.none()
	s.clock.Advance(1)
	require.Equal(s, "instant", string(s.claimOne().Body))
}

func roundsUp(s *suite) {
	start := s.clock.Now()
	for _, when := range []store.When{
		in(time.Millisecond + 1),
		at(start.Add(time.Millisecond + 1)),
		in(2 * time.Millisecond),
		at(start.Add(2 * time.Millisecond)),
	} {
		id := s.add(newJob("x"), when)
		require.Equal(s, start.Add(2*time.Millisecond), s.get(id).Due.UTC(), "%+v", when)
	}
	s.clock.Advance(2*time.Millisecond - 1)
	s.none()
	s.clock.Advance(1)
	require.Len(s, s.claim(9), 4)

	// The store's own time need not be whole.
	s.clock.Advance(300 * time.Microsecond)
	s.add(newJob("x"), in(time.Millisecond))
	s.clock.Advance(time.Millisecond)
	s.none()
	s.clock.Advance(700 * time.Microsecond)
	require.Len(s, s.claim(9), 1)
}

func pastInstants(s *suite) {
	start := s.clock.Now()
	s.add(newJob("now"), in(0))
	s.add(newJob("last year"), at(start.AddDate(-1, 0, 0)))
	s.add(newJob("epoch"), at(time.Unix(0, 0)))
	s.add(newJob("a second ago"), at(start.Add(-time.Second)))
	jobs := s.claim(9)
	require.Equal(s, []string{"epoch", "last year", "a second ago", "now"}, bodies(jobs))
	require.True(s, jobs[0].Due.Equal(time.Unix(0, 0)))
}

func negativeDuration(s *suite) {
	id := s.add(newJob("x"), in(-time.Hour))
	require.True(s, s.get(id).Due.Equal(s.clock.Now()))
	require.Equal(s, store.Ready, s.get(id).State)
	s.claimOne()
}

func farTimes(s *suite) {
	end := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	last := s.add(newJob("last"), at(end))
	long := s.add(newJob("long"), in(1<<63-1))
	require.Equal(s, []string{"long", "last"}, bodies(s.list(store.Delayed)))
	require.True(s, s.get(last).Due.Equal(end))
	require.Positive(s, s.claimOp(1).Next)
	s.clock.Advance(200 * 365 * 24 * time.Hour)
	s.none()
	require.Equal(s, store.Delayed, s.get(long).State)
	s.do(&store.Reschedule{Queue: q, Ref: byID(last), When: in(0)})
	require.Equal(s, last, s.claimOne().ID)

	// A lease of any length can be asked for.
	op := &store.Claim{Queue: q, Max: 1, Lease: 1<<63 - 1}
	s.do(&store.Reschedule{Queue: q, Ref: byID(long), When: in(0)}, op)
	require.Len(s, op.Jobs, 1)
	s.clock.Advance(time.Hour)
	require.NotContains(s, bodies(s.claim(9)), "long")
	s.do(ack(op.Jobs[0]))
}

func durationsKeepTime(s *suite) {
	s.add(newJob("x"), in(time.Minute))
	s.clock.Advance(30 * time.Second)
	s.clock.Step(24 * time.Hour)
	s.none()
	s.clock.Step(-48 * time.Hour)
	s.clock.Advance(30*time.Second - 1)
	s.none()
	s.clock.Advance(1)
	s.claimOne()
}

func instantsFollow(s *suite) {
	start := s.clock.Now()
	s.add(newJob("x"), at(start.Add(time.Hour)))
	s.clock.Step(-time.Hour)
	s.clock.Advance(2*time.Hour - 1)
	s.none()
	s.clock.Advance(1)
	s.claimOne()

	s.add(newJob("y"), at(start.Add(24*time.Hour)))
	s.none()
	s.clock.Step(23 * time.Hour)
	require.Equal(s, "y", string(s.claimOne().Body))
}

func leaseKeepsTime(s *suite) {
	s.add(newJob("x"), in(0))
	j := s.claimOne()
	s.clock.Step(time.Hour)
	s.none()
	s.clock.Step(-2 * time.Hour)
	s.clock.Advance(lease)
	require.Equal(s, j.ID, s.claimOne().ID)
}

// steppedWhileClosed has the store go on from the time of its last group: it cannot know better.
func steppedWhileClosed(s *suite) {
	s.add(newJob("duration"), in(time.Minute+time.Second))
	s.clock.Advance(time.Second)
	s.add(newJob("ready"), in(0))
	s.add(newJob("instant"), at(s.clock.Now().Add(time.Minute)))
	s.clock.Step(-time.Hour)
	s.reopen(0)
	ready := s.claimOne()
	require.Equal(s, "ready", string(ready.Body))
	s.do(ack(ready))
	s.clock.Advance(time.Minute - 1)
	s.none()
	s.clock.Advance(1)
	require.Equal(s, "duration", string(s.claimOne().Body))
	s.clock.Advance(time.Hour - 1)
	require.NotContains(s, bodies(s.claim(9)), "instant")
	s.clock.Advance(1)
	require.Contains(s, bodies(s.claim(9)), "instant")
}

func closedForAWhile(s *suite) {
	s.add(newJob("duration"), in(time.Hour))
	s.add(newJob("instant"), at(s.clock.Now().Add(time.Hour+time.Millisecond)))
	s.reopen(time.Hour - time.Millisecond)
	s.none()
	s.clock.Advance(time.Millisecond)
	require.Equal(s, []string{"duration"}, bodies(s.claim(9)))
	s.reopen(time.Millisecond)
	require.Equal(s, []string{"duration", "instant"}, bodies(s.claim(9)))
}
