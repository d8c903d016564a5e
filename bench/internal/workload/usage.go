package workload

import "time"

// A usage is what the process has used since it began. Taking it costs a system call, so it
// brackets whole phases and never a single call.
type usage struct {
	cpu      time.Duration // user and system time of all threads
	switches int64         // times that a thread gave up its processor to wait
}

func (u usage) since(v usage) usage {
	return usage{u.cpu - v.cpu, u.switches - v.switches}
}
