package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is the part to copy: notifications that are posted until their receiver takes them.
// notifier.mu guards everything that changes, and is not held while post or tell runs.

// A policy says when to try. gaps[i] is the time before attempt i+1, from the beginning of the
// attempt before it, so that a slow receiver does not stretch the whole. An attempt that takes
// longer than the gap is followed at once. After the gaps the notifier gives up, or repeats the
// last one forever.
type policy struct {
	name    string
	gaps    []time.Duration
	forever bool
}

func policies() map[string]policy {
	return map[string]policy{
		"every": {name: "every", gaps: []time.Duration{0, 300 * time.Second}, forever: true},
		"steps": {name: "steps", gaps: []time.Duration{0, 2 * time.Minute, 10 * time.Minute, time.Hour}},
	}
}

// gap returns the time before the next attempt, after n of them; ok is false if there is none.
func (p policy) gap(n int) (d time.Duration, ok bool) {
	if n >= len(p.gaps) && !p.forever {
		return 0, false
	}
	return p.gaps[min(n, len(p.gaps)-1)], true
}

var errStopped = errors.New("the notifier has been stopped")

// status is what others may know of a notification.
type status struct {
	ID       int    `json:"id"`
	URL      string `json:"url"`
	Policy   string `json:"policy"`
	Attempts int    `json:"attempts"`
	LastErr  string `json:"last_error,omitempty"`
}

// Only send and the end of an attempt arm the timer of a notification, and its callback makes
// the attempt. So attempts never overlap, whatever the policy and however slow the receiver.
type notification struct {
	status // Attempts and LastErr change, the rest does not
	policy policy
	body   []byte
	timer  timingwheel.Timer
}

type notifier struct {
	tw     *timingwheel.TimingWheel
	post   func(ctx context.Context, s status, body []byte) error
	tell   func(s status, began time.Time, err error, last bool) // after each attempt, without the lock
	ctx    context.Context                                       // of all attempts
	hangUp context.CancelFunc

	inProgress sync.WaitGroup // attempts; Add is called under mu and before stopped is set

	mu      sync.Mutex
	stopped bool
	lastID  int
	open    map[int]*notification // neither delivered nor given up
}

func newNotifier(tw *timingwheel.TimingWheel, post func(context.Context, status, []byte) error,
	tell func(status, time.Time, error, bool)) *notifier {
	ctx, hangUp := context.WithCancel(context.Background())
	return &notifier{tw: tw, post: post, tell: tell, ctx: ctx, hangUp: hangUp, open: make(map[int]*notification)}
}

// send posts body to a URL as p says. It does not wait for the first attempt.
func (nt *notifier) send(to string, body []byte, p policy) (status, error) {
	nt.mu.Lock()
	defer nt.mu.Unlock()
	if nt.stopped {
		return status{}, errStopped
	}
	nt.lastID++
	n := &notification{status: status{ID: nt.lastID, URL: to, Policy: p.name}, policy: p, body: body}
	nt.open[n.ID] = n
	nt.tw.Init(&n.timer, func() { nt.attempt(n) })
	n.timer.Reset(p.gaps[0])
	return n.status, nil
}

// attempt is the callback of the timer. The wheel runs it on a goroutine of its own, so a
// receiver that hangs holds up no other notification.
func (nt *notifier) attempt(n *notification) {
	nt.mu.Lock()
	if nt.stopped { // after the wheel had handed over this call; stop has listed n
		nt.mu.Unlock()
		return
	}
	nt.inProgress.Add(1)
	defer nt.inProgress.Done()
	n.Attempts++
	s := n.status
	nt.mu.Unlock()

	began := time.Now()
	err := nt.post(nt.ctx, s, n.body)
	if err != nil {
		s.LastErr = err.Error()
	}
	gap, more := n.policy.gap(s.Attempts)
	last := err == nil || !more
	nt.tell(s, began, err, last)

	nt.mu.Lock()
	defer nt.mu.Unlock()
	n.LastErr = s.LastErr
	if last {
		delete(nt.open, n.ID)
	} else if !nt.stopped {
		n.timer.Reset(gap - time.Since(began)) // at once if that is negative
	}
}

// pending lists what is neither delivered nor given up, oldest first.
func (nt *notifier) pending() []status {
	nt.mu.Lock()
	defer nt.mu.Unlock()
	list := []status{}
	for _, n := range nt.open {
		list = append(list, n.status)
	}
	slices.SortFunc(list, func(a, b status) int { return a.ID - b.ID })
	return list
}

// stop begins no further attempt, waits for those in progress, and hangs up on them when ctx
// ends. It returns what was not delivered, for the caller to store. It stops its own timers one
// by one, as the wheel may have others.
func (nt *notifier) stop(ctx context.Context) []status {
	nt.mu.Lock()
	nt.stopped = true
	for _, n := range nt.open {
		n.timer.Stop()
	}
	nt.mu.Unlock()
	defer nt.hangUp()
	defer context.AfterFunc(ctx, nt.hangUp)()
	nt.inProgress.Wait()
	return nt.pending()
}
