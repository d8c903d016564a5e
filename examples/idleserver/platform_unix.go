//go:build unix

package main

import (
	"syscall"
	"time"
)

// fileLimit returns how many files this process may have open. It is the hard
// limit as a rule, as package os raises the soft one when a program starts.
func fileLimit() (n uint64, known bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(limit.Cur), true // signed on some systems; "unlimited" is huge either way
}

// cpuTime returns the CPU time this process has used, user and system.
func cpuTime() (used time.Duration, known bool) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}
