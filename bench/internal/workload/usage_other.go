//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package workload

// processUsage returns false: on this platform the standard library cannot tell, and the workloads
// leave out the metrics of CPU.
func processUsage() (usage, bool) { return usage{}, false }
