package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// judge says what is wrong with the outcome, if anything is. taken is how often a
// receiver took each notification. It is no fault if that is more than once, as an
// answer may have been too late.
func judge(records map[int]*record, taken map[string]int, policies map[string]policy) error {
	var errs []error
	for id, r := range records {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s %s", title(r.status), fmt.Sprintf(format, args...)))
		}
		p := policies[r.Policy]
		ends, before := r.listed, r.sending
		var last time.Time // when the attempt before ended
		for i, a := range r.results {
			gap, ok := p.gap(i)
			if early := before.Add(gap).Sub(a.began); early > 0 {
				wrong("was tried %v early, attempt %d", early, i+1)
			}
			if a.began.Before(last) {
				wrong("was tried twice at once, attempts %d and %d", i, i+1)
			}
			if !ok || a.Attempts != i+1 {
				wrong("was tried too often: attempt %d", a.Attempts)
			}
			before, last = a.began, a.ended
			if _, more := p.gap(i + 1); a.err == nil || !more {
				ends++
			}
		}
		got := listed
		if n := len(r.results); n == 0 {
			wrong("was never tried")
			continue
		} else if r.results[n-1].err == nil {
			got = delivered
		} else if r.listed == 0 {
			got = givenUp
		}
		if ends != 1 {
			wrong("ended %d times", ends)
		}
		if got != r.want {
			wrong("was %s instead of %s", got, r.want)
		}
		if got == delivered && taken[strconv.Itoa(id)] == 0 {
			wrong("was delivered, and nobody has taken it")
		}
	}
	return errors.Join(errs...)
}
