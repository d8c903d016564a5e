// Package survive lets packages of this module have timers that outlive their wheel,
// without making that part of the exported API: there a stopped wheel drops its timers,
// and Drain hands them back.
package survive

// Mark makes a *timingwheel.Timer that Init has prepared survive its wheel: if that is
// stopped while the Timer is pending, package time makes the call at the deadline.
// Nobody else may use the Timer yet. Package timingwheel sets it.
var Mark func(timer any)
