// Package inspect lets the programs of this module that draw a wheel look into
// it, without making its inside part of the exported API.
package inspect

import "time"

// A Level is a picture of one wheel of the hierarchy, the lowest first.
type Level struct {
	Tick  time.Duration // duration of a slot
	Now   time.Duration // the wheel's current time, since the wheel was made
	Size  int           // slots
	Slots []Slot        // those that hold timers, by expiration
}

// A Slot is a picture of one bucket.
type Slot struct {
	Index      int
	Expiration time.Duration // since the wheel was made
	Timers     int           // counted up to CountLimit
}

// CountLimit is how many timers of a slot are counted at most, so that looking
// stays cheap whatever the slot holds.
const CountLimit = 1000

// Levels takes the picture of a *timingwheel.TimingWheel. Package timingwheel
// sets it.
var Levels func(tw any) []Level
