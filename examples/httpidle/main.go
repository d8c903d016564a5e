// Httpidle is an HTTP server whose connections are closed by package netidle when they have waited
// a minute for a request or half a minute for the rest of a body, or are 230 seconds old. In four
// minutes two clients are silent and lose their connections, as does one that stops in the middle
// of an upload; a busy one keeps hers, one waits for a report that takes longer than the limits,
// and one never stops and is closed for its age. The program checks what becomes of each.
//
//	go run ./examples/httpidle              four minutes in eight seconds
//	go run ./examples/httpidle -scale 1     in real time
//	go run ./examples/httpidle -addr localhost:8080 -scale 6
//
// The last serves until it is interrupted; try it with
//
//	telnet localhost 8080
//	curl localhost:8080/ localhost:8080/report
//
// File reaper.go is the part to copy.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
	"github.com/go-timingwheel/timingwheel/netidle"
)

const (
	idleLimit  = time.Minute
	bodyLimit  = 30 * time.Second
	lifeLimit  = 230 * time.Second
	reportTime = 150 * time.Second
)

func main() {
	story.Program{
		Name:     "httpidle",
		About:    "Httpidle is an HTTP server that closes idle and old connections, with clients that try it.",
		Passed:   "each connection was closed for the right reason and not early, or not at all",
		Scale:    30,
		MaxScale: 300, // an idle limit of 200 ms
		Layout:   "04:05.0",
		Serves:   true,
		Play:     play,
	}.Main()
}

func play(ctx context.Context, r *story.Run) error {
	l, err := net.Listen("tcp", cmp.Or(r.Addr, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	tw := timingwheel.New()
	var names sync.Map // of the clients, by address
	reaper := &reaper{
		tw: tw,
		limits: netidle.HTTPLimits{
			Idle: r.Real(idleLimit), Body: r.Real(bodyLimit), Response: r.Real(bodyLimit), Lifetime: r.Real(lifeLimit),
		},
		reaped: func(c *netidle.Conn, why netidle.Reason) {
			name, known := names.Load(c.RemoteAddr().String())
			if !known {
				name = c.RemoteAddr()
			}
			r.See(time.Now(), "the connection of %s is closed, reason: %v", name, why)
			r.Printf("server: closed the connection of %s, reason: %v", name, why)
		},
	}
	server := &http.Server{Handler: handler(r)}
	served := make(chan error, 1)
	go func() { served <- reaper.serve(server, l) }()
	r.Printf("server: at %v, idle limit %v, body limit %v, lifetime %v", l.Addr(), idleLimit, bodyLimit,
		lifeLimit)
	if r.Addr == "" {
		err = story.Together(len(clients), func(i int) error {
			if err := clients[i].play(ctx, r, l.Addr().String(), &names); err != nil {
				return fmt.Errorf("%s: %w", clients[i].name, err)
			}
			return nil
		})
		err = errors.Join(err, r.Await(ctx, 0, r.Verdict)) // a client may see the end before the server tells
	} else {
		<-ctx.Done()
	}
	// The connections end first, and then the wheel, which holds their limits.
	err = errors.Join(err, story.Within(server.Shutdown), story.Within(tw.Shutdown))
	if cause := <-served; !errors.Is(cause, http.ErrServerClosed) {
		err = errors.Join(err, cause)
	}
	return err
}

func handler(r *story.Run) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	mux.HandleFunc("/report", func(w http.ResponseWriter, req *http.Request) {
		if story.Sleep(req.Context(), r.Real(reportTime)) == nil {
			io.WriteString(w, "the report\n")
		}
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err == nil {
			fmt.Fprintf(w, "%d bytes\n", n)
		}
	})
	return mux
}

// A client has one connection, on which it asks every ten seconds.
type client struct {
	name, plan string
	first      time.Duration // when it asks for the first time
	times      int           // how often it asks
	request    string
	reason     netidle.Reason // why the connection is closed; 0 if the client closes it
	limit      time.Duration  // from its last request
}

const (
	askEvery = 10 * time.Second
	forever  = 1000
)

var clients = []client{
	{"anna", "connects, and says nothing", 0, 0, "", netidle.Idle, idleLimit},
	{"ben", "asks once, and keeps his connection", 20 * time.Second, 1, "GET /", netidle.Idle, idleLimit},
	{"carla", "asks every 10s, 20 times, and leaves", 0, 20, "GET /", 0, 0},
	{"dora", "asks for the report, which takes 2m30s", 0, 1, "GET /report", netidle.Idle,
		reportTime + idleLimit},
	{"emil", "asks every 10s, forever", 0, forever, "GET /", netidle.Lifetime, 0},
	{"finn", "uploads three bytes of ten, and stops", 0, 1, "POST /upload", netidle.ReadIdle, bodyLimit},
}

func (c *client) play(ctx context.Context, r *story.Run, addr string, names *sync.Map) error {
	began := time.Now()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	names.Store(conn.LocalAddr().String(), c.name)
	r.Printf("%s: %s", c.name, c.plan)
	if err := story.Sleep(ctx, time.Until(began.Add(r.Real(c.first)))); err != nil {
		return err
	}
	in, last := bufio.NewReader(conn), began // when it last gave a sign of life
	for i := range c.times {
		before := last
		last = time.Now()
		if err := ask(conn, in, c.request); err != nil {
			if time.Since(before) >= r.Real(idleLimit-askEvery) {
				r.Printf("%s: this machine is so busy that the connection was idle", c.name)
				r.Want(0, 1, before.Add(r.Real(idleLimit)), "the connection of %s is closed, reason: %v", c.name,
					netidle.Idle)
				return nil
			} else if c.reason != netidle.Lifetime && c.reason != netidle.ReadIdle {
				return err
			}
			break
		}
		if i == c.times-1 {
			r.Printf("%s: got the last answer", c.name)
		}
		if err := story.Sleep(ctx, r.Real(askEvery)); err != nil {
			return err
		}
	}
	if c.reason == 0 {
		return nil
	}
	due := last.Add(r.Real(c.limit))
	if c.reason == netidle.Lifetime {
		due = began.Add(r.Real(lifeLimit))
	}
	r.Want(1, 1, due, "the connection of %s is closed, reason: %v", c.name, c.reason)
	in.ReadByte() // waits for the end
	return nil
}

// ask sends a request and reads the answer. Of a body it sends the beginning only.
func ask(conn net.Conn, in *bufio.Reader, request string) error {
	body := ""
	if strings.HasPrefix(request, "POST") {
		body = "Content-Length: 10\r\n\r\nabc"
	}
	if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: example.com\r\n%s", request,
		cmp.Or(body, "\r\n")); err != nil {
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
