package command

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
)

// This file has the commands that change nothing.

func stats(c *call) error {
	if err := c.parse(0, 1); err != nil {
		return err
	}
	return c.using(func() error {
		o, err := c.Overview(c.ctx, c.arg(0))
		switch {
		case err != nil:
			return err
		case c.json:
			return c.print(o)
		case c.arg(0) != "":
			return c.writeQueue(&o.Queues[0])
		}
		c.writeQueues(o, c.out)
		return nil
	})
}

func (c *call) writeQueues(o *manage.Overview, w io.Writer) {
	if len(o.Queues) == 0 {
		fmt.Fprintln(w, "There is no queue yet.")
	} else {
		t := table{
			head: []string{"QUEUE", "DELAYED", "READY", "LEASED", "DEAD", "DONE", "NEXT",
				"LATE 99 %"},
			left: "Lrrrrrrr",
		}
		for i := range o.Queues {
			q := &o.Queues[i]
			next := manage.Next(q.Next)
			if q.Paused {
				next = "paused"
			}
			t.add(q.Name, manage.Count(q.Delayed), manage.Count(q.Ready), manage.Count(q.Leased),
				manage.Count(q.Dead), manage.Count(q.Done), next,
				quantile(q.Lateness.P99, q.Lateness))
		}
		t.write(w, c.columns())
	}
	if len(o.Namespaces) > 0 {
		t := table{head: []string{"NAMESPACE", "JOBS", "BYTES", "LIMITS"}, left: "LrrL"}
		for _, n := range o.Namespaces {
			t.add(n.Name, manage.Count(n.Jobs), manage.Bytes(n.Bytes), manage.LimitsText(n.Limits))
		}
		fmt.Fprintln(w)
		t.write(w, c.columns())
	}
}

func quantile(d time.Duration, of manage.Times) string {
	if of.Samples == 0 {
		return "–"
	}
	return manage.Bound(d)
}

func (c *call) writeQueue(q *manage.Queue) error {
	state := "running"
	if q.Paused {
		state = "paused"
	}
	oldest, handlers := "", "none in this process"
	if q.Ready > 0 {
		oldest = manage.Duration(q.Oldest)
	}
	if q.Workers > 0 {
		handlers = manage.Count(q.Running) + " of " + manage.Count(q.Workers)
	}
	facts(c.out,
		"queue", q.Name,
		"state", state,
		"delayed", manage.Count(q.Delayed),
		"ready", manage.Count(q.Ready),
		"leased", manage.Count(q.Leased),
		"dead", manage.Count(q.Dead),
		"done", manage.Count(q.Done),
		"bytes", manage.Bytes(q.Bytes),
		"limits", manage.LimitsText(q.Limits),
		"next", manage.Next(q.Next),
		"longest waiting", oldest,
		"handlers", handlers,
	)
	n := q.Counters
	if n != (manage.Counters{}) {
		fmt.Fprintln(c.out, "\nin this process:")
		facts(c.out,
			"added", manage.Count(n.Added),
			"delivered", manage.Count(n.Delivered),
			"acknowledged", manage.Count(n.Acked),
			"failed, tried again", manage.Count(n.Retried),
			"failed, dead", manage.Count(n.Buried),
			"panics", manage.Count(n.Panics),
			"snoozed", manage.Count(n.Snoozed),
			"cancelled", manage.Count(n.Cancelled),
			"rescheduled", manage.Count(n.Rescheduled),
			"refused", manage.Count(n.Refused),
			"returned", manage.Count(n.Returned),
		)
	}
	if q.Lateness.Samples > 0 {
		fmt.Fprintln(c.out)
		t := table{head: []string{"", "HALF", "90 %", "99 %", "MEAN", "SAMPLES"}, left: "lrrrrr"}
		for _, row := range []struct {
			name string
			t    manage.Times
		}{{"lateness", q.Lateness}, {"handlers", q.Duration}} {
			t.add(row.name, quantile(row.t.P50, row.t), quantile(row.t.P90, row.t),
				quantile(row.t.P99, row.t),
				quantile(row.t.Mean, row.t), manage.Count(row.t.Samples))
		}
		t.write(c.out, c.columns())
	}
	return nil
}

