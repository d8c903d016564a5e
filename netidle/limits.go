package netidle

import (
	"math"
	"strconv"
	"time"
)

// This file holds the limits of a connection, the names of the reasons, and the arithmetic of
// both. It has no lock: Limits are values, and Conn.mu guards those of a Conn. check.go decides
// when a limit is reached, and httplimits.go sets the limits for each phase of HTTP.

// Limits bounds how long a connection may be idle and how long it may live. Zero means no limit.
// If several are set, the first one to be reached counts. Each has the name of its Reason, except
// that the Reason for Due is Overdue.
type Limits struct {
	ReadIdle  time.Duration // without a read
	WriteIdle time.Duration // without a write
	Idle      time.Duration // without a read or a write
	Lifetime  time.Duration // since NewConn or Accept, whatever happens

	// Due bounds how long these limits may be in force, whatever happens. It counts from NewConn,
	// Accept or the call of SetLimits that set it. Use it for a step that must end, such as a
	// handshake, a login or the header of a request. After the step, set other limits with
	// SetLimits.
	Due time.Duration

	// MinRate is a rate in bytes per second that keeps a peer from trickling. It extends Due by
	// the time that the bytes read since then take at this rate. Use it for a step of unknown
	// size: with a Due of 10 s and a MinRate of 500, at least 5000 bytes must have arrived after
	// 20 s. MinRate costs Read an atomic operation. If it is zero, Due is fixed. Without Due it
	// has no effect.
	MinRate int

	// Spread extends Lifetime by a random time below Spread, a different one for each connection,
	// so that connections made together are not closed together.
	Spread time.Duration
}

// Reason names the limit that a connection reached.
type Reason uint32

const (
	ReadIdle  Reason = iota + 1 // Limits.ReadIdle
	WriteIdle                   // Limits.WriteIdle
	Idle                        // Limits.Idle
	Lifetime                    // Limits.Lifetime
	Overdue                     // Limits.Due
)

// String returns "read idle", "write idle", "idle", "lifetime" or "overdue". For the zero Reason,
// which means that no limit was reached, it returns "none".
func (r Reason) String() string {
	names := [...]string{"none", "read idle", "write idle", "idle", "lifetime", "overdue"}
	if int(r) < len(names) {
		return names[r]
	}
	return "Reason(" + strconv.FormatUint(uint64(r), 10) + ")"
}

// reads and writes report whether the limit covers that direction.
func (r Reason) reads() bool  { return r != WriteIdle }
func (r Reason) writes() bool { return r != ReadIdle }

// check panics if a limit is negative.
func (l Limits) check() {
	checkLimit("ReadIdle", l.ReadIdle)
	checkLimit("WriteIdle", l.WriteIdle)
	checkLimit("Idle", l.Idle)
	checkLimit("Lifetime", l.Lifetime)
	checkLimit("Due", l.Due)
	checkLimit("Spread", l.Spread)
	checkRate("MinRate", l.MinRate)
}

func checkLimit(name string, limit time.Duration) {
	if limit < 0 {
		panic("netidle: negative " + name + " limit " + limit.String())
	}
}

func checkRate(name string, rate int) {
	if rate < 0 {
		panic("netidle: negative " + name + " " + strconv.Itoa(rate))
	}
}

// touches returns touchReads if a limit depends on reads, touchWrites if one depends on writes,
// and counted if one depends on the number of bytes read.
func (l Limits) touches() (bits uint32) {
	if l.ReadIdle > 0 || l.Idle > 0 {
		bits |= touchReads
	}
	if l.WriteIdle > 0 || l.Idle > 0 {
		bits |= touchWrites
	}
	if l.counts() {
		bits |= counted
	}
	return bits
}

// several reports whether these limits need more than one instant.
func (l Limits) several() bool {
	n := 0
	for _, limit := range [...]time.Duration{l.ReadIdle, l.WriteIdle, l.Idle, l.Due} {
		if limit > 0 {
			n++
		}
	}
	return n > 1 || l.counts()
}

// counts reports whether the bytes read have to be counted.
func (l Limits) counts() bool { return l.Due > 0 && l.MinRate > 0 }

// forever is the latest instant, and the longest limit: 292 years. It is never reached.
const forever = math.MaxInt64

// plus adds two instants or durations, which are not negative. The most it returns is forever.
func plus[T ~int64](a, b T) T { return a + min(b, forever-a) }

// atRate returns limit plus the time that n bytes take at rate, in bytes per second.
func atRate(limit time.Duration, n int64, rate int) time.Duration {
	granted := float64(n) / float64(rate) * float64(time.Second)
	if granted >= float64(forever-limit) {
		return forever
	}
	return limit + time.Duration(granted)
}
