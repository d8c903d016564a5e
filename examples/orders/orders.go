package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// This file is the part to copy: orders that are cancelled if they are not paid in time. The timer
// of an order is a job. It survives a crash, as the order itself does.

const expiry = "orders/expire" // the queue; the body and the key of a job are the order's ID

// A shop takes orders and payments.
type shop struct {
	jobs      *jobqueue.Client
	book      *book
	payWithin time.Duration
}

func newShop(jobs *jobqueue.Client, book *book, payWithin time.Duration) *shop {
	s := &shop{jobs, book, payWithin}
	jobs.Handle(expiry, s.expire)
	return s
}

// place takes an order. The job goes first: if the shop dies before the order is in the book, the
// job finds no order and does nothing. The other way round, an order might never expire.
func (s *shop) place(ctx context.Context, item string) (order, error) {
	expires := time.Now().Add(s.payWithin)
	o := order{ID: rand.Text()[:12], Item: item, State: unpaid, Expires: expires}
	_, err := s.jobs.Add(ctx, expiry, []byte(o.ID), jobqueue.At(o.Expires), jobqueue.Key(o.ID))
	if err != nil {
		return order{}, err
	}
	return o, s.book.add(o)
}

// pay and expire may run at the same moment. The book decides which of them comes first, so it does
// not matter whether Cancel succeeds: it only spares the queue a job that does nothing.
func (s *shop) pay(ctx context.Context, id string) (order, error) {
	o, err := s.book.settle(id, paid, time.Now())
	if err == nil {
		s.jobs.Cancel(ctx, expiry, jobqueue.ByKey(id))
	}
	return o, err
}

// expire is called when the time of an order is over, and once more if the shop died before the end
// of the first call was stored. After another error, such as a full disk, the queue tries again.
func (s *shop) expire(_ context.Context, job *jobqueue.Job) error {
	_, err := s.book.settle(string(job.Body), cancelled, time.Now())
	if errors.Is(err, errSettled) || errors.Is(err, errNoOrder) {
		return nil
	}
	return err
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		o, err := s.place(r.Context(), r.FormValue("item"))
		answer(w, o, err)
	})
	mux.HandleFunc("POST /orders/{id}/payment", func(w http.ResponseWriter, r *http.Request) {
		o, err := s.pay(r.Context(), r.PathValue("id"))
		answer(w, o, err)
	})
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.book.all(), nil)
	})
	return mux
}

func answer(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, errNoOrder):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, errSettled):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		json.NewEncoder(w).Encode(v)
	}
}
