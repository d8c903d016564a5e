package pebblestore_test

import (
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
		return pebblestore.Open(dir, pebblestore.WithClock(clock.Now, clock.Elapsed),
			pebblestore.WithLogger(slog.New(slog.DiscardHandler)))
	},
	Durable: true,
	Steps:   true,
}

func TestStore(t *testing.T) { storetest.Run(t, config) }

func TestConcurrent(t *testing.T) { storetest.Concurrent(t, config) }

func FuzzStore(f *testing.F) { storetest.Fuzz(f, config) }

func TestKill(t *testing.T) {
	history.Kill(t, func(path string) (*jobqueue.Client, error) {
		return jobqueue.Open(path, jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
	}, 5)
}
