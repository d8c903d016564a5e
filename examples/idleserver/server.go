package main

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file is the part to copy: a TCP server whose connections contain their idle timers.

// A server echoes what it reads and closes connections that are idle.
type server struct {
	tw      *timingwheel.TimingWheel
	idle    time.Duration
	running sync.WaitGroup // readers

	mu    sync.Mutex // guards what follows
	ended bool
	conns map[*conn]bool // that are open
}

// A conn is used by two goroutines without a lock: its reader resets the timer for each message,
// and the timer's callback closes the connection.
type conn struct {
	net.Conn
	timer timingwheel.Timer
}

func newServer(tw *timingwheel.TimingWheel, idle time.Duration) *server {
	return &server{tw: tw, idle: idle, conns: make(map[*conn]bool)}
}

// serve accepts connections until ln is closed.
func (s *server) serve(ln net.Listener) error {
	for {
		nc, err := ln.Accept()
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
	c := &conn{Conn: nc}
	s.tw.Init(&c.timer, func() { nc.Close() })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		nc.Close()
		return
	}
	s.conns[c] = true
	c.timer.Reset(s.idle)
	s.running.Go(func() { s.echo(c) })
}

// echo is the reader. The end of the connection, whichever side closes it, ends the Read.
//
// Reset moves the timeout later. If it returns false, the timer was not pending: the message came
// too late, as the callback was handed over and closes the connection, even if it has not begun.
// Then the timer, which Reset has armed again, is stopped.
func (s *server) echo(c *conn) {
	message := make([]byte, 64)
	for {
		n, err := c.Read(message)
		if err != nil || !c.timer.Reset(s.idle) {
			break
		}
		if _, err := c.Write(message[:n]); err != nil {
			break
		}
	}
	c.timer.Stop()
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// close ends all connections, and returns how many there were when their readers have ended.
func (s *server) close() (open int) {
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
