// Package rabbitmq sends due jobs to RabbitMQ, or any broker that speaks AMQP 0-9-1 with publisher
// confirms.
//
//	sink, err := rabbitmq.New("amqp://guest:guest@localhost/", "orders")
//	q.Forward("orders/expire", sink)
//
// Each job becomes a persistent message, published with the mandatory flag. It is acknowledged once
// the broker has confirmed it, which for a mirrored or quorum queue is when enough replicas have
// it. A message that no queue takes, or that the broker refuses, is a failed attempt.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// mostAtOnce is how many messages a channel is given before their confirmations are awaited.
const mostAtOnce = 256

// A Sink publishes jobs to an exchange. It has one connection, which it makes when it is first
// needed, and again when it was lost.
type Sink struct {
	url      string
	exchange string
	key      func(*jobqueue.Job) string
	message  func(*jobqueue.Job, *amqp.Publishing)
	timeout  time.Duration
	config   amqp.Config

	mu     sync.Mutex // held while it connects, so that the connection is made once
	conn   *connection
	closed bool
}

// An Option changes what New makes.
type Option func(*Sink)

// WithRoutingKey sets the routing key of a job's message. The default is the name of the job's
// queue, which in the default exchange, "", is the name of the RabbitMQ queue too.
func WithRoutingKey(key func(*jobqueue.Job) string) Option {
	return func(s *Sink) { s.key = key }
}

// WithMessage has f change a job's message before it is published: add headers, say. The message is
// persistent; it has the job's body, its MessageID as MessageId, its queue as Type, and the instant
// at which it was due as Timestamp. The MessageId must remain unique.
func WithMessage(f func(*jobqueue.Job, *amqp.Publishing)) Option {
	return func(s *Sink) { s.message = f }
}

// WithTimeout sets how long the broker may take to connect, and to confirm a batch; the default is
// 30 s. After that the sink is unavailable, and what was not confirmed is published again later.
func WithTimeout(d time.Duration) Option {
	if d <= 0 {
		panic("rabbitmq: WithTimeout of a duration that is not positive")
	}
	return func(s *Sink) { s.timeout = d }
}

// WithConfig sets how to connect, for TLS or another way to log in.
func WithConfig(config amqp.Config) Option {
	return func(s *Sink) { s.config = config }
}

// New returns a Sink that publishes to an exchange of the broker at url. It does not connect yet,
// and it does not declare the exchange. It fails if the url cannot be read.
func New(url, exchange string, opts ...Option) (*Sink, error) {
	if _, err := amqp.ParseURI(url); err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	s := &Sink{
		url:      url,
		exchange: exchange,
		key:      func(job *jobqueue.Job) string { return job.Queue },
		message:  func(*jobqueue.Job, *amqp.Publishing) {},
		timeout:  30 * time.Second,
	}
	for _, opt := range opts {
		opt(s)
	}
	return s, nil
}

// Close closes the connection. Close the Client, or end its Run, before.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.conn == nil {
		return nil
	}
	err := s.conn.CloseDeadline(time.Now().Add(min(s.timeout, 5*time.Second)))
	if errors.Is(err, amqp.ErrClosed) {
		err = nil
	}
	s.conn = nil
	return err
}

// Send implements jobqueue.Sink.
func (s *Sink) Send(ctx context.Context, jobs []*jobqueue.Job) []error {
	errs := make([]error, 0, len(jobs))
	for some := range slices.Chunk(jobs, mostAtOnce) {
		errs = append(errs, s.send(ctx, some)...)
	}
	return errs
}

// send publishes at most mostAtOnce jobs and waits for their confirmations.
func (s *Sink) send(ctx context.Context, jobs []*jobqueue.Job) []error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	ch, err := s.channel(ctx)
	if err != nil {
		return slices.Repeat([]error{unavailable(err)}, len(jobs))
	}
	errs := s.publish(ctx, ch, jobs)
	if ch.conn.release(ch, ctx.Err() != nil) {
		return errs
	}
	// The broker closes the channel if it refuses a single message. Find out which.
	var culprit *amqp.Error
	var rest []int
	for i, err := range errs {
		if refused := (*amqp.Error)(nil); errors.As(err, &refused) && ofMessage(refused) {
			culprit = refused
			rest = append(rest, i)
		}
	}
	if culprit != nil && len(rest) > 1 && ctx.Err() == nil {
		half := len(rest) / 2
		for _, part := range [][]int{rest[:half], rest[half:]} {
			again := make([]*jobqueue.Job, len(part))
			for i, at := range part {
				again[i] = jobs[at]
			}
			for i, err := range s.send(ctx, again) {
				errs[part[i]] = err
			}
		}
	}
	return errs
}

