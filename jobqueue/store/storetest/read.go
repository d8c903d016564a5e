package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Get, List, Queues and Due.
var readTests = []test{
	{name: "GetHasAllOfAJob", run: getAll},
	{name: "ListPages", run: listPages},
	{name: "ListGoesOnWhileJobsComeAndGo", run: listMoving},
	{name: "QueuesDescribesQueues", run: queueInfos},
	{name: "DueCounts", run: dueCounts},
	{name: "BodiesAreNotShared", run: bodiesCopied},
}

func getAll(s *suite) {
	want := store.Job{
		Queue: q, Key: "key", Body: []byte("\x00body\xff"), Priority: 200, MaxAttempts: 7,
		Retain: 90 * time.Second, Repeat: []byte("\x00r"),
		State: store.Delayed, Added: s.clock.Now(), Due: s.clock.Now().Add(time.Hour),
	}
	want.ID = s.add(want, in(time.Hour))
	require.Equal(s, want, utc(s.get(want.ID)))
	s.clock.Advance(time.Hour)
	want.State = store.Ready
	got, err := s.store.Get(s.Context(), q, byKey("key"))
	require.NoError(s, err)
	require.Equal(s, want, utc(got))
	require.Equal(s, []store.Job{want}, []store.Job{utc(s.list(store.Ready)[0])})

	claimed := utc(s.claimOne())
	want.State, want.Attempts, want.Token = store.Leased, 1, claimed.Token
	want.LeaseEnd = s.clock.Now().Add(lease)
	require.Equal(s, want, claimed)
	require.Equal(s, want, utc(s.get(want.ID)))
	require.Equal(s, want, utc(s.list(store.Leased)[0]))

	_, err = s.store.Get(s.Context(), "another", byID(want.ID))
	require.ErrorIs(s, err, store.ErrNotFound)
	_, err = s.store.Get(s.Context(), q, byID(want.ID+1))
	require.ErrorIs(s, err, store.ErrNotFound)
	_, err = s.store.Get(s.Context(), q, byKey("other"))
	require.ErrorIs(s, err, store.ErrNotFound)
}

func listPages(s *suite) {
	want := map[store.State][]string{}
	add := func(state store.State, when store.When) {
		j := newJob(fmt.Sprint(state, len(want[state])))
		j.Retain = time.Hour
		s.add(j, when)
		want[state] = append(want[state], string(j.Body))
	}
	for _, state := range []store.State{store.Done, store.Dead, store.Leased} {
		for range 5 {
			add(state, in(0))
			j := s.claimOne()
			switch state {
			case store.Done:
				s.do(ack(j))
			case store.Dead:
				s.do(bury(j, "why"))
			}
			s.clock.Advance(time.Millisecond)
		}
	}
	for i := range 5 {
		add(store.Ready, in(0))
		if i%2 == 0 {
			add(store.Delayed, in(time.Minute+time.Duration(i)*time.Second))
		} else {
			add(store.Delayed, at(s.clock.Now().Add(time.Minute+time.Duration(i)*time.Second)))
		}
	}
	for state, texts := range want {
		for page := 1; page <= 6; page++ {
			jobs, err := all(s.Context(), s.store, q, state, page)
			require.NoError(s, err)
			require.Equal(s, texts, bodies(jobs), "state %v in pages of %d", state, page)
			for _, j := range jobs {
				require.Equal(s, state, j.State)
			}
		}
		if s.config.Durable {
			some, after, err := s.store.List(s.Context(), q, state, "", 2)
			require.NoError(s, err)
			require.Len(s, some, 2)
			rest, _, err := s.store.List(s.Context(), q, state, after, 100)
			require.NoError(s, err)
			require.Equal(s, texts[2:], bodies(rest))
		}
	}
	jobs, after, err := s.store.List(s.Context(), "another", store.Ready, "", 10)
	require.NoError(s, err)
	require.Empty(s, jobs)
	require.Empty(s, after)
}

