package jobqueue

import (
	"context"
	"encoding/json"
	"fmt"
)

// A Typed is a queue whose bodies are values of a type. It is made by NewTyped.
//
//	orders := jobqueue.NewTyped[Order](client, "orders/expire")
//	orders.Handle(func(ctx context.Context, job *jobqueue.Job, order Order) error { ... })
//	id, err := orders.Add(ctx, Order{ID: 17}, jobqueue.In(30*time.Minute))
type Typed[T any] struct {
	Client    *Client
	Queue     string
	Marshal   func(T) ([]byte, error)
	Unmarshal func([]byte) (T, error)
}

// NewTyped returns a Typed queue with bodies in JSON. For another encoding set Marshal and
// Unmarshal before it is used.
func NewTyped[T any](c *Client, queue string) *Typed[T] {
	return &Typed[T]{
		Client:  c,
		Queue:   queue,
		Marshal: func(v T) ([]byte, error) { return json.Marshal(v) },
		Unmarshal: func(b []byte) (v T, err error) {
			err = json.Unmarshal(b, &v)
			return v, err
		},
	}
}

// Add is Client.Add.
func (q *Typed[T]) Add(ctx context.Context, v T, opts ...AddOption) (ID, error) {
	body, err := q.Marshal(v)
	if err != nil {
		return 0, failed("add to", q.Queue, err)
	}
	return q.Client.Add(ctx, q.Queue, body, opts...)
}

// AddMany is Client.AddMany. The options hold for every value.
func (q *Typed[T]) AddMany(ctx context.Context, values []T, opts ...AddOption) ([]ID, error) {
	items := make([]Item, len(values))
	for i, v := range values {
		body, err := q.Marshal(v)
		if err != nil {
			return nil, failed("add to", q.Queue, fmt.Errorf("value %d: %w", i, err))
		}
		items[i].Body = body
	}
	return q.Client.AddMany(ctx, q.Queue, items, opts...)
}

// UpdateBody is Client.UpdateBody.
func (q *Typed[T]) UpdateBody(ctx context.Context, ref Ref, v T) error {
	body, err := q.Marshal(v)
	if err != nil {
		return failed("update in", q.Queue, err)
	}
	return q.Client.UpdateBody(ctx, q.Queue, ref, body)
}

// Value returns the value of a job.
func (q *Typed[T]) Value(job *Job) (T, error) { return q.Unmarshal(job.Body) }

// Handle is Client.Handle. A job whose body cannot be read is dead at once, as trying again would
// not help; it can be requeued.
func (q *Typed[T]) Handle(
	handler func(ctx context.Context, job *Job, v T) error, opts ...HandleOption,
) {
	q.Client.Handle(q.Queue, func(ctx context.Context, job *Job) error {
		v, err := q.Unmarshal(job.Body)
		if err != nil {
			return Bury("unreadable body: " + err.Error())
		}
		return handler(ctx, job, v)
	}, opts...)
}
