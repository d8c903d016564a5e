package bench

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// Wheel is this library with a goroutine for each callback, its default.
var Wheel = Impl{Name: "wheel", Open: func() Instance { return ofWheel(timingwheel.New()) }}

// Inline is this library with callbacks on the driver.
var Inline = Impl{Name: "inline", Open: func() Instance { return ofWheel(timingwheel.New(timingwheel.WithInline())) }}

// fineTick is so short that what is left of the lateness is the wake-up's.
const fineTick = 100 * time.Microsecond

// Precise is this library for those who pay for punctuality: a fine tick, and on
// Linux wake-ups that keep up with it.
var Precise = Impl{Name: "precise", Only: punctual.Name, Open: func() Instance {
	return ofWheel(timingwheel.New(timingwheel.WithTick(fineTick), timingwheel.WithPreciseWakeup()))
}}

// Fine is Precise without the wake-ups: what the tick does by itself.
var Fine = Impl{Name: "fine", Only: punctual.Name, Open: func() Instance {
	return ofWheel(timingwheel.New(timingwheel.WithTick(fineTick)))
}}

func ofWheel(tw *timingwheel.TimingWheel) Instance {
	return Instance{
		Start: func(d time.Duration, f func()) Timer { return tw.AfterFunc(d, f) },
		New: func(f func()) Timer {
			t := new(timingwheel.Timer)
			tw.Init(t, f)
			return t
		},
		Close: tw.Stop, // what is still pending is dropped
		Stats: tw.Stats,
	}
}
