//go:build unix

package story

import (
	"syscall"
	"time"
)

func init() {
	CPUTime = func() string {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			return err.Error()
		}
		used := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		return used.Round(time.Millisecond).String()
	}
	FileLimit = func() int {
		var limit syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
			return maxFiles
		}
		return int(min(uint64(limit.Cur), maxFiles)) // Cur is signed on some systems
	}
}