// listMoving removes and adds jobs between pages: those that stay are all listed, once.
func listMoving(s *suite) {
	for i := range 20 {
		s.add(keyed(fmt.Sprint(i), fmt.Sprint(i)), in(time.Duration(i)*time.Second+time.Minute))
	}
	var got []string
	var after store.Cursor
	for page := range 100 {
		jobs, next, err := s.store.List(s.Context(), q, store.Delayed, after, 3)
		require.NoError(s, err)
		got = append(got, bodies(jobs)...)
		if next == "" {
			break
		}
		after = next
		last := got[len(got)-1]
		s.do(&store.Cancel{Queue: q, Ref: byKey(last)}) // the cursor's own job
		s.add(newJob(fmt.Sprint("behind ", page)), in(time.Second))
	}
	require.Len(s, got, 20)
	for i := range 20 {
		require.Equal(s, fmt.Sprint(i), got[i])
	}
}

func queueInfos(s *suite) {
	infos, err := s.store.Queues(s.Context())
	require.NoError(s, err)
	require.Empty(s, infos)
	for _, name := range []string{"b", "a/x", "a"} {
		j := newJob("body")
		j.Queue, j.Key = name, "key"
		s.add(j, in(time.Minute))
	}
	s.do(limit("a/", store.Limits{Bytes: 1000}), limit("z", store.Limits{Jobs: 5}),
		paused("p", true))
	s.clock.Advance(time.Minute + 3*time.Second)
	claim := &store.Claim{Queue: "b", Max: 1, Lease: lease}
	s.do(claim)
	infos, err = s.store.Queues(s.Context())
	require.NoError(s, err)
	ready := store.QueueInfo{Ready: 1, Bytes: 7, Oldest: 3 * time.Second}
	a, ax := ready, ready
	a.Name, ax.Name = "a", "a/x"
	require.Equal(s, []store.QueueInfo{
		a,
		{Name: "a/", Limits: store.Limits{Bytes: 1000}, Next: -1},
		ax,
		{Name: "b", Leased: 1, Bytes: 7, Next: lease},
		{Name: "p", Paused: true, Next: -1},
		{Name: "z", Limits: store.Limits{Jobs: 5}, Next: -1},
	}, infos)
	none := store.Limits{}
	s.do(ack(claim.Jobs[0]), paused("p", false), limit("z", none), limit("a/", none))
	infos, err = s.store.Queues(s.Context())
	require.NoError(s, err)
	require.Equal(s, []store.QueueInfo{a, ax}, infos)
}

func dueCounts(s *suite) {
	ends := []time.Duration{0, time.Second, time.Minute, time.Hour}
	counts := func() []int {
		got, err := s.store.Due(s.Context(), q, ends)
		require.NoError(s, err)
		return got
	}
	require.Equal(s, []int{0, 0, 0, 0}, counts())
	start := s.clock.Now()
	s.add(newJob("leased"), in(0))
	s.claimOne()
	for _, when := range []store.When{
		in(0), at(start.Add(-time.Hour)),
		in(time.Millisecond), in(time.Second), at(start.Add(time.Second)),
		in(time.Second + time.Millisecond), at(start.Add(time.Minute)),
		in(time.Hour),
		in(time.Hour + time.Millisecond), at(start.AddDate(10, 0, 0)),
	} {
		s.add(newJob("x"), when)
	}
	require.Equal(s, []int{2, 3, 2, 1}, counts())
	s.clock.Advance(time.Second)
	require.Equal(s, []int{5, 1, 1, 2}, counts())
}

func bodiesCopied(s *suite) {
	body, repeat := []byte("body"), []byte("repeat")
	id := s.add(store.Job{Queue: q, Body: body, Repeat: repeat}, in(time.Hour))
	copy(body, "XXXX")
	copy(repeat, "XXXX")
	check := func(j store.Job) {
		s.Helper()
		require.Equal(s, "body", string(j.Body))
		require.Equal(s, "repeat", string(j.Repeat))
		copy(j.Body, "YYYY")
		copy(j.Repeat, "YYYY")
	}
	check(s.get(id))
	check(s.get(id))
	check(s.list(store.Delayed)[0])
	body = []byte("body")
	s.do(&store.Update{Queue: q, Ref: byID(id), Body: body})
	copy(body, "XXXX")
	check(s.get(id))
	s.clock.Advance(time.Hour)
	j := s.claimOne()
	check(j)
	check(s.get(id))
	repeat = []byte("repeat")
	op := finish(j, store.Again, in(0))
	op.Repeat = repeat
	s.do(op)
	copy(repeat, "XXXX")
	check(s.get(id))
}
