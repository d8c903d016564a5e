package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// In which order jobs are claimed.
var orderTests = []test{
	{name: "AShortJobDoesNotWaitBehindALongOne", run: shortBeforeLong},
	{name: "ByDueTimeThenPriorityThenAdding", run: dueThenPriority},
	{name: "ManyWithOneDueTime", run: manyEqual},
	{name: "AMovedJobKeepsItsPriorityAndRank", run: movedRank},
	{name: "InstantsAndDurationsAreOneOrder", run: mixedOrder},
	{name: "JobsAddedBehindAClaimAreFound", run: addedBehind},
	{name: "QueuesAreApart", run: queuesApart},
	{name: "FreshJobsDoNotWaitForABacklog", run: freshJobs},
	{name: "FreshJobsFollowTheWallClock", run: freshFollow, needs: steps},
}

func shortBeforeLong(s *suite) {
	short, long := time.Second, 10*time.Second
	for _, waits := range [][]time.Duration{{long, short}, {short, long}} {
		for _, wait := range waits {
			s.add(newJob(wait.String()), in(wait))
		}
		s.clock.Advance(time.Second)
		require.Equal(s, []string{"1s"}, bodies(s.claim(9)))
		s.clock.Advance(9*time.Second - 1)
		s.none()
		s.clock.Advance(1)
		require.Equal(s, []string{"10s"}, bodies(s.claim(9)))
	}
}

func dueThenPriority(s *suite) {
	for _, j := range []struct {
		body     string
		in       time.Duration
		priority uint8
	}{
		{"g", 2 * time.Second, 0},
		{"d", time.Second, 128},
		{"e", time.Second, 128},
		{"f", time.Second, 255},
		{"b", time.Second, 0},
		{"c", time.Second, 1},
		{"a", time.Second - time.Millisecond, 255},
	} {
		job := newJob(j.body)
		job.Priority = j.priority
		s.add(job, in(j.in))
	}
	s.clock.Advance(time.Minute)
	require.Equal(s, []string{"a", "b", "c", "d", "e", "f", "g"}, bodies(s.list(store.Ready)))
	var got []string
	for _, n := range []int{1, 3, 2, 9} {
		got = append(got, bodies(s.claim(n))...)
	}
	require.Equal(s, []string{"a", "b", "c", "d", "e", "f", "g"}, got)
}

func manyEqual(s *suite) {
	const n = 3000
	var ops []store.Op
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
		ops = append(ops, &store.Add{Job: newJob(want[i]), When: in(time.Second)})
	}
	s.do(ops[:n/2]...)
	s.do(ops[n/2:]...)
	s.clock.Advance(time.Second)
	var got []string
	for range n {
		claim := s.claimOp(100)
		var acks []store.Op
		for _, j := range claim.Jobs {
			got = append(got, string(j.Body))
			acks = append(acks, ack(j))
		}
		s.do(acks...)
		if len(got) == n {
			break
		}
		require.Len(s, claim.Jobs, 100)
		require.Zero(s, claim.Next)
	}
	require.Equal(s, want, got)
	require.Negative(s, s.claimOp(100).Next)
}

func movedRank(s *suite) {
	urgent := newJob("urgent")
	urgent.Priority = 3
	u := s.add(urgent, in(time.Hour))
	first := s.add(newJob("first"), in(time.Hour))
	s.add(newJob("second"), in(time.Second))
	retried := s.add(newJob("retried"), in(0))
	s.add(newJob("third"), in(time.Second))
	j := s.claimOne()
	require.Equal(s, retried, j.ID)
	s.do(
		finish(j, store.Retry, in(time.Second)),
		&store.Reschedule{Queue: q, Ref: byID(first), When: in(time.Second)},
		&store.Reschedule{Queue: q, Ref: byID(u), When: in(time.Second)},
	)
	s.clock.Advance(time.Second)
	require.Equal(s, []string{"urgent", "first", "second", "retried", "third"}, bodies(s.claim(9)))
}

func mixedOrder(s *suite) {
	start := s.clock.Now()
	var want []string
	for i := range 10 {
		wait := time.Duration(i/2) * time.Second
		want = append(want, fmt.Sprint(i))
		if i%2 == 0 {
			s.add(newJob(want[i]), in(wait))
		} else {
			s.add(newJob(want[i]), at(start.Add(wait)))
		}
	}
	require.Equal(s, want[2:], bodies(s.list(store.Delayed)))
	s.clock.Advance(time.Minute)
	var got []string
	for range want {
		got = append(got, string(s.claimOne().Body))
	}
	require.Equal(s, want, got)
}

