package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is what a service of your own would copy: notifications that are posted to
// a URL until its server takes them. notifier.mu guards everything that changes. No
// request is made under it.

// A policy says when to try. Gaps[i] is the time before attempt i, counted from the
// beginning of the attempt before, so that a receiver that answers slowly does not
// stretch the whole; an attempt that takes longer than the gap is followed at once.
// When the gaps are used up the notifier gives up, or repeats the last one for ever.
//
// For equal gaps alone tw.ScheduleFunc(timingwheel.Every(d), f,
// timingwheel.SkipWhileRunning()) would do. A Timer that is armed again serves both.
type policy struct {
	name    string
	gaps    []time.Duration
	forever bool
}

// gap returns the time before the next attempt, after so many.
func (p policy) gap(attempts int) (d time.Duration, ok bool) {
	switch n := len(p.gaps); {
	case attempts < n:
		return p.gaps[attempts], true
	case p.forever && n > 0:
		return p.gaps[n-1], true
	}
	return 0, false
}

var errStopped = errors.New("the notifier has been stopped")

// status is what the rest of the program may know of a notification.
type status struct {
	ID       int    `json:"id"`
	URL      string `json:"url"`
	Policy   string `json:"policy"`
	Attempts int    `json:"attempts"`
	LastErr  string `json:"last_error,omitempty"`
}

// A notification is tried by its timer's callback, and the timer is armed by send and
// then by the end of each attempt only. So there is one attempt at a time, whatever the
// policy and however long the receiver takes.
type notification struct {
	status // its Attempts and LastErr are guarded by notifier.mu, the rest is fixed
	policy policy
	body   []byte
	timer  timingwheel.Timer
}

// A result is what an attempt, or the want of a further one, came to.
type result struct {
	status
	began, ended time.Time
	err          error         // nil: delivered
	next         time.Duration // from began to the next attempt
	last         bool          // there is none
}

type notifier struct {
	tw     *timingwheel.TimingWheel
	client *http.Client // its Timeout bounds an attempt whose receiver hangs
	tell   func(result) // called after each attempt, without the lock
	ctx    context.Context
	hangUp context.CancelFunc

	underWay sync.WaitGroup // attempts; added to under mu and before stopped is set

	mu      sync.Mutex
	stopped bool
	lastID  int
	open    map[int]*notification // not delivered and not given up
}

func newNotifier(tw *timingwheel.TimingWheel, client *http.Client, tell func(result)) *notifier {
	ctx, hangUp := context.WithCancel(context.Background())
	return &notifier{tw: tw, client: client, tell: tell, ctx: ctx, hangUp: hangUp, open: make(map[int]*notification)}
}

// send has body posted to a URL as p says. It does not wait for the first attempt.
func (nt *notifier) send(to string, body []byte, p policy) (status, error) {
	gap, ok := p.gap(0)
	if !ok {
		return status{}, fmt.Errorf("policy %q makes no attempt", p.name)
	}
	nt.mu.Lock()
	defer nt.mu.Unlock()
	if nt.stopped {
		return status{}, errStopped
	}
	nt.lastID++
	n := &notification{status: status{ID: nt.lastID, URL: to, Policy: p.name}, policy: p, body: body}
	nt.open[n.ID] = n
	nt.tw.Init(&n.timer, func() { nt.attempt(n) })
	n.timer.Reset(gap)
	return n.status, nil
}

// attempt is the callback of every notification's timer. The wheel runs it on a
// goroutine of its own, so a receiver that hangs holds up nobody else.
func (nt *notifier) attempt(n *notification) {
	nt.mu.Lock()
	if nt.stopped {
		// The timer had been handed over when stop came, so stop could not
		// stop it, and has listed n as not delivered.
		nt.mu.Unlock()
		return
	}
	nt.underWay.Add(1)
	n.Attempts++
	r := result{status: n.status, began: time.Now()}
	nt.mu.Unlock()
	defer nt.underWay.Done()

	r.err = nt.post(r.status, n.body)
	r.ended = time.Now()

	nt.mu.Lock()
	n.LastErr = ""
	if r.err != nil {
		n.LastErr = r.err.Error()
	}
	r.status = n.status
	gap, more := n.policy.gap(n.Attempts)
	if r.err == nil || !more {
		delete(nt.open, n.ID)
		r.last = true
	} else {
		r.next = gap
		r.last = nt.stopped // it remains among the open ones, which stop lists
	}
	nt.mu.Unlock()
	nt.tell(r)
	if r.last {
		return
	}

	// Not before: from here on the next attempt may be under way.
	nt.mu.Lock()
	defer nt.mu.Unlock()
	if !nt.stopped {
		n.timer.Reset(gap - time.Since(r.began)) // at once if that is negative
	}
}

// post makes one attempt. Any status from 200 to 299 is a success. A receiver may get
// the same notification twice, if it took the first and its answer was lost or late; it
// can tell by the ID.
func (nt *notifier) post(s status, body []byte) error {
	req, err := http.NewRequestWithContext(nt.ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Notification-Id", strconv.Itoa(s.ID))
	req.Header.Set("Notification-Attempt", strconv.Itoa(s.Attempts))
	resp, err := nt.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which everybody knows who sees the error
		}
		return err
	}
	defer resp.Body.Close()
	// What is read to the end leaves a connection that can be used again; a
	// receiver that has much to say is cut off.
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver says %s", resp.Status)
	}
	return nil
}

// pending lists what is neither delivered nor given up, oldest first.
func (nt *notifier) pending() []status {
	nt.mu.Lock()
	defer nt.mu.Unlock()
	list := make([]status, 0, len(nt.open))
	for _, n := range nt.open {
		list = append(list, n.status)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list
}

// stop begins no further attempt and waits for those under way, which are cut off when
// ctx ends. It returns what was not delivered, for the caller to store. It stops its own
// timers one by one, as the wheel may have others.
func (nt *notifier) stop(ctx context.Context) []status {
	nt.mu.Lock()
	nt.stopped = true
	for _, n := range nt.open {
		n.timer.Stop()
	}
	nt.mu.Unlock()
	disarm := context.AfterFunc(ctx, nt.hangUp)
	nt.underWay.Wait()
	disarm()
	nt.hangUp()
	return nt.pending()
}
