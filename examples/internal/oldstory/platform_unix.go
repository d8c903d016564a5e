//go:build unix

package oldstory

import (
	"syscall"
	"time"
)

func init() {
	CPUTime = func() time.Duration {
		var usage syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
			return 0
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	FileLimit = func() int {
		var limit syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
			return maxFiles
		}
		return int(min(uint64(limit.Cur), maxFiles)) // Cur is signed on some systems
	}
}
