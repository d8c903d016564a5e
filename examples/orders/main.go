// Orders is a shop, served over HTTP. An order takes its goods from the stock at once. If it is
// not paid, the customer is reminded after 20 minutes, and after 30 the order is cancelled and
// the goods return to the stock. A payment stops both timers.
//
// The program plays half an hour of the shop with customers of its own, some of whom pay at the
// very last moment, and checks the outcome of every order and of the stock.
//
//	go run ./examples/orders                                    half an hour in three seconds
//	go run ./examples/orders -addr 127.0.0.1:8080 -scale 60     a shop to try by hand
//
//	curl -d '{"customer": "ada", "item": "mug", "quantity": 2}' 127.0.0.1:8080/orders
//	curl -X POST 127.0.0.1:8080/orders/1/payment
//
// File orders.go is the part to copy.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	payWithin    = 30 * time.Minute
	remindBefore = 10 * time.Minute
)

func goods() map[string]int { return map[string]int{"mug": 5, "lamp": 3, "poster": 100} }

func main() {
	story.Program{
		Name: "orders",
		About: "Orders is a shop that cancels an order and returns its goods to the stock when it is unpaid\n" +
			"after 30 minutes. The customer is reminded 10 minutes before. A payment stops both.",
		Passed:   "every order was either paid or cancelled, nothing came early, and the stock adds up",
		Scale:    600,   // a timer is about a millisecond late, less than a second of the story
		MaxScale: 18000, // half an hour in 100 ms, in which requests can be answered
		Serves:   true,
		Play:     play,
	}.Main()
}

func play(ctx context.Context, r *story.Run) error {
	tw := timingwheel.New()
	s := newShop(tw, r.Real(payWithin), r.Real(remindBefore), goods(), func(event string, d details) {
		r.See(time.Now(), "order %d is %s", d.ID, event)
		message := "the shop reminds %s: order %d is unpaid, 10 minutes left"
		if event == "cancelled" {
			message = "the shop tells %s that order %d is cancelled, and takes the goods back"
		}
		tell(r, d, message, d.Customer, d.ID)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", story.Handle(func(_ *http.Request, in details) (details, error) {
		return s.place(in.Customer, in.Item, in.Quantity)
	}))
	mux.Handle("POST /orders/{id}/payment", story.Handle(func(r *http.Request, _ any) (details, error) {
		return s.pay(story.ID(r))
	}))
	err := r.Serve(ctx, tw, mux, func(ctx context.Context, c *story.Client) error { return visits(ctx, r, c) })
	r.Printf("the shop closes, %d timers are pending", tw.Len())
	if r.Addr == "" {
		r.Check(tw.Len() == 0, "%d timers are pending although every order is paid or cancelled", tw.Len())
		left := goods()
		for _, o := range s.orders {
			if o.State == "paid" {
				left[o.Item] -= o.Quantity
			}
		}
		r.Check(maps.Equal(s.stock, left), "in stock are %v instead of %v", s.stock, left)
	}
	return errors.Join(err, story.Within(tw.Shutdown)) // after the requests, which arm timers
}

// latecomers is how many customers pay at the last moment, 0.1 ms apart: a single one would
// nearly always be too late or in time.
const latecomers = 40

func visits(ctx context.Context, r *story.Run, c *story.Client) error {
	r.Printf("%d customers order a poster each and do not hurry to pay; they are not listed", latecomers)
	var inTime atomic.Int32
	visit := func(name, item string, quantity int, pays time.Duration) error {
		placing := time.Now()
		d := details{Customer: name, Item: item, Quantity: quantity}
		if err := c.Call(ctx, http.MethodPost, "/orders", d, &d); err != nil {
			return err
		}
		tell(r, d, "%s orders %d x %s: order %d", name, quantity, item, d.ID)
		if err := story.Sleep(ctx, time.Until(placing.Add(pays))); err != nil {
			return err
		}
		paid, cancelled := "pays", 0
		err := c.Call(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/payment", d.ID), nil, nil)
		switch {
		case errors.Is(err, story.ErrRefused):
			paid, cancelled = "is too late to pay", 1
		case err != nil:
			return err
		case item == "poster":
			inTime.Add(1)
		}
		tell(r, d, "%s %s", name, paid)
		// On a busy machine a payment may be late. No timer may be early.
		reminder, reminded := placing.Add(r.Real(payWithin)-r.Real(remindBefore)), 0
		if !time.Now().Before(reminder) {
			reminded = 1
		}
		r.Want(0, reminded, reminder, "order %d is reminded", d.ID)
		r.Want(cancelled, cancelled, placing.Add(r.Real(payWithin)), "order %d is cancelled", d.ID)
		return nil
	}
	err := story.Together(latecomers+3, func(i int) error {
		switch i {
		case 0:
			return visit("ada", "mug", 2, r.Real(5*time.Minute))
		case 1:
			return visit("ben", "lamp", 1, r.Real(25*time.Minute))
		case 2:
			return visit("cleo", "mug", 3, r.Real(32*time.Minute))
		}
		return visit(fmt.Sprint("latecomer ", i), "poster", 1,
			r.Real(payWithin)+time.Duration(i)*100*time.Microsecond)
	})
	r.Printf("of the %d who paid at the last moment %d were in time", latecomers, inTime.Load())
	return err
}

// tell prints what happens to an order, except to those of the many latecomers.
func tell(r *story.Run, d details, format string, args ...any) {
	if d.Item != "poster" {
		r.Printf(format, args...)
	}
}
