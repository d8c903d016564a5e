package bench

import (
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// impl is an implementation of timers under test, as a table of functions, so
// that each runs the identical load.
type impl struct {
	name string
	// open makes an instance; everything else works on it.
	open func() instance
}

type instance struct {
	// start arms a new timer, and returns what stops it.
	start func(d time.Duration, f func()) stopper
	// timer makes a timer that is armed by reset alone.
	timer func(f func()) resetter
	close func()
}

// stopper and resetter are met by *time.Timer and *timingwheel.Timer alike, and
// cost both the same call through an interface.
type stopper interface{ Stop() bool }

type resetter interface {
	stopper
	Reset(time.Duration) bool
}

var impls = []impl{
	{"wheel", func() instance { return wheel(timingwheel.New()) }},
	{"inline", func() instance { return wheel(timingwheel.New(timingwheel.WithInline())) }},
	{"time", func() instance {
		return instance{
			start: func(d time.Duration, f func()) stopper { return time.AfterFunc(d, f) },
			timer: func(f func()) resetter {
				t := time.AfterFunc(time.Hour, f)
				t.Stop()
				return t
			},
			close: func() {},
		}
	}},
}

func wheel(tw *timingwheel.TimingWheel) instance {
	return instance{
		start: func(d time.Duration, f func()) stopper { return tw.AfterFunc(d, f) },
		timer: func(f func()) resetter {
			t := new(timingwheel.Timer)
			tw.Init(t, f)
			return t
		},
		close: tw.Stop,
	}
}
