package main

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// This file reads heartbeats from UDP. A packet holds the numbers of clients that
// are well, with white space between them: an agent on a host speaks for all
// clients there.

// maxPacket is the largest that UDP can carry.
const maxPacket = 1 << 16

type server struct {
	conn    net.PacketConn
	clients int
	heard   func(clients []int, at time.Time)

	packets, beats, strange atomic.Int64

	done   sync.WaitGroup
	failed error // after close
}

// listen serves conn. heard is called for each packet, on one goroutine, and must
// not keep the slice.
func listen(conn net.PacketConn, clients int, heard func(clients []int, at time.Time)) *server {
	s := &server{conn: conn, clients: clients, heard: heard}
	s.done.Go(s.read)
	return s
}

func (s *server) close() error {
	s.conn.Close()
	s.done.Wait()
	return s.failed
}

func (s *server) read() {
	packet := make([]byte, maxPacket)
	var clients []int
	for {
		n, _, err := s.conn.ReadFrom(packet)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.failed = err
			}
			return
		}
		now := time.Now() // the one clock reading for all of the packet
		clients = clients[:0]
		for field := range bytes.FieldsSeq(packet[:n]) {
			if i, err := strconv.Atoi(string(field)); err == nil && i >= 0 && i < s.clients {
				clients = append(clients, i)
			} else {
				s.strange.Add(1)
			}
		}
		s.packets.Add(1)
		s.beats.Add(int64(len(clients)))
		s.heard(clients, now)
	}
}