// ofMessage says whether the broker closed a channel for what one message is like, and not for
// what the exchange is.
func ofMessage(err *amqp.Error) bool {
	return err.Code == amqp.PreconditionFailed || err.Code == amqp.ContentTooLarge
}

var errNacked = errors.New("rabbitmq: the broker refused the message")

// publish returns what became of each job.
func (s *Sink) publish(ctx context.Context, ch *channel, jobs []*jobqueue.Job) []error {
	errs := make([]error, len(jobs))
	confirms := make([]*amqp.DeferredConfirmation, len(jobs))
	places := make(map[string]int, len(jobs))
	for i, job := range jobs {
		key, msg := s.key(job), amqp.Publishing{
			DeliveryMode: amqp.Persistent,
			MessageId:    job.MessageID(),
			Timestamp:    job.Due,
			Type:         job.Queue,
			Body:         job.Body,
		}
		s.message(job, &msg)
		if errs[i] = check(key, &msg); errs[i] != nil {
			continue
		}
		places[msg.MessageId] = i
		var err error
		confirms[i], err = ch.PublishWithDeferredConfirmWithContext(
			ctx, s.exchange, key, true, false, msg)
		if err != nil {
			errs[i] = unavailable(err)
		}
	}
	for i, confirm := range confirms {
		if confirm == nil {
			if errors.Is(errs[i], jobqueue.ErrUnavailable) && ch.IsClosed() {
				errs[i] = ch.reason()
			}
			continue
		}
		switch acked, err := confirm.WaitContext(ctx); {
		case err != nil:
			errs[i] = unavailable(fmt.Errorf("rabbitmq: not confirmed: %w", err))
		case acked:
		case ch.IsClosed():
			errs[i] = ch.reason()
		default:
			errs[i] = errNacked
		}
	}
	// The broker returns a message before it confirms it, so all of them are here.
	for {
		select {
		case r, open := <-ch.returns:
			if !open {
				return errs
			}
			if i, ok := places[r.MessageId]; ok && errs[i] == nil {
				errs[i] = fmt.Errorf("rabbitmq: no queue takes the message: %d %s",
					r.ReplyCode, r.ReplyText)
			}
		default:
			return errs
		}
	}
}

// check returns why a message cannot be encoded. The package would close the connection.
func check(key string, m *amqp.Publishing) error {
	for _, short := range []string{key, m.ContentType, m.ContentEncoding, m.CorrelationId,
		m.ReplyTo, m.Expiration, m.MessageId, m.Type, m.UserId, m.AppId} {
		if len(short) > 255 {
			return fmt.Errorf("rabbitmq: %.20q... is longer than 255 bytes", short)
		}
	}
	return m.Headers.Validate()
}

// channel returns a channel in confirm mode that no one else uses.
func (s *Sink) channel(ctx context.Context) (*channel, error) {
	conn, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	return conn.take(ctx)
}

// connected returns the connection, which is made if there is none.
func (s *Sink) connected(ctx context.Context) (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("rabbitmq: the sink is closed")
	}
	if s.conn == nil || s.conn.IsClosed() {
		conn, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		s.conn = conn
	}
	return s.conn, nil
}

func (s *Sink) dial(ctx context.Context) (*connection, error) {
	config := s.config
	dial := config.Dial
	if dial == nil {
		dial = func(network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	config.Dial = func(network, address string) (net.Conn, error) {
		c, err := dial(network, address)
		if err != nil {
			return nil, err
		}
		// The package lifts this deadline once it has logged in.
		if deadline, ok := ctx.Deadline(); ok {
			err = c.SetDeadline(deadline)
		}
		return &impatient{c, s.timeout}, err
	}
	c, err := amqp.DialConfig(s.url, config)
	if err != nil {
		return nil, err
	}
	return newConnection(c), nil
}

// An impatient connection fails if the broker does not read what is written. The package would
// wait.
type impatient struct {
	net.Conn
	timeout time.Duration
}

func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", jobqueue.ErrUnavailable, err) }
