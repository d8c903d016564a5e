// Lastread is a news server that mails each reader a digest two hours after their last read. Every
// read moves the digest later. The program plays five hours, in which some readers return at the
// very moment of their digest. It checks that none is early, lost, or sent once too often.
//
//	go run ./examples/lastread    five hours in five seconds
//
// File news.go is the part to copy.
package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	quiet     = 2 * time.Hour
	newsGap   = 15 * time.Minute // between two articles
	returners = 40               // who return when their digest is due, 0.1 ms apart
)

func main() {
	story.Program{
		Scale:  3600,
		Play:   play,
		Passed: "no digest was early, lost, or sent once too often",
	}.Main()
}

// A reader reads at each visit. After the last read a digest must follow, unless the reader leaves
// or the server closes before. More may be sent in long gaps between reads.
type reader struct {
	name   string
	visits []time.Duration
	leaves bool          // the last visit cancels the digest
	late   time.Duration // of a returner, after the digest is due; not scaled

	last time.Time // just before the last read
	gaps int       // between two reads, long enough for a digest
}

func play(r *story.Run) {
	const m = time.Minute
	readers := []*reader{
		{name: "ada", visits: []time.Duration{m, 60 * m, 120 * m}},
		{name: "ben", visits: []time.Duration{m, 180 * m}},
		{name: "cleo", visits: []time.Duration{30 * m, 90 * m}, leaves: true},
		{name: "dan", visits: []time.Duration{270 * m}}, // the server closes before the digest
	}
	for i := range returners {
		late := time.Duration(i+1) * 100 * time.Microsecond
		readers = append(readers, &reader{name: fmt.Sprint("returner ", i+1), late: late,
			visits: []time.Duration{15 * m, 15*m + quiet}})
	}
	tw := timingwheel.New()
	n := newNews(tw, r.Real(quiet), func(name string, unread []string) {
		r.See(time.Now(), "digest to %s", name)
		tell(r, name, "digest to %s, whose last read was two hours ago: %d new", name, len(unread))
	})
	tw.ScheduleFunc(timingwheel.Every(r.Real(newsGap)), n.publish)
	story.Together(len(readers), func(i int) { readers[i].visit(r, n) })
	r.Until(5*time.Hour + newsGap)
	left := n.stop()
	r.Printf("the server closes; digests that were still to come: %q", left)
	story.Within(tw.Shutdown)
	sent := -returners // the digests after their second reads
	for _, a := range readers {
		least, earliest := 1, a.last.Add(r.Real(quiet))
		if a.leaves || slices.Contains(left, a.name) {
			least, earliest = 0, time.Time{}
		}
		r.Want(least, a.gaps+least, earliest, "digest to %s", a.name)
		if a.late > 0 {
			sent += len(r.Seen("digest to %s", a.name))
		}
	}
	r.Printf("%d readers returned when their digest was due:\n"+
		"%d had just been sent it, %d moved it later", returners, sent, returners-sent)
}

func (a *reader) visit(r *story.Run, n *news) {
	for i, at := range a.visits {
		if r.Until(at); i > 0 && a.late > 0 {
			time.Sleep(time.Until(a.last.Add(r.Real(quiet) + a.late)))
		}
		before, unread, leaves := time.Now(), 0, a.leaves && i == len(a.visits)-1
		if leaves {
			n.leave(a.name)
		} else {
			unread = len(n.read(a.name))
		}
		if i > 0 && time.Since(a.last) >= r.Real(quiet) {
			a.gaps++
		}
		if leaves {
			tell(r, a.name, "%s wants no digest", a.name)
			return
		}
		tell(r, a.name, "%s reads, %d new", a.name, unread)
		a.last = before
	}
}

// tell prints what happens to a reader, unless it is one of the many returners.
func tell(r *story.Run, name, format string, args ...any) {
	if !strings.HasPrefix(name, "returner") {
		r.Printf(format, args...)
	}
}
