package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// This file holds both ends of the wire: a plug that can be switched over TCP,
// and tell, which switches one. The protocol is a line, on or off, which the plug
// sends back when it has done so. plug.mu guards the fields under it.

// answerWithin is how long a plug may take to answer. A real network decides, and
// not the story.
const answerWithin = 10 * time.Second

func word(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// tell switches the plug at addr.
func tell(ctx context.Context, addr string, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintln(conn, word(on)); err != nil {
		return err
	}
	answer, err := bufio.NewReader(io.LimitReader(conn, 16)).ReadString('\n')
	switch {
	case err == io.EOF:
		return fmt.Errorf("%s hung up", addr)
	case err != nil:
		return err
	case strings.TrimSpace(answer) != word(on):
		return fmt.Errorf("%s answered %q", addr, answer)
	}
	return nil
}

// A change is what a plug did.
type change struct {
	at time.Time // real
	on bool
}

type plug struct {
	ln    net.Listener
	conns sync.WaitGroup

	mu      sync.Mutex
	offline bool // hangs up on whoever calls
	on      bool
	changes []change
}

// newPlug begins to serve. A plug is off at first.
func newPlug() (*plug, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &plug{ln: ln}
	p.conns.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			p.conns.Go(func() { p.serve(conn) })
		}
	})
	return p, nil
}

func (p *plug) addr() string { return p.ln.Addr().String() }

func (p *plug) close() {
	p.ln.Close()
	p.conns.Wait()
}

// setOffline takes the plug off the network or brings it back. Its port stays
// open, or another program might get it meanwhile.
func (p *plug) setOffline(offline bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offline = offline
}

func (p *plug) history() []change {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes[:len(p.changes):len(p.changes)]
}

func (p *plug) serve(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(answerWithin))
	said, err := bufio.NewReader(io.LimitReader(conn, 16)).ReadString('\n')
	if err != nil {
		return
	}
	on := strings.TrimSpace(said) == "on"
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offline {
		return
	}
	if p.on != on {
		p.on = on
		p.changes = append(p.changes, change{time.Now(), on})
	}
	fmt.Fprintln(conn, word(on))
}
