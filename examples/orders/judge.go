package main

import (
	"errors"
	"fmt"
	"time"
)

// judge says what is wrong with the outcome, if anything is. It asks for nothing that a
// machine with better things to do could not keep: on such a one a payment may come
// later than the story says, but nothing may come early, and none may be lost or come
// twice.
func judge(records map[int]*record, stock map[string]int, payWithin, remindBefore time.Duration) error {
	var errs []error
	reminders, left := 0, goods()
	for id, r := range records {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("order %d of %s %s", id, r.Customer, fmt.Sprintf(format, args...)))
		}
		reminders += len(r.reminders)
		left[r.Item] -= r.Quantity * r.accepted

		if n := r.accepted + len(r.cancellations); n != 1 {
			wrong("was paid or cancelled %d times", n)
		}
		if !r.refused.IsZero() && len(r.cancellations) == 0 {
			wrong("was refused a payment, but not cancelled")
		}
		if len(r.reminders) > 1 {
			wrong("was reminded of %d times", len(r.reminders))
		}
		for _, at := range r.cancellations {
			if early := r.placing.Add(payWithin).Sub(at); early > 0 {
				wrong("was cancelled %v early", early)
			}
		}
		for _, at := range r.reminders {
			if early := r.placing.Add(payWithin - remindBefore).Sub(at); early > 0 {
				wrong("was reminded of %v early", early)
			}
			if r.accepted > 0 && r.paid.Before(r.placing.Add(payWithin-remindBefore)) {
				wrong("was reminded of when it was paid")
			}
		}
	}
	if reminders == 0 {
		errs = append(errs, errors.New("nobody was reminded"))
	}
	for item, want := range left {
		if stock[item] != want {
			errs = append(errs, fmt.Errorf("of %s there are %d in stock instead of %d", item, stock[item], want))
		}
	}
	return errors.Join(errs...)
}
