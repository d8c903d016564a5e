package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Cancel, Reschedule, Update, Requeue and Purge.
var manageTests = []test{
	{name: "ACancelledJobIsNotDelivered", run: cancelled},
	{name: "CancelTakesALease", run: cancelLeased},
	{name: "CancelOfADeadJob", run: cancelDead},
	{name: "RescheduleToEarlierAndLater", run: rescheduled},
	{name: "RescheduleOfWhatIsNotPending", run: rescheduleRefused},
	{name: "UpdateReplacesTheBody", run: updated},
	{name: "UpdateOfWhatIsNotPending", run: updateRefused},
	{name: "RequeueGivesAllAttemptsBack", run: requeued},
	{name: "RequeueOfManyTakesTheOldest", run: requeuedMany},
	{name: "RequeueOfWhatIsNotDead", run: requeueRefused},
	{name: "PurgeByState", run: purged},
	{name: "EverythingIsThereAfterReopening", run: reopened, needs: durable},
}

func cancelled(s *suite) {
	delayed := s.add(keyed("delayed", "key"), in(time.Second))
	ready := s.add(newJob("ready"), in(0))
	op := &store.Cancel{Queue: q, Ref: byKey("key")}
	s.do(op)
	require.Equal(s, delayed, op.ID)
	require.False(s, op.Running)
	s.do(&store.Cancel{Queue: q, Ref: byID(ready)})
	for _, id := range []store.ID{delayed, ready} {
		s.gone(id)
		s.refused(store.ErrNotFound, &store.Cancel{Queue: q, Ref: byID(id)})
	}
	s.clock.Advance(time.Hour)
	s.none()
	if s.config.Durable {
		s.reopen(time.Hour)
		s.none()
	}
	require.Negative(s, s.claimOp(1).Next)
}

func cancelLeased(s *suite) {
	id := s.add(keyed("x", "key"), in(0))
	j := s.claimOne()
	op := &store.Cancel{Queue: q, Ref: byKey("key")}
	s.do(op)
	require.True(s, op.Running)
	require.Equal(s, id, op.ID)
	s.gone(id)
	s.refused(store.ErrLeaseLost, finish(j, store.Retry, in(0)))
	s.refused(store.ErrLeaseLost, ack(j))
	s.clock.Advance(10 * lease)
	require.Negative(s, s.claimOp(1).Next)
	if s.config.Durable {
		s.reopen(time.Hour)
		s.none()
	}

	s.add(newJob("y"), in(0))
	j = s.claimOne()
	s.do(finish(j, store.Retry, in(0)))
	op = &store.Cancel{Queue: q, Ref: byID(j.ID)}
	s.do(op)
	require.False(s, op.Running)
}

func cancelDead(s *suite) {
	id := s.add(newJob("x"), in(0))
	s.do(bury(s.claimOne(), "why"))
	op := &store.Cancel{Queue: q, Ref: byID(id)}
	s.do(op)
	require.False(s, op.Running)
	s.gone(id)
	require.Empty(s, s.list(store.Dead))
}

func rescheduled(s *suite) {
	start := s.clock.Now()
	id := s.add(keyed("x", "key"), in(time.Hour))
	s.do(&store.Reschedule{Queue: q, Ref: byKey("key"), When: in(time.Minute)})
	require.True(s, s.get(id).Due.Equal(start.Add(time.Minute)))
	require.Equal(s, time.Minute, s.claimOp(1).Next)
	s.do(&store.Reschedule{Queue: q, Ref: byID(id), When: at(start.Add(2 * time.Hour))})
	s.clock.Advance(2*time.Hour - 1)
	s.none()
	s.clock.Advance(1)
	require.Equal(s, store.Ready, s.get(id).State)
	s.do(&store.Reschedule{Queue: q, Ref: byKey("key"), When: in(time.Second)}) // a ready job too
	require.Equal(s, store.Delayed, s.get(id).State)
	s.none()
	for i := range 20 {
		s.do(&store.Reschedule{Queue: q, Ref: byKey("key"),
			When: in(time.Duration(20-i) * time.Minute)})
		if i == 10 && s.config.Durable {
			s.reopen(0)
		}
	}
	require.Len(s, s.list(store.Delayed), 1)
	s.clock.Advance(time.Minute - 1)
	s.none()
	s.clock.Advance(1)
	j := s.claimOne()
	require.Equal(s, 1, j.Attempts)
	require.Equal(s, "x", string(j.Body))
	s.do(ack(j))
	s.clock.Advance(24 * time.Hour)
	s.none()
}

