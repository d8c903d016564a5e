package storetest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Keys and chosen IDs.
var keyTests = []test{
	{name: "KeepOnConflict", run: keepPolicy},
	{name: "ReplaceOnConflict", run: replacePolicy},
	{name: "ReplaceOfALeasedJobTakesItsLease", run: replaceLeased},
	{name: "FailOnConflict", run: failPolicy},
	{name: "AKeyIsFreeOnceItsJobIsGone", run: keyFree},
	{name: "AKeyIsHeldWhileItsJobIsTriedAgain", run: keyHeld},
	{name: "AnAckOfAReplacedJobDoesNotFreeTheKey", run: replacedAck},
	{name: "KeysAreBytes", run: keyBytes},
	{name: "AnEmptyKeyIsNone", run: emptyKey},
	{name: "TheKeyOfADeadJobMayBeTaken", run: deadKey},
	{name: "AnAddThatIsTriedAgainAddsOnce", run: addRetried},
	{name: "AChosenIDIsUnique", run: chosenID},
	{name: "IDsAreNotUsedTwice", run: idsDiffer},
}

func keepPolicy(s *suite) {
	id := s.add(keyed("first", "key"), in(time.Hour))
	op := &store.Add{Job: keyed("second", "key"), When: in(0)}
	s.do(op)
	require.True(s, op.Kept)
	require.Equal(s, id, op.ID)
	s.none()
	require.Equal(s, "first", string(s.get(id).Body))
	s.clock.Advance(time.Hour)
	s.claimOne()
	s.do(op) // leased
	require.True(s, op.Kept)
	require.Equal(s, id, op.ID)
}

func replacePolicy(s *suite) {
	old := s.add(keyed("first", "key"), in(0))
	id := s.addOn(keyed("second", "key"), in(time.Hour), store.Replace)
	require.NotEqual(s, old, id)
	s.gone(old)
	s.none()
	s.clock.Advance(time.Hour)
	require.Equal(s, []string{"second"}, bodies(s.claim(9)))
	s.addOn(keyed("third", "new key"), in(0), store.Replace)
	require.Equal(s, []string{"third"}, bodies(s.claim(9)))
}

// addOn adds a job under a policy.
func (s *suite) addOn(j store.Job, when store.When, on store.Conflict) store.ID {
	s.Helper()
	op := &store.Add{Job: j, When: when, On: on}
	s.do(op)
	require.False(s, op.Kept)
	return op.ID
}

func replaceLeased(s *suite) {
	s.add(keyed("first", "key"), in(0))
	first := s.claimOne()
	id := s.addOn(keyed("second", "key"), in(0), store.Replace)
	s.refused(store.ErrLeaseLost, ack(first))
	extend := &store.Extend{Queue: q, ID: first.ID, Token: first.Token, Lease: lease}
	s.refused(store.ErrLeaseLost, extend)
	second := s.claimOne()
	require.Equal(s, id, second.ID)
	require.Equal(s, 1, second.Attempts)
	s.clock.Advance(lease)
	require.Equal(s, []string{"second"}, bodies(s.claim(9)))
}

func failPolicy(s *suite) {
	id := s.add(keyed("first", "key"), in(time.Hour))
	s.refused(store.ErrKeyExists, &store.Add{Job: keyed("second", "key"), On: store.Fail})
	s.none()
	other := keyed("other queue", "key")
	other.Queue = "another"
	s.addOn(other, in(0), store.Fail)
	require.Equal(s, "first", string(s.get(id).Body))
	require.Equal(s, 1, s.info(q).Delayed)
}

func keyFree(s *suite) {
	ends := map[string]func(){
		"ack":       func() { s.do(ack(s.claimOne())) },
		"bury":      func() { s.do(bury(s.claimOne(), "why")) },
		"cancel":    func() { s.do(&store.Cancel{Queue: q, Ref: byKey("key")}) },
		"purge":     func() { s.do(&store.Purge{Queue: q, State: store.Ready, Max: 9}) },
		"attempts":  func() { s.claimOne(); s.clock.Advance(lease); s.none() },
		"cancelled": func() { s.claimOne(); s.do(&store.Cancel{Queue: q, Ref: byKey("key")}) },
	}
	for name, end := range ends {
		j := keyed(name, "key")
		j.MaxAttempts = 1
		s.addOn(j, in(0), store.Fail)
		end()
		_, err := s.store.Get(s.Context(), q, byKey("key"))
		require.ErrorIs(s, err, store.ErrNotFound, name)
		s.refused(store.ErrNotFound, &store.Cancel{Queue: q, Ref: byKey("key")})
	}
	j := keyed("retained", "key")
	j.Retain = time.Hour
	s.addOn(j, in(0), store.Fail)
	s.do(ack(s.claimOne()))
	s.addOn(keyed("last", "key"), in(0), store.Fail)
	s.claimOne()
}

func keyHeld(s *suite) {
	id := s.add(keyed("x", "key"), in(0))
	first := s.claimOne()
	s.clock.Advance(lease)
	second := s.claimOne()
	s.refused(store.ErrLeaseLost, ack(first))
	s.refused(store.ErrKeyExists, &store.Add{Job: keyed("y", "key"), On: store.Fail})
	s.do(ack(second))
	next := s.addOn(keyed("y", "key"), in(0), store.Fail)
	require.NotEqual(s, id, next)
	s.refused(store.ErrLeaseLost, ack(second))
	require.Equal(s, next, s.claimOne().ID)
	s.refused(store.ErrLeaseLost, ack(second))
	s.refused(store.ErrKeyExists, &store.Add{Job: keyed("z", "key"), On: store.Fail})
}

