package bench

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// Wheel is this library with a goroutine for each callback, its default.
var Wheel = Impl{"wheel", func() Instance { return ofWheel(timingwheel.New()) }}

// Inline is this library with callbacks on the driver.
var Inline = Impl{"inline", func() Instance { return ofWheel(timingwheel.New(timingwheel.WithInline())) }}

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
