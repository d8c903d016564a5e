package main

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// This file holds the clients of the story. They live on hosts, each with a socket,
// which sends the heartbeats of all its clients in one packet.

// perHost clients make packets of some 600 bytes, which any network takes.
const perHost = 100

type hosts struct {
	dead    []atomic.Bool // for each client
	ended   chan struct{}
	running sync.WaitGroup
}

// startHosts lets n clients send a heartbeat every interval, the hosts one after
// the other within it.
func startHosts(addr string, n int, interval time.Duration) (*hosts, error) {
	h := &hosts{dead: make([]atomic.Bool, n), ended: make(chan struct{})}
	for first := 0; first < n; first += perHost {
		conn, err := net.Dial("udp", addr)
		if err != nil {
			h.stop()
			return nil, err
		}
		last := min(first+perHost, n)
		h.running.Go(func() {
			defer conn.Close()
			select {
			case <-time.After(interval * time.Duration(first) / time.Duration(n)):
			case <-h.ended:
				return
			}
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			var packet []byte
			for {
				packet = packet[:0]
				for i := first; i < last; i++ {
					if !h.dead[i].Load() {
						packet = append(strconv.AppendInt(packet, int64(i), 10), ' ')
					}
				}
				// A packet that cannot be sent is a packet lost, as UDP has it.
				conn.Write(packet)
				select {
				case <-ticker.C:
				case <-h.ended:
					return
				}
			}
		})
	}
	return h, nil
}

func (h *hosts) kill(clients []int) {
	for _, i := range clients {
		h.dead[i].Store(true)
	}
}

func (h *hosts) revive(clients []int) {
	for _, i := range clients {
		h.dead[i].Store(false)
	}
}

func (h *hosts) stop() {
	close(h.ended)
	h.running.Wait()
}
