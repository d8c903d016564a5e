package history

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A script is a history in the making: each event comes a millisecond after the one before.
type script struct {
	events []Event
	now    int64
	mono   int64
	proc   int
	last   int // the highest process
}

const ms = int64(time.Millisecond)

func (s *script) put(e Event) {
	s.now += ms
	s.mono += ms
	e.Process, e.Wall, e.Mono = s.proc, s.now, s.mono
	if e.Kind == Begin && e.ID == "" {
		e.ID = "id of " + e.Job
	}
	if e.Kind == Added && e.Err == OK && e.ID == "" {
		e.ID = "id of " + e.Job
	}
	s.events = append(s.events, e)
}

func (s *script) wait(d time.Duration) { s.now += int64(d); s.mono += int64(d) }

// beside is a new process beside those that are there.
func (s *script) beside() {
	s.last++
	s.proc = s.last
	s.put(Event{Kind: Start, Beside: true})
}

// in has what follows done by a process.
func (s *script) in(process int) { s.proc = process }

func (s *script) killed(process int) {
	s.events = append(s.events, Event{Kind: Killed, Process: process})
}

// pull is a delivery to a puller, whose lease was asked for a millisecond before.
func (s *script) pull(job string, attempt int, lease time.Duration) {
	s.put(Event{Kind: Begin, Job: job, Attempt: attempt, Lease: lease, Since: s.mono})
}

// start is a new process: the one before was killed.
func (s *script) start() {
	s.last++
	s.proc = s.last
	s.mono = 0
	s.put(Event{Kind: Start})
}

func (s *script) add(job string, in time.Duration, most int) {
	s.put(Event{Kind: Add, Job: job, In: in, Most: most})
	s.put(Event{Kind: Added, Job: job})
}

func (s *script) addAt(job string, in time.Duration) {
	s.put(Event{Kind: Add, Job: job, At: s.now + int64(in)})
	s.put(Event{Kind: Added, Job: job})
}

func (s *script) begin(job string, attempt int) {
	s.put(Event{Kind: Begin, Job: job, Attempt: attempt})
}

func (s *script) returns(job string, attempt int, what string, in time.Duration) {
	s.put(Event{Kind: Return, Job: job, Attempt: attempt, Err: what, In: in})
}

func (s *script) work(job string, attempt int) {
	s.begin(job, attempt)
	s.returns(job, attempt, OK, 0)
}

func (s *script) ack(job string, attempt int, told string) {
	s.put(Event{Kind: Ack, Job: job, Attempt: attempt})
	s.put(Event{Kind: Acked, Job: job, Attempt: attempt, Err: told})
}

func (s *script) cancel(job, told string) {
	s.put(Event{Kind: Cancel, Job: job})
	s.put(Event{Kind: Cancelled, Job: job, Err: told})
}

func (s *script) move(job string, in time.Duration, told string) {
	s.put(Event{Kind: Reschedule, Job: job, In: in})
	s.put(Event{Kind: Rescheduled, Job: job, Err: told})
}

func (s *script) dead(job string, attempts int) {
	s.put(Event{Kind: Found, Job: job, Attempt: attempts, State: "dead"})
}

const second = time.Second

// two starts two processes beside each other. What follows is done by the first one.
func two(s *script) (one, other int) {
	s.beside()
	s.beside()
	s.in(s.last - 1)
	return s.last - 1, s.last
}

