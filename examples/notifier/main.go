// Notifier is a service that delivers notifications, posting them over HTTP to
// receivers that fail for a while. It tries every 300 s, or by steps: at once, after 2
// minutes, 10 minutes and an hour. A success ends it; by steps it gives up after the
// last. A receiver that hangs is left after a minute, and when the service stops it
// lists what it could not deliver.
//
// The program plays 73 minutes of it with receivers of its own, and checks that no
// attempt came early, none beside or after another that it should not, and that every
// notification ended as it had to.
//
//	go run ./examples/notifier                                   73 minutes in 7 seconds
//	go run ./examples/notifier -addr 127.0.0.1:8080 -scale 60    a service to try by hand
//
//	curl -d '{"url": "http://127.0.0.1:8080/fails/2", "policy": "steps", "body": "hello"}' 127.0.0.1:8080/notifications
//	curl 127.0.0.1:8080/notifications
//
// Notifier.go is the part to copy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// policies returns them in the durations of real, which a test leaves as they are.
func policies(real func(time.Duration) time.Duration) map[string]policy {
	return map[string]policy{
		"every": {name: "every", gaps: []time.Duration{0, real(300 * time.Second)}, forever: true},
		"steps": {name: "steps", gaps: []time.Duration{0, real(2 * time.Minute), real(10 * time.Minute), real(time.Hour)}},
	}
}

func main() { program().Main() }

func program() story.Program {
	var timeout time.Duration
	return story.Program{
		Name: "notifier",
		About: "Notifier posts notifications to receivers that fail for a while, every 300 s or by\n" +
			"steps of 0 s, 2 min, 10 min and 1 h, until they succeed.",
		Scale:    600,  // leaves a receiver 100 ms for its answer
		MaxScale: 6000, // 300 s in 50 ms
		Serves:   true,
		Flags: func(f *flag.FlagSet) {
			f.DurationVar(&timeout, "timeout", time.Minute, "how long a receiver may take to answer, in the time of the story")
		},
		Play: func(ctx context.Context, d *story.Diary, addr string) error {
			if timeout <= 0 {
				return story.Misuse("-timeout %v: must be positive", timeout)
			}
			return run(ctx, d, addr, timeout)
		},
	}
}

func run(ctx context.Context, d *story.Diary, addr string, timeout time.Duration) error {
	tw := timingwheel.New()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	paced := policies(d.Real)
	s := &deliveries{Diary: d, records: map[int]*record{}}
	nt := newNotifier(tw, &http.Client{Transport: transport, Timeout: d.Real(timeout)}, s.told)
	err := d.Serve(ctx, addr, handler(nt, paced), s.play)
	// After the requests, which make notifications, those, then the wheel.
	var undelivered []status
	err = errors.Join(err, story.Within(func(ctx context.Context) error {
		undelivered = nt.stop(ctx)
		return nil
	}), story.Within(tw.Shutdown))
	for _, s := range undelivered {
		d.Printf("%s was not delivered (attempts: %d)", title(s), s.Attempts)
	}
	if err != nil || addr != "" {
		return err
	}
	if err := judge(s.records, undelivered, paced); err != nil {
		return err
	}
	d.Printf("all is well: no attempt was early, none overlapped, none followed a success, and nothing was forgotten")
	return nil
}

// order is what is to be delivered, and how.
type order struct {
	URL    string          `json:"url"`
	Policy string          `json:"policy"`
	Body   json.RawMessage `json:"body"`
}

// handler has the notifier's face to the network, and receivers for it that fail for a
// while: /fails/3 refuses the first three attempts at each notification, /hangs/3 leaves
// them without an answer.
func handler(nt *notifier, policies map[string]policy) http.Handler {
	mux := http.NewServeMux()
	codes := story.Codes{errStopped: http.StatusServiceUnavailable}
	mux.Handle("POST /notifications", story.Handle(codes, func(_ *http.Request, in order) (status, error) {
		p, known := policies[in.Policy]
		if !known {
			return status{}, errors.New(`policy must be "every" or "steps"`)
		}
		return nt.send(in.URL, in.Body, p)
	}))
	mux.Handle("GET /notifications", story.Handle(nil, func(*http.Request, any) ([]status, error) { return nt.pending(), nil }))
	mux.HandleFunc("POST /{how}/{n}", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server would not notice that the client hangs up
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
