package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// This file plays the story, in which readers talk to the server over HTTP, and judges it.

// returners is how many readers come back when their digest is due. One of them alone
// would nearly always be before it or after; of forty, a tenth of a millisecond apart,
// some meet it.
const returners = 40

// A reader is there at times of the story. What happens to him is noted at instants of the
// machine.
type reader struct {
	visits []time.Duration
	leaves bool          // the last visit is to say that he wants no digest
	late   time.Duration // is added to the second visit, and not scaled
	quiet  bool          // one of the returners, of whom there are too many to tell

	reads   []span
	left    time.Time
	digests []time.Time
}

// A span is a read: just before it was sent, and answered.
type span struct{ before, after time.Time }

func readers() map[string]*reader {
	const h = time.Hour
	all := map[string]*reader{
		"ada":  {visits: []time.Duration{h / 60, 1 * h, 2 * h}},
		"ben":  {visits: []time.Duration{h / 60, 3 * h}},
		"cleo": {visits: []time.Duration{h / 2, 3 * h / 2}, leaves: true},
		"dan":  {visits: []time.Duration{9 * h / 2}}, // the server closes before his digest
	}
	for i := range returners {
		all[fmt.Sprintf("returner-%d", i+1)] = &reader{visits: []time.Duration{h / 4, h/4 + quiet}, late: time.Duration(i) * 100 * time.Microsecond, quiet: true}
	}
	return all
}

// An audience is all of them; mu guards what is noted.
type audience struct {
	*story.Diary
	mu      sync.Mutex
	readers map[string]*reader
}

func (a *audience) note(name string, change func(*reader), format string, args ...any) {
	r := a.readers[name]
	if r == nil { // somebody by hand
		r = &reader{}
	}
	a.mu.Lock()
	change(r)
	a.mu.Unlock()
	if !r.quiet {
		a.Printf(format, args...)
	}
}

func (a *audience) mailed(name string, unread []string) {
	a.note(name, func(r *reader) { r.digests = append(r.digests, time.Now()) },
		"digest to %s, who was last here two hours ago: %d new", name, len(unread))
}

func (a *audience) play(ctx context.Context, server *story.Client) error {
	var names []string
	for name := range a.readers {
		names = append(names, name)
	}
	err := story.Together(len(names), func(i int) error { return a.attend(ctx, server, names[i]) })
	if err == nil {
		err = a.Until(ctx, 5*time.Hour+newsGap)
	}
	sent := 0
	a.mu.Lock()
	for _, r := range a.readers {
		if r.quiet {
			sent += len(r.digests) - 1 // another was for the second read
		}
	}
	a.mu.Unlock()
	a.Printf("of %d readers who came back at the moment of their digest %d had just been sent it, %d pushed it on", returners, sent, returners-sent)
	return err
}

func (a *audience) attend(ctx context.Context, server *story.Client, name string) error {
	r := a.readers[name]
	for i, at := range r.visits {
		if err := a.Until(ctx, at); err != nil {
			return err
		}
		if i == 1 && r.late > 0 {
			if err := story.Sleep(ctx, time.Until(r.reads[0].before.Add(a.Real(quiet)+r.late))); err != nil {
				return err
			}
		}
		before := time.Now()
		if r.leaves && i == len(r.visits)-1 {
			if err := server.Call(ctx, http.MethodDelete, "/readers/"+name, nil, nil); err != nil {
				return err
			}
			a.note(name, func(r *reader) { r.left = time.Now() }, "%s wants no digest", name)
			return nil
		}
		var unread []string
		if err := server.Call(ctx, http.MethodGet, "/news/"+name, nil, &unread); err != nil {
			return err
		}
		a.note(name, func(r *reader) { r.reads = append(r.reads, span{before, time.Now()}) }, "%s reads, %d new", name, len(unread))
	}
	return nil
}

// judge says what is wrong with the outcome, if anything is. A digest has to follow the
// last read, and may follow others after which the reader stayed away for long enough, as
// far as he can tell from his side. handedBack are those whose digest was still to come.
func judge(readers map[string]*reader, handedBack []string, quiet time.Duration) error {
	var j story.Judge
	digests := 0
	for name, r := range readers {
		digests += len(r.digests)
		last := r.reads[len(r.reads)-1]
		least, most := 0, 0
		for i, read := range r.reads[1:] {
			if read.after.Sub(r.reads[i].before) >= quiet {
				most++
			}
		}
		switch {
		case slices.Contains(handedBack, name):
		case r.left.IsZero():
			least, most = 1, most+1
		case r.left.Sub(last.before) >= quiet:
			most++
		}
		n := len(r.digests)
		j.Check(n >= least && n <= most, "%s had %d digests, not %d to %d", name, n, least, most)
		if n > 0 {
			early := r.reads[0].before.Add(quiet).Sub(r.digests[0])
			j.Check(early <= 0, "%s had a digest %v early", name, early)
			early = last.before.Add(quiet).Sub(r.digests[n-1])
			j.Check(early <= 0 || least == 0, "%s had the last digest %v early", name, early)
		}
	}
	j.Check(digests > 0, "nobody had a digest")
	return j.Err()
}
