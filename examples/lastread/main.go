// Lastread is a news server that mails each reader a digest two hours after his last read. Every
// read moves the digest later, so there is one timer for each reader who has been there lately, and
// nothing for those who have had their digest.
//
// The program plays five hours with readers of its own, some of whom return at the very moment of
// their digest, and checks that no digest is early, lost, or sent once too often.
//
//	go run ./examples/lastread                                    five hours in five seconds
//	go run ./examples/lastread -addr 127.0.0.1:8080 -scale 600    a server to try by hand
//
//	curl 127.0.0.1:8080/news/ada
//	curl -X DELETE 127.0.0.1:8080/readers/ada
//	curl 127.0.0.1:8080/waiting
//
// File news.go is the part to copy.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

const (
	quiet   = 2 * time.Hour
	newsGap = 15 * time.Minute // between two articles
)

func main() {
	story.Program{
		Name:     "lastread",
		About:    "Lastread is a news server that mails each reader a digest two hours after his last read.",
		Passed:   "no digest was early, none was lost, and none came while its reader was still there",
		Scale:    3600,
		MaxScale: 72000, // two hours in 100 ms, in which requests can be answered
		Serves:   true,
		Play:     play,
	}.Main()
}

func play(ctx context.Context, r *story.Run) error {
	tw := timingwheel.New()
	n := newNews(tw, r.Real(quiet), func(name string, unread []string) {
		r.See(time.Now(), "digest to %s", name)
		tell(r, name, "digest to %s, whose last read was two hours ago: %d new", name, len(unread))
	})
	tw.ScheduleFunc(timingwheel.Every(r.Real(newsGap)), n.publish)
	mux := http.NewServeMux()
	mux.Handle("GET /news/{reader}", story.Handle(func(r *http.Request, _ any) ([]string, error) {
		return n.read(r.PathValue("reader")), nil
	}))
	mux.Handle("DELETE /readers/{reader}", story.Handle(func(r *http.Request, _ any) (bool, error) {
		return n.leave(r.PathValue("reader")), nil
	}))
	mux.Handle("GET /waiting", story.Handle(func(*http.Request, any) (int, error) {
		return n.digests.Len(), nil
	}))
	all := readers()
	err := r.Serve(ctx, tw, mux, func(ctx context.Context, c *story.Client) error {
		err := story.Together(len(all), func(i int) error { return all[i].play(ctx, r, c) })
		return errors.Join(err, r.Until(ctx, 5*time.Hour+newsGap))
	})
	// After the requests, which move digests, these end, and then the wheel.
	left := n.stop()
	r.Printf("the server closes, and hands back the digests that were still to come: %q", left)
	err = errors.Join(err, story.Within(tw.Shutdown))
	sent := -returners // the digests for their second reads
	for _, reader := range all {
		// A digest must follow the last read. Others may have been sent before later reads.
		least := 1
		if reader.leaves || slices.Contains(left, reader.name) {
			least = 0
		}
		most := reader.gaps + least
		if reader.late > 0 {
			sent += len(r.Seen("digest to %s", reader.name))
		}
		earliest := reader.last.Add(r.Real(quiet))
		if least == 0 {
			earliest = time.Time{}
		}
		r.Want(least, most, earliest, "digest to %s", reader.name)
	}
	if r.Addr == "" {
		r.Printf("of %d readers who returned at the moment of their digest %d had just been sent it, %d put it off", returners, sent, returners-sent)
	}
	return err
}

// returners is how many readers return when their digest is due, 0.1 ms apart: a single one would
// nearly always be before it or after it.
const returners = 40

// A reader of the story.
type reader struct {
	name   string
	visits []time.Duration
	leaves bool          // the last visit is to say that he wants no digest
	late   time.Duration // by how much a returner comes after his digest is due, not scaled

	last time.Time // just before the last read
	gaps int       // between reads, in which a digest may have been sent
}

func readers() []*reader {
	const m = time.Minute
	all := []*reader{
		{name: "ada", visits: []time.Duration{m, 60 * m, 120 * m}},
		{name: "ben", visits: []time.Duration{m, 180 * m}},
		{name: "cleo", visits: []time.Duration{30 * m, 90 * m}, leaves: true},
		{name: "dan", visits: []time.Duration{270 * m}}, // the server closes before his digest
	}
	for i := range returners {
		all = append(all, &reader{name: fmt.Sprint("returner-", i+1),
			visits: []time.Duration{15 * m, 15*m + quiet}, late: time.Duration(i+1) * 100 * time.Microsecond})
	}
	return all
}

func (a *reader) play(ctx context.Context, r *story.Run, c *story.Client) error {
	for i, at := range a.visits {
		if err := r.Until(ctx, at); err != nil {
			return err
		}
		if i == 1 && a.late > 0 {
			if err := story.Sleep(ctx, time.Until(a.last.Add(r.Real(quiet)+a.late))); err != nil {
				return err
			}
		}
		method, path, before := http.MethodGet, "/news/", time.Now()
		if a.leaves && i == len(a.visits)-1 {
			method, path = http.MethodDelete, "/readers/"
		}
		var answer any
		if err := c.Call(ctx, method, path+a.name, nil, &answer); err != nil {
			return err
		}
		if i > 0 && time.Since(a.last) >= r.Real(quiet) {
			a.gaps++
		}
		if method == http.MethodDelete {
			r.Printf("%s wants no digest", a.name)
			return nil
		}
		a.last = before
		tell(r, a.name, "%s reads, %d new", a.name, len(answer.([]any)))
	}
	return nil
}

// tell prints what happens to a reader, except to the many returners.
func tell(r *story.Run, name, format string, args ...any) {
	if !strings.HasPrefix(name, "returner") {
		r.Printf(format, args...)
	}
}
