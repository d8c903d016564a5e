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

// This file is the part to copy: a TCP server whose connections contain their idle timers.

// A server echoes what it reads and closes connections that are idle.
type server struct {
	tw     *timingwheel.TimingWheel
	idle   time.Duration
	ln     net.Listener
	closed func(late time.Duration) // called when a timer has closed a connection
	start  time.Time

	touches atomic.Int64 // messages, each of which is a Reset
	running sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ended bool
	conns map[*conn]bool // that are open
}

// A conn is used by two goroutines without a lock: its reader resets the timer for each message,
// and the timer's callback closes the connection.
type conn struct {
	net.Conn
	server    *server
	timer     timingwheel.Timer
	lastTouch atomic.Int64 // just before the Reset that armed the timer, in nanoseconds from start
}

func newServer(tw *timingwheel.TimingWheel, idle time.Duration, ln net.Listener,
	closed func(late time.Duration)) *server {
	return &server{tw: tw, idle: idle, ln: ln, closed: closed, start: time.Now(),
		conns: make(map[*conn]bool)}
}

// serve accepts connections until close.
func (s *server) serve() error {
	for {
		nc, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		s.add(nc)
	}
}

// add arms the timer of a new connection and starts its reader.
func (s *server) add(nc net.Conn) {
	c := &conn{Conn: nc, server: s}
	s.tw.Init(&c.timer, c.expire)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		nc.Close()
		return
	}
	s.conns[c] = true
	c.lastTouch.Store(int64(time.Since(s.start)))
	c.timer.Reset(s.idle)
	s.running.Go(c.echo)
}

// echo is the reader. The end of the connection, whichever side closes it, ends the Read.
func (c *conn) echo() {
	message := make([]byte, 64)
	for {
		n, err := c.Read(message)
		if err != nil || !c.touch() {
			break
		}
		if _, err := c.Write(message[:n]); err != nil {
			break
		}
	}
	c.timer.Stop()
	c.Close()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.conns, c)
}

// touch moves the timeout later. It returns false if the message came too late: Reset found that
// the timer was not pending, so its callback was handed over and closes the connection, even if it
// has not begun. Then the timer, which Reset has armed again, is stopped.
func (c *conn) touch() bool {
	c.server.touches.Add(1)
	now := time.Since(c.server.start)
	if !c.timer.Reset(c.server.idle) {
		c.timer.Stop()
		io.Copy(io.Discard, c.Conn) // until the callback closes the connection
		return false
	}
	c.lastTouch.Store(int64(now))
	return true
}

// expire is the timer's callback.
func (c *conn) expire() {
	late := c.silent() - c.server.idle
	if c.Close() == nil { // it fails if the reader has closed the connection meanwhile
		c.server.closed(late)
	}
}

func (c *conn) silent() time.Duration {
	return time.Since(c.server.start) - time.Duration(c.lastTouch.Load())
}

// open returns how many connections are open, and how many of them have been silent for longer
// than the limit.
func (s *server) open() (open, overdue int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.silent() > s.idle {
			overdue++
		}
	}
	return len(s.conns), overdue
}

// close ends all connections, and returns how many there were when their readers have ended.
func (s *server) close() (open int) {
	s.ln.Close()
	s.mu.Lock()
	s.ended = true
	open = len(s.conns)
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return open
}
