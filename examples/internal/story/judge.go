package story

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// patience is how much longer than planned something may take before it must be wrong: a
// machine with better things to do makes a story late, but nothing early, lost or twice.
const patience = 30 * time.Second

// A Judge collects what is wrong with the outcome of a story.
type Judge struct{ faults []error }

// Check notes a fault unless ok.
func (j *Judge) Check(ok bool, format string, args ...any) {
	if !ok {
		j.faults = append(j.faults, fmt.Errorf(format, args...))
	}
}

// Err returns all faults as one error, or nil.
func (j *Judge) Err() error { return errors.Join(j.faults...) }

// Await calls done until it returns nil, and gives up with its last error.
func Await(ctx context.Context, planned time.Duration, done func() error) error {
	for end := time.Now().Add(planned + patience); ; {
		err := done()
		if err == nil || time.Now().After(end) {
			return err
		}
		if ended := Sleep(ctx, 5*time.Millisecond); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// Together calls f for 0 to n-1 at the same time and returns all errors.
func Together(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}
