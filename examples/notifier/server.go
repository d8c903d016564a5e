package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// This file has the two HTTP servers: the notifier's own, which keeps no state, and the
// receivers that it posts to. receivers.mu guards what they count.

// handler serves
//
//	POST /notifications    {"url": "http://...", "policy": "every" or "steps", "body": ...}
//	GET  /notifications    those that are neither delivered nor given up
func handler(nt *notifier, policies map[string]policy) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /notifications", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			URL, Policy string
			Body        json.RawMessage
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		p, known := policies[in.Policy]
		if !known {
			answer(w, http.StatusBadRequest, map[string]string{"error": `policy must be "every" or "steps"`})
			return
		}
		s, err := nt.send(in.URL, in.Body, p)
		if err != nil {
			answer(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return
		}
		answer(w, http.StatusAccepted, s)
	})
	mux.HandleFunc("GET /notifications", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, nt.pending())
	})
	return mux
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body) // an error means that the client has gone
}

// receivers are the servers that notifications go to. Each fails for a while: /fails/3
// refuses the first three attempts at each notification, /hangs/3 leaves them without an
// answer.
type receivers struct {
	mu    sync.Mutex
	asked map[string]int // by path and notification
	taken map[string]int // by notification
}

func newReceivers() *receivers {
	return &receivers{asked: make(map[string]int), taken: make(map[string]int)}
}

func (rs *receivers) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{how}/{n}", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server would not notice that the client hangs up
		id := r.Header.Get("Notification-Id")
		n, err := strconv.Atoi(r.PathValue("n"))
		how := r.PathValue("how")
		switch {
		case err != nil || how != "fails" && how != "hangs":
			w.WriteHeader(http.StatusNotFound)
		case rs.count(rs.asked, r.URL.Path+" "+id) > n:
			rs.count(rs.taken, id)
			w.WriteHeader(http.StatusNoContent)
		case how == "fails":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			<-r.Context().Done()
		}
	})
	return mux
}

func (rs *receivers) count(what map[string]int, key string) int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	what[key]++
	return what[key]
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
