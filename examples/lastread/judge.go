package main

import (
	"errors"
	"fmt"
	"time"
)

// judge says what is wrong with the outcome, if anything is. A digest has to follow the
// last read, and may follow others after which the reader stayed away for long enough,
// as far as he can tell from his side. So it asks for nothing that a machine with better
// things to do could not keep.
func judge(records map[string]*record, quiet time.Duration) error {
	var errs []error
	for reader, r := range records {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s %s", reader, fmt.Sprintf(format, args...)))
		}
		if len(r.reads) == 0 {
			wrong("had a digest and never read")
			continue
		}
		least, most := 0, 0
		for i, read := range r.reads[1:] {
			if read.after.Sub(r.reads[i].before) >= quiet {
				most++
			}
		}
		last := r.reads[len(r.reads)-1]
		switch {
		case r.listed > 0:
		case r.left.IsZero():
			least, most = 1, most+1
		case r.left.Sub(last.before) >= quiet:
			most++
		}
		n := len(r.digests)
		if n < least || n > most {
			wrong("had %d digests, not %d to %d", n, least, most)
		}
		if r.listed > 1 {
			wrong("was listed %d times", r.listed)
		}
		if n == 0 {
			continue
		}
		if early := r.reads[0].before.Add(quiet).Sub(r.digests[0]); early > 0 {
			wrong("had a digest %v early", early)
		}
		if early := last.before.Add(quiet).Sub(r.digests[n-1]); early > 0 && least == 1 {
			wrong("had the last digest %v early", early)
		}
	}
	return errors.Join(errs...)
}
