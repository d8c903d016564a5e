package bench

import "time"

// Time is package time. All its instances are one: what a case leaves pending, the
// next pays for.
var Time = Impl{Name: "time", Open: func() Instance {
	return Instance{
		Start: func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) },
		New: func(f func()) Timer {
			t := time.AfterFunc(time.Hour, f) // it has no way to make one that is not armed
			t.Stop()
			return t
		},
		Close: func() {},
	}
}}
