//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package netidle

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file compares a Conn with a deadline set before each read, on real loopback connections and
// by itself.
//
//	go test -run '^$' -bench Touch ./netidle
//	go test -run '^$' -bench Echo -benchtime 150x ./netidle

const benchIdle = time.Hour

// A guard is a way for a server to notice that a connection is idle.
type guard int32

const (
	none         guard = iota
	netidleRead        // a Conn with Limits.ReadIdle
	netidleIdle        // a Conn with Limits.Idle
	deadlineRead       // a deadline before each Read
	deadlineBoth       // a deadline before each Read and each Write
	guards
)

func (g guard) String() string {
	return [...]string{"none", "netidle-read", "netidle-idle", "deadline-read", "deadline-both"}[g]
}

// BenchmarkEcho sends messages to echo servers over 1 and 1,000 connections. An iteration is 4,000
// messages with each guard, in changing order. All guards use the same connections and goroutines,
// because their place in memory matters more than the guard. The figure of a guard is what it adds
// to the processor time of a message, for server and client together: the median over the
// iterations of the difference from no guard.
func BenchmarkEcho(b *testing.B) {
	const messages = 4000
	for _, conns := range []int{1, 1000} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			tw := timingwheel.New()
			defer tw.Stop()
			var servers sync.WaitGroup
			defer servers.Wait()
			var use atomic.Int32
			var clients []net.Conn
			for range conns {
				server, client := tcpPair(b)
				servers.Go(func() { echo(tw, server, &use) })
				clients = append(clients, client)
				defer client.Close()
			}
			send(clients, messages/conns) // warm up
			var spent [guards][]float64   // nanoseconds per message, by iteration
			for turn := 0; b.Loop(); turn++ {
				for i := range int(guards) {
					g := (i*(1+turn%4) + turn) % int(guards) // guards is a prime
					use.Store(int32(g))
					send(clients, 1) // a server that waits in Read chose its guard before
					before := cpu()
					send(clients, messages/conns)
					spent[g] = append(spent[g], float64(cpu()-before)/messages)
				}
			}
			b.ReportMetric(median(spent[none]), "none-ns/message")
			for g := none + 1; g < guards; g++ {
				var more []float64
				for i := range spent[g] {
					more = append(more, spent[g][i]-spent[none][i])
				}
				b.ReportMetric(median(more), g.String()+"-more-ns/message")
				b.ReportMetric(100*median(more)/median(spent[none]), g.String()+"-%")
			}
		})
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// cpu returns the user and system time of this process.
func cpu() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

const messageSize = 64

// echo serves one connection until its end, with the guard in use.
func echo(tw *timingwheel.TimingWheel, plain net.Conn, use *atomic.Int32) {
	read := NewConn(plain, tw, Limits{ReadIdle: benchIdle})
	idle := NewConn(plain, tw, Limits{Idle: benchIdle})
	defer read.Close()
	defer idle.Close()
	p := make([]byte, messageSize)
	for {
		g := guard(use.Load())
		c := plain
		switch g {
		case netidleRead:
			c = read
		case netidleIdle:
			c = idle
		case deadlineRead, deadlineBoth:
			c.SetReadDeadline(time.Now().Add(benchIdle))
		}
		n, err := c.Read(p)
		if err != nil {
			return
		}
		if g == deadlineBoth {
			c.SetWriteDeadline(time.Now().Add(benchIdle))
		}
		if _, err := c.Write(p[:n]); err != nil {
			return
		}
	}
}

// send sends the given number of messages on each connection and waits for their echoes.
func send(clients []net.Conn, messages int) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			p := make([]byte, messageSize)
			for range messages {
				if _, err := c.Write(p); err != nil {
					panic(err)
				}
				if _, err := io.ReadFull(c, p); err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkTouch shows what a guard alone costs a Read. The inner connection's Read returns at
// once; deadlines are set on a real connection.
func BenchmarkTouch(b *testing.B) {
	tw := timingwheel.New()
	defer tw.Stop()
	socket, _ := tcpPair(b)
	c := NewConn(socket, tw, Limits{Idle: benchIdle})
	defer c.Close()
	inner := readyConn{socket}
	c.inner = inner
	p := make([]byte, 1)
	b.Run("inner", func(b *testing.B) {
		var conn net.Conn = inner
		for b.Loop() {
			conn.Read(p)
		}
	})
	b.Run("netidle", func(b *testing.B) {
		var conn net.Conn = c
		for b.Loop() {
			conn.Read(p)
		}
	})
	b.Run("TouchRead", func(b *testing.B) {
		now := time.Now()
		for b.Loop() {
			now = now.Add(1)
			c.TouchRead(now)
		}
	})
	b.Run("deadline", func(b *testing.B) {
		real, peer := tcpPair(b)
		defer real.Close()
		defer peer.Close()
		for b.Loop() {
			real.SetReadDeadline(time.Now().Add(benchIdle))
		}
	})
	b.Run("time.Now", func(b *testing.B) {
		for b.Loop() {
			time.Now()
		}
	})
}

// BenchmarkSendFile sends a file of 64 MiB over loopback: plainly, and in pieces by a Conn.
func BenchmarkSendFile(b *testing.B) {
	const size = 64 << 20
	for _, wrapped := range []bool{false, true} {
		b.Run(fmt.Sprintf("netidle=%t", wrapped), func(b *testing.B) {
			f, _ := randomFile(b, size)
			tw := newWheel(b)
			server, client := tcpPair(b)
			defer client.Close()
			go io.Copy(io.Discard, client)
			var dst net.Conn = server
			if wrapped {
				dst = NewConn(server, tw, Limits{Idle: benchIdle})
			}
			defer dst.Close()
			b.SetBytes(size)
			before := cpu()
			for b.Loop() {
				f.Seek(0, 0)
				n, err := io.Copy(dst, f)
				require.NoError(b, err)
				require.EqualValues(b, size, n)
			}
			b.ReportMetric(float64(cpu()-before)/float64(b.N)/1e6, "CPU-ms/op")
		})
	}
}

// BenchmarkSplice copies from connection to connection over loopback.
func BenchmarkSplice(b *testing.B) {
	const size = 64 << 20
	for _, wrapped := range []bool{false, true} {
		b.Run(fmt.Sprintf("netidle=%t", wrapped), func(b *testing.B) {
			tw := newWheel(b)
			source, feed := tcpPair(b)
			server, client := tcpPair(b)
			var src, dst net.Conn = source, server
			if wrapped {
				src, dst = NewConn(source, tw, Limits{Idle: benchIdle}),
					NewConn(server, tw, Limits{Idle: benchIdle})
			}
			copied := make(chan error)
			go func() { copied <- errorOf(io.Copy(dst, src)) }()
			data := make([]byte, 1<<20)
			b.SetBytes(size)
			before := cpu()
			for b.Loop() {
				go func() {
					for range size / len(data) {
						feed.Write(data)
					}
				}()
				_, err := io.CopyN(io.Discard, client, size)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(cpu()-before)/float64(b.N)/1e6, "CPU-ms/op")
			feed.Close()
			require.NoError(b, <-copied)
			for _, c := range []net.Conn{src, dst, client} {
				c.Close()
			}
		})
	}
}
