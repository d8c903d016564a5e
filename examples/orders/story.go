package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// This file plays the story: customers who talk to the shop over HTTP, and a
// ledger of what they and the shop see of every order. ledger.mu guards the records,
// diary.mu the output.

// latecomers is how many customers pay when their time is over. One of them alone would
// nearly always be too late or in time; of forty, a tenth of a millisecond apart, some
// meet the cancellation.
const latecomers = 40

// patience is how much longer than planned the story may take before something must be
// wrong, such as mugs that never come back.
const patience = 30 * time.Second

func isLatecomer(name string) bool { return strings.HasPrefix(name, "late-") }

// A clock is where durations of the story become real ones.
type clock struct {
	start time.Time
	scale float64
}

func (c clock) real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.scale) }

// wait sleeps until the story has reached at.
func (c clock) wait(ctx context.Context, at time.Duration) error {
	return sleep(ctx, time.Until(c.start.Add(c.real(at))))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A diary prints lines with the time of the story in front, in its order.
type diary struct {
	clock
	mu  sync.Mutex
	out io.Writer
}

func (y *diary) line(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	s := int(time.Since(y.start).Seconds() * y.scale)
	fmt.Fprintf(y.out, "%02d:%02d:%02d  %s\n", s/3600, s/60%60, s%60, fmt.Sprintf(format, args...))
}

// A record is what happened to one order, at real instants: as its customer saw it, and
// as the shop's callbacks did.
type record struct {
	details
	placing  time.Time // just before the order was sent
	accepted int       // payments
	paid     time.Time // when the last of these was answered
	refused  time.Time // when a payment was answered with a no

	reminders, cancellations []time.Time
}

type ledger struct {
	mu      sync.Mutex
	records map[int]*record
}

func (l *ledger) note(id int, change func(*record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records[id] == nil {
		l.records[id] = &record{}
	}
	change(l.records[id])
}

type story struct {
	*diary
	seen   *ledger
	url    string
	client *http.Client
}

func play(ctx context.Context, says *diary, seen *ledger, url string) error {
	transport := &http.Transport{MaxIdleConnsPerHost: latecomers}
	defer transport.CloseIdleConnections()
	s := &story{says, seen, url, &http.Client{Transport: transport, Timeout: stopWithin}}

	ada, err := s.order(ctx, "ada", "mug", 2)
	if err != nil {
		return err
	}
	ben, err := s.order(ctx, "ben", "lamp", 1)
	if err != nil {
		return err
	}
	cleo, err := s.order(ctx, "cleo", "mug", 3)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, s.real(2*payWithin)+patience)
	defer cancel()
	late := make(chan error, 1)
	go func() { late <- s.latecomers(ctx) }()
	if err = s.regulars(ctx, ada, ben, cleo); err != nil {
		cancel()
	}
	return errors.Join(err, <-late)
}

// regulars are the customers whose story is told line by line: ada, ben and cleo, with
// the numbers of their orders, and dan.
func (s *story) regulars(ctx context.Context, ada, ben, cleo int) error {
	if err := errors.Join(s.wait(ctx, 5*time.Minute), s.pay(ctx, ada)); err != nil {
		return err
	}
	if err := s.wait(ctx, 10*time.Minute); err != nil {
		return err
	}
	dan, err := s.order(ctx, "dan", "mug", 2)
	if err != nil {
		return err
	}
	if err := errors.Join(s.wait(ctx, 25*time.Minute), s.pay(ctx, ben)); err != nil {
		return err
	}
	for dan == 0 { // until cleo's mugs are back
		if err := sleep(ctx, s.real(time.Minute)); err != nil {
			return err
		}
		var left int
		if _, err := s.call(ctx, http.MethodGet, "/stock/mug", nil, &left); err != nil {
			return err
		}
		if left < 2 {
			continue
		}
		if dan, err = s.order(ctx, "dan", "mug", 2); err != nil {
			return err
		}
	}
	if err := errors.Join(s.pay(ctx, dan), s.wait(ctx, 32*time.Minute)); err != nil {
		return err
	}
	return s.pay(ctx, cleo)
}

// latecomers all pay when half an hour is over, give or take the milliseconds in which
// their orders are cancelled.
func (s *story) latecomers(ctx context.Context) error {
	// A minute later than the others, so that the lines of both can be told apart.
	if err := s.wait(ctx, time.Minute); err != nil {
		return err
	}
	s.line("%d customers order a poster each, and none of them is in a hurry to pay", latecomers)
	var running sync.WaitGroup
	var ids [latecomers]int
	var errs [latecomers]error
	for i := range latecomers {
		running.Go(func() {
			placing := time.Now()
			ids[i], errs[i] = s.order(ctx, fmt.Sprintf("late-%d", i+1), "poster", 1)
			moment := placing.Add(s.real(payWithin) + time.Duration(i)*100*time.Microsecond)
			if errs[i] == nil {
				errs[i] = sleep(ctx, time.Until(moment))
			}
			if errs[i] == nil {
				errs[i] = s.pay(ctx, ids[i])
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	paid, refused := 0, 0
	s.seen.mu.Lock()
	for _, id := range ids {
		r := s.seen.records[id]
		paid += r.accepted
		if !r.refused.IsZero() {
			refused++
		}
	}
	s.seen.mu.Unlock()
	s.line("%d customers pay for their posters at the last moment: %d were in time, %d were too late", latecomers, paid, refused)
	return nil
}

// order returns the number of the order, 0 if there is not enough in stock.
func (s *story) order(ctx context.Context, customer, item string, quantity int) (id int, err error) {
	in := details{Customer: customer, Item: item, Quantity: quantity}
	placing := time.Now()
	var got details
	status, err := s.call(ctx, http.MethodPost, "/orders", in, &got)
	switch {
	case err != nil:
		return 0, err
	case status == http.StatusConflict:
		s.line("%s orders %d x %s and is told: out of stock", customer, quantity, item)
		return 0, nil
	case status != http.StatusCreated:
		return 0, fmt.Errorf("%s orders %d x %s: status %d", customer, quantity, item, status)
	}
	s.seen.note(got.ID, func(r *record) { r.details, r.placing = got, placing })
	if !isLatecomer(customer) {
		s.line("%s orders %d x %s: order %d", customer, quantity, item, got.ID)
	}
	return got.ID, nil
}

// pay pays an order, or finds that it is too late.
func (s *story) pay(ctx context.Context, id int) error {
	var got details
	status, err := s.call(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/payment", id), nil, &got)
	now := time.Now()
	if err != nil {
		return err
	}
	var told string
	s.seen.note(id, func(r *record) {
		switch status {
		case http.StatusOK:
			r.accepted++
			r.paid = now
			told = fmt.Sprintf("%s pays order %d", r.Customer, id)
		case http.StatusGone:
			r.refused = now
			told = fmt.Sprintf("%s pays order %d and is told: too late, it was cancelled", r.Customer, id)
		default:
			err = fmt.Errorf("%s pays order %d: status %d", r.Customer, id, status)
		}
		if isLatecomer(r.Customer) {
			told = ""
		}
	})
	if told != "" {
		s.line("%s", told)
	}
	return err
}

func (s *story) call(ctx context.Context, method, path string, in, out any) (status int, err error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return 0, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, &body)
	if err != nil {
		return 0, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, json.NewDecoder(resp.Body).Decode(out)
}
