package history

import (
	"fmt"
	"slices"
	"time"
)

// A Violation is a promise that a history shows to be broken.
type Violation struct {
	Rule   string
	Job    string
	At     int     // the index of the Event that shows it
	Events []Event // of the job
}

func (v Violation) String() string {
	s := fmt.Sprintf("%s: job %s, event %d", v.Rule, v.Job, v.At)
	for _, e := range v.Events {
		s += fmt.Sprintf("\n\t%+v", e)
	}
	return s
}

// The rules.
const (
	NeverAdded  = "a job was delivered that no one added, or whose Add was refused"
	OtherID     = "a job was delivered under another ID"
	Early       = "a job was delivered before its time"
	NotCounted  = "an attempt was not counted before delivery"
	TooMany     = "a job was delivered more often than its attempts allow"
	AfterCancel = "a delivery began after Cancel had returned, and was not under way"
	AfterAck    = "a job was delivered after its acknowledgement was stored"
	NoReason    = "a job was delivered again although its lease had not ended and its process lives"
	StaleToken  = "the acknowledgement of a lease that was lost was accepted"
	LostEarly   = "a call did not find a job that must be there"
	LostJob     = "an added job was not worked on to its end, cancelled or found dead"
	Stuck       = "a job is left that was never delivered again"
	DeadTooSoon = "a job is dead that had attempts left"
	FoundTwice  = "a job was found twice"
	NotAHistory = "the events are not a history"
	Unexpected  = "a call failed for a reason that it must not have"
	CameBack    = "a job is there although it was cancelled or its acknowledgement was stored"
)

// clockMistrust is what durations may be wrong by across a restart, where only the wall clock tells
// the time.
const clockMistrust = 20 * time.Millisecond

// Check returns what a history shows to be broken, nothing if all is well. A history that does not
// come to an End is not well.
//
// It reads the events in their order, which is that of their writing: what was written before a
// call began happened before it, and what was told was so before it was written. In between, an
// operation may have taken effect or not.
func Check(events []Event) []Violation {
	c := checker{jobs: map[string]*job{}, live: map[int]bool{}}
	for i, e := range events {
		c.at = i
		c.event(e)
	}
	c.at = len(events)
	if !c.ended {
		c.broken(NotAHistory, "", nil)
	}
	for name, j := range c.jobs {
		c.final(name, j)
	}
	slices.SortStableFunc(c.violations, func(a, b Violation) int { return a.At - b.At })
	return c.violations
}

type checker struct {
	at         int
	last       int          // the highest process
	live       map[int]bool // processes
	beside     bool         // there are several
	ended      bool
	jobs       map[string]*job
	violations []Violation
}

// A job is what the events so far say of one.
type job struct {
	events  []Event
	id      string
	added   bool // acknowledged
	refused bool
	most    int
	dues    []due // it may be due at any of these
	pending *due  // of a Reschedule that has not returned
	gone    bool  // when that was asked for

	attempts int // the last one delivered; the next has to be above
	begun    map[int]bool
	last     *Event // Begin of the last delivery
	open     bool   // that delivery has not returned
	ok       bool   // it returned nil

	cancelAsked bool
	cancelled   bool         // told: no delivery begins
	oneMore     bool         // but for one that was under way, and whose Begin was not written yet
	ackAsked    map[int]bool // by attempt; true if the lease was lost by then
	acked       bool
	mayBeDone   bool // perhaps worked on to its end: nil returned, or Ack called
	found       bool
}

// A due is a time before which a job must not be delivered.
type due struct {
	instant bool
	wall    int64
	mono    int64 // of process
	process int
	crash   int // counts only once this process is dead; 0 for always
}

func dueOf(e Event) due {
	if e.At != 0 {
		return due{instant: true, wall: e.At}
	}
	return due{wall: e.Wall + int64(e.In), mono: e.Mono + int64(e.In), process: e.Process}
}

// reached says whether a delivery is not before a due time.
func (c *checker) reached(d due, e Event) bool {
	switch {
	case c.live[d.crash]:
		return false
	case d.instant:
		return e.Wall >= d.wall
	case d.process == e.Process:
		return e.Mono >= d.mono
	}
	return e.Wall >= d.wall-int64(clockMistrust)
}

func (c *checker) broken(rule, name string, j *job) {
	v := Violation{Rule: rule, Job: name, At: c.at}
	if j != nil {
		v.Events = slices.Clone(j.events)
	}
	c.violations = append(c.violations, v)
}

