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

// A policy says when to try. gaps[i] is the time before attempt i+1, counted from the beginning of
// the attempt before it, so a slow receiver does not stretch the whole. An attempt that takes
// longer than the gap is followed at once. After the last gap the notifier gives up, or repeats it
// forever.
type policy struct {
	name    string
	gaps    []time.Duration
	forever bool
}

var (
	every = policy{"every", []time.Duration{0, 300 * time.Second}, true}
	steps = policy{"steps", []time.Duration{0, 2 * time.Minute, 10 * time.Minute, time.Hour}, false}
)

// gap returns the time before the next attempt after n of them. It returns false if there is none.
func (p policy) gap(n int) (time.Duration, bool) {
	if n >= len(p.gaps) && !p.forever {
		return 0, false
	}
	return p.gaps[min(n, len(p.gaps)-1)], true
}

var errStopped = errors.New("the notifier has been stopped")

// status is the part of a notification that may be copied.
type status struct {
	ID       int
	URL      string
	Policy   policy
	Attempts int
	LastErr  string
}

// Only send and the end of an attempt arm the timer of a notification, and its callback makes the
// attempt. So attempts never overlap, whatever the policy and however slow the receiver.
type notification struct {
	status // notifier.mu guards Attempts and LastErr; the rest does not change
	body   []byte
	timer  timingwheel.Timer
}

type notifier struct {
	tw   *timingwheel.TimingWheel
	post func(ctx context.Context, s status, body []byte) error
	tell func(s status, began time.Time, err error, last bool) // after each attempt, without mu

	ctx        context.Context // of all attempts
	hangUp     context.CancelFunc
	inProgress sync.WaitGroup // attempts; Add is called under mu and before stopped is set

	mu      sync.Mutex // not held while post or tell runs
	stopped bool
	lastID  int
	open    map[int]*notification // neither delivered nor given up
}

func newNotifier(tw *timingwheel.TimingWheel, post func(context.Context, status, []byte) error,
	tell func(status, time.Time, error, bool)) *notifier {
	nt := &notifier{tw: tw, post: post, tell: tell, open: make(map[int]*notification)}
	nt.ctx, nt.hangUp = context.WithCancel(context.Background())
	return nt
}

// send posts body to a URL as p says. It does not wait for the first attempt.
func (nt *notifier) send(url string, body []byte, p policy) (status, error) {
	nt.mu.Lock()
	defer nt.mu.Unlock()
	if nt.stopped {
		return status{}, errStopped
	}
	nt.lastID++
	n := &notification{status: status{ID: nt.lastID, URL: url, Policy: p}, body: body}
	nt.open[n.ID] = n
	nt.tw.Init(&n.timer, func() { nt.attempt(n) })
	n.timer.Reset(p.gaps[0])
	return n.status, nil
}

// attempt is the callback of the timer. The wheel runs it on a goroutine of its own, so a receiver
// that hangs does not delay other notifications.
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
	gap, more := s.Policy.gap(s.Attempts)
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
func (nt *notifier) pending() (list []status) {
	nt.mu.Lock()
	defer nt.mu.Unlock()
	for _, n := range nt.open {
		list = append(list, n.status)
	}
	slices.SortFunc(list, func(a, b status) int { return a.ID - b.ID })
	return list
}

// stop makes no further attempt, waits for those in progress, and cancels them when ctx ends. It
// returns what was not delivered, for the caller to store. It stops its own timers one by one
// because the wheel may have others.
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
