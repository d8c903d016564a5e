package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// This file is the shop's face to the network. It keeps no state.

// handler serves
//
//	POST /orders               {"customer": "ada", "item": "mug", "quantity": 2}
//	GET  /orders/{id}
//	POST /orders/{id}/payment
//	GET  /stock/{item}
func handler(s *orders) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var in details
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&in); err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		d, err := s.place(in.Customer, in.Item, in.Quantity)
		reply(w, http.StatusCreated, d, err)
	})
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		d, err := s.get(orderID(r))
		reply(w, http.StatusOK, d, err)
	})
	mux.HandleFunc("POST /orders/{id}/payment", func(w http.ResponseWriter, r *http.Request) {
		d, err := s.pay(orderID(r))
		reply(w, http.StatusOK, d, err)
	})
	mux.HandleFunc("GET /stock/{item}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, s.inStock(r.PathValue("item")))
	})
	return mux
}

// orderID returns 0, which no order has, for what is not a number.
func orderID(r *http.Request) int {
	id, _ := strconv.Atoi(r.PathValue("id"))
	return id
}

func reply(w http.ResponseWriter, status int, d details, err error) {
	switch {
	case err == nil:
		answer(w, status, d)
		return
	case errors.Is(err, errNoItem), errors.Is(err, errNoOrder):
		status = http.StatusNotFound
	case errors.Is(err, errQuantity):
		status = http.StatusBadRequest
	case errors.Is(err, errCancelled):
		status = http.StatusGone
	default:
		status = http.StatusConflict
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // an error means that the client has gone
}

// serve answers requests at addr until stop is called, which waits for those under
// way.
func serve(addr string, h http.Handler) (url string, stop func() error, err error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		err := srv.Shutdown(ctx)
		if cause := <-ended; !errors.Is(cause, http.ErrServerClosed) {
			err = cause
		}
		return err
	}, nil
}