func (c *checker) event(e Event) {
	switch {
	case e.Kind == Killed:
		delete(c.live, e.Process)
		return
	case c.ended, e.Kind != Start && !c.live[e.Process]:
		c.broken(NotAHistory, e.Job, nil)
		return
	case e.Kind == Start:
		c.start(e)
		return
	case e.Kind == End:
		c.ended = true
		return
	}
	j := c.jobs[e.Job]
	if j == nil {
		j = &job{ackAsked: map[int]bool{}, begun: map[int]bool{}}
		c.jobs[e.Job] = j
	}
	j.events = append(j.events, e)
	bad := func(rule string) { c.broken(rule, e.Job, j) }
	switch e.Kind {
	case Add:
		if len(j.events) > 1 {
			bad(NotAHistory)
		}
		j.most = e.Most
		j.dues = []due{dueOf(e)}
	case Added:
		switch e.Err {
		case OK:
			j.added, j.id = true, e.ID
			if j.last != nil && j.last.ID != e.ID {
				bad(OtherID)
			}
		case Unknown:
		default:
			if j.refused = true; j.last != nil {
				bad(NeverAdded)
			}
		}
	case Begin:
		c.begin(e, j)
	case Return:
		c.returned(e, j)
	case Ack:
		if j.last == nil {
			bad(NotAHistory)
			break
		}
		j.ackAsked[e.Attempt] = e.Attempt != j.last.Attempt || j.cancelled
		j.mayBeDone = j.mayBeDone || !j.ackAsked[e.Attempt]
	case Acked:
		lost, asked := j.ackAsked[e.Attempt]
		switch {
		case !asked:
			bad(NotAHistory)
		case e.Err == OK && lost:
			bad(StaleToken)
		case e.Err == OK:
			j.acked = true
			j.open = false
		case e.Err == Lost:
			// It lost its lease by a Cancel under way, or as the lease ran out.
			if !lost && !j.cancelAsked && j.last.Process == e.Process &&
				(j.last.Lease == 0 || j.leased(e)) {
				bad(Unexpected)
			}
		case e.Err != Unknown:
			bad(Unexpected)
		}
	case Cancel:
		j.cancelAsked = true
	case Cancelled:
		switch e.Err {
		case OK:
			j.cancelled, j.oneMore = true, false
		case Running:
			j.oneMore = !j.cancelled && !(j.open && c.live[j.last.Process])
			j.cancelled = true
		case NotFound:
			c.notFound(e, j, true)
		case Unknown:
		default:
			bad(Unexpected)
		}
	case Reschedule:
		d := dueOf(e)
		j.pending, j.gone = &d, j.cancelled || j.acked
		j.dues = append(j.dues, d)
	case Rescheduled:
		if j.pending == nil {
			bad(NotAHistory)
			break
		}
		switch e.Err {
		case OK:
			j.dues = []due{*j.pending}
			if j.gone { // or it was moved before, and told late
				bad(CameBack)
			}
		case NotFound, Leased:
			if i := slices.Index(j.dues, *j.pending); i >= 0 {
				j.dues = slices.Delete(j.dues, i, i+1)
			}
			if e.Err == NotFound {
				c.notFound(e, j, false)
			}
		case Unknown:
		default:
			bad(Unexpected)
		}
		j.pending = nil
	case Found:
		if j.found {
			bad(FoundTwice)
		}
		j.found = true
		switch {
		case j.cancelled || j.acked:
			bad(CameBack)
		case e.State != "dead":
			bad(Stuck)
		case j.most == 0 || e.Attempt < j.most:
			bad(DeadTooSoon)
		}
	default:
		bad(NotAHistory)
	}
}

// start notes a process. Unless it is beside others, those before it are dead, and the store has
// ended their leases.
func (c *checker) start(e Event) {
	_, known := c.live[e.Process]
	if c.beside = e.Beside; c.beside {
		if known || e.Process < 1 {
			c.broken(NotAHistory, "", nil)
		}
	} else {
		if e.Process <= c.last {
			c.broken(NotAHistory, "", nil)
		}
		clear(c.live)
		for _, j := range c.jobs {
			j.open, j.oneMore = false, false
		}
	}
	c.live[e.Process] = true
	c.last = max(c.last, e.Process)
}

