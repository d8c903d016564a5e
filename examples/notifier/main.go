// Notifier is a service that delivers notifications by HTTP to receivers that fail for a while. It
// tries at once and then every 300 s, or by steps: at once, after 2 minutes, 10 minutes and an
// hour. By steps it gives up after the last. It hangs up on a receiver that does not answer for a
// minute. The retries are jobs: the program plays 75 minutes, in which the service is stopped and
// started again on the same files. It checks that no attempt is early, and that every notification
// ends as it must.
//
//	go run ./examples/notifier               75 minutes in 7 seconds
//	go run ./examples/notifier -scale 100    the same in 45
//
// File notifier.go is the part to copy.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func main() {
	timeout := flag.Duration("timeout", time.Minute,
		"how long a receiver may take to answer, in time of the story")
	story.Program{
		Scale:  600, // leaves a receiver 100 ms for its answer
		Play:   func(r *story.Run) { play(r, *timeout) },
		Passed: "no attempt was early or followed a success,\nand nothing was forgotten",
	}.Main()
}

func play(r *story.Run, timeout time.Duration) {
	folder := r.Folder()
	receivers := httptest.NewServer(http.HandlerFunc(receive))
	defer receivers.Close()
	every, steps := scaled(r, every), scaled(r, steps)

	// start starts the service, and returns what stops it.
	start := func() (*notifier, func()) {
		q, err := jobqueue.Open(folder, jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
		story.Must(err)
		q.Use(func(next jobqueue.Handler) jobqueue.Handler { return watch(r, next, every, steps) })
		n := newNotifier(q, r.Real(timeout), every, steps)
		end := story.Background(q.Run)
		return n, func() {
			story.Must(end())
			story.Must(q.Close())
			n.client.CloseIdleConnections()
		}
	}
	n, stop := start()
	send := func(path string, p policy, end string) {
		sending, title := time.Now(), path+", "+p.queue
		r.Want(1, 1, sending, "attempt 1 at %s", title)
		r.Want(1, 1, sending, "%s is %s", title, end)
		_, err := n.send(context.Background(), p, receivers.URL+path, path)
		story.Must(err)
	}
	send("/fails/3", every, "delivered")
	send("/hangs/2", every, "delivered")
	send("/fails/2", steps, "delivered")
	send("/fails/99", steps, "given up")
	send("/gone", every, "given up")
	r.Until(20 * time.Minute)
	stop()
	r.Printf("the service has stopped")
	r.Until(25 * time.Minute)
	n, stop = start()
	r.Printf("the service has started again")
	r.Until(time.Hour)
	send("/fails/99", every, "still tried")
	r.Until(75 * time.Minute)

	// On a busy machine the last of the steps may be still to come.
	story.Must(r.Await(r.Real(time.Hour), func() error {
		live := all(n.q, jobqueue.Delayed, jobqueue.Ready, jobqueue.Leased)
		if len(live) != 1 || live[0].Attempts == 0 {
			return fmt.Errorf("still to be delivered: %d", len(live))
		}
		return nil
	}))
	stop()
	q, err := jobqueue.Open(folder)
	story.Must(err)
	for _, job := range all(q, jobqueue.Dead, jobqueue.Delayed, jobqueue.Ready) {
		end := "still tried"
		if job.State == jobqueue.Dead {
			end = "given up"
		}
		r.Printf("%s is %s after %d: %s", title(job), end, job.Attempts, job.LastError)
		r.See(time.Now(), "%s is %s", title(job), end)
	}
	story.Must(q.Close())
}

// scaled returns a policy whose gaps pass in the time of the story.
func scaled(r *story.Run, p policy) policy {
	gaps := make([]time.Duration, len(p.gaps))
	for i, gap := range p.gaps {
		gaps[i] = r.Real(gap)
	}
	p.gaps = gaps
	return p
}

// watch notes each attempt, and says what has to follow.
func watch(r *story.Run, next jobqueue.Handler, policies ...policy) jobqueue.Handler {
	return func(ctx context.Context, job *jobqueue.Job) error {
		r.See(time.Now(), "attempt %d at %s", job.Attempts, title(job))
		err := next(ctx, job)
		if err == nil {
			r.Printf("%s, attempt %d: delivered", title(job), job.Attempts)
			r.See(time.Now(), "%s is delivered", title(job))
			return nil
		}
		r.Printf("%s, attempt %d: %v", title(job), job.Attempts, err)
		i := slices.IndexFunc(policies, func(p policy) bool { return p.queue == job.Queue })
		if p := policies[i]; (p.forever || job.Attempts <= len(p.gaps)) && err.Error() != gone {
			gap := p.gaps[min(job.Attempts, len(p.gaps))-1]
			r.Want(0, 1, time.Now().Add(gap), "attempt %d at %s", job.Attempts+1, title(job))
		}
		return err
	}
}

func title(job *jobqueue.Job) string {
	var n notification
	story.Must(json.Unmarshal(job.Body, &n))
	return n.Text + ", " + job.Queue
}

// all returns the jobs in these states.
func all(q *jobqueue.Client, states ...jobqueue.State) (jobs []*jobqueue.Job) {
	for _, queue := range []string{every.queue, steps.queue} {
		for _, state := range states {
			some, _, err := q.List(context.Background(), queue, state, "", 100)
			story.Must(err)
			jobs = append(jobs, some...)
		}
	}
	return jobs
}

// receive is a receiver that fails for a while: /fails/3 refuses the first three attempts at each
// notification, /hangs/3 does not answer them, and /gone wants none.
func receive(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client hangs up
	how, failures, _ := strings.Cut(r.URL.Path[1:], "/")
	n, _ := strconv.Atoi(failures)
	switch attempt, _ := strconv.Atoi(r.Header.Get("Notification-Attempt")); {
	case how == "gone":
		w.WriteHeader(http.StatusGone)
	case attempt > n:
	case how == "hangs":
		<-r.Context().Done()
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
