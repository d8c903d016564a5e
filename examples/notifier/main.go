// Notifier is a service that delivers notifications by HTTP to receivers that fail for a while. It
// tries at once and then every 300 s, or by steps: at once, after 2 minutes, 10 minutes and an
// hour. A success ends it; by steps it gives up after the last. It hangs up on a receiver that
// does not answer for a minute. When the service stops, it lists what it could not deliver. The
// program plays 73 minutes, and checks that no attempt is early or overlaps another, and that every
// notification ends as it must.
//
//	go run ./examples/notifier               73 minutes in 7 seconds
//	go run ./examples/notifier -scale 100    the same in 44
//
// File notifier.go is the part to copy.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

func main() {
	timeout := flag.Duration("timeout", time.Minute,
		"how long a receiver may take to answer, in time of the story")
	story.Program{
		Name: "notifier",
		About: "Notifier posts notifications to receivers that fail for a while, every 300 s or\n" +
			"by steps of 0 s, 2 min, 10 min and 1 h, until they succeed.",
		Passed: "no attempt was early, overlapped or followed a success,\n" +
			"and nothing was forgotten",
		Scale: 600, // leaves a receiver 100 ms for its answer
		Play: func(r *story.Run) {
			if *timeout <= 0 {
				story.Misuse("-timeout must be positive")
			}
			play(r, *timeout)
		},
	}.Main()
}

func play(r *story.Run, timeout time.Duration) {
	receivers := httptest.NewServer(http.HandlerFunc(receive))
	defer receivers.Close()
	client := &http.Client{Transport: &http.Transport{}, Timeout: r.Real(timeout)}
	defer client.CloseIdleConnections()
	tw := timingwheel.New()
	poster := func(ctx context.Context, s status, body []byte) error {
		return post(ctx, client, s, body)
	}
	nt := newNotifier(tw, poster, func(s status, began time.Time, err error, last bool) {
		what, end := "delivered", "delivered"
		if err != nil {
			what, end = s.LastErr, "given up"
			if last {
				what += ", which was the last"
			}
		}
		r.Printf("%s, attempt %d: %s", title(s), s.Attempts, what)
		r.See(began, "attempt %d at %s", s.Attempts, title(s))
		if last {
			r.See(time.Now(), "%s is %s", title(s), end)
			return
		}
		gap, _ := s.Policy.gap(s.Attempts)
		next := began.Add(gap)
		if now := time.Now(); now.After(next) {
			next = now // attempts must not overlap
		}
		r.Want(0, 1, next, "attempt %d at %s", s.Attempts+1, title(s))
	})
	send := func(path string, p policy, end string) {
		gaps := make([]time.Duration, len(p.gaps))
		for i, gap := range p.gaps {
			gaps[i] = r.Real(gap)
		}
		p.gaps = gaps
		sending := time.Now()
		s, err := nt.send(receivers.URL+path, []byte("hello"), p)
		r.Want(1, 1, sending, "attempt 1 at %s", title(s))
		r.Want(1, 1, sending, "%s is %s", title(s), end)
		story.Must(err)
	}
	send("/fails/3", every, "delivered")
	send("/hangs/2", every, "delivered")
	send("/fails/2", steps, "delivered")
	send("/fails/99", steps, "given up")
	r.Until(time.Hour)
	send("/fails/99", every, "listed by stop")
	r.Until(73 * time.Minute)
	// On a busy machine the last of the steps may be still to come.
	story.Must(r.Await(r.Real(time.Hour), func() error {
		if open := nt.pending(); len(open) != 1 || open[0].Attempts == 0 {
			return fmt.Errorf("still open: %v", open)
		}
		return nil
	}))
	story.Within(func(ctx context.Context) error {
		for _, s := range nt.stop(ctx) {
			r.Printf("%s was not delivered (attempts: %d)", title(s), s.Attempts)
			r.See(time.Now(), "%s is listed by stop", title(s))
		}
		return tw.Shutdown(ctx)
	})
}

// post makes one attempt. Any status from 200 to 299 is a success. A receiver may get a
// notification twice, if its answer was lost or late; it can tell by the ID.
func post(ctx context.Context, client *http.Client, s status, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Notification-Id", strconv.Itoa(s.ID))
	req.Header.Set("Notification-Attempt", strconv.Itoa(s.Attempts))
	resp, err := client.Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) && failed.Timeout() {
		return errors.New("no answer in time")
	} else if err != nil {
		return errors.Unwrap(err) // without the URL, which is in the status
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("answered %d", resp.StatusCode)
	}
	return nil
}

// receive is a receiver that fails for a while: /fails/3 refuses the first three attempts at each
// notification, /hangs/3 does not answer them.
func receive(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client hangs up
	how, failures, _ := strings.Cut(r.URL.Path[1:], "/")
	n, _ := strconv.Atoi(failures)
	switch attempt, _ := strconv.Atoi(r.Header.Get("Notification-Attempt")); {
	case attempt > n:
	case how == "hangs":
		<-r.Context().Done()
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func title(s status) string {
	path := s.URL[max(0, strings.LastIndex(s.URL, "/")-5):] // such as fails/3
	return fmt.Sprintf("#%d to %s (%s)", s.ID, path, s.Policy.name)
}