// leased says whether the lease of the last delivery of a job, as far as it is known, lasts.
func (j *job) leased(e Event) bool {
	p := j.last
	if p.Process == e.Process {
		return e.Mono < p.Since+int64(p.Lease)
	}
	since := p.Wall - p.Mono + p.Since
	return e.Wall < since+int64(p.Lease)-int64(clockMistrust)
}

func (c *checker) begin(e Event, j *job) {
	bad := func(rule string) { c.broken(rule, e.Job, j) }
	if len(j.dues) == 0 || j.refused {
		bad(NeverAdded)
	}
	if j.id == "" {
		j.id = e.ID
	}
	if e.ID != j.id {
		bad(OtherID)
	}
	reached := func(d due) bool { return c.reached(d, e) }
	if len(j.dues) > 0 && !slices.ContainsFunc(j.dues, reached) {
		bad(Early)
	}
	if c.beside && e.Lease > 0 && e.Attempt < j.attempts && e.Mono >= e.Since+int64(e.Lease) &&
		!j.begun[e.Attempt] {
		j.begun[e.Attempt] = true // written so late that the lease was over, and another has it
		return
	}
	if e.Attempt <= j.attempts {
		bad(NotCounted)
	}
	j.begun[e.Attempt] = true
	if j.most > 0 && e.Attempt > j.most {
		bad(TooMany)
	}
	if j.cancelled && !j.oneMore {
		bad(AfterCancel)
	}
	j.oneMore = false
	if j.acked {
		bad(AfterAck)
	}
	// The death of a process is written when a poison job may have its next delivery already.
	if p := j.last; p != nil && !(c.beside && isPoison(e.Job)) {
		switch lives := c.live[p.Process]; {
		case j.ok && lives:
			bad(NoReason)
		case j.open && p.Lease == 0 && lives:
			bad(NoReason)
		case j.open && p.Lease > 0 && (lives || c.beside) && j.leased(e):
			bad(NoReason)
		}
	}
	j.attempts = max(j.attempts, e.Attempt)
	j.last, j.open, j.ok = &e, true, false
}

func (c *checker) returned(e Event, j *job) {
	if j.last == nil || !j.open || j.last.Attempt != e.Attempt {
		c.broken(NotAHistory, e.Job, j)
		return
	}
	j.open = false
	switch e.Err {
	case OK:
		j.ok, j.mayBeDone = true, true
		return
	case Snooze:
		j.attempts--
	}
	// If the outcome was not stored when the process was killed, the job is due as it was.
	for i := range j.dues {
		j.dues[i].crash = e.Process
	}
	j.dues = append(j.dues, dueOf(e))
}

// notFound checks a call that did not find the job, by its key, so that a dead one is not found
// either.
func (c *checker) notFound(e Event, j *job, cancel bool) {
	asked := 0
	for _, e := range j.events {
		if e.Kind == Cancel {
			asked++
		}
	}
	if cancel {
		asked-- // this one
	}
	if !j.added || j.mayBeDone || asked > 0 || j.most > 0 {
		return
	}
	c.broken(LostEarly, e.Job, j)
}

// final checks a job at the end.
func (c *checker) final(name string, j *job) {
	if j.added && !j.mayBeDone && !j.cancelAsked && !j.found {
		c.broken(LostJob, name, j)
	}
}

// A Summary counts what happened in a history, so that a test can tell that something did.
type Summary struct {
	Processes, Jobs, Deliveries, Again, Cancelled, Running, Moved, Acked, Refused, Dead, Poison int
}

// Summarize returns the Summary of a history.
func Summarize(events []Event) (s Summary) {
	delivered := map[string]bool{}
	for _, e := range events {
		switch {
		case e.Kind == Start:
			s.Processes++
		case e.Kind == Added && e.Err == OK:
			s.Jobs++
			if isPoison(e.Job) {
				s.Poison++
			}
		case e.Kind == Begin:
			if s.Deliveries++; delivered[e.Job] {
				s.Again++
			}
			delivered[e.Job] = true
		case e.Kind == Cancelled && e.Err == OK:
			s.Cancelled++
		case e.Kind == Cancelled && e.Err == Running:
			s.Running++
		case e.Kind == Rescheduled && e.Err == OK:
			s.Moved++
		case e.Kind == Acked && e.Err == OK:
			s.Acked++
		case e.Kind == Acked && e.Err == Lost:
			s.Refused++
		case e.Kind == Found && e.State == "dead":
			s.Dead++
		}
	}
	return s
}