// histories that are well.
var good = map[string]func(s *script){
	"one process adds, another works": func(s *script) {
		_, other := two(s)
		s.add("a", 0, 0)
		s.in(other)
		s.work("a", 1)
	},
	"a process beside another was killed in a handler": func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.killed(one)
		s.in(other)
		s.work("a", 2)
	},
	"a process beside another was killed, and the lease has ended": func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		s.pull("a", 1, second)
		s.killed(one)
		s.in(other)
		s.wait(second)
		s.pull("a", 2, second)
		s.ack("a", 2, OK)
	},
	"killed beside another before a failure was stored": func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.returns("a", 1, Retry, second)
		s.killed(one)
		s.in(other)
		s.work("a", 2)
	},
	"a lease beside another has ended while its process lived": func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		s.pull("a", 1, second)
		s.in(other)
		s.wait(second)
		s.pull("a", 2, second)
		s.in(one)
		s.ack("a", 1, Lost)
		s.in(other)
		s.ack("a", 2, OK)
	},
	"a delivery beside another was written when its lease was over": func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		since := s.mono
		s.wait(second)
		s.in(other)
		s.pull("a", 2, second)
		s.ack("a", 2, OK)
		s.in(one)
		s.put(Event{Kind: Begin, Job: "a", Attempt: 1, Lease: second, Since: since})
		s.ack("a", 1, Lost)
		s.in(other)
	},
	"moved, worked on, and told late that it was moved": func(s *script) {
		s.add("a", 0, 0)
		s.put(Event{Kind: Reschedule, Job: "a"})
		s.begin("a", 1)
		s.ack("a", 1, OK)
		s.put(Event{Kind: Rescheduled, Job: "a"})
	},
	"poison whose killed process is not yet known to be dead": func(s *script) {
		one, other := two(s)
		s.add("a-poison", 0, 2)
		s.begin("a-poison", 1)
		s.in(other)
		s.begin("a-poison", 2)
		s.killed(one)
		s.killed(other)
		s.beside()
		s.dead("a-poison", 2)
	},
	"nothing": func(s *script) {},
	"worked on": func(s *script) {
		s.add("a", 0, 0)
		s.work("a", 1)
	},
	"due later": func(s *script) {
		s.add("a", second, 0)
		s.addAt("b", second)
		s.wait(second)
		s.work("a", 1)
		s.work("b", 1)
	},
	"delivered before Add returned": func(s *script) {
		s.put(Event{Kind: Add, Job: "a"})
		s.work("a", 1)
		s.put(Event{Kind: Added, Job: "a"})
	},
	"killed in Add, and it was not stored": func(s *script) {
		s.put(Event{Kind: Add, Job: "a"})
		s.start()
	},
	"killed in Add, and it was stored": func(s *script) {
		s.put(Event{Kind: Add, Job: "a"})
		s.start()
		s.work("a", 1)
	},
	"an Add that failed with an unknown outcome": func(s *script) {
		s.put(Event{Kind: Add, Job: "a"})
		s.put(Event{Kind: Added, Job: "a", Err: Unknown})
		s.work("a", 1)
	},
	"an Add that was refused": func(s *script) {
		s.put(Event{Kind: Add, Job: "a"})
		s.put(Event{Kind: Added, Job: "a", Err: "full"})
	},
	"killed in a handler": func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.start()
		s.work("a", 2)
	},
	"killed after a claim that was not delivered": func(s *script) {
		s.add("a", 0, 0)
		s.start()
		s.work("a", 2)
	},
	"killed before the acknowledgement was stored": func(s *script) {
		s.add("a", 0, 0)
		s.work("a", 1)
		s.start()
		s.work("a", 2)
	},
	"tried again": func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.returns("a", 1, Retry, second)
		s.wait(second)
		s.work("a", 2)
	},
	"killed before the retry was stored": func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.returns("a", 1, Retry, second)
		s.start()
		s.work("a", 2)
	},
	"snoozed": func(s *script) {
		s.add("a", 0, 1)
		for range 3 {
			s.begin("a", 1)
			s.returns("a", 1, Snooze, second)
			s.wait(second)
		}
		s.work("a", 1)
	},
	"cancelled": func(s *script) {
		s.add("a", second, 0)
		s.cancel("a", OK)
		s.cancel("a", NotFound)
		s.move("a", 0, NotFound)
	},
	"cancelled while it was worked on": func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.cancel("a", Running)
		s.returns("a", 1, OK, 0)
		s.add("b", 0, 0)
		s.cancel("b", Running)
		s.work("b", 1) // had been claimed
	},
	"killed in Cancel": func(s *script) {
		s.add("a", 0, 0)
		s.put(Event{Kind: Cancel, Job: "a"})
		s.start()
		s.add("b", 0, 0)
		s.put(Event{Kind: Cancel, Job: "b"})
		s.start()
		s.work("b", 1)
		s.move("a", 0, NotFound)
	},
	"moved": func(s *script) {
		s.add("a", second, 0)
		s.move("a", 0, OK)
		s.work("a", 1)
		s.add("b", 0, 0)
		s.move("b", second, OK)
		s.wait(second)
		s.work("b", 1)
	},
	"killed in Reschedule": func(s *script) {
		for _, job := range []string{"a", "b"} {
			s.add(job, second, 0)
			s.put(Event{Kind: Reschedule, Job: job})
		}
		s.start()
		s.work("a", 1)
		s.wait(second)
		s.work("b", 1)
	},
	"moved in vain": func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.move("a", second, Leased)
		s.returns("a", 1, OK, 0)
		s.move("a", second, NotFound)
	},
	"acknowledged": func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.ack("a", 1, OK)
		s.start()
		s.cancel("a", NotFound)
	},
	"killed in Ack": func(s *script) {
		for _, job := range []string{"a", "b"} {
			s.add(job, 0, 0)
			s.begin(job, 1)
			s.put(Event{Kind: Ack, Job: job, Attempt: 1})
		}
		s.start()
		s.begin("b", 2)
		s.ack("b", 2, OK)
	},
	"a lease ran out": func(s *script) {
		s.add("a", 0, 0)
		s.put(Event{Kind: Begin, Job: "a", Attempt: 1, Lease: second, Since: s.mono})
		s.wait(second)
		s.begin("a", 2)
		s.ack("a", 1, Lost)
		s.ack("a", 2, OK)
	},
	"cancelled before the Ack": func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.cancel("a", Running)
		s.ack("a", 1, Lost)
	},
	"poison": func(s *script) {
		s.add("a", 0, 3)
		for attempt := range 3 {
			s.begin("a", attempt+1)
			s.start()
		}
		s.dead("a", 3)
		s.cancel("a", NotFound)
	},
	"dead without a delivery, as each claim was killed": func(s *script) {
		s.add("a", 0, 1)
		s.start()
		s.dead("a", 1)
	},
}

