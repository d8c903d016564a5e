//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package bench

// processUsage returns false: the standard library does not tell on this platform,
// and the metrics of CPU are left out.
func processUsage() (usage, bool) { return usage{}, false }
