// Orders is a shop. An order takes its goods from the stock at once. If it is not paid, the
// customer is reminded after 20 minutes; after 30 the order is cancelled and the goods return to
// the stock. A payment stops both timers. The program plays half an hour in which some customers
// pay at the very last moment, and checks the outcome of every order and the stock.
//
//	go run ./examples/orders              half an hour in three seconds
//	go run ./examples/orders -scale 60    the same in thirty
//
// File orders.go is the part to copy.
package main

import (
	"fmt"
	"maps"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	payWithin    = 30 * time.Minute
	remindBefore = 10 * time.Minute
	latecomers   = 40 // who pay at the last moment, 0.1 ms apart, so that some are in time
)

var goods = map[string]int{"mug": 5, "lamp": 3, "poster": 100}

func main() {
	story.Program{
		Name: "orders",
		About: "Orders is a shop that cancels an order, and returns its goods to the stock, if\n" +
			"it is unpaid after 30 minutes. It reminds the customer 10 minutes before.",
		Passed: "every order was either paid or cancelled,\n" +
			"nothing came early, and the stock adds up",
		Scale: 600, // a timer is about a millisecond late: less than a second of the story
		Play:  play,
	}.Main()
}

func play(r *story.Run) {
	tw := timingwheel.New()
	s := &shop{
		tw: tw, payWithin: r.Real(payWithin), remindBefore: r.Real(remindBefore),
		stock: maps.Clone(goods), orders: make(map[int]*order),
		tell: func(event string, d details) {
			r.See(time.Now(), "order %d is %s", d.ID, event)
			tell(r, d, "is "+event)
		},
	}
	r.Printf("%d latecomers, who are not listed, order a poster each", latecomers)
	story.Together(latecomers+3, func(i int) {
		switch i {
		case 0:
			visit(r, s, "ada", "mug", 2, r.Real(5*time.Minute))
		case 1:
			visit(r, s, "ben", "lamp", 1, r.Real(25*time.Minute))
		case 2:
			visit(r, s, "cleo", "mug", 3, r.Real(32*time.Minute))
		default:
			last := s.payWithin + time.Duration(i-latecomers/2)*100*time.Microsecond
			visit(r, s, fmt.Sprint("latecomer ", i), "poster", 1, last)
		}
	})
	pending := tw.Len()
	r.Check(pending == 0, "%d timers are pending although no order is unpaid", pending)
	story.Within(tw.Shutdown)
	left, inTime := maps.Clone(goods), 0
	for _, o := range s.orders {
		if o.State == "paid" {
			left[o.Item] -= o.Quantity
			if o.Item == "poster" {
				inTime++
			}
		}
	}
	r.Printf("%d of the %d latecomers were in time", inTime, latecomers)
	r.Printf("the shop closes, %d timers are pending", pending)
	r.Check(maps.Equal(s.stock, left), "in stock are %v, want %v", s.stock, left)
}

// visit orders something, pays after a while, and says what the shop must have done by then.
func visit(r *story.Run, s *shop, name, item string, quantity int, pays time.Duration) {
	placing := time.Now()
	d, err := s.place(name, item, quantity)
	story.Must(err)
	tell(r, d, fmt.Sprintf("takes %d x %s", quantity, item))
	time.Sleep(time.Until(placing.Add(pays)))
	cancelled := 0
	if d, err = s.pay(d.ID); err == nil {
		tell(r, d, "is paid")
	} else {
		tell(r, d, "is not paid: "+err.Error())
		cancelled = 1
	}
	// On a busy machine a payment may be late. No timer may be early.
	reminded, reminder := 1, placing.Add(s.payWithin-s.remindBefore)
	if time.Now().Before(reminder) {
		reminded = 0
	}
	r.Want(0, reminded, reminder, "order %d is reminded", d.ID)
	r.Want(cancelled, cancelled, placing.Add(s.payWithin), "order %d is cancelled", d.ID)
}

// tell prints what happens to an order, unless it is one of the many posters.
func tell(r *story.Run, d details, what string) {
	if d.Item != "poster" {
		r.Printf("order %d of %s %s", d.ID, d.Customer, what)
	}
}
