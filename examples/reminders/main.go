// Reminders is a small HTTP service for what is due in hours and days: a calendar
// that reminds half an hour before a meeting, also when the meeting is moved;
// tickets that escalate after 24 hours without an answer, and again a day later;
// and messages that are pushed to all subscribers at one instant.
//
// It plays a story of two days with clients of its own, over real connections,
// and checks at the end that everybody got what was due, no more, and not
// early. calendar.go, desk.go and hub.go are what you would copy; they know
// nothing of the story and how fast it passes.
//
//	go run ./examples/reminders                         two days in eight seconds
//	go run ./examples/reminders -scale 7200             the same in 25
//	go run ./examples/reminders -addr 127.0.0.1:8080    serve in real time until ctrl-C
//
// With -addr try
//
//	curl -N '127.0.0.1:8080/events?name=anna' &
//	curl 127.0.0.1:8080/meetings -d '{"title":"review", "with":["anna"], "start":"2030-01-31T10:00:00+01:00"}'
//	curl 127.0.0.1:8080/meetings/1/move -d '{"start":"2030-01-31T15:00:00+01:00"}'
//	curl -X DELETE 127.0.0.1:8080/meetings/1
//	curl 127.0.0.1:8080/tickets -d '{"subject":"printer on fire"}'
//	curl -X POST 127.0.0.1:8080/tickets/1/answer
//	curl 127.0.0.1:8080/pushes -d '{"at":"2030-01-31T12:00:00+01:00", "text":"lunch"}'
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
)

func main() {
	flags := flag.NewFlagSet("reminders", flag.ExitOnError)
	scale := flags.Float64("scale", 21600, "how many seconds of the story pass in one")
	subscribers := flags.Int("subscribers", 300, "`n` streams are open when the message is pushed, 4 at least")
	addr := flags.String("addr", "", "serve at this `address` in real time until ctrl-C, and play no story")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Serves meetings with reminders, tickets that escalate and messages pushed to all,\nand plays a story of two days with them.\n\nusage: go run ./examples/reminders [flags]\n\n")
		flags.PrintDefaults()
	}
	flags.Parse(os.Args[1:])
	if flags.NArg() > 0 || !(*scale >= 1 && *scale <= 1e6) || *subscribers < 4 || *subscribers > 5000 {
		fmt.Fprintln(os.Stderr, "reminders: -scale is between 1 and 1000000, -subscribers between 4 and 5000, and there are no arguments")
		os.Exit(2)
	}
	var err error
	if *addr != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = serve(ctx, os.Stdout, *addr)
		stop()
	} else {
		err = run(os.Stdout, *scale, *subscribers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reminders:", err)
		os.Exit(1)
	}
}

// serve is the service without a story, until ctx ends.
func serve(ctx context.Context, out io.Writer, addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	lines := log.New(out, "", log.Ldate|log.Ltime)
	s := start(ln, newStoryClock(time.Now().Round(0), 1), lines.Printf)
	lines.Printf("serving at %s, ctrl-C ends it", ln.Addr())
	<-ctx.Done()
	return s.shutdown()
}
