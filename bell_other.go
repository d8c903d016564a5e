//go:build !linux

package timingwheel

import "time"

// newPreciseBell returns nil: the platform has nothing better than package time.
func newPreciseBell(time.Duration, func()) bell { return nil }
