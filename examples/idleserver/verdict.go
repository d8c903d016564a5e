package main

import (
	"slices"
	"time"
)

// A record is what is known of a connection when all is over. Instants are
// durations since the server started, 0 for what did not happen.
type record struct {
	lastTouch time.Duration // just before the Reset of its last arming
	fired     time.Duration // the timer's callback began
	ended     time.Duration // the server had done with it
	lost      bool          // a touch was told that the timer had fired
	talking   bool          // the client had not fallen silent
}

// A verdict is what became of the connections. Each that was opened counts as
// exactly one of closed, early, forgotten and remaining.
type verdict struct {
	opened    int
	closed    int // by its timer, at or after the deadline
	early     int // by its timer, before the deadline
	forgotten int // not by its timer, although idle, or unreasonably late
	remaining int // open at the end, and rightly so

	// delayed are those of closed whose client meant to go on talking: the
	// machine, not the client, let the idle timeout pass.
	delayed int

	lateness []time.Duration // of those closed by their timer, sorted
}

func (v verdict) ok() bool { return v.early == 0 && v.forgotten == 0 }

// judge compares every connection with what the wheel promises: closed not a
// nanosecond before its last touch is idle ago, and closed at all within
// forgottenAfter from there.
//
// Differences are taken in an order that cannot overflow, however long idle is.
func judge(records []record, idle, forgottenAfter time.Duration) verdict {
	v := verdict{opened: len(records)}
	for _, r := range records {
		if r.fired == 0 {
			// A touch that lost must have lost to something.
			if r.lost || r.ended-r.lastTouch-idle > forgottenAfter {
				v.forgotten++
			} else {
				v.remaining++
			}
			continue
		}
		late := r.fired - r.lastTouch - idle
		v.lateness = append(v.lateness, late)
		switch {
		case late < 0:
			v.early++
		case late > forgottenAfter:
			v.forgotten++
		default:
			v.closed++
			if r.talking {
				v.delayed++
			}
		}
	}
	slices.Sort(v.lateness)
	return v
}

// quantile returns the element of sorted, which is not empty, below which the
// fraction q of them lies.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(q * float64(len(sorted)))
	return sorted[min(i, len(sorted)-1)]
}
