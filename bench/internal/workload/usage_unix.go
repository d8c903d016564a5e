//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package workload

import (
	"syscall"
	"time"
)

// processUsage returns false if the platform cannot tell.
func processUsage() (usage, bool) {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return usage{}, false
	}
	return usage{time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), int64(ru.Nvcsw)}, true
}