// bad histories, with the rule that each breaks.
var bad = map[string]struct {
	rule   string
	script func(s *script)
}{
	"no end": {NotAHistory, func(s *script) { s.add("a", 0, 0); s.work("a", 1); s.now = -1 }},
	"no start": {NotAHistory, func(s *script) {
		s.events = nil
		s.add("a", 0, 0)
		s.work("a", 1)
	}},
	"an event of a process that is dead": {NotAHistory, func(s *script) {
		s.start()
		s.proc--
		s.put(Event{Kind: Add, Job: "a"})
		s.proc++
	}},
	"delivered beside a process that works on it": {NoReason, func(s *script) {
		_, other := two(s)
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.in(other)
		s.work("a", 2)
	}},
	"delivered beside a process that is done with it": {NoReason, func(s *script) {
		_, other := two(s)
		s.add("a", 0, 0)
		s.work("a", 1)
		s.in(other)
		s.work("a", 2)
	}},
	"attempts beside each other that go backwards": {NotCounted, func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		s.in(other)
		s.pull("a", 2, second)
		s.in(one)
		s.pull("a", 1, second)
		s.in(other)
	}},
	"one attempt beside another twice": {NotCounted, func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		s.wait(second)
		since := s.mono - int64(second)
		s.in(other)
		s.put(Event{Kind: Begin, Job: "a", Attempt: 1, Lease: second, Since: since})
		s.pull("a", 2, second)
		s.in(one)
		s.put(Event{Kind: Begin, Job: "a", Attempt: 1, Lease: second, Since: since})
		s.in(other)
	}},
	"a killed process's lease was not waited for": {NoReason, func(s *script) {
		one, other := two(s)
		s.add("a", 0, 0)
		s.pull("a", 1, second)
		s.killed(one)
		s.in(other)
		s.wait(second / 2)
		s.pull("a", 2, second)
		s.ack("a", 2, OK)
	}},
	"early, beside a process whose failure was stored": {Early, func(s *script) {
		_, other := two(s)
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.returns("a", 1, Retry, second)
		s.in(other)
		s.work("a", 2)
	}},
	"by a process that was killed beside others": {NotAHistory, func(s *script) {
		one, other := two(s)
		s.killed(one)
		s.add("a", 0, 0)
		s.in(other)
	}},
	"lost": {LostJob, func(s *script) { s.add("a", 0, 0) }},
	"lost by a kill": {LostJob, func(s *script) {
		s.add("a", 0, 0)
		s.start()
	}},
	"delivered, killed, and lost": {LostJob, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.start()
	}},
	"failed and lost": {LostJob, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.returns("a", 1, Retry, 0)
	}},
	"lost when it was moved": {LostJob, func(s *script) {
		s.add("a", 0, 0)
		s.move("a", 0, OK)
	}},
	"lost after a stale Ack": {LostJob, func(s *script) {
		s.add("a", 0, 0)
		s.put(Event{Kind: Begin, Job: "a", Attempt: 1, Lease: 1, Since: s.mono})
		s.begin("a", 2)
		s.ack("a", 1, Lost)
	}},
	"left": {Stuck, func(s *script) {
		s.add("a", 0, 0)
		s.put(Event{Kind: Found, Job: "a", State: "live"})
	}},
	"not found too soon": {LostEarly, func(s *script) {
		s.add("a", 0, 0)
		s.cancel("a", NotFound)
	}},
	"not found too soon by Reschedule": {LostEarly, func(s *script) {
		s.add("a", 0, 0)
		s.move("a", 0, NotFound)
		s.work("a", 1)
	}},
	"never added": {NeverAdded, func(s *script) { s.work("a", 1) }},
	"refused and delivered": {NeverAdded, func(s *script) {
		s.put(Event{Kind: Add, Job: "a"})
		s.put(Event{Kind: Added, Job: "a", Err: "the store has failed"})
		s.start()
		s.work("a", 1)
	}},
	"delivered and refused": {NeverAdded, func(s *script) {
		s.put(Event{Kind: Add, Job: "a"})
		s.work("a", 1)
		s.put(Event{Kind: Added, Job: "a", Err: "the store has failed"})
	}},
	"added twice": {OtherID, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.start()
		s.put(Event{Kind: Begin, Job: "a", Attempt: 2, ID: "other"})
		s.returns("a", 2, OK, 0)
	}},
	"early": {Early, func(s *script) {
		s.add("a", 4*time.Millisecond, 0)
		s.wait(time.Millisecond)
		s.work("a", 1)
	}},
	"early by a nanosecond": {Early, func(s *script) {
		s.add("a", 2*time.Millisecond+1, 0)
		s.work("a", 1)
	}},
	"early by an instant": {Early, func(s *script) {
		s.addAt("a", 3*time.Millisecond+1)
		s.work("a", 1)
	}},
	"early after a restart": {Early, func(s *script) {
		s.add("a", second, 0)
		s.start()
		s.work("a", 1)
	}},
	"early after a move": {Early, func(s *script) {
		s.add("a", 0, 0)
		s.move("a", second, OK)
		s.work("a", 1)
	}},
	"early as a move that was refused": {Early, func(s *script) {
		s.add("a", second, 0)
		s.move("a", 0, Leased)
		s.work("a", 1)
	}},
	"retry early": {Early, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.returns("a", 1, Retry, second)
		s.work("a", 2)
	}},
	"the poison is not counted": {NotCounted, func(s *script) {
		s.add("a", 0, 3)
		s.begin("a", 1)
		s.start()
		s.begin("a", 1)
		s.start()
		s.dead("a", 3)
	}},
	"too many": {TooMany, func(s *script) {
		s.add("a", 0, 1)
		s.begin("a", 1)
		s.start()
		s.work("a", 2)
	}},
	"after a cancel": {AfterCancel, func(s *script) {
		s.add("a", 0, 0)
		s.cancel("a", OK)
		s.work("a", 1)
	}},
	"after a cancel and a kill": {AfterCancel, func(s *script) {
		s.add("a", 0, 0)
		s.cancel("a", OK)
		s.start()
		s.work("a", 1)
	}},
	"again after a cancel while it was worked on": {AfterCancel, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.cancel("a", Running)
		s.start()
		s.work("a", 2)
	}},
	"twice after a cancel while it was worked on": {AfterCancel, func(s *script) {
		s.add("a", 0, 0)
		s.cancel("a", Running)
		s.begin("a", 1)
		s.returns("a", 1, Retry, 0)
		s.work("a", 2)
	}},
	"after the next process had begun": {AfterCancel, func(s *script) {
		s.add("a", 0, 0)
		s.cancel("a", Running)
		s.start()
		s.work("a", 1)
	}},
	"after its acknowledgement": {AfterAck, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.ack("a", 1, OK)
		s.start()
		s.work("a", 2)
	}},
	"twice at a time": {NoReason, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.work("a", 2)
	}},
	"twice in one process": {NoReason, func(s *script) {
		s.add("a", 0, 0)
		s.work("a", 1)
		s.work("a", 2)
	}},
	"before the lease ran out": {NoReason, func(s *script) {
		s.add("a", 0, 0)
		s.put(Event{Kind: Begin, Job: "a", Attempt: 1, Lease: second, Since: s.mono})
		s.wait(second / 2)
		s.begin("a", 2)
		s.ack("a", 2, OK)
	}},
	"a stale token": {StaleToken, func(s *script) {
		s.add("a", 0, 0)
		s.put(Event{Kind: Begin, Job: "a", Attempt: 1, Lease: 1, Since: s.mono})
		s.begin("a", 2)
		s.ack("a", 1, OK)
		s.ack("a", 2, OK)
	}},
	"the token of a cancelled job": {StaleToken, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.cancel("a", Running)
		s.ack("a", 1, OK)
	}},
	"a good token is refused": {Unexpected, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.ack("a", 1, Lost)
	}},
	"an error out of nowhere": {Unexpected, func(s *script) {
		s.add("a", 0, 0)
		s.cancel("a", "the store is damaged")
	}},
	"dead too soon": {DeadTooSoon, func(s *script) {
		s.add("a", 0, 3)
		s.begin("a", 1)
		s.start()
		s.dead("a", 1)
	}},
	"dead with no limit": {DeadTooSoon, func(s *script) {
		s.add("a", 0, 0)
		s.dead("a", 9)
	}},
	"dead and cancelled": {CameBack, func(s *script) {
		s.add("a", 0, 1)
		s.cancel("a", OK)
		s.dead("a", 1)
	}},
	"moved after a cancel": {CameBack, func(s *script) {
		s.add("a", 0, 1)
		s.cancel("a", OK)
		s.move("a", 0, OK)
	}},
	"dead twice": {FoundTwice, func(s *script) {
		s.add("a", 0, 1)
		s.dead("a", 1)
		s.dead("a", 1)
	}},
	"a Return of another attempt": {NotAHistory, func(s *script) {
		s.add("a", 0, 0)
		s.begin("a", 1)
		s.returns("a", 2, OK, 0)
		s.returns("a", 1, OK, 0)
	}},
}

