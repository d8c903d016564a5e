package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// This file has the customers.

// A visit is what a customer knows of an order at the end.
type visit struct {
	id   string
	paid bool
}

// customer orders something at some time. Of ten customers four never pay, and one pays at the last
// moment.
func customer(r *story.Run, d *door, i int) visit {
	r.Until(time.Duration(rand.Int64N(int64(open))))
	o := d.insist(r, "/orders", url.Values{"item": {"poster"}})
	before := time.Duration(rand.Int64N(int64(r.Real(payWithin))))
	switch {
	case i%10 < 4:
		return visit{id: o.ID}
	case i%10 == 4:
		before = time.Millisecond - time.Duration(rand.Int64N(int64(2*time.Millisecond)))
	}
	time.Sleep(time.Until(o.Expires.Add(-before)))
	return visit{o.ID, d.insist(r, "/orders/"+o.ID+"/payment", nil).State == paid}
}

// A door is where customers find the shop.
type door struct {
	client http.Client
	url    atomic.Value // a string, empty while the shop is dead
}

// insist posts a form until the shop answers. If the shop refuses, the order has no state.
func (d *door) insist(r *story.Run, path string, form url.Values) (o order) {
	story.Must(r.Await(r.Real(dark), func() error {
		url := d.url.Load().(string)
		if url == "" {
			return errors.New("the shop is dead")
		}
		resp, err := d.client.PostForm(url+path, form)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusOK:
			return json.Unmarshal(body, &o)
		case resp.StatusCode >= 500:
			return fmt.Errorf("the shop answers: %s", body)
		}
		return nil
	}))
	return o
}

func (d *door) orders() (all []order) {
	resp, err := d.client.Get(d.url.Load().(string) + "/orders")
	story.Must(err)
	defer resp.Body.Close()
	story.Must(json.NewDecoder(resp.Body).Decode(&all))
	return all
}