func replacedAck(s *suite) {
	s.add(keyed("first", "key"), in(0))
	first := s.claimOne()
	id := s.addOn(keyed("second", "key"), in(time.Hour), store.Replace)
	for _, verdict := range []store.Verdict{store.Ack, store.Bury, store.Retry} {
		s.refused(store.ErrLeaseLost, finish(first, verdict, in(0)))
	}
	s.refused(store.ErrKeyExists, &store.Add{Job: keyed("third", "key"), On: store.Fail})
	found, err := s.store.Get(s.Context(), q, byKey("key"))
	require.NoError(s, err)
	require.Equal(s, id, found.ID)
}

func keyBytes(s *suite) {
	keys := []string{
		"a", "ab", "a\x00", "a\x00b", "\x00", "\xff", "\xff\xff", "A", "a ", "ä",
		strings.Repeat("k", 1024),
	}
	ids := map[string]store.ID{}
	for _, key := range keys {
		ids[key] = s.addOn(keyed(key, key), in(time.Hour), store.Fail)
	}
	for _, key := range keys {
		j, err := s.store.Get(s.Context(), q, byKey(key))
		require.NoError(s, err)
		require.Equal(s, ids[key], j.ID)
		require.Equal(s, key, j.Key)
		s.do(&store.Cancel{Queue: q, Ref: byKey(key)})
		_, err = s.store.Get(s.Context(), q, byKey(key))
		require.ErrorIs(s, err, store.ErrNotFound)
	}
	require.Zero(s, s.info(q))
}

func emptyKey(s *suite) {
	for _, on := range []store.Conflict{store.Keep, store.Replace, store.Fail} {
		s.addOn(newJob("x"), in(0), on)
	}
	_, err := s.store.Get(s.Context(), q, store.Ref{})
	require.ErrorIs(s, err, store.ErrNotFound)
	s.refused(store.ErrNotFound, &store.Cancel{Queue: q})
	s.refused(store.ErrNotFound, &store.Reschedule{Queue: q})
	require.Len(s, s.claim(9), 3)
}

func deadKey(s *suite) {
	dead := s.add(keyed("dead", "key"), in(0))
	s.do(bury(s.claimOne(), "why"))
	live := s.addOn(keyed("live", "key"), in(time.Hour), store.Fail)
	s.refused(store.ErrKeyExists, &store.Requeue{Queue: q, Ref: byID(dead)})
	all := &store.Requeue{Queue: q, Max: 9}
	s.do(all)
	require.Zero(s, all.N)
	require.Equal(s, store.Dead, s.get(dead).State)
	s.do(&store.Cancel{Queue: q, Ref: byID(dead)})
	s.gone(dead)
	found, err := s.store.Get(s.Context(), q, byKey("key"))
	require.NoError(s, err)
	require.Equal(s, live, found.ID)

	s.do(&store.Reschedule{Queue: q, Ref: byID(live), When: in(0)})
	s.do(bury(s.claimOne(), "why"))
	s.do(&store.Requeue{Queue: q, Ref: byID(live)})
	s.refused(store.ErrKeyExists, &store.Add{Job: keyed("x", "key"), On: store.Fail})
}

func addRetried(s *suite) {
	add := func(retry bool) *store.Add {
		j := newJob("x")
		j.ID = 1<<60 + 7
		op := &store.Add{Job: j, Retry: retry}
		s.do(op)
		require.Equal(s, j.ID, op.ID)
		return op
	}
	add(true)
	require.Len(s, s.list(store.Ready), 1)
	add(true)
	require.Len(s, s.list(store.Ready), 1)
	if s.config.Durable {
		s.reopen(0)
	}
	add(true)
	j := s.claimOne()
	add(true)
	s.none()
	s.do(ack(j))
	add(true) // finished meanwhile
	s.none()
	if s.config.Durable {
		s.reopen(0)
	}
	add(true)
	s.none()
}

func chosenID(s *suite) {
	j := newJob("x")
	j.ID = 1<<62 + 3
	require.Equal(s, j.ID, s.add(j, in(time.Hour)))
	s.refused(store.ErrKeyExists, &store.Add{Job: j})
	require.Len(s, s.list(store.Delayed), 1)
	s.do(&store.Reschedule{Queue: q, Ref: byID(j.ID), When: in(0)})
	require.Equal(s, j.ID, s.claimOne().ID)
	require.Equal(s, j.ID, s.get(j.ID).ID)

	// Numbers that the store may come to itself.
	seen := map[store.ID]bool{}
	for i := range store.ID(40) {
		j.ID = (i + 1) * 3
		op := &store.Add{Job: j}
		require.NoError(s, s.store.Do(s.Context(), []store.Op{op}))
		if op.Err == nil {
			require.False(s, seen[op.ID])
			seen[op.ID] = true
		} else {
			require.ErrorIs(s, op.Err, store.ErrKeyExists)
			require.True(s, seen[j.ID])
		}
		id := s.add(newJob("y"), in(0))
		require.False(s, seen[id])
		seen[id] = true
	}
	for id := range seen {
		s.get(id)
	}
}

func idsDiffer(s *suite) {
	seen := map[store.ID]bool{}
	for range 3 {
		for range 50 {
			id := s.add(newJob("x"), in(0))
			require.False(s, seen[id])
			seen[id] = true
		}
		for _, j := range s.claim(100) {
			s.do(ack(j))
		}
		if s.config.Durable {
			s.reopen(0)
		}
	}
}
