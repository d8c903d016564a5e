package jobqueue

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/go-timingwheel/timingwheel"
)

// A Repeat says when a recurring job runs. A recurring job is one job with one ID: when a run has
// ended, the next is fixed in the same write, so runs do not overlap, and runs that were missed
// become one. A run that fails is tried again like any other job. One that failed for good leaves a
// copy among the dead letters, and the recurrence goes on.
type Repeat struct {
	Every     time.Duration `json:"every,omitempty"`     // the period, or
	Cron      string        `json:"cron,omitempty"`      // a crontab line, or
	Scheduler string        `json:"scheduler,omitempty"` // the name of a registered Scheduler

	Zone  string    `json:"zone,omitempty"`  // of Cron and of the times that a Scheduler is given
	Times int       `json:"times,omitempty"` // how many runs, 0 for no limit
	Until time.Time `json:"until,omitzero"`  // no run after this, unless zero

	Run  time.Time `json:"run"`  // when the present run was to begin; later runs count from there
	Runs int       `json:"runs"` // runs that have ended
}

// A Scheduler says when a recurring job runs next, given when the run before was to begin. Every
// Schedule of robfig/cron is one. The recurrence ends with the zero time, or one that is not later.
type Scheduler = timingwheel.Scheduler

// Every makes the job recur with a period d. Its first run is d from now unless In or At says
// otherwise. The rhythm is kept: a run that is late does not move those after it.
func Every(d time.Duration) AddOption {
	return repeat(func(r *Repeat) { r.Every = d })
}

// Cron makes the job recur at the times of a crontab line of five fields, or a descriptor such as
// @daily, in a time zone of the IANA database; an empty zone is UTC. The first run is the next such
// time unless In or At says otherwise.
func Cron(line, zone string) AddOption {
	return repeat(func(r *Repeat) { r.Cron, r.Zone = line, zone })
}

// Scheduled makes the job recur at the times of the Scheduler that RegisterScheduler has named. In
// a process without it the job is put off by a minute at a time.
func Scheduled(name, zone string) AddOption {
	return repeat(func(r *Repeat) { r.Scheduler, r.Zone = name, zone })
}

// Times ends the recurrence after n runs.
func Times(n int) AddOption {
	return func(a *addition) {
		if n < 1 {
			a.refuse(fmt.Errorf("%w: Times(%d)", ErrInvalid, n))
		}
		a.recurring().Times = n
	}
}

// Until ends the recurrence: there is no run after end.
func Until(end time.Time) AddOption {
	return func(a *addition) {
		if end.UTC().Year() > 9999 {
			a.refuse(ErrBadTime)
		}
		a.recurring().Until = end.Round(0).UTC() // JSON refuses odd zones
	}
}

