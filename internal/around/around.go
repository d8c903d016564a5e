// Package around lets packages of this module stand around the callbacks of a wheel.
package around

// Set has a *timingwheel.TimingWheel, which must not be in use yet, call its callbacks by
// call, which gets the name of each function and has to call it. Package timingwheel sets
// it.
var Set func(tw any, call func(name string, f func()))