// queues returns the names of the queues that a command is for: that of its argument, or all.
func (c *call) queues() ([]string, error) {
	o, err := c.Overview(c.ctx, c.arg(0))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, q := range o.Queues {
		names = append(names, q.Name)
	}
	return names, nil
}

func list(c *call) error {
	state := c.flags.String("state", "",
		"list the jobs in this `state`: delayed, ready, leased, dead, done")
	limit := c.flags.Int("limit", 50, "list up to this `number` of jobs, at most 1000")
	after := c.flags.String("after", "", "go on behind this `cursor`, which ended the page before")
	abs := c.flags.Bool("abs", false, "show instants instead of durations")
	if err := c.parse(0, 1); err != nil {
		return err
	}
	states := []string{"leased", "ready", "delayed"}
	if *state != "" {
		if _, err := manage.ParseState(*state); err != nil {
			return misused("-state is delayed, ready, leased, dead or done")
		}
		states = []string{*state}
	}
	if *after != "" && (c.arg(0) == "" || *state == "") {
		return misused("-after goes with a queue and -state")
	}
	return c.writeLists(states, *after, *limit, *abs)
}

func dead(c *call) error {
	limit := c.flags.Int("limit", 50, "list up to this `number` of jobs, at most 1000")
	after := c.flags.String("after", "", "go on behind this `cursor`, which ended the page before")
	abs := c.flags.Bool("abs", false, "show instants instead of durations")
	if err := c.parse(0, 1); err != nil {
		return err
	}
	if *after != "" && c.arg(0) == "" {
		return misused("-after goes with a queue")
	}
	return c.writeLists([]string{"dead"}, *after, *limit, *abs)
}

// writeLists writes the first jobs in some states of the queues that the command is for.
func (c *call) writeLists(states []string, after string, limit int, abs bool) error {
	if limit < 1 || limit > 1000 {
		return misused("-limit is from 1 to 1000")
	}
	return c.using(func() error {
		names, err := c.queues()
		if err != nil {
			return err
		}
		written := 0
		for _, name := range names {
			var pages []*manage.Jobs
			n := 0
			for _, state := range states {
				jobs, err := c.Jobs(c.ctx, name, state, after, limit)
				if err != nil {
					return err
				}
				pages = append(pages, jobs)
				n += len(jobs.Jobs)
				if c.json {
					err = c.print(jobs)
				}
				if err != nil {
					return err
				}
			}
			if c.json || n == 0 {
				continue
			}
			if written++; written > 1 {
				fmt.Fprintln(c.out)
			}
			if c.arg(0) == "" {
				fmt.Fprintf(c.out, "%s:\n", manage.Line(name))
			}
			c.writeJobs(pages, abs)
		}
		if written == 0 && !c.json {
			fmt.Fprintln(c.out, "No jobs.")
		}
		return nil
	})
}

func (c *call) writeJobs(pages []*manage.Jobs, abs bool) {
	t := table{head: []string{"ID", "STATE", "DUE", "TRIES", "KEY", "BODY"}, left: "llrrlL"}
	isDead := pages[0].State == "dead"
	if isDead {
		t.head = []string{"ID", "DIED", "TRIES", "KEY", "ERROR"}
		t.left = "lrrlL"
	} else if pages[0].State == "done" {
		t.head[2] = "DONE"
	}
	hasKey := false
	for _, page := range pages {
		for i := range page.Jobs {
			job := &page.Jobs[i]
			at := job.Due
			if !job.Finished.IsZero() {
				at = job.Finished
			}
			when := manage.Ago(at, page.Time)
			if abs {
				when = at.Local().Format("2006-01-02 15:04:05")
			}
			key := job.Key
			if !c.wide {
				key = shorten(manage.Line(key), 20)
			}
			hasKey = hasKey || key != ""
			if isDead {
				t.add(job.ID.String(), when, attempts(job), key, job.LastError)
			} else {
				t.add(job.ID.String(), job.State, when, attempts(job), key, job.Preview())
			}
		}
	}
	if !hasKey {
		t.drop(len(t.head) - 2)
	}
	t.write(c.out, c.columns())
	for _, page := range pages {
		if page.Next != "" {
			flags := " -state " + page.State
			if isDead {
				flags = ""
			}
			fmt.Fprintf(c.out, "More jobs are %s. The next page:\n ... %s%s -after %s\n",
				page.State, manage.Quote(page.Queue), flags, manage.Quote(page.Next))
		}
	}
}

