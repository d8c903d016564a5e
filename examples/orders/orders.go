package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is the part to copy: orders that hold stock, and return it if they are not paid in
// time.

var (
	errNoStock = errors.New("there are not that many in stock")
	errNoOrder = errors.New("no such order")
)

// details are the parts of an order that may be copied. The order itself contains Timers and must
// not be.
type details struct {
	ID       int
	Customer string
	Item     string
	Quantity int
	State    string // unpaid, paid or cancelled
}

type order struct {
	details          // shop.mu guards State; the rest does not change
	reminder, expiry timingwheel.Timer
}

// A shop reminds a customer of an unpaid order, and then cancels it.
type shop struct {
	tw                      *timingwheel.TimingWheel
	payWithin, remindBefore time.Duration
	tell                    func(event string, d details) // reminded, cancelled; without mu

	mu     sync.Mutex
	stock  map[string]int
	orders map[int]*order // of every state; a real shop has a database
}

// place takes the goods from the stock and arms both timers. They live in this process only: a shop
// that restarts reads its unpaid orders from the database and arms them with the time that is left.
// If that is negative, Reset fires at once.
func (s *shop) place(customer, item string, quantity int) (details, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if quantity < 1 || quantity > s.stock[item] {
		return details{}, errNoStock
	}
	s.stock[item] -= quantity
	o := &order{details: details{len(s.orders) + 1, customer, item, quantity, "unpaid"}}
	s.orders[o.ID] = o
	s.tw.Init(&o.reminder, func() { s.remind(o) })
	s.tw.Init(&o.expiry, func() { s.expire(o) })
	o.reminder.Reset(s.payWithin - s.remindBefore)
	o.expiry.Reset(s.payWithin)
	return o.details, nil
}

// pay stops both timers. At the last moment it may race with expire:
//
//	driver    hands expire over to a goroutine
//	pay       takes the lock, finds the order unpaid, marks it as paid
//	pay       calls expiry.Stop, which returns false because expire is on its way
//	expire    takes the lock, finds the order paid, leaves it alone
//
// The first to take the lock wins. The results of Stop do not matter; the calls only spare the
// wheel two timers that are no longer needed.
func (s *shop) pay(id int) (details, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[id]
	switch {
	case o == nil:
		return details{}, errNoOrder
	case o.State != "unpaid":
		return o.details, fmt.Errorf("the order is already %s", o.State)
	}
	o.State = "paid"
	o.reminder.Stop()
	o.expiry.Stop()
	return o.details, nil
}

// remind sends its mail without the lock, so the mail may cross with a payment.
func (s *shop) remind(o *order) {
	s.mu.Lock()
	d := o.details
	s.mu.Unlock()
	if d.State == "unpaid" {
		s.tell("reminded", d)
	}
}

func (s *shop) expire(o *order) {
	s.mu.Lock()
	if o.State != "unpaid" {
		s.mu.Unlock()
		return
	}
	o.State = "cancelled"
	s.stock[o.Item] += o.Quantity
	d := o.details
	s.mu.Unlock()
	s.tell("cancelled", d)
}
