package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// A server echoes what it reads and closes connections that are idle. Instants
// are durations since it was made, on the monotonic clock.
type server struct {
	wheel *timingwheel.TimingWheel
	idle  time.Duration
	start time.Time
	ln    net.Listener

	open    atomic.Int64 // connections
	idled   atomic.Int64 // connections closed by their timer
	touches atomic.Int64 // messages read, each of which was a Reset

	running sync.WaitGroup // accept and the readers

	mu     sync.Mutex
	closed bool
	conns  []*conn // all there ever were: their records are judged at the end

	failed error // why accept gave up; read after close
}

// listen starts a server on a free port of the loopback interface.
func listen(wheel *timingwheel.TimingWheel, idle time.Duration) (*server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{wheel: wheel, idle: idle, start: time.Now(), ln: ln}
	s.running.Go(s.accept)
	return s, nil
}

func (s *server) now() time.Duration { return time.Since(s.start) }

func (s *server) accept() {
	for {
		nc, err := s.ln.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.failed = err
			}
			return
		}
		s.add(nc)
	}
}

// add arms the timer of a new connection and starts its reader.
func (s *server) add(nc net.Conn) {
	c := &conn{Conn: nc, server: s}
	s.wheel.Init(&c.timer, c.expire)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nc.Close()
		return
	}
	s.conns = append(s.conns, c)
	s.open.Add(1)
	c.lastTouch.Store(int64(s.now()))
	c.timer.Reset(s.idle)
	s.running.Go(c.serve)
}

// A conn is one connection with its idle timeout.
//
// Two goroutines meet in it: the reader, which touches the timer on every
// message, and the timer's callback, which closes the connection. Neither needs
// a lock, as each writes fields of its own.
type conn struct {
	net.Conn
	server *server
	timer  timingwheel.Timer

	// Written by the reader.
	lastTouch atomic.Int64 // instant just before the Reset of the arming in force
	lost      atomic.Bool  // a touch came when the timer had fired
	ended     atomic.Int64 // instant at which the reader left, 0 before

	// Written by the callback.
	fired atomic.Int64 // instant at which it began, 0 before
}

// serve is the reader.
func (c *conn) serve() {
	buf := make([]byte, 64)
	for {
		n, err := c.Read(buf)
		if err != nil {
			break
		}
		if !c.touch() {
			// Answering a connection that is being closed would be a lie to the
			// client. The callback ends this read.
			io.Copy(io.Discard, c.Conn)
			break
		}
		if _, err := c.Write(buf[:n]); err != nil {
			break
		}
	}
	c.timer.Stop()
	c.Close()
	c.ended.Store(int64(c.server.now()))
	c.server.open.Add(-1)
}

// touch pushes the timeout out; false means that it came too late.
//
// The instant is taken before the call, so that the deadline of the arming is at
// or after instant + idle, and a callback before that is early beyond dispute.
// It becomes the last touch only if Reset found the timer pending, in which case
// the earlier arming does not fire. If Reset returns false, the earlier arming
// has been handed over, whether its callback has begun or not: that one is
// measured by its own touch, to which this one came too late.
func (c *conn) touch() bool {
	c.server.touches.Add(1)
	now := c.server.now()
	if !c.timer.Reset(c.server.idle) {
		c.timer.Stop() // Reset has armed the timer of a connection that is lost
		c.lost.Store(true)
		return false
	}
	c.lastTouch.Store(int64(now))
	return true
}

// expire is the callback.
func (c *conn) expire() {
	now := c.server.now()
	// It would come a second time if the touch that lost were held up for a whole
	// timeout between its Reset and its Stop.
	if c.fired.CompareAndSwap(0, int64(now)) {
		c.server.idled.Add(1)
		c.Close()
	}
}

// awaitOverdue waits until the connections that are past their deadline have
// been closed, for as long as limit. New ones are not waited for: on a machine
// that cannot keep up there might always be one.
func (s *server) awaitOverdue(limit time.Duration) {
	now := s.now()
	for _, c := range s.snapshot() {
		for c.overdue(now) && s.now()-now < limit {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// overdue reports that c should have been closed at the instant now and has not
// been until this moment.
func (c *conn) overdue(now time.Duration) bool {
	return c.ended.Load() == 0 && now-time.Duration(c.lastTouch.Load()) > c.server.idle
}

// close ends all connections, and returns once the readers have left.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.ln.Close()
	for _, c := range s.snapshot() {
		c.Close()
	}
	s.running.Wait()
}

func (s *server) snapshot() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[:len(s.conns):len(s.conns)]
}

// records returns what is known of every connection, after close and after the
// wheel's Shutdown. talking are the addresses of the clients that did not fall
// silent.
func (s *server) records(talking map[string]bool) []record {
	var records []record
	for _, c := range s.snapshot() {
		records = append(records, record{
			lastTouch: time.Duration(c.lastTouch.Load()),
			fired:     time.Duration(c.fired.Load()),
			ended:     time.Duration(c.ended.Load()),
			lost:      c.lost.Load(),
			talking:   talking[c.RemoteAddr().String()],
		})
	}
	return records
}
