// Quickstart shows the calls of package timingwheel one after the other and
// tells what happens, with the time since the start.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// A session is closed when it has not been used for a while. Its Timer is a part
// of it, so arming it, as often as one likes, allocates nothing.
type session struct {
	user string
	idle timingwheel.Timer
}

// onTheHalf runs at every full and half second of the wall clock. Whatever has
// this method is a Scheduler, such as the schedules of robfig/cron.
type onTheHalf struct{}

func (onTheHalf) Next(t time.Time) time.Time {
	const half = 500 * time.Millisecond
	return t.Truncate(half).Add(half)
}

func main() {
	flags := flag.NewFlagSet("quickstart", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Shows the calls of package timingwheel one after the other, in four seconds.\n\nusage: go run ./examples/quickstart\n")
	}
	flags.Parse(os.Args[1:])
	if flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "quickstart: there are no arguments (-h says what it shows)")
		os.Exit(2)
	}
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	start := time.Now()
	lines := log.New(out, "", 0) // callbacks run on goroutines of their own
	say := func(format string, args ...any) {
		lines.Printf("%5d ms  %s", time.Since(start).Milliseconds(), fmt.Sprintf(format, args...))
	}

	// One wheel serves a whole program. It runs from its first timer on.
	tw := timingwheel.New()

	tw.AfterFunc(100*time.Millisecond, func() { say("AfterFunc: called after 100 ms") })

	unwanted := tw.AfterFunc(150*time.Millisecond, func() { say("never printed") })
	say("Stop: %t, the call after 150 ms will not be made", unwanted.Stop())

	moved := tw.AfterFunc(200*time.Millisecond, func() { say("Reset: called after 300 ms instead of 200") })
	say("Reset: %t, it was pending and now has 300 ms from here", moved.Reset(300*time.Millisecond))

	s := &session{user: "gopher"}
	tw.Init(&s.idle, func() { say("Init: session of %s closed, idle for 250 ms", s.user) })
	s.idle.Reset(250 * time.Millisecond)
	for range 3 {
		time.Sleep(150 * time.Millisecond)
		say("Init: session of %s used, which resets its timer", s.user)
		s.idle.Reset(250 * time.Millisecond)
	}
	time.Sleep(400 * time.Millisecond)

	say("Every: each 200 ms from now on")
	beats := tw.ScheduleFunc(timingwheel.Every(200*time.Millisecond), func() { say("Every: beat") })
	time.Sleep(700 * time.Millisecond)
	say("Every: stopped, %t", beats.Stop())

	halves := tw.ScheduleFunc(onTheHalf{}, func() {
		say("Scheduler: the clock shows %s", time.Now().Format("15:04:05.000"))
	})
	time.Sleep(700 * time.Millisecond)
	halves.Stop()

	tw.AfterFunc(time.Hour, func() { say("never printed either") })
	tw.AfterFunc(0, func() {
		say("Shutdown: a callback is at work")
		time.Sleep(200 * time.Millisecond)
		say("Shutdown: the callback is done")
	})
	say("Shutdown: drops what is pending (%d timer) and waits for callbacks under way", tw.Len())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := tw.Shutdown(ctx)
	say("Shutdown: error %v, no goroutine of the wheel is left", err)
	return err
}
