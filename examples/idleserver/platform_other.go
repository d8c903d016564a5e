//go:build !unix

package main

import "time"

// fileLimit is not known here; what the system does not give is noticed when a
// connection cannot be opened.
func fileLimit() (n uint64, known bool) { return 0, false }

func cpuTime() (used time.Duration, known bool) { return 0, false }
