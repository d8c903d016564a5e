package jobqueue

import (
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue/store/pebblestore"
)

// Open returns a Client of the store that is kept in the directory path, which is made if there is
// none. One process at a time can have it open; others get ErrLocked. A directory that a newer
// version has written gives ErrNewer, and one that is damaged so that it cannot be opened
// ErrCorrupt.
//
// Jobs that were being worked on when the directory was last in use are ready again at once, with
// their attempts counted.
//
// If writing to the disk fails, calls return ErrFailed from then on. Those that were under way
// return ErrUnknown too: nothing takes back what they wrote, so what they asked for may turn out to
// be done. After the cause is removed the directory can be opened again, without a restart of the
// process. An Add with a key can then be repeated: while the first job is live, none is added.
func Open(path string, opts ...Option) (*Client, error) {
	set := defaultSettings()
	for _, opt := range opts {
		opt(&set)
	}
	how := []pebblestore.Option{pebblestore.WithLogger(set.log)}
	if set.syncEvery > 0 {
		how = append(how, pebblestore.WithSyncEvery(set.syncEvery))
	}
	s, err := pebblestore.Open(path, how...)
	if err != nil {
		return nil, err
	}
	return New(s, opts...), nil
}

// WithSyncEvery has Open sync the file at most once in d, so that one sync stands for more calls. A
// power loss then costs what was done in the last d; kill -9 costs nothing all the same. By default
// each call is synced before it returns.
func WithSyncEvery(d time.Duration) Option {
	if d <= 0 {
		panic("jobqueue: WithSyncEvery of a duration that is not positive")
	}
	return func(s *settings) { s.syncEvery = d }
}