func rescheduleRefused(s *suite) {
	s.refused(store.ErrNotFound, &store.Reschedule{Queue: q, Ref: byKey("key")})
	id := s.add(newJob("x"), in(0))
	j := s.claimOne()
	s.refused(store.ErrLeased, &store.Reschedule{Queue: q, Ref: byID(id), When: in(time.Hour)})
	s.clock.Advance(10 * lease) // the lease counts until a Claim
	s.refused(store.ErrLeased, &store.Reschedule{Queue: q, Ref: byID(id), When: in(time.Hour)})
	s.do(bury(j, "why"))
	s.refused(store.ErrNotFound, &store.Reschedule{Queue: q, Ref: byID(id), When: in(time.Hour)})
	require.Equal(s, store.Dead, s.get(id).State)
}

func updated(s *suite) {
	id := s.add(keyed("old", "key"), in(time.Minute))
	s.do(&store.Update{Queue: q, Ref: byKey("key"), Body: []byte("a longer one")})
	require.Equal(s, "a longer one", string(s.get(id).Body))
	require.EqualValues(s, len("a longer one")+len("key"), s.info(q).Bytes)
	if s.config.Durable {
		s.reopen(0)
	}
	s.clock.Advance(time.Minute)
	s.do(&store.Update{Queue: q, Ref: byID(id), Body: []byte("new")})
	j := s.claimOne()
	require.Equal(s, "new", string(j.Body))
	require.Equal(s, id, j.ID)
	require.Equal(s, 1, j.Attempts)
}

func updateRefused(s *suite) {
	s.refused(store.ErrNotFound, &store.Update{Queue: q, Ref: byKey("key")})
	id := s.add(newJob("x"), in(0))
	j := s.claimOne()
	s.refused(store.ErrLeased, &store.Update{Queue: q, Ref: byID(id), Body: []byte("y")})
	s.do(bury(j, "why"))
	s.refused(store.ErrNotFound, &store.Update{Queue: q, Ref: byID(id), Body: []byte("y")})
	require.Equal(s, "x", string(s.get(id).Body))
}

func requeued(s *suite) {
	j := keyed("x", "key")
	j.MaxAttempts = 1
	id := s.add(j, in(0))
	s.do(bury(s.claimOne(), "why"))
	s.clock.Advance(time.Hour)
	op := &store.Requeue{Queue: q, Ref: byID(id)}
	s.do(op)
	require.Equal(s, 1, op.N)
	kept := s.get(id)
	require.Equal(s, store.Ready, kept.State)
	require.Zero(s, kept.Attempts)
	require.True(s, kept.Finished.IsZero())
	require.True(s, kept.Due.Equal(s.clock.Now()))
	require.Empty(s, s.list(store.Dead))
	again := s.claimOne()
	require.Equal(s, id, again.ID)
	require.Equal(s, 1, again.Attempts)
	found, err := s.store.Get(s.Context(), q, byKey("key"))
	require.NoError(s, err)
	require.Equal(s, id, found.ID)
}

func requeuedMany(s *suite) {
	for i := range 10 {
		s.add(newJob(fmt.Sprint(i)), in(0))
	}
	jobs := s.claim(10)
	for i := range jobs {
		s.clock.Advance(time.Millisecond)
		s.do(bury(jobs[len(jobs)-1-i], "why")) // those added last die first
	}
	op := &store.Requeue{Queue: q, Max: 4}
	s.do(op)
	require.Equal(s, 4, op.N)
	require.Equal(s, []string{"6", "7", "8", "9"}, bodies(s.claim(10)))
	op.Max = 100
	s.do(op)
	require.Equal(s, 6, op.N)
	require.Len(s, s.claim(10), 6)
	s.do(op)
	require.Zero(s, op.N)
}

func requeueRefused(s *suite) {
	id := s.add(newJob("x"), in(0))
	s.refused(store.ErrNotFound, &store.Requeue{Queue: q, Ref: byID(id)})
	j := s.claimOne()
	s.refused(store.ErrNotFound, &store.Requeue{Queue: q, Ref: byID(id)})
	s.do(ack(j))
	s.refused(store.ErrNotFound, &store.Requeue{Queue: q, Ref: byID(id)})
	s.refused(store.ErrNotFound, &store.Requeue{Queue: q, Ref: byID(1 << 61)})
}

