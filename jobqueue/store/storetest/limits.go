package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// Limits of queues and namespaces.
var limitTests = []test{
	{name: "ALimitOnJobs", run: limitJobs},
	{name: "ALimitOnBytes", run: limitBytes},
	{name: "ALimitOnANamespace", run: limitNamespace},
	{name: "OnlyLiveJobsCount", run: limitLive},
	{name: "AReplacedJobMakesRoom", run: limitReplace},
	{name: "UpdateRespectsTheLimit", run: limitUpdate},
	{name: "DropOldestBuriesWhatIsDueFirst", run: dropOldest},
	{name: "DropOldestSparesLeases", run: dropNotLeased},
	{name: "DropOldestDropsOnlyIfItHelps", run: dropOnlyIfItHelps},
	{name: "LimitsAreKept", run: limitsKept, needs: durable},
}

func limitJobs(s *suite) {
	s.do(limit(q, store.Limits{Jobs: 2}))
	s.add(newJob("a"), in(0))
	id := s.add(newJob("b"), in(time.Hour))
	s.refused(store.ErrFull, &store.Add{Job: newJob("c")})
	require.Equal(s, []string{"a"}, bodies(s.claim(9)))
	s.refused(store.ErrFull, &store.Add{Job: newJob("c")}) // a leased job counts
	s.do(&store.Cancel{Queue: q, Ref: byID(id)})
	s.add(newJob("c"), in(0))
	s.refused(store.ErrFull, &store.Add{Job: newJob("d")})
	s.do(limit(q, store.Limits{}))
	s.add(newJob("d"), in(0))
	require.Equal(s, 2, s.info(q).Ready)
}

func limitBytes(s *suite) {
	s.do(limit(q, store.Limits{Bytes: 10}))
	s.add(keyed("1234", "56"), in(0))
	s.refused(store.ErrFull, &store.Add{Job: newJob("12345")})
	s.add(newJob("1234"), in(0))
	s.add(newJob(""), in(0))
	require.EqualValues(s, 10, s.info(q).Bytes)
	s.refused(store.ErrFull, &store.Add{Job: newJob("1")})
	require.Len(s, s.claim(9), 3)
}

func limitNamespace(s *suite) {
	s.do(limit("orders/", store.Limits{Jobs: 2}))
	s.add(newJob("a"), in(0))
	other := newJob("b")
	other.Queue = "orders/pay/late"
	s.add(other, in(0))
	s.refused(store.ErrFull, &store.Add{Job: other})
	s.refused(store.ErrFull, &store.Add{Job: newJob("c")})
	for _, name := range []string{"orders", "orders2/x", "stock/orders/"[:12], "order/s"} {
		j := newJob("elsewhere")
		j.Queue = name
		s.add(j, in(0))
	}
	require.Equal(s, store.Limits{Jobs: 2}, s.info("orders/").Limits)
	s.do(ack(s.claimOne()))
	s.add(other, in(0))
	s.refused(store.ErrFull, &store.Add{Job: newJob("c")})
}

func limitLive(s *suite) {
	s.do(limit(q, store.Limits{Jobs: 1}))
	dead := s.add(newJob("dead"), in(0))
	s.do(bury(s.claimOne(), "why"))
	j := newJob("done")
	j.Retain = time.Hour
	s.add(j, in(0))
	s.do(ack(s.claimOne()))
	s.add(newJob("live"), in(0))
	s.refused(store.ErrFull, &store.Add{Job: newJob("x")})
	require.Equal(s, store.Dead, s.get(dead).State)
	require.EqualValues(s, len("live"), s.info(q).Bytes)
}

func limitReplace(s *suite) {
	s.do(limit(q, store.Limits{Jobs: 1, Bytes: 10}))
	s.add(keyed("12345", "key"), in(0))
	s.refused(store.ErrFull, &store.Add{Job: keyed("12345678", "key"), On: store.Replace})
	id := s.addOn(keyed("1234567", "key"), in(0), store.Replace)
	require.EqualValues(s, 10, s.info(q).Bytes)
	op := &store.Add{Job: keyed("x", "key")} // kept
	s.do(op)
	require.Equal(s, id, op.ID)
	require.Equal(s, []string{"1234567"}, bodies(s.claim(9)))
}

func limitUpdate(s *suite) {
	s.do(limit("orders/", store.Limits{Bytes: 10}))
	id := s.add(newJob("1234"), in(0))
	s.add(newJob("5678"), in(0))
	s.refused(store.ErrFull, &store.Update{Queue: q, Ref: byID(id), Body: []byte("1234567")})
	require.Equal(s, "1234", string(s.get(id).Body))
	s.do(&store.Update{Queue: q, Ref: byID(id), Body: []byte("123456")})
	s.do(&store.Update{Queue: q, Ref: byID(id), Body: []byte("1")})
	require.EqualValues(s, 5, s.info(q).Bytes)
}

func dropOldest(s *suite) {
	s.do(limit(q, store.Limits{Jobs: 2, DropOldest: true}))
	later := s.add(newJob("later"), in(2*time.Hour))
	sooner := s.add(newJob("sooner"), in(time.Hour))
	s.add(newJob("now"), in(0))
	j := s.get(sooner)
	require.Equal(s, store.Dead, j.State)
	require.NotEmpty(s, j.LastError)
	require.Equal(s, store.Delayed, s.get(later).State)
	require.Equal(s, []string{"now"}, bodies(s.claim(9)))
	require.Equal(s, 1, s.info(q).Dead)
}

func dropNotLeased(s *suite) {
	s.do(limit(q, store.Limits{Jobs: 2, DropOldest: true}))
	s.add(newJob("a"), in(0))
	s.add(newJob("b"), in(0))
	jobs := s.claim(2)
	s.refused(store.ErrFull, &store.Add{Job: newJob("c")})
	s.do(finish(jobs[1], store.Retry, in(time.Hour)))
	s.add(newJob("c"), in(0))
	require.Equal(s, store.Dead, s.get(jobs[1].ID).State)
	s.do(ack(jobs[0]))
}

func dropOnlyIfItHelps(s *suite) {
	s.do(limit(q, store.Limits{Bytes: 10, DropOldest: true}))
	a := s.add(newJob("1234"), in(0))
	b := s.add(newJob("5678"), in(0))
	s.refused(store.ErrFull, &store.Add{Job: newJob("12345678901")})
	require.Equal(s, store.Ready, s.get(a).State)
	require.Equal(s, store.Ready, s.get(b).State)
	s.add(newJob("1234567890"), in(0))
	require.Equal(s, store.Dead, s.get(a).State)
	require.Equal(s, store.Dead, s.get(b).State)
}

func limitsKept(s *suite) {
	s.do(limit("orders/", store.Limits{Jobs: 3}), limit(q, store.Limits{Jobs: 2}))
	s.add(newJob("a"), in(0))
	s.reopen(0)
	s.add(newJob("b"), in(0))
	s.refused(store.ErrFull, &store.Add{Job: newJob("c")})
	s.reopen(0)
	other := newJob("c")
	other.Queue = "orders/other"
	s.add(other, in(0))
	s.refused(store.ErrFull, &store.Add{Job: other})
}