func attempts(j *manage.Job) string {
	if j.MaxAttempts > 0 {
		return fmt.Sprintf("%d of %d", j.Attempts, j.MaxAttempts)
	}
	return fmt.Sprint(j.Attempts)
}

func show(c *call) error {
	key := c.flags.String("key", "",
		"show the live job with this `key` instead of the one with an ID")
	raw := c.flags.Bool("body", false, "print the body only, as it is")
	if err := c.parse(1, 2); err != nil {
		return err
	}
	ref, err := c.ref(*key)
	if err != nil {
		return err
	}
	return c.using(func() error {
		job, err := c.Job(c.ctx, c.arg(0), ref)
		switch {
		case err != nil:
			return err
		case *raw && job.BodyHidden:
			return fmt.Errorf("%s hides bodies", c.url)
		case *raw:
			_, err := c.out.Write(job.Bytes())
			return err
		case c.json:
			return c.print(job)
		}
		c.writeJob(job)
		return nil
	})
}

// ref returns the job that the second argument, an ID, or a key names.
func (c *call) ref(key string) (jobqueue.Ref, error) {
	if (c.arg(1) == "") == (key == "") {
		return jobqueue.Ref{}, misused("either an ID or -key")
	}
	if key != "" {
		return jobqueue.ByKey(key), nil
	}
	id, err := jobqueue.ParseID(c.arg(1))
	if err != nil {
		return jobqueue.Ref{}, misused("%s is not an ID", manage.Quote(c.arg(1)))
	}
	return jobqueue.ByID(id), nil
}

func (c *call) writeJob(j *manage.Job) {
	now := time.Now()
	when := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return manage.Instant(t.Local()) + ", " + manage.Ago(t, now)
	}
	priority, retain, repeat := "", "", ""
	if j.Priority != 0 {
		priority = fmt.Sprint(j.Priority)
	}
	if j.Retain != 0 {
		retain = manage.Duration(j.Retain)
	}
	if j.Repeat != nil {
		repeat = j.Repeat.String()
	}
	body := manage.Bytes(j.BodyBytes)
	if j.BodyHidden {
		body += ", hidden by " + c.url
	}
	lastError, trace, isLong := strings.Cut(j.LastError, "\n")
	facts(c.out,
		"id", j.ID.String(),
		"queue", j.Queue,
		"key", j.Key,
		"state", j.State,
		"due", when(j.Due),
		"added", when(j.Added),
		"lease ends", when(j.LeaseEnd),
		"finished", when(j.Finished),
		"attempts", attempts(j),
		"priority", priority,
		"kept when done", retain,
		"repeats", repeat,
		"last error", lastError,
		"body", body,
	)
	if isLong {
		fmt.Fprintf(c.out, "\n%s", block([]byte(trace)))
	}
	if len(j.Bytes()) > 0 {
		fmt.Fprintf(c.out, "\n%s", block(j.Bytes()))
	}
}

