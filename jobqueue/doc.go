// Package jobqueue keeps jobs for later, durably, and delivers them when they are due: to the
// millisecond, at least once, and without a server.
//
//	q := jobqueue.NewMemory() // or jobqueue.Open("orders.db"), which survives a crash
//	q.Handle("orders/expire", func(ctx context.Context, job *jobqueue.Job) error {
//		return expire(ctx, string(job.Body))
//	})
//	go q.Run(ctx) // until ctx ends; handlers that run finish
//
//	order := jobqueue.ByKey("order-17")
//	id, err := q.Add(ctx, "orders/expire", []byte("17"),
//		jobqueue.In(30*time.Minute), jobqueue.Key("order-17"))
//	err = q.Reschedule(ctx, "orders/expire", order, time.Hour) // not in half an hour
//	err = q.Cancel(ctx, "orders/expire", order)                // nil: no delivery begins any more
package jobqueue
