package command

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
)

// This file has the commands that change jobs and queues.

// do carries out an action and says so, or prints its result as JSON.
func (c *call) do(a manage.Action, say func(r *manage.Result) string) error {
	r, err := c.Do(c.ctx, a)
	switch {
	case err != nil:
		return err
	case c.json:
		return c.print(r)
	}
	_, err = fmt.Fprintln(c.out, say(r))
	return err
}

// each carries out an action on every job that the arguments after the queue, or a key, name. It
// goes on after an error.
func (c *call) each(a manage.Action, key string, say func(r *manage.Result) string) error {
	a.Queue = c.arg(0)
	if (len(c.args) == 1) == (key == "") {
		return misused("either IDs or -key")
	}
	ids := make([]jobqueue.ID, len(c.args)-1)
	for i, text := range c.args[1:] {
		var err error
		if ids[i], err = jobqueue.ParseID(text); err != nil {
			return misused("%s is not an ID", manage.Quote(text))
		}
	}
	return c.using(func() error {
		if a.Key = key; key != "" {
			return c.do(a, func(r *manage.Result) string { return say(r) + " " + manage.Line(key) })
		}
		var failed error
		for _, id := range ids {
			a.ID = id
			err := c.do(a, func(r *manage.Result) string { return say(r) + " " + id.String() })
			if err != nil {
				c.complain(fmt.Errorf("%s: %s", id, strings.TrimPrefix(err.Error(), "jobqueue: ")))
				failed = errReported
			}
		}
		return failed
	})
}

func add(c *call) error {
	var a manage.Action
	var at, until instant
	c.duration(&a.In, "in", "due after this `duration`; the default is now")
	c.flags.Var(&at, "at", "due at this `instant`")
	c.flags.StringVar(&a.Key, "key", "", "the `key` of the job")
	c.flags.StringVar(&a.OnConflict, "on-conflict", "keep",
		"if a live job has the key: keep, replace or fail")
	c.flags.IntVar(&a.Priority, "priority", 0,
		"which of those due at once goes first: the lower `number`")
	c.flags.IntVar(&a.Attempts, "attempts", 0,
		"dead after this `number` of attempts; 0 is the handler's choice")
	c.duration(&a.Retain, "retain", "keep it for this `duration` after it is done")
	c.duration(&a.Every, "every", "recur with this period, a `duration`")
	c.flags.StringVar(&a.Cron, "cron", "", "recur at the times of this crontab `line`")
	c.flags.StringVar(&a.Scheduler, "scheduler", "", "recur as the scheduler of this `name` says")
	c.flags.StringVar(&a.Zone, "zone", "",
		"the time zone of -cron and -scheduler; the default is UTC")
	c.flags.IntVar(&a.Times, "times", 0, "end after this `number` of runs")
	c.flags.Var(&until, "until", "no run after this `instant`")
	if err := c.parse(1, 2); err != nil {
		return err
	}
	if a.In != "" && !at.IsZero() {
		return misused("either -in or -at")
	}
	if a.OnConflict != "keep" && a.OnConflict != "replace" && a.OnConflict != "fail" {
		return misused("-on-conflict is keep, replace or fail")
	}
	return c.using(func() error {
		a.Do, a.Queue, a.At, a.Until = manage.DoAdd, c.arg(0), at.Time, until.Time
		body := []byte(c.arg(1))
		if c.arg(1) == "-" {
			var err error
			if body, err = io.ReadAll(c.in); err != nil {
				return err
			}
		}
		if utf8.Valid(body) {
			a.Body = string(body)
		} else {
			a.BodyBase64 = body
		}
		return c.do(a, func(r *manage.Result) string { return r.ID.String() })
	})
}

func cancel(c *call) error {
	key := c.flags.String("key", "", "the live job with this `key` instead of those with IDs")
	if err := c.parse(1, -1); err != nil {
		return err
	}
	return c.each(manage.Action{Do: manage.DoCancel}, *key, func(r *manage.Result) string {
		if r.Running {
			return "cancelled while being worked on"
		}
		return "cancelled"
	})
}

