//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package netidle

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file measures what a guard costs an echo server. The server is a process of its own, so the
// figures do not contain the client's share.
//
//	go test -run '^$' -bench Server -benchtime 100x ./netidle

// serverEnv makes the test binary a server. Its value names the guard. With "all", each connection
// has all guards, and a command selects the one in use. The place of a connection in memory matters
// more than its guard, so only figures of the same connections can be compared.
const serverEnv = "NETIDLE_ECHO_SERVER"

var serverGuards = [...]string{
	"plain", "thin", "netidle-read", "netidle-idle", "deadline-read", "deadline-both",
}

const (
	plainGuard = iota
	thinGuard
	readGuard
	idleGuard
	deadlineReadGuard
	deadlineBothGuard
)

// thinConn is the least that a wrapper can be.
type thinConn struct{ net.Conn }

func (c *thinConn) Read(p []byte) (int, error)  { return c.Conn.Read(p) }
func (c *thinConn) Write(p []byte) (int, error) { return c.Conn.Write(p) }

// The first byte of a message is a command. The answer to all but cmdEcho is the processor time
// that the server has used and the size of its heap.
const (
	cmdEcho = iota
	cmdUsed
	cmdHeap
	cmdGuard // this and above: use a guard
)

type echoServer struct {
	tw         *timingwheel.TimingWheel
	read, idle *Listener
	only       int // the guard of all connections, or -1 if they have all guards
	use        atomic.Int32
}

func init() {
	if name := os.Getenv(serverEnv); name != "" {
		runServer(name)
	}
}

func runServer(name string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin) // until the client ends
		os.Exit(0)
	}()
	tw := timingwheel.New()
	s := &echoServer{tw: tw, only: -1}
	for i, guard := range serverGuards {
		if guard == name {
			s.only = i
		}
	}
	accepted := make(chan net.Conn, 1)
	s.read = NewListener(handListener{l, accepted}, tw, Limits{ReadIdle: benchIdle})
	s.idle = NewListener(handListener{l, accepted}, tw, Limits{Idle: benchIdle})
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		var guarded [len(serverGuards)]net.Conn
		for i := range guarded {
			if s.only >= 0 && s.only != i {
				continue
			}
			guarded[i] = c
			switch i {
			case thinGuard:
				guarded[i] = &thinConn{c}
			case readGuard:
				accepted <- c
				guarded[i], _ = s.read.Accept()
			case idleGuard:
				accepted <- c
				guarded[i], _ = s.idle.Accept()
			}
		}
		if s.only >= 0 {
			go s.serve(guarded[s.only])
		} else {
			go s.serve(guarded[:]...)
		}
	}
}

type handListener struct {
	net.Listener
	accepted chan net.Conn
}

func (l handListener) Accept() (net.Conn, error) { return <-l.accepted, nil }

func (s *echoServer) serve(guarded ...net.Conn) {
	p := make([]byte, messageSize)
	for {
		guard, c := s.only, guarded[0]
		if guard < 0 {
			guard = int(s.use.Load())
			c = guarded[guard]
		}
		if guard >= deadlineReadGuard {
			c.SetReadDeadline(time.Now().Add(benchIdle))
		}
		n, err := c.Read(p)
		if err != nil {
			return
		}
		if p[0] != cmdEcho {
			s.command(p)
		}
		if guard == deadlineBothGuard {
			c.SetWriteDeadline(time.Now().Add(benchIdle))
		}
		if _, err := c.Write(p[:n]); err != nil {
			return
		}
	}
}

func (s *echoServer) command(p []byte) {
	if p[0] >= cmdGuard {
		s.use.Store(int32(p[0] - cmdGuard))
	}
	var memory runtime.MemStats
	if p[0] == cmdHeap {
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&memory)
	}
	binary.BigEndian.PutUint64(p, uint64(cpu()))
	binary.BigEndian.PutUint64(p[8:], memory.HeapAlloc)
}

type echoClient struct {
	control net.Conn
	clients []net.Conn
	server  *exec.Cmd
}

func (s *echoClient) stop() {
	for _, c := range append(s.clients, s.control) {
		c.Close()
	}
	s.server.Process.Kill()
	s.server.Wait()
}

func startServer(b *testing.B, name string, conns int) *echoClient {
	exe, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serverEnv+"="+name)
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	s := &echoClient{server: cmd}
	for i := range conns + 1 {
		c, err := net.Dial("tcp", strings.TrimSpace(addr))
		require.NoError(b, err)
		if i == 0 {
			s.control = c
		} else {
			s.clients = append(s.clients, c)
		}
	}
	send(s.clients, 1)
	return s
}

func (s *echoClient) command(b *testing.B, command byte) (used time.Duration, heap float64) {
	p := make([]byte, messageSize)
	p[0] = command
	_, err := s.control.Write(p)
	require.NoError(b, err)
	_, err = io.ReadFull(s.control, p)
	require.NoError(b, err)
	return time.Duration(binary.BigEndian.Uint64(p)), float64(binary.BigEndian.Uint64(p[8:]))
}

// BenchmarkServer shows, for 1 and 1,000 connections, what a guard adds to the server's processor
// time for a message: the median over the iterations of the difference from no guard.
func BenchmarkServer(b *testing.B) {
	const messages = 4000
	for _, conns := range []int{1, 1000} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			s := startServer(b, "all", conns)
			defer s.stop()
			var spent [len(serverGuards)][]float64
			turn := 0
			for b.Loop() {
				for i := range spent {
					i = (i + turn) % len(spent)
					s.command(b, cmdGuard+byte(i))
					send(s.clients, 1) // a server that waits in Read chose its guard before
					before, _ := s.command(b, cmdUsed)
					send(s.clients, messages/conns)
					after, _ := s.command(b, cmdUsed)
					spent[i] = append(spent[i], float64(after-before)/messages)
				}
				turn++
			}
			b.ReportMetric(median(spent[plainGuard]), "plain-ns/message")
			for i := thinGuard; i < len(spent); i++ {
				more := make([]float64, len(spent[i]))
				for j := range more {
					more[j] = spent[i][j] - spent[plainGuard][j]
				}
				b.ReportMetric(median(more), serverGuards[i]+"-more-ns/message")
			}
		})
	}
}

// BenchmarkServerMemory shows what a guard adds to the server's heap for each connection.
func BenchmarkServerMemory(b *testing.B) {
	const conns = 1000
	heaps := make([]float64, len(serverGuards))
	for b.Loop() {
		for i, guard := range serverGuards {
			few, many := startServer(b, guard, 1), startServer(b, guard, 1+conns)
			_, before := few.command(b, cmdHeap)
			_, after := many.command(b, cmdHeap)
			heaps[i] = (after - before) / conns
			few.stop()
			many.stop()
		}
	}
	b.ReportMetric(heaps[plainGuard], "plain-B/conn")
	for i := thinGuard; i < len(heaps); i++ {
		b.ReportMetric(heaps[i]-heaps[plainGuard], serverGuards[i]+"-more-B/conn")
	}
}
