package netidle_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// A server closes connections on which nothing was read or written for a while. A client falls
// silent.
func Example() {
	tw := timingwheel.New()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	reasons := make(chan netidle.Reason, 1)
	limits := netidle.Limits{Idle: 20 * time.Millisecond, Lifetime: time.Hour}
	guarded := netidle.NewListener(ln, tw, limits,
		netidle.WithOnTimeout(func(c *netidle.Conn, why netidle.Reason) { reasons <- why }))
	defer guarded.Close()
	go func() { // an echo server
		for {
			conn, err := guarded.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.Read(make([]byte, 1)) // the client waits, and sends nothing
	fmt.Println("the client reads:", err)
	fmt.Println("the server's reason:", <-reasons)
	// Output:
	// the client reads: EOF
	// the server's reason: idle
}

// The owner of a single connection learns of the limit by an error.
func ExampleNewConn() {
	tw := timingwheel.New()
	inner, peer := net.Pipe() // or what net.Dial returned
	defer peer.Close()

	conn := netidle.NewConn(inner, tw, netidle.Limits{ReadIdle: 10 * time.Millisecond})
	defer conn.Close()
	_, err := conn.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, netidle.ErrTimeout), conn.Reason())
	// Output: true read idle
}

// A server lifts the limits while it computes, so that only the peer's silence counts.
func ExampleConn_SetLimits() {
	tw := timingwheel.New()
	inner, peer := net.Pipe()
	defer peer.Close()
	limits := netidle.Limits{Idle: time.Second}
	conn := netidle.NewConn(inner, tw, limits)
	defer conn.Close()

	conn.SetLimits(netidle.Limits{})
	time.Sleep(50 * time.Millisecond) // a long computation
	fmt.Println("while it computes:", conn.Reason())

	limits.Idle = 20 * time.Millisecond
	conn.SetLimits(limits)
	conn.Read(make([]byte, 1)) // the peer stays silent
	fmt.Println("while it waits:", conn.Reason())
	// Output:
	// while it computes: none
	// while it waits: idle
}

// A server pings a silent client and closes the connection if no answer comes.
func ExampleWithExtend() {
	tw := timingwheel.New()
	inner, client := net.Pipe()
	defer client.Close()

	conn := netidle.NewConn(inner, tw, netidle.Limits{ReadIdle: 20 * time.Millisecond},
		netidle.WithExtend(func(c *netidle.Conn, why netidle.Reason, n int) time.Duration {
			if why != netidle.ReadIdle || n > 0 {
				return 0 // the client has not answered the ping
			}
			c.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := io.WriteString(c, "ping"); err != nil {
				return 0
			}
			return 10 * time.Millisecond
		}))
	defer conn.Close()

	received := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(client)
		received <- all
	}()
	_, err := conn.Read(make([]byte, 1))
	fmt.Println("the server reads:", errors.Is(err, netidle.ErrTimeout), conn.Reason())
	fmt.Printf("the client received: %s\n", <-received)
	// Output:
	// the server reads: true read idle
	// the client received: ping
}

// With HTTPListener a client that stalls in the middle of a body loses its connection, while
// handlers may work for any time.
func ExampleHTTPListener() {
	tw := timingwheel.New()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	failed := make(chan error, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		failed <- err
	})}
	reasons := make(chan netidle.Reason, 1)
	guarded := netidle.HTTPListener(server, ln, tw, netidle.HTTPLimits{
		Header:   10 * time.Second,
		Body:     50 * time.Millisecond,
		Response: 30 * time.Second,
		Idle:     time.Minute,
		Hijacked: netidle.Limits{Idle: time.Minute},
	}, netidle.WithOnTimeout(func(c *netidle.Conn, why netidle.Reason) { reasons <- why }))
	go server.Serve(guarded)
	defer server.Close()

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	io.WriteString(client, "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\nabc")
	io.ReadAll(client) // until the server closes the connection
	fmt.Println("the handler reads to a timeout:", errors.Is(<-failed, netidle.ErrTimeout))
	fmt.Println("the server's reason:", <-reasons)
	// Output:
	// the handler reads to a timeout: true
	// the server's reason: read idle
}
