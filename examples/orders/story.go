package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// This file plays the story, in which customers talk to the shop over HTTP, and judges
// it.

// latecomers is how many customers pay when their time is over. One of them alone would
// nearly always be too late or in time; of forty, a tenth of a millisecond apart, some
// meet the cancellation.
const latecomers = 40

// A customer makes one order and pays for it some time later. What happens to it is noted
// at instants of the machine.
type customer struct {
	item     string
	quantity int
	pays     time.Duration // so long after ordering
	late     time.Duration // and a moment that is not scaled
	quiet    bool          // one of the latecomers, of whom there are too many to tell

	placing, paid       time.Time // zero: not paid, but told that it was too late
	reminded, cancelled []time.Time
}

func customers() map[string]*customer {
	all := map[string]*customer{
		"ada":  {item: "mug", quantity: 2, pays: 5 * time.Minute},
		"ben":  {item: "lamp", quantity: 1, pays: 25 * time.Minute},
		"cleo": {item: "mug", quantity: 3, pays: 32 * time.Minute},
	}
	for i := range latecomers {
		all[fmt.Sprintf("late-%d", i+1)] = &customer{item: "poster", quantity: 1, pays: payWithin, late: time.Duration(i) * 100 * time.Microsecond, quiet: true}
	}
	return all
}

// A market is all of them; mu guards what is noted.
type market struct {
	*story.Diary
	mu        sync.Mutex
	customers map[string]*customer
}

func (m *market) note(name string, change func(*customer), format string, args ...any) {
	c := m.customers[name]
	if c == nil { // somebody by hand
		c = &customer{}
	}
	m.mu.Lock()
	change(c)
	m.mu.Unlock()
	if !c.quiet {
		m.Printf(format, args...)
	}
}

func (m *market) reminded(d details) {
	m.note(d.Customer, func(c *customer) { c.reminded = append(c.reminded, time.Now()) },
		"the shop reminds %s: order %d is unpaid, 10 minutes left", d.Customer, d.ID)
}

func (m *market) cancelled(d details) {
	m.note(d.Customer, func(c *customer) { c.cancelled = append(c.cancelled, time.Now()) },
		"the shop cancels order %d of %s: %d x %s back in stock", d.ID, d.Customer, d.Quantity, d.Item)
}

func (m *market) play(ctx context.Context, shop *story.Client) error {
	var names []string
	for name := range m.customers {
		names = append(names, name)
	}
	m.Printf("among others, %d customers order a poster each, and none of them is in a hurry to pay", latecomers)
	err := story.Together(len(names), func(i int) error { return m.visit(ctx, shop, names[i]) })
	inTime := 0
	for _, c := range m.customers {
		if c.quiet && !c.paid.IsZero() {
			inTime++
		}
	}
	m.Printf("of the %d who paid at the last moment %d were in time, %d were too late", latecomers, inTime, latecomers-inTime)
	return err
}

func (m *market) visit(ctx context.Context, shop *story.Client, name string) error {
	c := m.customers[name]
	placing := time.Now()
	var d details
	if err := shop.Call(ctx, http.MethodPost, "/orders", details{Customer: name, Item: c.item, Quantity: c.quantity}, &d); err != nil {
		return err
	}
	m.note(name, func(c *customer) { c.placing = placing }, "%s orders %d x %s: order %d", name, c.quantity, c.item, d.ID)
	if err := story.Sleep(ctx, time.Until(placing.Add(m.Real(c.pays)+c.late))); err != nil {
		return err
	}
	err := shop.Call(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/payment", d.ID), nil, &d)
	if story.Refused(err, http.StatusGone) {
		m.note(name, func(*customer) {}, "%s pays order %d and is told: too late, it was cancelled", name, d.ID)
		return nil
	} else if err == nil {
		m.note(name, func(c *customer) { c.paid = time.Now() }, "%s pays order %d", name, d.ID)
	}
	return err
}

// judge says what is wrong with the outcome, if anything is. A machine with better
// things to do may make a payment late, which is no fault.
func judge(customers map[string]*customer, stock map[string]int, pending int, clock *story.Clock) error {
	var j story.Judge
	left := goods()
	remindAfter := clock.Real(payWithin) - clock.Real(remindBefore)
	for name, c := range customers {
		payments := 0
		if !c.paid.IsZero() {
			payments = 1
			left[c.item] -= c.quantity
		}
		j.Check(payments+len(c.cancelled) == 1, "%s paid %d times and was cancelled %d times", name, payments, len(c.cancelled))
		j.Check(len(c.reminded) <= 1, "%s was reminded %d times", name, len(c.reminded))
		for _, at := range c.cancelled {
			early := c.placing.Add(clock.Real(payWithin)).Sub(at)
			j.Check(early <= 0, "%s was cancelled %v early", name, early)
		}
		for _, at := range c.reminded {
			early := c.placing.Add(remindAfter).Sub(at)
			j.Check(early <= 0, "%s was reminded %v early", name, early)
			j.Check(payments == 0 || c.paid.Sub(c.placing) >= remindAfter, "%s was reminded after paying", name)
		}
	}
	for item, want := range left {
		j.Check(stock[item] == want, "of %s there are %d in stock instead of %d", item, stock[item], want)
	}
	j.Check(pending == 0, "%d timers are pending when all orders are paid or cancelled", pending)
	return j.Err()
}