func write(f func(s *script)) []Event {
	s := &script{now: 1e18}
	s.start()
	f(s)
	if s.now > 0 {
		s.put(Event{Kind: End})
	}
	return s.events
}

func TestGoodHistoriesAreAccepted(t *testing.T) {
	for name, f := range good {
		t.Run(name, func(t *testing.T) { require.Empty(t, Check(write(f))) })
	}
}

func TestBadHistoriesAreRefused(t *testing.T) {
	for name, h := range bad {
		t.Run(name, func(t *testing.T) {
			var rules []string
			for _, v := range Check(write(h.script)) {
				rules = append(rules, v.Rule)
			}
			require.Contains(t, rules, h.rule)
			if h.rule != NotAHistory {
				require.NotContains(t, rules, NotAHistory)
			}
		})
	}
}

// TestEveryRuleIsBroken fails if a rule has no history that breaks it.
func TestEveryRuleIsBroken(t *testing.T) {
	broken := map[string]bool{}
	for _, h := range bad {
		broken[h.rule] = true
	}
	for _, rule := range []string{
		NeverAdded, OtherID, Early, NotCounted, TooMany, AfterCancel, AfterAck, NoReason,
		StaleToken, LostEarly, LostJob, Stuck, DeadTooSoon, FoundTwice, NotAHistory, Unexpected,
		CameBack,
	} {
		require.True(t, broken[rule], rule)
	}
}

