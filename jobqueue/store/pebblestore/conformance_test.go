package pebblestore_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/pebblestore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/storetest"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/storetest/history"
)

var config = storetest.Config{
	Open: func(dir string, clock *storetest.Clock) (store.Store, error) {
		s, err := pebblestore.Open(dir, pebblestore.WithClock(clock.Now, clock.Elapsed),
			pebblestore.WithLogger(slog.New(slog.DiscardHandler)))
		return verified{s, dir}, err
	},
	Durable: true,
	Steps:   true,
}

// A verified store has its files verified whenever it is closed.
type verified struct {
	*pebblestore.Store
	dir string
}

func (v verified) Close() error {
	if err := v.Store.Close(); err != nil {
		return err
	}
	r, err := pebblestore.Verify(v.dir)
	if err == nil && len(r.Problems) > 0 {
		err = fmt.Errorf("problems: %q", r.Problems)
	}
	return err
}

func TestStore(t *testing.T) { storetest.Run(t, config) }

func TestConcurrent(t *testing.T) { storetest.Concurrent(t, config) }

func FuzzStore(f *testing.F) { storetest.Fuzz(f, config) }

func TestKill(t *testing.T) {
	history.Kill(t, func(path string) (*jobqueue.Client, error) {
		return jobqueue.Open(path, jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
	}, 5)
}
