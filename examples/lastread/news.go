package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// News is the part to copy: a server that mails each reader a digest when there was no read for a
// while. A reader with a digest to come has a key in digests. Every read puts it off, and it is
// gone once the digest is due. mu guards the articles and what each reader has seen.
type news struct {
	digests *timingwheel.Map[string, struct{}]
	quiet   time.Duration
	mail    func(reader string, unread []string)

	mu       sync.Mutex
	articles []string
	seen     map[string]int // how many of the articles; a real server has a database
}

func newNews(tw *timingwheel.TimingWheel, quiet time.Duration,
	mail func(reader string, unread []string)) *news {
	n := &news{quiet: quiet, mail: mail, articles: []string{}, seen: make(map[string]int)}
	n.digests = timingwheel.NewMap(tw, n.digest)
	return n
}

func (n *news) publish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.articles = append(n.articles, fmt.Sprintf("article %d", len(n.articles)+1))
}

// read returns the articles that are new to the reader. A read at the very moment of the digest
// either puts it off, or begins another two hours and the digest is sent.
func (n *news) read(reader string) []string {
	unread := n.unread(reader)
	n.digests.TouchOrSet(reader, struct{}{}, n.quiet)
	return unread
}

// leave cancels the digest. It returns false if none is to come.
func (n *news) leave(reader string) bool {
	_, ok := n.digests.Delete(reader)
	return ok
}

// digest is called when there was no read for as long as quiet. If the reader returns at that very
// moment, either the read or the mail has the articles.
func (n *news) digest(reader string, _ struct{}) { n.mail(reader, n.unread(reader)) }

func (n *news) unread(reader string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	unread := n.articles[n.seen[reader]:]
	n.seen[reader] = len(n.articles)
	return slices.Clip(unread)
}

// stop returns the readers whose digests were still to come.
func (n *news) stop() (readers []string) {
	for _, digest := range n.digests.Drain() {
		readers = append(readers, digest.Key)
	}
	return readers
}
