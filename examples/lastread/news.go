package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// News is the part to copy: a server that mails a digest to each reader who has read nothing for a
// while. digests has a key for each reader whose digest is to come; every read moves it later.
type news struct {
	digests *timingwheel.Map[string, struct{}]
	quiet   time.Duration
	mail    func(reader string, unread []string)

	mu       sync.Mutex // guards what follows
	articles []string
	seen     map[string]int // articles by reader; a real server has a database
}

func newNews(tw *timingwheel.TimingWheel, quiet time.Duration,
	mail func(reader string, unread []string)) *news {
	n := &news{quiet: quiet, mail: mail, seen: make(map[string]int)}
	n.digests = timingwheel.NewMap(tw, n.digest)
	return n
}

func (n *news) publish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.articles = append(n.articles, fmt.Sprintf("article %d", len(n.articles)+1))
}

// read returns the articles that are new to the reader. A read at the very moment of the digest
// either moves it later, or comes after it and starts another wait.
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

// digest is called when the reader has read nothing for as long as quiet. If the reader returns at
// that very moment, each article is in the answer to the read or in the mail.
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
