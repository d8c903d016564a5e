package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/netidle"
)

// This file is the story: six clients, and what must become of their connections.

const (
	askEvery = 10 * time.Second // by the busy clients, a sixth of the idle limit
	askUntil = 200 * time.Second
)

// A client has one connection. It does not take another if that is closed.
type client struct {
	name  string
	clock *clock
	conn  net.Conn
	in    *bufio.Reader
	since time.Time // when it last did something: just before it connected or asked
	began time.Time // when it connected
}

func story(ctx context.Context, clock *clock, book *ledger, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for name, part := range map[string]func(*client, *ledger) error{
		"anna": anna, "ben": ben, "carla": carla, "dora": dora, "emil": emil,
		"finn": finn,
	} {
		all.Go(func() {
			began := time.Now()
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				book.enter(conn.LocalAddr(), name)
				err = part(&client{name, clock, conn, bufio.NewReader(conn), began, began}, book)
			}
			if err != nil {
				mu.Lock()
				failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
				mu.Unlock()
				cancel() // the others need not play on
			}
		})
	}
	all.Wait()
	return failed
}

// anna connects and says nothing.
func anna(c *client, book *ledger) error {
	c.clock.say("anna: connects, and says nothing")
	return c.expectReaped(book, netidle.Idle)
}

// ben asks once and keeps the connection, as browsers do.
func ben(c *client, book *ledger) error {
	time.Sleep(c.clock.real(20 * time.Second))
	if err := c.ask("/", "hello\n"); err != nil {
		return err
	}
	c.clock.say("ben: was answered, and keeps his connection, silent")
	return c.expectReaped(book, netidle.Idle)
}

// carla asks all the time, and leaves before her connection is too old.
func carla(c *client, _ *ledger) error {
	c.clock.say("carla: asks every %v", askEvery)
	asked := 0
	for time.Since(c.began) < c.clock.real(askUntil) {
		if err := c.ask("/", "hello\n"); err != nil {
			return c.unlessStalled(err)
		}
		asked++
		time.Sleep(c.clock.real(askEvery))
	}
	c.clock.say("carla: was answered %d times on one connection, and leaves", asked)
	return nil
}

// dora asks for what takes longer than the idle limit.
func dora(c *client, book *ledger) error {
	c.clock.say("dora: asks for the report, which takes %v", reportTime)
	if err := c.ask("/report", "the report\n"); err != nil {
		return err
	}
	if early := c.clock.real(reportTime) - time.Since(c.since); early > 0 {
		return fmt.Errorf("the report came %v early", early)
	}
	c.clock.say("dora: has the report, her connection was not closed")
	c.since = c.since.Add(c.clock.real(reportTime)) // the answer cannot have been written before
	return c.expectReaped(book, netidle.Idle)
}

// emil asks all the time, until his connection is too old.
func emil(c *client, book *ledger) error {
	c.clock.say("emil: asks every %v, for ever", askEvery)
	for c.ask("/", "hello\n") == nil {
		time.Sleep(c.clock.real(askEvery))
	}
	if book.reason(c.conn.LocalAddr()) == netidle.Idle {
		return c.unlessStalled(errors.New("closed as idle"))
	}
	return c.expectReaped(book, netidle.Lifetime)
}

// finn uploads, and stops in the middle.
func finn(c *client, book *ledger) error {
	_, err := io.WriteString(c.conn, "POST /upload HTTP/1.1\r\nHost: example.com\r\n"+
		"Content-Length: 10\r\n\r\nabc")
	if err != nil {
		return err
	}
	c.clock.say("finn: has sent three bytes of ten, and stops")
	return c.expectReaped(book, netidle.ReadIdle)
}

// ask sends a request and checks the answer.
func (c *client) ask(path, want string) error {
	c.since = time.Now()
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", path); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != want {
		err = fmt.Errorf("answer %q instead of %q", body, want)
	}
	return err
}

// expectReaped waits until the server closes the connection, which must be for the given
// reason and not before its time.
func (c *client) expectReaped(book *ledger, want netidle.Reason) error {
	c.in.ReadByte() // waits for the end
	if why := book.reason(c.conn.LocalAddr()); why != want {
		return fmt.Errorf("closed for the reason %v, not %v", why, want)
	}
	due := c.since.Add(c.clock.real(idleLimit))
	switch want {
	case netidle.ReadIdle:
		due = c.since.Add(c.clock.real(bodyLimit))
	case netidle.Lifetime:
		due = c.began.Add(c.clock.real(lifeLimit))
	}
	if early := time.Until(due); early > 0 {
		return fmt.Errorf("closed %v early", early)
	}
	return nil
}

// unlessStalled returns nil if this program was held up for so long that a busy client's
// connection really was idle: then the server was right to close it.
func (c *client) unlessStalled(err error) error {
	if time.Since(c.since) < c.clock.real(idleLimit-askEvery) && time.Since(c.began) < c.clock.real(lifeLimit) {
		return err
	}
	c.clock.say("%s: this machine stalls, the connection really was idle", c.name)
	return nil
}