func purged(s *suite) {
	fill := func() {
		for i := range 4 {
			j := newJob(fmt.Sprint(i))
			j.Retain = time.Hour
			s.add(j, in(0))
		}
		jobs := s.claim(4)
		s.clock.Advance(time.Millisecond)
		s.do(
			ack(jobs[0]),
			bury(jobs[1], "why"),
			finish(jobs[2], store.Retry, in(time.Hour)),
			finish(jobs[3], store.Retry, in(0)),
		)
		s.add(newJob("leased"), at(s.clock.Now().Add(-time.Hour)))
		require.Equal(s, "leased", string(s.claimOne().Body))
	}
	fill()
	fill()
	states := []store.State{store.Done, store.Dead, store.Delayed, store.Ready}
	for i, state := range states {
		require.Len(s, s.list(state), 2)
		op := &store.Purge{Queue: q, State: state, Max: 1}
		s.do(op)
		require.Equal(s, 1, op.N)
		require.Len(s, s.list(state), 1)
		op.Max = 100
		s.do(op)
		require.Equal(s, 1, op.N)
		s.do(op)
		require.Zero(s, op.N)
		for _, other := range states[i+1:] {
			require.Len(s, s.list(other), 2)
		}
	}
	require.Len(s, s.list(store.Leased), 2)
	require.Equal(s, 2, s.info(q).Leased)
	op := &store.Purge{Queue: q, State: store.Leased, Max: 9}
	require.NoError(s, s.store.Do(s.Context(), []store.Op{op}))
	require.Zero(s, op.N)
	for _, j := range s.list(store.Leased) {
		s.do(ack(j))
	}
	require.Zero(s, s.info(q))
}

// reopened has a job in every state, with every field set.
func reopened(s *suite) {
	full := func(body string) store.Job {
		j := keyed(body, "key of "+body)
		j.Priority, j.MaxAttempts, j.Retain, j.Repeat = 7, 9, time.Hour, []byte{0, 1}
		return j
	}
	plain := store.Job{Queue: q, Body: nil, Priority: 0}
	for _, body := range []string{"done", "dead", "leased"} {
		s.add(full(body), in(0))
	}
	jobs := s.claim(3)
	s.do(ack(jobs[0]), bury(jobs[1], "why"))
	s.add(full("ready"), in(0))
	s.add(full("delayed"), at(s.clock.Now().Add(time.Hour)))
	s.add(plain, in(2*time.Hour))
	s.do(
		limit("orders/", store.Limits{Jobs: 100, Bytes: 1000, DropOldest: true}),
		limit("quiet", store.Limits{Jobs: 3}),
		paused("quiet", true),
	)
	s.clock.Advance(time.Second)

	snapshot := func() (jobs []store.Job, infos []store.QueueInfo) {
		for state := store.Delayed; state <= store.Done; state++ {
			for _, j := range s.list(state) {
				if j.State == store.Leased { // is Ready afterwards
					j.State, j.Token, j.LeaseEnd = store.Ready, 0, time.Time{}
				}
				jobs = append(jobs, utc(j))
				byID := s.get(j.ID)
				require.Equal(s, j.Body, byID.Body)
			}
		}
		infos, err := s.store.Queues(s.Context())
		require.NoError(s, err)
		for i := range infos {
			infos[i].Ready += infos[i].Leased
			infos[i].Leased = 0
			infos[i].Oldest = 0
			infos[i].Next = 0
		}
		return jobs, infos
	}
	jobs, infos := snapshot()
	require.Len(s, jobs, 6)
	for range 3 {
		s.reopen(0)
		again, infosAgain := snapshot()
		require.ElementsMatch(s, jobs, again)
		require.Equal(s, infos, infosAgain)
	}
	s.refused(store.ErrKeyExists, &store.Add{Job: full("delayed"), On: store.Fail})
	require.Equal(s, []string{"leased", "ready"}, bodies(s.claim(9)))
	s.clock.Advance(2 * time.Hour)
	s.reopen(0)
	require.Len(s, s.claim(9), 4)
	require.Empty(s, s.list(store.Done))
}

// utc returns a job that require.Equal compares well.
func utc(j store.Job) store.Job {
	for _, t := range []*time.Time{&j.Due, &j.Added, &j.LeaseEnd, &j.Finished} {
		if *t = t.UTC().Round(0); t.IsZero() {
			*t = time.Time{}
		}
	}
	if len(j.Body) == 0 {
		j.Body = nil
	}
	if len(j.Repeat) == 0 {
		j.Repeat = nil
	}
	return j
}
