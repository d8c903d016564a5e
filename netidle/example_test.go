package netidle_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// A server whose connections are closed when nothing was read or written for a while, and
// a client that falls silent.
func Example() {
	tw := timingwheel.New()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	reasons := make(chan netidle.Reason, 1)
	guarded := netidle.NewListener(ln, tw, netidle.Limits{Idle: 20 * time.Millisecond, Life: time.Hour},
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

// One connection, and the error by which its owner learns of the limit.
func ExampleNewConn() {
	tw := timingwheel.New()
	inner, peer := net.Pipe() // or what net.Dial returned
	defer peer.Close()

	conn := netidle.NewConn(inner, tw, netidle.Limits{Read: 10 * time.Millisecond})
	defer conn.Close()
	_, err := conn.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, netidle.ErrTimeout), conn.Reason())
	// Output: true read idle
}

// The limits are lifted while the server, and not the peer, keeps a connection waiting.
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
