package redisstore_test

import (
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/storetest"
)

// config returns a Config of stores on the shared server.
func config(t testing.TB, opts ...redisstore.Option) storetest.Config {
	client := sharedClient(t)
	return storetest.Config{
		IDsByQueue: true,
		Open: func(dir string, clock *storetest.Clock) (store.Store, error) {
			all := append([]redisstore.Option{
				redisstore.WithClock(clock.Now), redisstore.WithPrefix(prefixOf(dir)),
			}, opts...)
			return redisstore.New(client, all...), nil
		},
	}
}

var onceClient sync.Once
var theClient *redis.Client

func sharedClient(t testing.TB) *redis.Client {
	addr := sharedServer(t).addr
	onceClient.Do(func() { theClient = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 50}) })
	return theClient
}

func TestStore(t *testing.T) { storetest.Run(t, config(t)) }

func TestConcurrent(t *testing.T) { storetest.Concurrent(t, config(t)) }

func FuzzStore(f *testing.F) { storetest.Fuzz(f, config(f)) }
