package workload

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// Wheel is this library with its defaults: each callback runs on a goroutine of its own.
var Wheel = Impl{Name: "wheel", Open: open()}

// Inline is this library with callbacks on the driver.
var Inline = Impl{Name: "inline", FiresOnly: true, Open: open(timingwheel.WithInline())}

// fineTick is so short that the wake-up causes most of the lateness that remains.
const fineTick = 100 * time.Microsecond

// Precise is this library with a fine tick and, on Linux, wake-ups that are as fine.
var Precise = Impl{
	Name: "precise", Only: Punctual.Name,
	Open: open(timingwheel.WithTick(fineTick), timingwheel.WithPreciseWakeup()),
}

// Fine is Precise without the wake-ups. It shows what the tick does alone.
var Fine = Impl{Name: "fine", Only: Punctual.Name, Open: open(timingwheel.WithTick(fineTick))}

func open(opts ...timingwheel.Option) func() Instance {
	return func() Instance {
		tw := timingwheel.New(opts...)
		return Instance{
			Start: func(d time.Duration, f func()) Timer { return tw.AfterFunc(d, f) },
			New: func(f func()) Timer {
				t := new(timingwheel.Timer)
				tw.Init(t, f)
				return t
			},
			Close: tw.Stop,
			Stats: tw.Stats,
		}
	}
}
