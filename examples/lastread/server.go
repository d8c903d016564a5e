package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is the news server. news.mu guards the articles and what each reader has
// seen. The debounce has a lock of its own, and neither is taken under the other.

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

func (n *news) publish(title string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.articles = append(n.articles, title)
}

// read returns what is new to the reader, and pushes the digest on.
func (n *news) read(reader string) []string {
	unread := n.unread(reader)
	n.digests.touch(reader)
	return unread
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
	return unread[:len(unread):len(unread)]
}

// leave is for a reader who wants no digest.
func (n *news) leave(reader string) {
	n.digests.forget(reader)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.seen, reader)
}

// handler serves
//
//	POST   /articles          {"title": "..."}
//	GET    /news/{reader}     what is new to him
//	DELETE /readers/{reader}  no digest, please
//	GET    /waiting           how many digests are to come
func handler(n *news) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /articles", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Title string }
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&in); err != nil || in.Title == "" {
			answer(w, http.StatusBadRequest, map[string]string{"error": "an article needs a title"})
			return
		}
		n.publish(in.Title)
		answer(w, http.StatusCreated, in.Title)
	})
	mux.HandleFunc("GET /news/{reader}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, n.read(r.PathValue("reader")))
	})
	mux.HandleFunc("DELETE /readers/{reader}", func(w http.ResponseWriter, r *http.Request) {
		n.leave(r.PathValue("reader"))
		answer(w, http.StatusOK, "goodbye")
	})
	mux.HandleFunc("GET /waiting", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, n.digests.waiting())
	})
	return mux
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // an error means that the client has gone
}

// serve answers requests at addr until stop is called, which waits for those under
// way.
func serve(addr string, h http.Handler) (url string, stop func() error, err error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		err := srv.Shutdown(ctx)
		if cause := <-ended; !errors.Is(cause, http.ErrServerClosed) {
			err = cause
		}
		return err
	}, nil
}
