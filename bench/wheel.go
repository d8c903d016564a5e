package bench

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// Wheel is this library with a goroutine for each callback, its default.
var Wheel = Impl{"wheel", func() Instance { return ofWheel(timingwheel.New()) }}

// Inline is this library with callbacks on the driver.
var Inline = Impl{"inline", func() Instance { return ofWheel(timingwheel.New(timingwheel.WithInline())) }}

// Time is package time.
var Time = Impl{"time", func() Instance {
	return Instance{
		Start: func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) },
		New: func(f func()) Timer {
			t := time.AfterFunc(time.Hour, f)
			t.Stop()
			return t
		},
		Close: func() {},
	}
}}

func ofWheel(tw *timingwheel.TimingWheel) Instance {
	return Instance{
		Start: func(d time.Duration, f func()) Timer { return tw.AfterFunc(d, f) },
		New: func(f func()) Timer {
			t := new(timingwheel.Timer)
			tw.Init(t, f)
			return t
		},
		Close: tw.Stop,
	}
}
