package main

import (
	"errors"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is what a shop of your own would copy: orders that hold stock, and give
// it back if nobody pays for them. orders.mu guards the stock and the states of all
// orders. The timers need no guard, but what they do is decided under it.

type state string

const (
	unpaid    state = "unpaid"
	paid      state = "paid"
	cancelled state = "cancelled"
)

var (
	errNoItem     = errors.New("no such item")
	errQuantity   = errors.New("quantity must be at least 1")
	errOutOfStock = errors.New("out of stock")
	errNoOrder    = errors.New("no such order")
	errPaid       = errors.New("the order is paid already")
	errCancelled  = errors.New("the order was cancelled, as it was not paid in time")
)

// details is what the rest of the program may know of an order. It is handed out by
// value, which an order is not: a Timer must not be copied.
type details struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
	State    state  `json:"state"`
}

type order struct {
	details // its State is guarded by orders.mu, the rest is fixed

	reminder, expiry timingwheel.Timer
}

type orders struct {
	tw           *timingwheel.TimingWheel
	payWithin    time.Duration
	remindBefore time.Duration // before payWithin is over

	// Called without the lock, on goroutines of their own, so they may take their
	// time to write a mail.
	reminded, expired func(details)

	mu     sync.Mutex
	stock  map[string]int
	all    map[int]*order // also those that are paid or cancelled; a real shop has a database
	lastID int
}

// newOrders takes over the map stock.
func newOrders(tw *timingwheel.TimingWheel, payWithin, remindBefore time.Duration, stock map[string]int, reminded, expired func(details)) *orders {
	return &orders{
		tw: tw, payWithin: payWithin, remindBefore: remindBefore,
		reminded: reminded, expired: expired,
		stock: stock, all: make(map[int]*order),
	}
}

// place takes the stock and arms both timers. They live in this process only: a shop
// that is restarted reads its unpaid orders from the database and arms them with what
// is left of their time, which may be nothing, as Reset of a negative duration fires at
// once.
func (s *orders) place(customer, item string, quantity int) (details, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch left, known := s.stock[item]; {
	case !known:
		return details{}, errNoItem
	case quantity < 1:
		return details{}, errQuantity
	case left < quantity:
		return details{}, errOutOfStock
	}
	s.stock[item] -= quantity
	s.lastID++
	o := &order{details: details{ID: s.lastID, Customer: customer, Item: item, Quantity: quantity, State: unpaid}}
	s.all[o.ID] = o
	s.tw.Init(&o.reminder, func() { s.remind(o) })
	s.tw.Init(&o.expiry, func() { s.expire(o) })
	o.reminder.Reset(s.payWithin - s.remindBefore)
	o.expiry.Reset(s.payWithin)
	return o.details, nil
}

// pay stops both timers. At the last moment it meets expire:
//
//	driver         hands expire over to a goroutine of its own
//	pay            takes the lock, finds the order unpaid, makes it paid
//	pay            expiry.Stop returns false: too late, expire is on its way
//	expire         takes the lock, finds the order paid, and leaves it alone
//
// So whoever takes the lock first wins, and what Stop returns decides nothing: it
// saves the wheel the timers that nobody needs any more. To decide by it, paid if Stop
// returned true, would be right too for expire, but would turn away a customer whose
// order still holds its stock.
func (s *orders) pay(id int) (details, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.all[id]
	switch {
	case !known:
		return details{}, errNoOrder
	case o.State == paid:
		return o.details, errPaid
	case o.State == cancelled:
		return o.details, errCancelled
	}
	o.State = paid
	o.reminder.Stop()
	o.expiry.Stop()
	return o.details, nil
}

// remind is the callback of the reminder. Its mail is sent without the lock, so it may
// cross with a payment of the same moment, as letters do.
func (s *orders) remind(o *order) {
	s.mu.Lock()
	d := o.details
	s.mu.Unlock()
	if d.State == unpaid {
		s.reminded(d)
	}
}

// expire is the callback of the expiry.
func (s *orders) expire(o *order) {
	s.mu.Lock()
	if o.State != unpaid {
		s.mu.Unlock()
		return
	}
	o.State = cancelled
	s.stock[o.Item] += o.Quantity
	d := o.details
	s.mu.Unlock()
	s.expired(d)
}

func (s *orders) get(id int) (details, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.all[id]
	if !known {
		return details{}, errNoOrder
	}
	return o.details, nil
}

// inStock returns how many of the item can be ordered.
func (s *orders) inStock(item string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock[item]
}