// TestFaultsAreFoundAmongOtherJobs puts each bad history beside all the good ones.
func TestFaultsAreFoundAmongOtherJobs(t *testing.T) {
	for name, h := range bad {
		if h.rule == NotAHistory {
			continue
		}
		t.Run(name, func(t *testing.T) {
			events := write(func(s *script) {
				for other, f := range good {
					from := len(s.events)
					f(s)
					for i := range s.events[from:] {
						if e := &s.events[from+i]; e.Job != "" {
							e.Job = other + ": " + e.Job
						}
					}
				}
				h.script(s)
			})
			violations := Check(events)
			found := func(v Violation) bool { return v.Rule == h.rule }
			require.True(t, slices.ContainsFunc(violations, found))
			for _, v := range violations {
				require.Equal(t, "a", v.Job, "%v", v)
			}
		})
	}
}

func TestALogSurvivesACut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := OpenLog(path, 1)
	require.NoError(t, err)
	want := []Event{log.Now(Start, ""), log.Now(Add, "a")}
	for _, e := range want {
		log.Write(e)
	}
	_, err = log.file.WriteString(`{"Kind":"add","Jo`) // killed here
	require.NoError(t, err)
	require.NoError(t, log.file.Close())
	events, err := ReadLog(path)
	require.NoError(t, err)
	require.Equal(t, want, events)

	log, err = OpenLog(path, 2)
	require.NoError(t, err)
	want = append(want, log.Now(Start, ""))
	log.Write(want[2])
	require.NoError(t, log.file.Close())
	events, err = ReadLog(path)
	require.NoError(t, err)
	require.Equal(t, want, events)

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString("damage\nand more, as no process is killed twice\n{}\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = ReadLog(path)
	require.Error(t, err)
}
