// Lastread is a news server that mails each reader a digest two hours after his last
// read. Every read puts the digest off, so there is one timer for each reader who has
// been there lately, and nothing for those who have had their digest.
//
// The program plays five hours of it with readers of its own, some of which come back
// at the very moment of their digest, and checks that no digest was early, lost, or sent
// once too often.
//
//	go run ./examples/lastread                                    five hours in five seconds
//	go run ./examples/lastread -addr 127.0.0.1:8080 -scale 600    a server to try by hand
//
//	curl 127.0.0.1:8080/news/ada
//	curl -X DELETE 127.0.0.1:8080/readers/ada
//	curl 127.0.0.1:8080/waiting
//
// Of interest are the news, below: all that a digest takes is a call for each read.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	quiet   = 2 * time.Hour
	newsGap = 15 * time.Minute // an article appears so often
)

func main() { program.Main() }

var program = story.Program{
	Name:     "lastread",
	About:    "Lastread is a news server that mails each reader a digest two hours after his last read.",
	Scale:    3600,
	MaxScale: 72000, // two hours in 100 ms, in which requests can be answered
	Serves:   true,
	Play:     run,
}

func run(ctx context.Context, d *story.Diary, addr string) error {
	tw := timingwheel.New()
	s := &audience{Diary: d, readers: readers()}
	n := newNews(tw, d.Real(quiet), s.mailed)
	tw.ScheduleFunc(timingwheel.Every(d.Real(newsGap)), n.publish)
	err := d.Serve(ctx, addr, n.handler(), s.play)
	// After the requests, which put digests off, those, then the wheel, which waits for
	// mails that are being written.
	var left []string
	for _, digest := range n.digests.Drain() {
		left = append(left, digest.Key)
	}
	if err := errors.Join(err, story.Within(tw.Shutdown)); err != nil {
		return err
	}
	d.Printf("the server closes, and hands back the digests that were to come: %q", left)
	if addr != "" {
		return nil
	}
	if err := judge(s.readers, left, d.Real(quiet)); err != nil {
		return err
	}
	d.Printf("all is well: no digest was early, none was lost, and none came while its reader was still about")
	return nil
}

// News is the server. Each reader with a digest to come has a key in digests, which every read
// puts off and which is gone once the digest is due. mu guards the articles and what each reader
// has seen.
type news struct {
	digests *timingwheel.Map[string, struct{}]
	quiet   time.Duration
	mail    func(reader string, unread []string)

	mu       sync.Mutex
	articles []string
	seen     map[string]int // how many of the articles; a real server has a database
}

func newNews(tw *timingwheel.TimingWheel, quiet time.Duration, mail func(reader string, unread []string)) *news {
	n := &news{quiet: quiet, mail: mail, articles: []string{}, seen: make(map[string]int)}
	n.digests = timingwheel.NewMap(tw, n.digest)
	return n
}

func (n *news) publish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.articles = append(n.articles, fmt.Sprintf("article %d", len(n.articles)+1))
}

// read is what a reader asks for. A read at the very moment of the digest either puts it off or
// begins another two hours, and the digest is sent.
func (n *news) read(reader string) []string {
	unread := n.unread(reader)
	n.digests.TouchOrSet(reader, struct{}{}, n.quiet)
	return unread
}

// digest is called when there was no read for as long as quiet. If the reader comes back at that
// very moment, he sees in one of the two places what the other has not, and the mail may be empty.
func (n *news) digest(reader string, _ struct{}) { n.mail(reader, n.unread(reader)) }

// forget says whether there was a digest to come.
func (n *news) forget(reader string) bool {
	_, ok := n.digests.Delete(reader)
	return ok
}

// unread returns the articles that the reader has not seen, which he then has.
func (n *news) unread(reader string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	unread := n.articles[n.seen[reader]:]
	n.seen[reader] = len(n.articles)
	return slices.Clip(unread)
}

func (n *news) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /news/{reader}", story.Handle(nil, func(r *http.Request, _ any) ([]string, error) {
		return n.read(r.PathValue("reader")), nil
	}))
	mux.Handle("DELETE /readers/{reader}", story.Handle(nil, func(r *http.Request, _ any) (bool, error) {
		return n.forget(r.PathValue("reader")), nil
	}))
	mux.Handle("GET /waiting", story.Handle(nil, func(*http.Request, any) (int, error) {
		return n.digests.Len(), nil
	}))
	return mux
}
