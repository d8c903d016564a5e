// Heartbeats watches ten thousand clients, each of which sends a heartbeat every
// second over UDP. One that has been silent for five seconds is suspected; when it
// is heard again it is not any more. Each client has a Timer that every heartbeat
// pushes on, by one clock reading for a packet of a hundred and without a lock.
//
// In the story 500 clients die at one moment, and some of them come back. The
// program checks that exactly these are suspected, judged by when the server read
// the heartbeats: none early, none forgotten. On a machine so busy that nothing was
// read from a client for that long it is suspected rightly, and counted apart.
//
// detector.go is what you would copy; it knows nothing of the story and how fast it
// passes.
//
//	go run ./examples/heartbeats                            15 seconds of the story in eight
//	go run ./examples/heartbeats -scale 1 -clients 100000   in real time, and more of them
//	go run ./examples/heartbeats -addr 127.0.0.1:7070       serve until ctrl-C
//
// With -addr try: echo 1 2 3 | nc -u -w1 127.0.0.1 7070
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

const (
	interval = time.Second     // between two heartbeats of a client
	limit    = 5 * time.Second // of silence

	// tick is as coarse as the limit allows: what rounding adds does not matter
	// beside the interval, and the wheel wakes a tenth as often as by default.
	tick = 10 * time.Millisecond

	// shutdownWithin is how long callbacks under way get at the end.
	shutdownWithin = 10 * time.Second
)

func main() {
	flags := flag.NewFlagSet("heartbeats", flag.ExitOnError)
	scale := flags.Float64("scale", 2, "how many seconds of the story pass in one")
	clients := flags.Int("clients", 10000, "`n` clients, of which one in twenty dies")
	addr := flags.String("addr", "", "serve at this UDP `address` in real time until ctrl-C, and play no story")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Watches clients by their heartbeats, and plays a story in which some die.\n\nusage: go run ./examples/heartbeats [flags]\n\n")
		flags.PrintDefaults()
	}
	flags.Parse(os.Args[1:])
	if flags.NArg() > 0 || !(*scale >= 0.1 && *scale <= 20) || *clients < 20 || *clients > 200000 {
		fmt.Fprintln(os.Stderr, "heartbeats: -scale is between 0.1 and 20, -clients between 20 and 200000, and there are no arguments")
		os.Exit(2)
	}
	var err error
	if *addr != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = serve(ctx, os.Stdout, *addr, *clients)
		stop()
	} else {
		err = run(os.Stdout, *scale, *clients)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "heartbeats:", err)
		os.Exit(1)
	}
}

// serve is the detector without a story, until ctx ends.
func serve(ctx context.Context, out io.Writer, addr string, clients int) error {
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	lines := log.New(out, "", log.Ldate|log.Ltime)
	wheel := timingwheel.New(timingwheel.WithTick(tick))
	d := newDetector(wheel, clients, limit, func(v verdict) {
		if v.suspect {
			lines.Printf("client %d is suspected, silent for %v", v.client, v.at.Sub(v.heard).Round(time.Millisecond))
		} else {
			lines.Printf("client %d is back", v.client)
		}
	})
	s := listen(conn, clients, func(clients []int, at time.Time) {
		for _, i := range clients {
			d.beat(i, at)
		}
	})
	lines.Printf("serving at %s, ctrl-C ends it", conn.LocalAddr())
	<-ctx.Done()
	err = s.close()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	if down := wheel.Shutdown(ctx); down != nil {
		return down
	}
	return err
}
