package main

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// forever is when a talker falls silent.
const forever time.Duration = math.MaxInt64

// A crowd is all the clients. A few drivers run them, as a goroutine each would
// be as many again as the server has.
type crowd struct {
	drivers []*driver
	running sync.WaitGroup
}

// maxDrivers bounds how many connections are being opened, or waited for, at the
// same time.
const maxDrivers = 32

// talksPerIdle is how often a client talks per idle timeout: often enough for
// the machine to be busy elsewhere for a while.
const talksPerIdle = 4

func newCrowd(cfg config, srv *server) *crowd {
	crowd := &crowd{}
	n := min(maxDrivers, cfg.conns)
	for i := range n {
		crowd.drivers = append(crowd.drivers, &driver{
			config: cfg,
			addr:   srv.ln.Addr().String(),
			now:    srv.now,
			toOpen: (cfg.conns + i) / n, // sums up to conns
			alarm:  time.NewTimer(forever),
		})
	}
	return crowd
}

// start lets the crowd open its connections and talk until the context ends.
func (crowd *crowd) start(ctx context.Context) {
	for _, d := range crowd.drivers {
		crowd.running.Go(func() { d.drive(ctx) })
	}
}

// wait returns once the crowd has closed its ends. A driver may be waiting for
// an echo, so the server has to be closed before.
func (crowd *crowd) wait() { crowd.running.Wait() }

// talkers returns the addresses of the clients that never fell silent, after
// wait.
func (crowd *crowd) talkers() map[string]bool {
	talking := map[string]bool{}
	for _, d := range crowd.drivers {
		for _, c := range d.clients {
			talking[c.LocalAddr().String()] = !c.silent
		}
	}
	return talking
}

// firstError returns why a connection could not be opened, after wait.
func (crowd *crowd) firstError() error {
	for _, d := range crowd.drivers {
		if d.failed != nil {
			return d.failed
		}
	}
	return nil
}

// A driver opens a share of the connections and talks on each of them, all at
// the same interval. That makes its queue a plain first in, first out.
type driver struct {
	config config
	addr   string
	now    func() time.Duration
	alarm  *time.Timer

	toOpen  int
	failed  error     // why it opens no more
	clients []*client // all it has opened
	queue   []*client // those that talk, by due
}

// A client is the far end of a connection.
type client struct {
	net.Conn
	due      time.Duration // when it talks next
	silentAt time.Duration
	silent   bool // it fell silent of its own accord
	talked   bool // the echo of a message is still to be read
}

func (d *driver) drive(ctx context.Context) {
	defer d.close()
	for ctx.Err() == nil {
		now := d.now()
		switch {
		case len(d.queue) > 0 && d.queue[0].due <= now:
			// Before opening more, so that those that are open are not neglected.
			c := d.queue[0]
			d.queue = d.queue[1:]
			d.visit(c, now)
		case d.toOpen > 0:
			d.open(ctx)
		default:
			d.sleep(ctx, now)
		}
	}
}

// open opens a connection, and the client says its first word.
func (d *driver) open(ctx context.Context) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", d.addr)
	if err != nil {
		// Typically the system has run out of ports or memory; trying again
		// would fail again.
		d.toOpen = 0
		if ctx.Err() == nil {
			d.failed = err
		}
		return
	}
	d.toOpen--
	c := &client{Conn: nc, silentAt: silence(d.config)}
	d.clients = append(d.clients, c)
	d.talk(c, d.now())
}

// silence returns when a client falls silent, the moment being drawn so that its
// timeout usually ends within the run.
func silence(cfg config) time.Duration {
	if rand.Float64() < cfg.talking {
		return forever
	}
	window := cfg.run
	if cfg.idle < cfg.run {
		window = (cfg.run - cfg.idle) / 10 * 9
	}
	return rand.N(window + 1)
}

// visit is the client's turn to talk or to fall silent.
func (d *driver) visit(c *client, now time.Duration) {
	if now >= c.silentAt {
		c.silent = true
		return
	}
	d.talk(c, now)
}

// talk sends a message and puts the client back into the queue. The echo is not
// waited for but read before the next message, when it has long arrived: so a
// connection that is served slowly does not hold up the other ones.
func (d *driver) talk(c *client, now time.Duration) {
	message := [8]byte{'s', 't', 'i', 'l', 'l', 'u', 'p', '\n'}
	if c.talked {
		if _, err := io.ReadFull(c, message[:]); err != nil {
			return // the server has closed the connection
		}
	}
	if _, err := c.Write(message[:]); err != nil {
		return
	}
	c.talked = true
	c.due = now + d.config.idle/talksPerIdle
	d.queue = append(d.queue, c)
}

// sleep waits until the next client is due.
func (d *driver) sleep(ctx context.Context, now time.Duration) {
	wait := forever
	if len(d.queue) > 0 {
		wait = d.queue[0].due - now
	}
	d.alarm.Reset(wait)
	select {
	case <-d.alarm.C:
	case <-ctx.Done():
	}
}

func (d *driver) close() {
	d.alarm.Stop()
	for _, c := range d.clients {
		c.Close()
	}
}