// RegisterScheduler gives a Scheduler a name under which Scheduled finds it, in every process that
// works on the queue. It replaces an earlier one of the name. Its Next is called without a lock, by
// any goroutine.
func (c *Client) RegisterScheduler(name string, s Scheduler) {
	if name == "" || s == nil {
		panic("jobqueue: RegisterScheduler without a name or a Scheduler")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schedulers[name] = s
}

func repeat(set func(*Repeat)) AddOption {
	return func(a *addition) { set(a.recurring()) }
}

func (a *addition) recurring() *Repeat {
	if a.repeat == nil {
		a.repeat = &Repeat{}
	}
	return a.repeat
}

// firstRun fixes when a recurring job runs first.
func (c *Client) firstRun(a *addition, now time.Time) error {
	r := a.repeat
	now = now.Round(0)
	if btoi(r.Every > 0)+btoi(r.Cron != "")+btoi(r.Scheduler != "") != 1 || r.Every < 0 {
		return fmt.Errorf("%w: one of Every, Cron and Scheduled, with a positive period",
			ErrBadSchedule)
	}
	first, err := c.after(r, now, now)
	if err != nil {
		return err
	}
	if a.timed {
		first = now.Add(a.When.In)
		if !a.When.At.IsZero() {
			first = a.When.At
		}
	}
	if first.IsZero() || !r.Until.IsZero() && first.After(r.Until) {
		return fmt.Errorf("%w: it has no run", ErrBadSchedule)
	}
	if a.When, err = at(first); err != nil {
		return err
	}
	r.Run = first.UTC()
	a.Job.Repeat = r.encode()
	return nil
}

// nextRun returns when a recurring job runs next once the present run has ended, and what is to be
// stored of it. The time is zero if this was the last.
func (c *Client) nextRun(r Repeat, now time.Time) (time.Time, []byte, error) {
	r.Runs++
	if r.Times > 0 && r.Runs >= r.Times {
		return time.Time{}, nil, nil
	}
	next, err := c.after(&r, r.Run, now.Round(0))
	over := next.IsZero() || next.UTC().Year() > 9999 || !r.Until.IsZero() && next.After(r.Until)
	if err != nil || over {
		return time.Time{}, nil, err
	}
	r.Run = next.UTC()
	return next, r.encode(), nil
}

// after returns the last time of the schedule up to now or, if there was none since the run before,
// the first one after now: missed runs become one, at once.
func (c *Client) after(r *Repeat, before, now time.Time) (time.Time, error) {
	if r.Every > 0 {
		n := max(now.Sub(before)/r.Every, 1)
		if ahead := before.Sub(now); ahead > r.Every {
			// The wall clock was stepped back. Runs go on in their rhythm instead of waiting until
			// it has caught up.
			n = -((ahead - 1) / r.Every)
		}
		return before.Add(n * r.Every), nil
	}
	s, loc, err := c.scheduler(r)
	if err != nil {
		return time.Time{}, err
	}
	next := s.Next(before.In(loc))
	if !next.After(before) {
		return time.Time{}, nil
	}
	if next.Before(now) {
		return now, nil
	}
	return next.Round(0), nil
}

// scheduler returns what decides when a job recurs that has no plain period.
func (c *Client) scheduler(r *Repeat) (Scheduler, *time.Location, error) {
	if r.Scheduler == "" {
		z, err := c.cron(r.Cron, r.Zone)
		return z.Scheduler, z.loc, err
	}
	loc, err := time.LoadLocation(r.Zone)
	if err != nil {
		return nil, nil, fmt.Errorf("%w %q", ErrBadZone, r.Zone)
	}
	c.mu.Lock()
	s := c.schedulers[r.Scheduler]
	c.mu.Unlock()
	if s == nil {
		return nil, nil, fmt.Errorf("%w: no scheduler %q", ErrBadSchedule, r.Scheduler)
	}
	return s, loc, nil
}

// A zoned is a crontab line that was read.
type zoned struct {
	Scheduler
	loc *time.Location
}

// cron reads a crontab line, and remembers it, as reading it takes tens of microseconds.
func (c *Client) cron(line, zone string) (zoned, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := [2]string{line, zone}
	if z, ok := c.crons[at]; ok {
		return z, nil
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return zoned{}, fmt.Errorf("%w %q", ErrBadZone, zone)
	}
	if strings.Contains(line, "TZ=") {
		return zoned{}, fmt.Errorf("%w: %q: the zone is an argument", ErrBadSchedule, line)
	}
	if strings.HasPrefix(line, "@every") {
		return zoned{}, fmt.Errorf("%w: %q: use Every", ErrBadSchedule, line)
	}
	s, err := cron.ParseStandard(line)
	if err != nil {
		return zoned{}, fmt.Errorf("%w: %w", ErrBadSchedule, err)
	}
	if spec, ok := s.(*cron.SpecSchedule); ok {
		spec.Location = loc
	}
	if len(c.crons) >= 1000 { // a bound, for programs that make lines up
		clear(c.crons)
	}
	c.crons[at] = zoned{s, loc}
	return c.crons[at], nil
}

func (r *Repeat) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil { // a year beyond 9999, which Until, firstRun and nextRun refuse
		panic(err)
	}
	return b
}

func parseRepeat(b []byte) (*Repeat, error) {
	r := &Repeat{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	return r, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
