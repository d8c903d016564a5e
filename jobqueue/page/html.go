package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
)

// This file makes the page: one answer that contains its style, its script and all it shows. The
// script asks for the same page again and puts what has changed in place of what was there, so
// every text is made here, and the page can be read without scripts.

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// A view is what page.html is made of.
type view struct {
	CSS      template.CSS
	JS       template.JS
	Now      time.Time
	ReadOnly bool
	JSON     string // the query of the same as JSON

	Name    string           // of the queue; empty for all
	Problem string           // instead of what follows
	All     *manage.Overview // all queues, or
	Queue   *manage.Queue    // a queue, or
	Job     *manage.Job      // a job, or else only Lists
	Spaces  []manage.Namespace
	Due     *manage.Due
	Lists   []list
	Latest  bool // the lists have the first jobs, not a page
}

// A list is a table of jobs.
type list struct {
	State    string
	Jobs     []manage.Job
	Total    int    // of the queue; 0 if that is not known
	After    string // the query of the next page, or of the whole list
	AllDead  string // the queue of which all dead jobs may be requeued; empty for none
	HasQueue bool   // jobs are of several queues
}

// shownFirst is how many jobs of a state the pages of queues have.
const shownFirst = 10

// page returns the parsed page, and the policy that lets a browser run this script and use this
// style and nothing else.
var page = sync.OnceValues(func() (*template.Template, string) {
	t := template.Must(template.New("page").Funcs(template.FuncMap{
		"ago": manage.Ago, "bars": bars, "body": body, "bound": manage.Bound,
		"bytes":   manage.Bytes[int],
		"bytes64": manage.Bytes[int64], "count": manage.Count[int], "count64": manage.Count[int64],
		"duration": manage.Duration, "firstLine": firstLine, "instant": manage.Instant,
		"next":   manage.Next,
		"limits": manage.LimitsText, "perSecond": manage.PerSecond, "sum": sum,
		"repeats": (*manage.Repeat).String,
		"args":    func(args ...any) []any { return args },
	}).Parse(pageHTML))
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return t, "default-src 'none'; script-src " + hash(pageJS) + "; style-src " + hash(pageCSS) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

func (h *handler) servePage(w http.ResponseWriter, r *http.Request, q url.Values) {
	v := &view{
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS),
		ReadOnly: h.readOnly, Name: q.Get("queue"),
	}
	jsonQuery := url.Values{"format": {"json"}}
	for _, name := range []string{"queue", "state", "after", "limit", "id", "key"} {
		if q.Has(name) {
			jsonQuery.Set(name, q.Get(name))
		}
	}
	v.JSON = "?" + jsonQuery.Encode()
	status := http.StatusOK
	if err := h.fill(r.Context(), v, q); err != nil {
		var f manage.Failure
		f, status = manage.FailureOf(err)
		v.Problem = f.Message
		v.Lists, v.Due = nil, nil
		switch {
		case !errors.Is(err, jobqueue.ErrNotFound):
		case q.Has("id") || q.Has("key"):
			v.Problem = "This job is not there any more: it was done or cancelled."
		default:
			v.Problem = "There is no queue of this name: without jobs and settings it is not kept."
		}
	}
	v.Now = time.Now().Round(0)
	t, policy := page()
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		panic("page: " + err.Error())
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// fill looks up what the page of a query shows.
func (h *handler) fill(ctx context.Context, v *view, q url.Values) (err error) {
	switch {
	case q.Has("id") || q.Has("key"):
		v.Job, err = h.job(ctx, q)
		return err
	case q.Has("state"):
		jobs, err := h.jobs(ctx, q)
		if err != nil {
			return err
		}
		l := list{State: jobs.State, Jobs: jobs.Jobs}
		if jobs.Next != "" {
			next := url.Values{"queue": {v.Name}, "state": {jobs.State}, "after": {jobs.Next}}
			if q.Has("limit") {
				next.Set("limit", q.Get("limit"))
			}
			l.After = "?" + next.Encode()
		}
		v.Lists = []list{l}
		return nil
	}
	o, err := h.overview(ctx, v.Name)
	if err != nil {
		return err
	}
	v.Spaces, v.Latest = o.Namespaces, true
	states := []string{"leased", "dead"}
	if v.Name == "" {
		v.All = o
	} else {
		v.Queue = &o.Queues[0]
		states = []string{"leased", "dead", "ready", "delayed", "done"}
	}
	for _, state := range states {
		l := list{State: state, HasQueue: v.Name == ""}
		for i := range o.Queues {
			if err := h.first(ctx, &l, &o.Queues[i]); err != nil {
				return err
			}
		}
		if len(l.Jobs) > 0 {
			v.Lists = append(v.Lists, l)
		}
	}
	v.Due, err = h.reader.due(ctx, v.Name)
	return err
}

// first adds the first jobs of a queue to a list.
func (h *handler) first(ctx context.Context, l *list, q *manage.Queue) error {
	n := map[string]int{
		"leased": q.Leased, "dead": q.Dead, "ready": q.Ready, "delayed": q.Delayed, "done": q.Done,
	}[l.State]
	l.Total += n
	if n == 0 || len(l.Jobs) >= shownFirst {
		return nil
	}
	jobs, err := h.service.Jobs(ctx, q.Name, l.State, "", shownFirst-len(l.Jobs))
	if err != nil {
		return err
	}
	for i := range jobs.Jobs {
		h.hide(&jobs.Jobs[i])
	}
	l.Jobs = append(l.Jobs, jobs.Jobs...)
	if !l.HasQueue {
		if l.State == "dead" {
			l.AllDead = q.Name
		}
		if n > len(l.Jobs) {
			l.After = "?" + url.Values{"queue": {q.Name}, "state": {l.State}}.Encode()
		}
	}
	return nil
}

// A bar is one of the steps of a span, in a picture of barsHeight and one unit a step.
type bar struct {
	X, Y, Height float64
	Text         string
}

const barsHeight = 40

// bars returns the bars of a span. A step with any job has a bar that shows.
func bars(s manage.Span) (found []bar) {
	most := 1
	for _, n := range s.Counts {
		most = max(most, n)
	}
	for i, n := range s.Counts {
		if n == 0 {
			continue
		}
		height := max(float64(n)/float64(most)*barsHeight, 1.5)
		found = append(found, bar{
			X: float64(i) + 0.1, Y: barsHeight - height, Height: height,
			Text: fmt.Sprintf("in %s to %s: %s", manage.Duration(time.Duration(i)*s.Step),
				manage.Duration(time.Duration(i+1)*s.Step), manage.Some(n)),
		})
	}
	return found
}

// sum returns how many jobs come due in a span, as text.
func sum(s manage.Span) string {
	n := 0
	for _, count := range s.Counts {
		n += count
	}
	return manage.Some(n)
}

// mostShown bounds how much of a text the page shows, and mostDumped how much of other bodies:
// their dumps are four times as long.
const (
	mostShown  = 64 << 10
	mostDumped = 16 << 10
)

// body returns the body of a job for the page: JSON with its structure, other text as it is, and
// anything else as a hexadecimal dump.
func body(j *manage.Job) string {
	b := j.Bytes()
	var indented bytes.Buffer
	switch {
	case !manage.IsText(b):
		return hex.Dump(b[:min(len(b), mostDumped)]) + more(len(b), mostDumped)
	case len(b) <= mostShown && json.Indent(&indented, b, "", "  ") == nil:
		return indented.String()
	}
	return strings.ToValidUTF8(string(b[:min(len(b), mostShown)]), "") + more(len(b), mostShown)
}

func more(n, shown int) string {
	if n <= shown {
		return ""
	}
	return "\n… and " + manage.Bytes(n-shown) + " more"
}

// firstLine returns the beginning of an error's text.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if runes := []rune(line); len(runes) > 200 {
		line = string(runes[:200]) + "…"
	}
	return manage.Line(line)
}
