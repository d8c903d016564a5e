package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var config = storetest.Config{
	Open: func(_ string, clock *storetest.Clock) (store.Store, error) {
		return memory.New(memory.WithClock(clock.Now)), nil
	},
}

func TestStore(t *testing.T) { storetest.Run(t, config) }

func FuzzStore(f *testing.F) { storetest.Fuzz(f, config) }

func TestConcurrent(t *testing.T) { storetest.Concurrent(t, config) }
