// Orders is a shop, served over HTTP. An order takes its goods from the stock at once.
// If it is not paid, the customer is reminded after 20 minutes, and after 30 the order
// is cancelled and the goods go back. Paying stops both.
//
// The program plays half an hour of the shop with customers of its own, some of which
// pay at the very last moment, and checks what became of every order and of the stock.
//
//	go run ./examples/orders                                    half an hour in three seconds
//	go run ./examples/orders -addr 127.0.0.1:8080 -scale 60     a shop to try by hand
//
//	curl -d '{"customer": "ada", "item": "mug", "quantity": 2}' 127.0.0.1:8080/orders
//	curl -X POST 127.0.0.1:8080/orders/1/payment
//	curl 127.0.0.1:8080/orders/1
//	curl 127.0.0.1:8080/stock/mug
//
// Orders.go is the part to copy.
package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	payWithin    = 30 * time.Minute
	remindBefore = 10 * time.Minute
)

// goods is what the shop has at the start.
func goods() map[string]int { return map[string]int{"mug": 5, "lamp": 3, "poster": 100} }

func main() { program.Main() }

var program = story.Program{
	Name: "orders",
	About: "Orders is a shop whose orders are cancelled, with their stock returned, when they are\n" +
		"unpaid after 30 minutes; a reminder comes 10 minutes before. Paying stops both.",
	Scale:    600,   // a millisecond, about as late as a timer is, is less than a second of the story
	MaxScale: 18000, // half an hour in 100 ms, in which requests can be answered
	Serves:   true,
	Play:     run,
}

func run(ctx context.Context, d *story.Diary, addr string) error {
	tw := timingwheel.New()
	s := &market{Diary: d, customers: customers()}
	shop := newOrders(tw, d.Real(payWithin), d.Real(remindBefore), goods(), s.reminded, s.cancelled)
	err := d.Serve(ctx, addr, handler(shop), s.play)
	pending := tw.Len()
	// The timers after the requests, which arm them.
	if err := errors.Join(err, story.Within(tw.Shutdown)); err != nil {
		return err
	}
	d.Printf("the shop closes, %d timers were pending", pending)
	if addr != "" {
		return nil
	}
	if err := judge(s.customers, shop.stock, pending, d.Clock); err != nil {
		return err
	}
	d.Printf("all is well: every order was either paid or cancelled, nothing came early, and the stock adds up")
	return nil
}

var codes = story.Codes{
	errNoItem: http.StatusNotFound, errNoOrder: http.StatusNotFound,
	errPaid: http.StatusConflict, errOutOfStock: http.StatusConflict, errCancelled: http.StatusGone,
}

// handler is the shop's face to the network. It keeps no state.
func handler(s *orders) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", story.Handle(codes, func(_ *http.Request, in details) (details, error) {
		return s.place(in.Customer, in.Item, in.Quantity)
	}))
	mux.Handle("GET /orders/{id}", story.Handle(codes, func(r *http.Request, _ any) (details, error) {
		return s.get(story.ID(r))
	}))
	mux.Handle("POST /orders/{id}/payment", story.Handle(codes, func(r *http.Request, _ any) (details, error) {
		return s.pay(story.ID(r))
	}))
	mux.Handle("GET /stock/{item}", story.Handle(codes, func(r *http.Request, _ any) (int, error) {
		return s.inStock(r.PathValue("item")), nil
	}))
	return mux
}