func reschedule(c *call) error {
	a := manage.Action{Do: manage.DoReschedule}
	var at instant
	key := c.flags.String("key", "", "the live job with this `key` instead of those with IDs")
	c.duration(&a.In, "in", "due after this `duration`, 0s for now")
	c.flags.Var(&at, "at", "due at this `instant`")
	if err := c.parse(1, -1); err != nil {
		return err
	}
	a.At = at.Time
	if (a.In == "") == a.At.IsZero() {
		return misused("either -in or -at")
	}
	return c.each(a, *key, func(*manage.Result) string { return "rescheduled" })
}

func requeue(c *call) error {
	all := c.flags.Bool("all", false,
		"all dead jobs of the queue, except those whose key a live job has")
	if err := c.parse(1, -1); err != nil {
		return err
	}
	if *all == (len(c.args) > 1) {
		return misused("either IDs or -all")
	}
	if !*all {
		return c.each(manage.Action{Do: manage.DoRequeue}, "",
			func(*manage.Result) string { return "requeued" })
	}
	return c.using(func() error {
		return c.do(manage.Action{Do: manage.DoRequeue, Queue: c.arg(0), All: true},
			func(r *manage.Result) string { return "requeued " + manage.Some(r.N) })
	})
}

func pause(c *call) error {
	if err := c.parse(1, 1); err != nil {
		return err
	}
	return c.using(func() error {
		done := "paused " + manage.Line(c.arg(0))
		switch o, err := c.Overview(c.ctx, c.arg(0)); {
		case errors.Is(err, jobqueue.ErrNotFound) || err == nil && holdsNone(&o.Queues[0]):
			done += ", which holds no job" // the name may be misspelt
		case err != nil:
			return err
		}
		return c.do(manage.Action{Do: manage.DoPause, Queue: c.arg(0)},
			func(*manage.Result) string { return done })
	})
}

func holdsNone(q *manage.Queue) bool { return q.Delayed+q.Ready+q.Leased+q.Dead+q.Done == 0 }

func resume(c *call) error {
	if err := c.parse(1, 1); err != nil {
		return err
	}
	return c.using(func() error {
		return c.do(manage.Action{Do: manage.DoResume, Queue: c.arg(0)},
			func(*manage.Result) string { return "resumed " + manage.Line(c.arg(0)) })
	})
}

func purge(c *call) error {
	state := c.flags.String("state", "",
		"remove the jobs in this `state`: delayed, ready, dead or done")
	yes := c.flags.Bool("yes", false, "remove them; without it their number is printed")
	if err := c.parse(1, 1); err != nil {
		return err
	}
	if _, err := manage.ParseState(*state); err != nil || *state == "leased" {
		return misused("-state is delayed, ready, dead or done")
	}
	return c.using(func() error {
		if !*yes {
			o, err := c.Overview(c.ctx, c.arg(0))
			if err != nil {
				return err
			}
			q := &o.Queues[0]
			n := map[string]int{"delayed": q.Delayed, "ready": q.Ready, "dead": q.Dead,
				"done": q.Done}[*state]
			return fmt.Errorf("%s of %s: %s would be removed; to remove them pass -yes",
				*state, q.Name, manage.Some(n))
		}
		return c.do(manage.Action{Do: manage.DoPurge, Queue: c.arg(0), State: *state},
			func(r *manage.Result) string { return "removed " + manage.Some(r.N) })
	})
}

func backup(c *call) error {
	if err := c.parse(1, 1); err != nil {
		return err
	}
	return c.using(func() error {
		err := c.do(manage.Action{Do: manage.DoBackup, Backup: c.arg(0)},
			func(r *manage.Result) string { return "the backup is " + r.Backup })
		if _, isLocal := c.Service.(manage.Local); isLocal && errors.Is(err, jobqueue.ErrNoBackup) {
			return fmt.Errorf("%w: Redis copies its own, with BGSAVE", err)
		}
		return err
	})
}
