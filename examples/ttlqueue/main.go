// Ttlqueue sends two messages by two ways: first one with a delay of ten seconds, then one with a
// delay of one second. In RabbitMQ, messages can wait in a queue with a time to live and go to
// another queue when it has passed. But only the message at the head can leave, so the short delay
// waits behind the long one. The job queue hands each job to the same RabbitMQ when it is due.
//
//	go run ./examples/ttlqueue                                     starts a RabbitMQ of its own
//	AMQP_URL=amqp://user:password@host go run ./examples/ttlqueue
//
// Without a RabbitMQ it shows the job queue alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/internal/servers"
	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/sink/rabbitmq"
)

const (
	long  = 10 * time.Second
	short = time.Second

	byTTL = "by a TTL queue"
	byUs  = "by the job queue"
)

func main() {
	story.Program{
		Passed: "with the job queue, one second was one second",
		Layout: "05.0 s",
		Play:   func(r *story.Run) { story.Must(play(r)) },
	}.Main()
}

func play(r *story.Run) error {
	url, stop, err := broker(r)
	if err != nil {
		return err
	}
	defer stop()
	arrivals := make(chan string, 4)
	q := jobqueue.NewMemory(jobqueue.WithLogger(slog.New(slog.DiscardHandler)))
	expected := []string{byUs}
	if url == "" {
		r.Printf("there is no RabbitMQ, so this shows the job queue alone; set AMQP_URL,")
		r.Printf("or install one: apt-get install rabbitmq-server")
		q.Handle("mail", func(_ context.Context, job *jobqueue.Job) error {
			arrivals <- string(job.Body)
			return nil
		})
	} else {
		expected = append(expected, byTTL)
		ttl, err := openTTLQueue(url, arrivals)
		if err != nil {
			return err
		}
		defer ttl.conn.Close()
		for _, delay := range []time.Duration{long, short} {
			if err := ttl.send(delay, name(delay, byTTL)); err != nil {
				return err
			}
		}
		// The job queue hands a job over when it is due, and waits for the confirmation.
		sink, err := rabbitmq.New(url, "",
			rabbitmq.WithRoutingKey(func(*jobqueue.Job) string { return ttl.inbox }))
		if err != nil {
			return err
		}
		defer sink.Close()
		q.Forward("mail", sink)
	}
	defer q.Close()

	sent := time.Now()
	for _, delay := range []time.Duration{long, short} {
		_, err := q.Add(context.Background(), "mail", []byte(name(delay, byUs)), jobqueue.In(delay))
		if err != nil {
			return err
		}
	}
	r.Printf("sent: first a delay of %v, then one of %v", long, short)
	go q.Run(context.Background()) // until Close

	after := map[string]time.Duration{}
	for late := time.After(time.Minute); len(after) < 2*len(expected); {
		select {
		case what := <-arrivals:
			after[what] = time.Since(sent)
			r.Printf("%s has come after %.3f s", what, after[what].Seconds())
		case <-late:
			return errors.New("a message has not come")
		}
	}
	for _, way := range expected {
		waited := after[name(short, way)]
		r.Check(waited >= short && after[name(long, way)] >= long-slack, "a delay %s is early", way)
		if way == byTTL {
			r.Check(waited >= long-slack, "the TTL queue did not let the short delay wait")
		} else {
			r.Check(waited < long/2, "the job queue let the short delay wait")
		}
	}
	return nil
}

// slack is how much earlier than the job queue's the messages of the TTL queue were sent.
const slack = time.Second

func name(delay time.Duration, way string) string { return fmt.Sprintf("%3v %s", delay, way) }

// A ttlQueue is a queue whose messages go on to the queue inbox when their time to live is over.
type ttlQueue struct {
	conn    *amqp.Connection
	channel *amqp.Channel
	waiting string
	inbox   string
}

// openTTLQueue makes the two queues, and sends to arrivals what comes to the inbox.
func openTTLQueue(url string, arrivals chan<- string) (q *ttlQueue, err error) {
	q = new(ttlQueue)
	if q.conn, err = amqp.Dial(url); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			q.conn.Close()
		}
	}()
	if q.channel, err = q.conn.Channel(); err != nil {
		return nil, err
	}
	// The server makes up the names. The queues end with the connection.
	inbox, err := q.channel.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return nil, err
	}
	waiting, err := q.channel.QueueDeclare("", false, true, true, false, amqp.Table{
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": inbox.Name,
	})
	if err != nil {
		return nil, err
	}
	q.waiting, q.inbox = waiting.Name, inbox.Name
	messages, err := q.channel.Consume(inbox.Name, "", true, true, false, false, nil)
	go func() { // ends with the connection
		for m := range messages {
			arrivals <- string(m.Body)
		}
	}()
	return q, err
}

func (q *ttlQueue) send(delay time.Duration, body string) error {
	return q.channel.Publish("", q.waiting, false, false, amqp.Publishing{
		Expiration: strconv.FormatInt(delay.Milliseconds(), 10),
		Body:       []byte(body),
	})
}

// broker returns the RabbitMQ to use, which it may have to start, and what stops that one. The url
// is empty if there is none.
func broker(r *story.Run) (url string, stop func(), err error) {
	stop = func() {}
	if url := os.Getenv("AMQP_URL"); url != "" {
		return url, stop, nil
	}
	program, ok := servers.FindRabbitMQ()
	if !ok {
		return "", stop, nil
	}
	r.Printf("RabbitMQ is starting")
	server, err := servers.StartRabbitMQ(program, r.Folder())
	if err != nil {
		return "", stop, err
	}
	return server.URL, server.Close, nil
}