// block returns a text in lines, safe for a terminal: JSON with its structure, other text as it is,
// and anything else as a hexadecimal dump.
func block(b []byte) string {
	if !manage.IsText(b) {
		return hex.Dump(b)
	}
	var indented bytes.Buffer
	if json.Indent(&indented, b, "", "  ") == nil {
		b = indented.Bytes()
	}
	return strings.TrimRight(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n") + "\n"
}

func due(c *call) error {
	if err := c.parse(0, 1); err != nil {
		return err
	}
	return c.using(func() error {
		d, err := c.Due(c.ctx, c.arg(0))
		switch {
		case err != nil:
			return err
		case c.json:
			return c.print(d)
		}
		fmt.Fprintf(c.out, "%s ready now, %s due after a day\n", manage.Some(d.Overdue),
			manage.Count(d.Later))
		for _, span := range d.Spans {
			writeSpan(c.out, span)
		}
		return nil
	})
}

// lines is how many lines a span has at most.
const lines = 12

func writeSpan(w io.Writer, span manage.Span) {
	n := len(span.Counts) / lines // steps of a line
	sums := make([]int, lines)
	sum, most := 0, 1
	for i, count := range span.Counts {
		sum += count
		sums[i/n] += count
		most = max(most, sums[i/n])
	}
	fmt.Fprintf(w, "\nthe next %s: %s\n", span.Name, manage.Some(sum))
	if sum == 0 {
		return
	}
	counts := len(manage.Count(most))
	for i, count := range sums {
		from := manage.Duration(time.Duration(i*n) * span.Step)
		if i == 0 {
			from = "now"
		}
		const room = width - 8 - 4
		bar := count * (room - counts) / most
		if count > 0 {
			bar = max(bar, 1)
		}
		line := fmt.Sprintf("%8s  %*s  %s", from, counts, manage.Count(count),
			strings.Repeat("#", bar))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

func watch(c *call) error {
	every := c.flags.Duration("every", 2*time.Second, "how long to wait between two readings")
	times := c.flags.Int("n", 0, "stop after this `number` of readings; 0 is never")
	if err := c.parse(0, 1); err != nil {
		return err
	}
	if *every < 100*time.Millisecond {
		return misused("-every is at least 100ms")
	}
	if err := c.where(); err != nil {
		return err
	}
	if c.url == "" {
		return misused("it is for a running process: pass -url")
	}
	return c.using(func() error {
		tick := time.NewTicker(*every)
		defer tick.Stop()
		for i := 1; ; i++ {
			o, err := c.Overview(c.ctx, c.arg(0))
			switch {
			case c.ctx.Err() != nil:
				return nil
			case err != nil:
				return err
			case c.json:
				err = c.print(o)
			default:
				err = c.writeRates(o, i == 1)
			}
			if err != nil || i == *times {
				return err
			}
			select {
			case <-tick.C:
			case <-c.ctx.Done(): // interrupted, which is how it ends
				return nil
			}
		}
	})
}

// writeRates writes what goes on in the queues, in place of the reading before if that is possible.
func (c *call) writeRates(o *manage.Overview, isFirst bool) error {
	t := table{
		head: []string{"QUEUE", "DELAYED", "READY", "LEASED", "DEAD", "ADDED", "DELIVERED",
			"LATE 99 %"},
		left: "Lrrrrrrr",
	}
	for i := range o.Queues {
		q := &o.Queues[i]
		name, added, delivered := q.Name, "–", "–"
		if q.Paused {
			name += " (paused)"
		}
		if q.Rate != nil {
			added, delivered = manage.PerSecond(q.Rate.Added), manage.PerSecond(q.Rate.Delivered)
		}
		t.add(name, manage.Count(q.Delayed), manage.Count(q.Ready), manage.Count(q.Leased),
			manage.Count(q.Dead), added, delivered, quantile(q.Lateness.P99, q.Lateness))
	}
	var b bytes.Buffer
	switch {
	case c.isTerminal:
		b.WriteString("\x1b[H\x1b[2J")
	case !isFirst:
		b.WriteString("\n")
	}
	fmt.Fprintln(&b, o.Time.Local().Format("2006-01-02 15:04:05"))
	t.write(&b, c.columns())
	_, err := c.out.Write(b.Bytes())
	return err
}
