// Lastread is a news server that mails each reader a digest two hours after his last
// read. Every read pushes the digest on, so there is one timer for each reader who has
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
// Debounce.go is the part to copy.
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
	// After the requests, which push digests on, those, then the wheel, which waits for
	// mails that are being written.
	left := n.digests.stop()
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

// News is the server. mu guards the articles and what each reader has seen. The
// debounce has a lock of its own, and neither is taken under the other.
type news struct {
	digests *debounce[string]
	mail    func(reader string, unread []string)

	mu       sync.Mutex
	articles []string
	seen     map[string]int // how many of the articles; a real server has a database
}

func newNews(tw *timingwheel.TimingWheel, quiet time.Duration, mail func(reader string, unread []string)) *news {
	n := &news{mail: mail, articles: []string{}, seen: make(map[string]int)}
	n.digests = newDebounce(tw, quiet, n.digest)
	return n
}

func (n *news) publish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.articles = append(n.articles, fmt.Sprintf("article %d", len(n.articles)+1))
}

// digest is what the debounce calls. If the reader comes back at that very moment, he
// sees in one of the two places what the other has not, and the mail may be empty.
func (n *news) digest(reader string) { n.mail(reader, n.unread(reader)) }

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
		unread := n.unread(r.PathValue("reader"))
		n.digests.touch(r.PathValue("reader"))
		return unread, nil
	}))
	mux.Handle("DELETE /readers/{reader}", story.Handle(nil, func(r *http.Request, _ any) (bool, error) {
		return n.digests.forget(r.PathValue("reader")), nil
	}))
	mux.Handle("GET /waiting", story.Handle(nil, func(*http.Request, any) (int, error) {
		return n.digests.waiting(), nil
	}))
	return mux
}
