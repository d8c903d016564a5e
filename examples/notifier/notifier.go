package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// This file is the part to copy: notifications that are posted until their receiver takes them.
// What is still to be posted, and when, is in the queue and survives a crash.

// A policy is a queue whose jobs are tried at once, and then after these gaps, each counted from
// the end of the attempt before it.
type policy struct {
	queue   string
	gaps    []time.Duration
	forever bool // the last gap is repeated; otherwise it is the last
}

var (
	every = policy{"notify/every", []time.Duration{300 * time.Second}, true}
	steps = policy{"notify/steps",
		[]time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour}, false}
)

const gone = "the receiver wants no more"

type notification struct {
	URL  string
	Text string
}

// A notifier posts what is added to the queue of a policy, while q.Run is under way.
type notifier struct {
	q      *jobqueue.Client
	client http.Client
}

// newNotifier hangs up on a receiver that does not answer in time.
func newNotifier(q *jobqueue.Client, timeout time.Duration, policies ...policy) *notifier {
	n := &notifier{q: q, client: http.Client{Transport: &http.Transport{}}}
	for _, p := range policies {
		retries := []jobqueue.HandleOption{jobqueue.FinalBackoff(p.gaps...)}
		if p.forever {
			retries = []jobqueue.HandleOption{jobqueue.Backoff(p.gaps...), jobqueue.Attempts(0)}
		}
		jobqueue.NewTyped[notification](q, p.queue).
			Handle(n.post, append(retries, jobqueue.Timeout(timeout))...)
	}
	return n
}

// send returns when the notification is stored. It does not wait for the first attempt.
func (n *notifier) send(ctx context.Context, p policy, url, text string) (jobqueue.ID, error) {
	return jobqueue.NewTyped[notification](n.q, p.queue).Add(ctx, notification{url, text})
}

// post makes one attempt. Any status from 200 to 299 is a success, and 410 ends the attempts. A
// receiver may get a notification twice, if its answer was lost or late; it can tell by the ID.
func (n *notifier) post(ctx context.Context, job *jobqueue.Job, what notification) error {
	body := bytes.NewReader([]byte(what.Text))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, what.URL, body)
	if err != nil {
		return jobqueue.Bury(err.Error()) // no later attempt would help
	}
	req.Header.Set("Notification-Id", job.ID.String())
	req.Header.Set("Notification-Attempt", strconv.Itoa(job.Attempts))
	resp, err := n.client.Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) && failed.Timeout() {
		return errors.New("no answer in time")
	} else if err != nil {
		return errors.Unwrap(err) // without the URL, which is in the job
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is used again
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		return nil
	case resp.StatusCode == http.StatusGone:
		return jobqueue.Bury(gone)
	}
	return fmt.Errorf("answered %d", resp.StatusCode)
}
