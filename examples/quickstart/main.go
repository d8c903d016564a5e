// Quickstart shows the calls of package timingwheel one after the other, and prints what happens
// with the time since the start.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// A session is closed when it has not been used for a while. It contains its Timer, so arming the
// timer does not allocate.
type session struct {
	user string
	idle timingwheel.Timer
}

// onTheHalf is a Scheduler that runs at every full and half second of the wall clock. The
// schedules of robfig/cron are Schedulers too.
type onTheHalf struct{}

func (onTheHalf) Next(t time.Time) time.Time {
	const half = 500 * time.Millisecond
	return t.Truncate(half).Add(half)
}

func main() {
	start := time.Now()
	log.SetFlags(0) // package log, because callbacks run on goroutines of their own
	log.SetOutput(os.Stdout)
	say := func(format string, args ...any) {
		log.Printf("%5d ms  %s", time.Since(start).Milliseconds(), fmt.Sprintf(format, args...))
	}

	// One wheel serves a whole program. It runs from its first timer.
	tw := timingwheel.New()

	tw.AfterFunc(100*time.Millisecond, func() { say("AfterFunc: called after 100 ms") })

	unwanted := tw.AfterFunc(150*time.Millisecond, func() { say("never printed") })
	say("Stop: %t, the call after 150 ms is not made", unwanted.Stop())

	moved := tw.AfterFunc(200*time.Millisecond, func() { say("Reset: called after 300 ms") })
	say("Reset: %t, the call was pending and moves to 300 ms", moved.Reset(300*time.Millisecond))

	s := &session{user: "gopher"}
	tw.Init(&s.idle, func() { say("Init: session of %s closed, idle for 250 ms", s.user) })
	s.idle.Reset(250 * time.Millisecond)
	for range 3 {
		time.Sleep(150 * time.Millisecond)
		say("Init: session of %s used, which resets its timer", s.user)
		s.idle.Reset(250 * time.Millisecond)
	}
	time.Sleep(400 * time.Millisecond)

	say("Every: every 200 ms from now on")
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
		say("Shutdown: a callback is running")
		time.Sleep(200 * time.Millisecond)
		say("Shutdown: the callback has returned")
	})
	say("Shutdown: drops %d pending timer and waits for running callbacks", tw.Len())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := tw.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	say("Shutdown: no goroutine of the wheel is left")
}
