package bench

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// openAsynq returns asynq on a redis-server of its own, with its intervals: between two looks for
// jobs that have come due, and between two for jobs to work on. 0 stands for the default.
func openAsynq(delayed, ready time.Duration) opener {
	return func(b testing.TB, handle func(int)) func(int, time.Time) error {
		redis := asynq.RedisClientOpt{Addr: startRedis(b)}
		server := asynq.NewServer(redis, asynq.Config{
			Concurrency:              workers,
			DelayedTaskCheckInterval: delayed,
			TaskCheckInterval:        ready,
			LogLevel:                 asynq.FatalLevel,
		})
		check(b, server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			return handleBody(handle, t.Payload())
		})))
		client := asynq.NewClient(redis)
		b.Cleanup(func() { server.Shutdown(); check(b, client.Close()) })
		return func(job int, due time.Time) error {
			_, err := client.Enqueue(asynq.NewTask(queue, body(job)), asynq.ProcessAt(due))
			return err
		}
	}
}
