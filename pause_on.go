//go:build timingwheel_pause

package timingwheel

import "sync/atomic"

// The pause points, and who comes there:
//
//	rung            the alarm's goroutine, before it takes over
//	between pieces  the driver, in a round, with no lock
//	claiming        the driver, with a timer's word and callback read
//	claimed         the driver, after the word says idle
//	started         the driver, after each goroutine of a piece
//	settling        the driver, before it stores the shard's next
//	leaving         the driver, after its last look for work
//	resting         the driver, or Start, after it has looked at every next
//	touching        Reset, with the clock read
//	extending       Reset and ResetAt, between the load of the timer's word and the swap
//	rearming        Reset and ResetAt, before the shard's lock
//	filed           a caller that arms, with next stored, before it looks at armed
//	waking          a caller, between its two looks at armed
//	stopping        Timer.Stop, before the shard's lock
//	letting go      a caller that leaves a shard idle, with lookAt stored, before armed is read
//	halting         the wheel's Stop, between stopped and the alarm
//	swept           the wheel's Stop, after a timer's word says idle
//	returning       a callback's goroutine, between counting down and its look at stopped

// paused is called with the point that a goroutine has reached, on that goroutine. It is nil unless
// a test watches.
var paused atomic.Pointer[func(point string)]

func pause(point string) (none struct{}) {
	if f := paused.Load(); f != nil {
		(*f)(point)
	}
	return none
}
