// Httpidle is an HTTP server whose connections are closed by package netidle when they have waited
// a minute for a request or half a minute for the rest of a body, or are 230 seconds old. Six
// clients try it, and the program checks what becomes of each.
//
//	go run ./examples/httpidle    four minutes in eight seconds
//
// File server.go is the part to copy.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/netidle"
)

const (
	idleLimit  = time.Minute
	bodyLimit  = 30 * time.Second
	lifeLimit  = 230 * time.Second
	reportTime = 150 * time.Second
	askEvery   = 10 * time.Second
)

func main() {
	story.Program{
		Scale:  30,
		Layout: "04:05.0",
		Play:   play,
		Passed: "each connection was closed for the right reason, not early",
	}.Main()
}

func play(r *story.Run) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	story.Must(err)
	limits := netidle.HTTPLimits{Idle: r.Real(idleLimit), Body: r.Real(bodyLimit),
		Response: r.Real(bodyLimit), Lifetime: r.Real(lifeLimit)}
	var names sync.Map // of the clients, by address
	closed := func(c *netidle.Conn, why netidle.Reason) {
		name, _ := names.Load(c.RemoteAddr().String())
		r.See(time.Now(), "the connection of %s is closed, reason: %v", name, why)
		r.Printf("server: closed the connection of %s, reason: %v", name, why)
	}
	r.Printf("server: limits are idle %v, body %v, life %v", idleLimit, bodyLimit, lifeLimit)
	stop := story.Background(func(ctx context.Context) error {
		return serve(ctx, &http.Server{Handler: handler(r)}, l, limits, closed)
	})
	story.Together(len(clients), func(i int) {
		began := time.Now() // before the server knows of the connection
		conn, err := net.Dial("tcp", l.Addr().String())
		story.Must(err)
		defer conn.Close()
		names.Store(conn.LocalAddr().String(), clients[i].name)
		clients[i].visit(r, conn, began)
	})
	// A client may see the end of its connection before the server tells.
	story.Must(r.Await(0, r.Verdict))
	story.Must(stop())
}

func handler(r *story.Run) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/report" {
			time.Sleep(r.Real(reportTime))
		}
		if n, err := io.Copy(io.Discard, req.Body); err == nil {
			fmt.Fprintf(w, "hello, you have sent %d bytes\n", n)
		}
	}
}

// A client has a connection, on which it asks every ten seconds.
type client struct {
	name, plan string
	times      int // how often it asks
	request    string
	reason     netidle.Reason // why the connection is closed; 0 if the client closes it
	limit      time.Duration  // from its last request, or from the beginning if its life ends
}

const (
	get    = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"
	report = "GET /report HTTP/1.1\r\nHost: example.com\r\n\r\n"
	upload = "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\nabc"
)

var clients = []client{
	{"anna", "connects, and says nothing", 0, "", netidle.Idle, idleLimit},
	{"ben", "asks twice, and keeps his connection", 2, get, netidle.Idle, idleLimit},
	{"carla", "asks every 10s, 20 times, and leaves", 20, get, 0, 0},
	{"dora", "asks for a report that takes 2m30s", 1, report, netidle.Idle, reportTime + idleLimit},
	{"emil", "asks every 10s, forever", 1000, get, netidle.Lifetime, lifeLimit},
	{"finn", "uploads three bytes of ten, and stops", 1, upload, netidle.ReadIdle, bodyLimit},
}

func (c client) visit(r *story.Run, conn net.Conn, began time.Time) {
	const isClosed = "the connection of %s is closed, reason: %v"
	r.Printf("%s: %s", c.name, c.plan)
	in, last := bufio.NewReader(conn), began // when it last gave a sign of life
	for i := range c.times {
		before := last
		last = time.Now()
		if err := ask(conn, in, c.request); err == nil && i == c.times-1 {
			r.Printf("%s: got the last answer", c.name)
		} else if err != nil && time.Since(before) >= r.Real(idleLimit-askEvery) {
			r.Printf("%s: this machine is so busy that the connection was idle", c.name)
			r.Want(0, 1, before.Add(r.Real(idleLimit)), isClosed, c.name, netidle.Idle)
			return
		} else if err != nil && (c.reason == netidle.Lifetime || c.reason == netidle.ReadIdle) {
			break // as planned
		} else if err != nil {
			story.Must(fmt.Errorf("%s: %w", c.name, err))
		}
		time.Sleep(r.Real(askEvery))
	}
	if c.reason == netidle.Lifetime {
		last = began
	}
	if c.reason != 0 {
		r.Want(1, 1, last.Add(r.Real(c.limit)), isClosed, c.name, c.reason)
		in.ReadByte() // waits for the end
	}
}

// ask sends a request and reads the answer.
func ask(conn net.Conn, in *bufio.Reader, request string) error {
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
