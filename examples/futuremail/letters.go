package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// This file is the part to copy: letters that are delivered on their day, which may be years ahead.

const letters = "letters" // the queue

type letter struct {
	To   string
	Text string
	On   time.Time
}

// keep stores letters, many in one write. When it returns nil, they survive a crash. Each has a
// key: if a letter is stored again, because the outcome of the first call is unknown, it is still
// delivered once.
func keep(ctx context.Context, q *jobqueue.Client, all map[string]letter) error {
	items := make([]jobqueue.Item, 0, len(all))
	for key, l := range all {
		body, err := json.Marshal(l)
		if err != nil {
			return err
		}
		items = append(items, jobqueue.Item{
			Body:    body,
			Options: []jobqueue.AddOption{jobqueue.At(l.On), jobqueue.Key(key)},
		})
	}
	_, err := q.AddMany(ctx, letters, items)
	return err
}

// deliver sends letters on their day, until ctx ends. A letter that cannot be sent is tried
// again for about a day, and kept among the dead after that.
func deliver(ctx context.Context, q *jobqueue.Client, send func(key string, l letter) error) error {
	queue := jobqueue.NewTyped[letter](q, letters)
	queue.Handle(func(_ context.Context, job *jobqueue.Job, l letter) error {
		return send(job.Key, l)
	})
	return q.Run(ctx)
}
