package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
)

// Any number of processes do this. An order that is not paid within half an hour expires in one of
// them.
func Example() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}})
	defer client.Close()
	q := jobqueue.New(redisstore.New(client))
	defer q.Close()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q.Handle("orders/expire", func(_ context.Context, job *jobqueue.Job) error {
		fmt.Println("expired:", job.Key)
		stop()
		return nil
	})
	_, err := q.Add(ctx, "orders/expire", nil,
		jobqueue.Key("order-17"), jobqueue.In(30*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	if err := q.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
