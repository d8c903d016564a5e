// Orders is a shop that takes orders over HTTP and cancels those that are not paid within 30
// minutes. The timer of an order is a job in a file. The program is the customers: it starts the
// shop as another process, kills it twice with kill -9 in the middle of its work, and starts it
// again on the same files. Then it checks that every order is paid or was cancelled at its minute,
// and not before.
//
//	go run ./examples/orders               an hour in six seconds
//	go run ./examples/orders -scale 150    the same in half a minute
//
// File orders.go is the part to copy; book.go stands for its database.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

const (
	payWithin = 30 * time.Minute
	customers = 600              // each orders something
	open      = 30 * time.Minute // for so long they order
	dark      = 3 * time.Minute  // between a kill and the new start
)

// kills are when the shop dies: while orders come in, and while they expire.
var kills = []time.Duration{20 * time.Minute, 40 * time.Minute}

func main() {
	story.Program{
		Scale:   600, // a minute in 100 ms
		Opening: time.Date(2027, time.March, 1, 9, 0, 0, 0, time.UTC),
		Play:    play,
		Child:   keepShop,
		Passed: "every order was paid or cancelled, none was lost,\n" +
			"and none was cancelled before its minute",
	}.Main()
}

// keepShop is the other process. It gets a folder and the time in which to pay.
func keepShop(ctx context.Context, args []string) error {
	within, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	jobs, err := jobqueue.Open(filepath.Join(args[0], "jobs"))
	if err != nil {
		return err
	}
	book, err := openBook(filepath.Join(args[0], "orders.json"))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newShop(jobs, book, within).handler()}
	go server.Serve(ln)
	fmt.Println("http://" + ln.Addr().String())
	err = jobs.Run(ctx)
	return errors.Join(err, server.Close(), jobs.Close(), book.close())
}

// A night is a time in which the shop is dead.
type night struct{ from, to time.Time }

func play(r *story.Run) {
	folder, door := r.Folder(), &door{}
	start := func() *story.Child {
		shop := story.Start(folder, r.Real(payWithin).String())
		door.url.Store(shop.Said())
		return shop
	}
	shop := start()
	r.Printf("the shop opens; %d customers will order within half an hour", customers)

	var visits [customers]visit
	var running sync.WaitGroup
	for i := range visits {
		running.Go(func() { visits[i] = customer(r, door, i) })
	}
	var nights []night
	for _, at := range kills {
		r.Until(at)
		now := states(door.orders())
		shop.Kill()
		from := time.Now()
		door.url.Store("")
		r.Printf("kill -9: %s", now)
		r.Until(at + dark)
		again := time.Now()
		shop = start()
		to := time.Now()
		nights = append(nights, night{from, to})
		r.Printf("open again, after %v:\n%s", to.Sub(again).Round(time.Millisecond),
			states(door.orders()))
	}
	r.Until(open + payWithin)
	running.Wait()
	var orders []order
	story.Must(r.Await(0, func() error {
		orders = door.orders()
		if n := count(orders)[unpaid]; n > 0 {
			return fmt.Errorf("%d orders are still unpaid", n)
		}
		return nil
	}))
	shop.End()
	door.client.CloseIdleConnections()
	judge(r, orders, visits[:], nights)
}

// judge checks what became of the orders.
func judge(r *story.Run, orders []order, visits []visit, nights []night) {
	var late []time.Duration
	overdue := 0
	known := make(map[string]order)
	for _, o := range orders {
		known[o.ID] = o
		if o.State != cancelled {
			continue
		}
		due := o.Expires
		r.Check(!o.Settled.Before(due), "order %s was cancelled %v early", o.ID,
			due.Sub(o.Settled))
		for _, n := range nights {
			if due.Before(n.to) && o.Settled.After(n.from) {
				due = n.to
				overdue++
			}
		}
		late = append(late, o.Settled.Sub(due))
	}
	for _, v := range visits {
		o, ok := known[v.id]
		r.Check(ok, "order %s is lost", v.id)
		r.Check(!ok || v.paid == (o.State == paid), "order %s, paid: %v, is %s", v.id, v.paid,
			o.State)
	}
	r.Printf("%s", states(orders))
	if extra := len(orders) - customers; extra > 0 {
		r.Printf("%d of them were taken as the shop died, which gave no answer", extra)
	}
	r.Printf("%d of them were cancelled later, as the shop was dead at their minute", overdue)
	r.Printf("cancelled after their minute, or after the shop had opened again, by\n%s",
		story.Percentiles(late))
}

func count(orders []order) map[string]int {
	n := make(map[string]int)
	for _, o := range orders {
		n[o.State]++
	}
	return n
}

func states(orders []order) string {
	n := count(orders)
	return fmt.Sprintf("%d orders: %d unpaid, %d paid, %d cancelled", len(orders),
		n[unpaid], n[paid], n[cancelled])
}
