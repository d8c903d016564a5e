// Notifier is a service that delivers notifications by HTTP to receivers that fail for a while.
// It tries at once and then every 300 s, or by steps: at once, after 2 minutes, 10 minutes and
// an hour. A success ends it; by steps it gives up after the last. It hangs up on a receiver
// that does not answer for a minute. When the service stops, it lists what it could not deliver.
//
// The program plays 73 minutes with receivers of its own, and checks that no attempt is early
// or overlaps another, and that every notification ends as it must.
//
//	go run ./examples/notifier                                   73 minutes in 7 seconds
//	go run ./examples/notifier -addr 127.0.0.1:8080 -scale 60    a service to try by hand
//
//	curl -d '{"url": "http://127.0.0.1:8080/fails/2", "policy": "steps", "body": "hello"}' 127.0.0.1:8080/notifications
//	curl 127.0.0.1:8080/notifications
//
// File notifier.go is the part to copy.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

func main() {
	var timeout time.Duration
	story.Program{
		Name: "notifier",
		About: "Notifier posts notifications to receivers that fail for a while, every 300 s or by\n" +
			"steps of 0 s, 2 min, 10 min and 1 h, until they succeed.",
		Passed:   "no attempt was early, none overlapped, none followed a success, and nothing was forgotten",
		Scale:    600,  // leaves a receiver 100 ms for its answer
		MaxScale: 6000, // 300 s in 50 ms
		Serves:   true,
		Flags: func(f *flag.FlagSet) {
			f.DurationVar(&timeout, "timeout", time.Minute,
				"how long a receiver may take to answer, in the time of the story")
		},
		Play: func(ctx context.Context, r *story.Run) error {
			if timeout <= 0 {
				return story.Misuse("-timeout %v: must be positive", timeout)
			}
			return play(ctx, r, timeout)
		},
	}.Main()
}

func play(ctx context.Context, r *story.Run, timeout time.Duration) error {
	tw := timingwheel.New()
	scaled := policies()
	for _, p := range scaled {
		for i, gap := range p.gaps {
			p.gaps[i] = r.Real(gap)
		}
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: r.Real(timeout)}
	defer client.CloseIdleConnections()
	post := func(ctx context.Context, s status, body []byte) error { return post(ctx, client, s, body) }
	nt := newNotifier(tw, post, func(s status, began time.Time, err error, last bool) {
		what, end := s.LastErr, "given up"
		if err == nil {
			what, end = "delivered", "delivered"
		} else if last {
			what += ", which was the last"
		}
		r.Printf("%s, attempt %d: %s", title(s), s.Attempts, what)
		r.See(began, "attempt %d at %s", s.Attempts, title(s))
		if last {
			r.See(time.Now(), "%s is %s", title(s), end)
			return
		}
		gap, _ := scaled[s.Policy].gap(s.Attempts)
		next := began.Add(gap)
		if now := time.Now(); now.After(next) {
			next = now // attempts must not overlap
		}
		r.Want(0, 1, next, "attempt %d at %s", s.Attempts+1, title(s))
	})
	err := r.Serve(ctx, tw, handler(nt, scaled),
		func(ctx context.Context, c *story.Client) error { return send(ctx, r, c) })
	// After the requests, which make notifications, those end, and then the wheel.
	err = errors.Join(err, story.Within(func(ctx context.Context) error {
		for _, s := range nt.stop(ctx) {
			r.Printf("%s was not delivered (attempts: %d)", title(s), s.Attempts)
			r.See(time.Now(), "%s is listed by stop", title(s))
		}
		return nil
	}))
	return errors.Join(err, story.Within(tw.Shutdown))
}

// post makes one attempt; any status from 200 to 299 is a success. A receiver may get a
// notification twice, if its answer was lost or late. It can tell by the ID.
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
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver answers %d", resp.StatusCode)
	}
	return nil
}

func title(s status) string {
	path := s.URL[max(0, strings.LastIndex(s.URL, "/")-5):] // such as fails/3
	return fmt.Sprintf("#%d to %s (%s)", s.ID, path, s.Policy)
}

type order struct {
	URL    string          `json:"url"`
	Policy string          `json:"policy"`
	Body   json.RawMessage `json:"body"`
}

// handler serves the notifier, and receivers that fail for a while: /fails/3 refuses the first
// three attempts at each notification, /hangs/3 does not answer them.
func handler(nt *notifier, scaled map[string]policy) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /notifications", story.Handle(func(_ *http.Request, in order) (status, error) {
		p, known := scaled[in.Policy]
		if !known {
			return status{}, errors.New(`the policy must be "every" or "steps"`)
		}
		return nt.send(in.URL, in.Body, p)
	}))
	mux.Handle("GET /notifications", story.Handle(func(*http.Request, any) ([]status, error) {
		return nt.pending(), nil
	}))
	mux.HandleFunc("POST /{how}/{n}", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client hangs up
		attempt, _ := strconv.Atoi(r.Header.Get("Notification-Attempt"))
		n, _ := strconv.Atoi(r.PathValue("n"))
		switch {
		case attempt > n:
		case r.PathValue("how") == "hangs":
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	return mux
}

func send(ctx context.Context, r *story.Run, c *story.Client) error {
	send := func(at time.Duration, path, policy, end string) story.Scene {
		return story.At(at, func(ctx context.Context) error {
			sending := time.Now()
			var s status
			err := c.Call(ctx, http.MethodPost, "/notifications",
				order{c.URL + path, policy, json.RawMessage(`"hello"`)}, &s)
			r.Want(1, 1, sending, "attempt 1 at %s", title(s))
			r.Want(1, 1, sending, "%s is %s", title(s), end)
			return err
		})
	}
	return r.Play(ctx,
		send(0, "/fails/3", "every", "delivered"),
		send(0, "/hangs/2", "every", "delivered"),
		send(0, "/fails/2", "steps", "delivered"),
		send(0, "/fails/99", "steps", "given up"),
		send(time.Hour, "/fails/99", "every", "listed by stop"),
		story.At(73*time.Minute, func(ctx context.Context) error {
			// On a busy machine the last of the steps may be still to come.
			return r.Await(ctx, r.Real(time.Hour), func() error {
				var open []status
				err := c.Call(ctx, http.MethodGet, "/notifications", nil, &open)
				if err == nil && (len(open) != 1 || open[0].Attempts == 0) {
					err = fmt.Errorf("still open: %v", open)
				}
				return err
			})
		}))
}
