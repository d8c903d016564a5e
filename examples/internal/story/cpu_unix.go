//go:build unix

package story

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time this process has used, user and system, 0 if that is not
// known.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
