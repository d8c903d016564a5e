package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A connection keeps its channels for the next batch.
type connection struct {
	*amqp.Connection

	mu      sync.Mutex
	idle    []*channel
	blocked string // why the broker takes no messages at the moment, empty if it does
}

// A channel is in confirm mode, and belongs to one batch at a time.
type channel struct {
	*amqp.Channel
	conn    *connection
	returns chan amqp.Return // has room for all messages of a batch, so that no reader waits for us
	closes  chan *amqp.Error

	once  sync.Once
	cause error
}

func newConnection(c *amqp.Connection) *connection {
	conn := &connection{Connection: c}
	changes := c.NotifyBlocked(make(chan amqp.Blocking))
	go func() { // ends with the connection
		for b := range changes {
			conn.mu.Lock()
			if conn.blocked = ""; b.Active {
				conn.blocked = max(b.Reason, "no reason given")
			}
			conn.mu.Unlock()
		}
	}()
	return conn
}

// take returns a channel that no one else uses.
func (c *connection) take(ctx context.Context) (*channel, error) {
	if ch, err := c.takeIdle(); ch != nil || err != nil {
		return ch, err
	}
	// A call of the package waits for as long as the broker is blocked.
	var ch *channel
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		ch, err = c.open()
	}()
	select {
	case <-opened:
		return ch, err
	case <-ctx.Done():
	}
	c.closeUnlessBlocked() // which ends the call
	return nil, fmt.Errorf("rabbitmq: the broker does not answer: %w", ctx.Err())
}

// open opens a channel. It must not hold mu, for which the goroutine of newConnection may wait
// before an answer can be read.
func (c *connection) open() (*channel, error) {
	raw, err := c.Channel()
	if err != nil {
		return nil, err
	}
	if err := raw.Confirm(false); err != nil {
		return nil, err
	}
	return &channel{
		Channel: raw,
		conn:    c,
		returns: raw.NotifyReturn(make(chan amqp.Return, mostAtOnce)),
		closes:  raw.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
}

func (c *connection) takeIdle() (*channel, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked != "" {
		return nil, fmt.Errorf("rabbitmq: the broker takes no messages: %s", c.blocked)
	}
	for n := len(c.idle) - 1; n >= 0; n-- {
		ch := c.idle[n]
		c.idle = c.idle[:n]
		if !ch.IsClosed() {
			return ch, nil
		}
	}
	return nil, nil
}

// release gives a channel back after a batch. It returns whether the channel is still open. late
// says that something was not confirmed in time.
func (c *connection) release(ch *channel, late bool) bool {
	if ch.IsClosed() {
		return false
	}
	if late {
		// The channel, which still has confirmations to come, ends with the connection.
		c.closeUnlessBlocked()
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, ch)
	return true
}

// closeUnlessBlocked closes a connection on which the broker hangs; perhaps another one does
// better. A broker that takes no messages says so, and works again on the same connection when it
// does. If it were given the messages on one connection after the other, it would have all of them
// then.
func (c *connection) closeUnlessBlocked() {
	c.mu.Lock()
	blocked := c.blocked != ""
	c.mu.Unlock()
	if !blocked {
		c.CloseDeadline(time.Now().Add(time.Second))
	}
}

// reason returns why the channel is closed, as an error for the jobs that it has not confirmed.
func (ch *channel) reason() error {
	ch.once.Do(func() {
		why := <-ch.closes // it is closed with the channel
		switch {
		case why == nil:
			ch.cause = unavailable(amqp.ErrClosed)
		case why.Recover: // of this channel alone: it refuses what we do
			ch.cause = fmt.Errorf("rabbitmq: %w", why)
		default:
			ch.cause = unavailable(why)
		}
	})
	return ch.cause
}