// addedBehind adds and moves jobs to before what was claimed last: a store that remembers how far
// its claims have come must not miss them.
func addedBehind(s *suite) {
	start := s.clock.Now()
	for i := range 5 {
		s.add(newJob(fmt.Sprint("claimed ", i)), in(0))
	}
	late := s.add(newJob("moved"), in(time.Hour))
	s.clock.Advance(time.Second)
	leased := s.claim(5)
	require.Len(s, leased, 5)
	s.add(newJob("old"), at(start.Add(-time.Hour)))
	require.Equal(s, []string{"old"}, bodies(s.claim(9)))
	s.do(&store.Reschedule{Queue: q, Ref: byID(late), When: at(start.Add(-2 * time.Hour))})
	require.Equal(s, []string{"moved"}, bodies(s.claim(9)))
	s.do(finish(leased[0], store.Snooze, at(start.Add(-time.Minute))))
	require.Equal(s, []string{"claimed 0"}, bodies(s.claim(9)))
	s.do(finish(leased[1], store.Retry, in(0)))
	require.Equal(s, []string{"claimed 1"}, bodies(s.claim(9)))
	s.do(bury(leased[2], "why"))
	s.do(&store.Requeue{Queue: q, Ref: byID(leased[2].ID)})
	require.Equal(s, []string{"claimed 2"}, bodies(s.claim(9)))
	s.clock.Advance(lease)
	require.Len(s, s.claim(9), 7)
	s.do(ack(s.claimAgain(0)))
}

// claimAgain lets all leases end and returns a job that is claimed anew.
func (s *suite) claimAgain(i int) store.Job {
	s.Helper()
	s.clock.Advance(lease)
	jobs := s.claim(i + 1)
	require.Greater(s, len(jobs), i)
	return jobs[i]
}

func queuesApart(s *suite) {
	names := []string{q, "orders", "orders/expire2", "a", "orders/e", "Ω"}
	for _, name := range names {
		j := keyed(name, "key")
		j.Queue = name
		s.add(j, in(0))
	}
	for _, name := range names {
		op := &store.Claim{Queue: name, Max: 9, Lease: lease}
		s.do(op)
		require.Equal(s, []string{name}, bodies(op.Jobs))
		require.Equal(s, name, op.Jobs[0].Queue)
		for _, other := range names {
			if other != name {
				stale := *ack(op.Jobs[0])
				stale.Queue = other
				s.refused(store.ErrLeaseLost, &stale)
				s.refused(store.ErrNotFound, &store.Cancel{Queue: other, Ref: byID(op.Jobs[0].ID)})
			}
		}
		s.do(ack(op.Jobs[0]))
	}
}

// fresh claims up to most jobs, of which some are to be fresh.
func (s *suite) fresh(most, fresh int) *store.Claim {
	s.Helper()
	op := &store.Claim{Queue: q, Max: most, Fresh: fresh, Lease: lease, MaxAttempts: 2}
	s.do(op)
	return op
}

func freshJobs(s *suite) {
	start := s.clock.Now()
	add := func(body string, ago time.Duration, priority uint8) {
		j := newJob(body)
		j.Priority = priority
		s.add(j, at(start.Add(-ago)))
	}
	for i := range 12 {
		add(fmt.Sprint("old ", i), time.Hour-time.Duration(i)*time.Minute, 128)
	}
	add("not fresh", store.FreshTime, 0)
	add("just fresh", store.FreshTime-time.Millisecond, 255)
	s.add(newJob("now"), in(0))
	add("urgent", 0, 3)
	s.add(newJob("later"), in(time.Second))

	require.Equal(s, []string{"old 0"}, bodies(s.fresh(1, 0).Jobs))
	claim := s.fresh(4, 2)
	require.Equal(s, []string{"old 1", "old 2", "just fresh", "urgent"}, bodies(claim.Jobs))
	require.Zero(s, claim.Next)
	urgent := claim.Jobs[3]
	require.Equal(s, []string{"old 3", "now"}, bodies(s.fresh(2, 1).Jobs))
	require.Equal(s, []string{"old 4", "old 5"}, bodies(s.fresh(2, 1).Jobs), "none is fresh")

	s.clock.Advance(time.Second)
	s.do(finish(urgent, store.Retry, in(0)), ack(claim.Jobs[2]))
	add("added", 0, 128)
	require.Equal(s, []string{"added"}, bodies(s.fresh(1, 3).Jobs), "not more than Max")
	require.Equal(s, []string{"old 6", "old 7", "urgent"}, bodies(s.fresh(3, 1).Jobs))
	require.Equal(s, []string{"later"}, bodies(s.fresh(1, 1).Jobs))

	// A fresh job that had all its attempts is dead, and is not come upon again.
	add("last", 0, 128)
	s.clock.Advance(lease)
	s.fresh(0, 0)
	s.do(&store.Reschedule{Queue: q, Ref: byID(urgent.ID), When: in(0)})
	claim = s.fresh(100, 50)
	require.Equal(s, 1, claim.Buried)
	require.Equal(s, []string{
		"old 0", "old 1", "old 2", "old 3", "old 4", "old 5", "old 6", "old 7", "old 8", "old 9",
		"old 10", "old 11", "not fresh", "now", "added", "last", "later",
	}, bodies(claim.Jobs), "each of them once")
	require.Equal(s, lease, claim.Next)
}

// freshFollow steps the wall clock back: what is fresh by then was not when it was passed over.
func freshFollow(s *suite) {
	start := s.clock.Now()
	s.add(newJob("oldest"), at(start.Add(-2*time.Hour)))
	s.add(newJob("old"), at(start.Add(-time.Hour)))
	s.add(newJob("new"), at(start))
	require.Equal(s, []string{"new"}, bodies(s.fresh(1, 1).Jobs))
	s.clock.Step(-time.Hour)
	require.Equal(s, []string{"old"}, bodies(s.fresh(1, 1).Jobs))
}
