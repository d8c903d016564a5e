package redisstore_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A proxy stands between clients and a server, and loses what it is told to lose.
type proxy struct {
	listener net.Listener
	server   string
	group    sync.WaitGroup

	// Of so many reads from one side, one is lost, and 0 for none: an answer that is lost closes
	// the connection; a request that is late arrives after hold, though its client be gone.
	loseAnswer, delayRequest atomic.Int64
	hold                     time.Duration

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newProxy(t testing.TB, server string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, server: server, conns: map[net.Conn]bool{}}
	p.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.group.Wait()
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { // requests
		p.copy(server, client, func() bool {
			if oneOf(&p.delayRequest) {
				time.Sleep(p.hold)
			}
			return true
		})
		time.Sleep(10 * time.Millisecond) // the server reads what was late before it hears the end
		_ = server.Close()
	})
	p.copy(client, server, func() bool { return !oneOf(&p.loseAnswer) })
	_ = client.Close()
	group.Wait()
	_ = server.Close()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

func oneOf(n *atomic.Int64) bool {
	of := n.Load()
	return of > 0 && rand.Int64N(of) == 0
}

func (p *proxy) copy(to io.Writer, from io.Reader, pass func() bool) {
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if !pass() {
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
