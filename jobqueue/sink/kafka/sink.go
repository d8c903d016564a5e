// Package kafka sends due jobs to a topic of Kafka.
//
//	sink, err := kafka.New("orders", kgo.SeedBrokers("localhost:9092"))
//	q.Forward("orders/expire", sink)
//
// Each job becomes a record. It is acknowledged once all in-sync replicas have the record. A record
// that the broker refuses, because it is too large or the topic does not exist, is a failed
// attempt. A broker that is away costs none.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// The headers of a record. A broker older than 0.11 has none; see Sink.Record.
const (
	MessageID = "message-id" // the job's MessageID, by which a consumer can drop duplicates
	Queue     = "queue"      // the name of the job's queue
)

// A Sink produces jobs to a topic. Its fields must not be changed after the first Send.
type Sink struct {
	// Record changes the record of a job before it is produced, if it is not nil. The record has
	// the job's body as its value, the job's key, if it has one, as its key, which decides the
	// partition, and the headers MessageID and Queue. Brokers older than 0.11 drop headers: put the
	// job's MessageID elsewhere.
	Record func(*jobqueue.Job, *kgo.Record)

	// Timeout is how long the brokers may take to confirm a batch; New sets 30 s. After that the
	// sink is unavailable, and what was not confirmed is produced again later.
	Timeout time.Duration

	topic string
	opts  []kgo.Opt

	mu     sync.Mutex
	client *kgo.Client
	closed bool
}

// New returns a Sink that produces to a topic. The options are those of a client of franz-go, which
// by default is idempotent and waits for all in-sync replicas. For brokers older than 0.11 add
// kgo.DisableIdempotentWrite and kgo.MaxVersions. New does not connect yet. It fails if the options
// are not valid.
func New(topic string, opts ...kgo.Opt) (*Sink, error) {
	s := &Sink{
		Timeout: 30 * time.Second,
		topic:   topic,
		// The jobs of a batch come at once, so there is no use in waiting for more.
		opts: append([]kgo.Opt{kgo.ProducerLinger(0)}, opts...),
	}
	if err := kgo.ValidateOpts(s.opts...); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return s, nil
}

// Close closes the client. Close the jobqueue.Client, or end its Run, before.
func (s *Sink) Close() {
	s.mu.Lock()
	client := s.client
	s.client, s.closed = nil, true
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// A result is what became of a job of a batch.
type result struct {
	job int
	err error
}

// Send implements jobqueue.Sink.
func (s *Sink) Send(ctx context.Context, jobs []*jobqueue.Job) []error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	errs := make([]error, len(jobs))
	client, err := s.connected()
	if err != nil {
		for i := range errs {
			errs[i] = unavailable(err)
		}
		return errs
	}
	for i := range errs {
		errs[i] = errNotConfirmed
	}
	results := make(chan result, len(jobs)) // has room for those that come after the end
	for i, job := range jobs {
		client.Produce(ctx, s.record(job), func(_ *kgo.Record, err error) {
			results <- result{i, judge(err)}
		})
	}
	for range jobs {
		select {
		case r := <-results:
			errs[r.job] = r.err
		case <-ctx.Done():
			// An idempotent client does not give up a record that may have arrived. Another client
			// does not know of it, and the consumer drops the duplicate.
			s.drop(client)
			return errs
		}
	}
	return errs
}

var errNotConfirmed = unavailable(errors.New("kafka: not confirmed in time"))

func (s *Sink) record(job *jobqueue.Job) *kgo.Record {
	r := &kgo.Record{
		Topic: s.topic,
		Value: job.Body,
		Headers: []kgo.RecordHeader{
			{Key: MessageID, Value: []byte(job.MessageID())},
			{Key: Queue, Value: []byte(job.Queue)},
		},
	}
	if job.Key != "" {
		r.Key = []byte(job.Key)
	}
	if s.Record != nil {
		s.Record(job, r)
	}
	return r
}

// connected returns the client, which is made if there is none.
func (s *Sink) connected() (*kgo.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("kafka: the sink is closed")
	}
	if s.client == nil {
		client, err := kgo.NewClient(s.opts...)
		if err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		s.client = client
	}
	return s.client, nil
}

// drop closes a client that hangs. The next batch gets a new one.
func (s *Sink) drop(client *kgo.Client) {
	s.mu.Lock()
	if s.client == client {
		s.client = nil
	}
	s.mu.Unlock()
	client.Close()
}

// judge returns what became of a record, as an error of a Sink. What a broker says of the record or
// the topic is a failed attempt; the client has tried again where that can help. All else is the
// weather.
func judge(err error) error {
	if err == nil {
		return nil
	}
	var said *kerr.Error
	switch {
	case !errors.As(err, &said):
		return unavailable(fmt.Errorf("kafka: %w", err))
	case said == kerr.UnknownTopicOrPartition: // after UnknownTopicRetries
	case said.Retriable, said == kerr.UnknownServerError, // a broker that is about to end, say
		said == kerr.SaslAuthenticationFailed, said == kerr.IllegalSaslState,
		said == kerr.UnsupportedSaslMechanism:
		return unavailable(fmt.Errorf("kafka: %w", err))
	}
	return fmt.Errorf("kafka: %w", err)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", jobqueue.ErrUnavailable, err) }
