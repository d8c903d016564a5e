//go:build !unix

package story

import "time"

// CPUTime returns 0: what this process has used is not known here.
func CPUTime() time.Duration { return 0 }
