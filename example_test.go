package timingwheel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

func Example() {
	tw := timingwheel.New()
	done := make(chan struct{})
	tw.AfterFunc(10*time.Millisecond, func() {
		fmt.Println("time is up")
		close(done)
	})
	<-done
	// Output: time is up
}

func ExampleNew() {
	tw := timingwheel.New(
		timingwheel.WithTick(10*time.Millisecond), // timeouts of seconds need no finer
		timingwheel.WithWheelSize(512),
	)
	tw.AfterFunc(time.Minute, func() {})
	fmt.Println(tw.Len())
	tw.Stop()
	// Output: 1
}

func ExampleNewTimingWheel() {
	tw := timingwheel.NewTimingWheel(time.Millisecond, 20)
	tw.Start()
	defer tw.Stop()
	done := make(chan struct{})
	tw.AfterFunc(time.Millisecond, func() { close(done) })
	<-done
	fmt.Println("fired")
	// Output: fired
}

func ExampleTimingWheel_Start() {
	tw := timingwheel.NewTimingWheel(time.Millisecond, 20)
	done := make(chan struct{})
	tw.AfterFunc(0, func() { close(done) })
	time.Sleep(5 * time.Millisecond)
	fmt.Println("pending before Start:", tw.Len())
	tw.Start() // what is overdue fires now
	<-done
	fmt.Println("pending after:", tw.Len())
	// Output:
	// pending before Start: 1
	// pending after: 0
}

func ExampleTimingWheel_AfterFunc() {
	tw := timingwheel.New()
	start := time.Now()
	done := make(chan time.Duration)
	tw.AfterFunc(20*time.Millisecond, func() { done <- time.Since(start) })
	fmt.Println("never early:", <-done >= 20*time.Millisecond)
	// Output: never early: true
}

func ExampleTimingWheel_AtFunc() {
	tw := timingwheel.New()
	done := make(chan time.Time)
	// A time that was stored or parsed follows the wall clock.
	at := time.Now().Add(10 * time.Millisecond).Round(0)
	tw.AtFunc(at, func() { done <- time.Now() })
	fmt.Println("before its time:", (<-done).Before(at))
	// Output: before its time: false
}

func ExampleTimingWheel_ScheduleFunc() {
	tw := timingwheel.New(timingwheel.WithInline())
	runs := make(chan int, 100)
	n := 0
	job := tw.ScheduleFunc(timingwheel.Every(2*time.Millisecond), func() { n++; runs <- n })
	fmt.Println("runs", <-runs, <-runs, <-runs)
	fmt.Println("was alive:", job.Stop())
	// Output:
	// runs 1 2 3
	// was alive: true
}

// backoff is a Scheduler whose gaps grow, and which gives up after the last.
type backoff struct{ gaps []time.Duration }

func (b *backoff) Next(prev time.Time) time.Time {
	if len(b.gaps) == 0 {
		return time.Time{} // no further run
	}
	gap := b.gaps[0]
	b.gaps = b.gaps[1:]
	return prev.Add(gap)
}

func ExampleScheduler() {
	tw := timingwheel.New(timingwheel.WithInline())
	tries := make(chan int, 3)
	try := 0
	tw.ScheduleFunc(&backoff{[]time.Duration{time.Millisecond, 2 * time.Millisecond,
		4 * time.Millisecond}},
		func() { try++; tries <- try }, timingwheel.RunMissed())
	fmt.Println(<-tries, <-tries, <-tries)
	fmt.Println("pending:", tw.Len())
	// Output:
	// 1 2 3
	// pending: 0
}

func ExampleEvery() {
	every := timingwheel.Every(90 * time.Second)
	fmt.Println(every.Next(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)).Format(time.TimeOnly))
	// Output: 12:01:30
}

func ExampleSkipWhileRunning() {
	tw := timingwheel.New()
	job := tw.ScheduleFunc(timingwheel.Every(time.Minute), func() {
		// may take longer than a minute
	}, timingwheel.SkipWhileRunning(), timingwheel.SkipMissed(10*time.Second))
	fmt.Println(job.Pending())
	// Output: true
}

func ExampleQueueWhileRunning() {
	tw := timingwheel.New()
	// Every run takes place, none beside another, and those that a suspend of
	// the machine kept from running are made up for.
	job := tw.ScheduleFunc(timingwheel.Every(time.Minute), func() {},
		timingwheel.QueueWhileRunning(), timingwheel.RunMissed())
	fmt.Println(job.Stop(), job.Stop())
	// Output: true false
}

// hold keeps the driver of an inline wheel busy until release is called, as a suspend of
// the machine would.
func hold(tw *timingwheel.TimingWheel) (release func()) {
	held, released := make(chan struct{}), make(chan struct{})
	tw.AfterFunc(0, func() { close(held); <-released })
	<-held
	return func() { close(released) }
}

func ExampleRunMissed() {
	tw := timingwheel.New(timingwheel.WithInline())
	runs := make(chan int, 3)
	run := 0

	release := hold(tw)
	tw.ScheduleFunc(&backoff{[]time.Duration{time.Millisecond, 2 * time.Millisecond,
		4 * time.Millisecond}},
		func() { run++; runs <- run }, timingwheel.RunMissed())
	time.Sleep(20 * time.Millisecond) // the times of all three runs pass
	release()

	fmt.Println("runs", <-runs, <-runs, <-runs)
	// Output: runs 1 2 3
}

func ExampleSkipMissed() {
	tw := timingwheel.New(timingwheel.WithInline())
	var runs atomic.Int64

	release := hold(tw)
	poll := tw.ScheduleFunc(&backoff{[]time.Duration{time.Millisecond, 2 * time.Millisecond,
		4 * time.Millisecond}},
		func() { runs.Add(1) }, timingwheel.SkipMissed(5*time.Millisecond))
	time.Sleep(20 * time.Millisecond) // each run is more than 5 ms late by now
	release()

	for poll.Pending() { // until the Scheduler has no further run
		time.Sleep(time.Millisecond)
	}
	fmt.Println("runs:", runs.Load())
	// Output: runs: 0
}

func ExampleStartNow() {
	tw := timingwheel.New()
	loaded := make(chan string)
	reload := tw.ScheduleFunc(timingwheel.Every(time.Hour), func() { loaded <- "settings loaded" },
		timingwheel.StartNow())
	fmt.Println(<-loaded) // at once, and in an hour again
	fmt.Println("goes on:", reload.Pending())
	reload.Stop()
	// Output:
	// settings loaded
	// goes on: true
}

func ExampleJitter() {
	tw := timingwheel.New(timingwheel.WithInline())
	start := time.Now()
	reported := make(chan time.Duration, 100)
	// A fleet of programs that were started together does not report together.
	report := tw.ScheduleFunc(timingwheel.Every(20*time.Millisecond),
		func() { reported <- time.Since(start) },
		timingwheel.Jitter(10*time.Millisecond))
	fmt.Println("before its time:", <-reported < 20*time.Millisecond,
		<-reported < 40*time.Millisecond)
	report.Stop()
	// Output: before its time: false false
}

func ExampleTimingWheel_Init() {
	type session struct {
		user string
		idle timingwheel.Timer // part of the struct: no allocation of its own
	}
	tw := timingwheel.New()
	s := &session{user: "gopher"}
	expired := make(chan string)
	tw.Init(&s.idle, func() { expired <- s.user })

	s.idle.Reset(time.Hour)                            // the session begins
	fmt.Println("touched:", s.idle.Reset(time.Hour))   // it was pending
	fmt.Println("cut:", s.idle.Reset(time.Nanosecond)) // likewise
	fmt.Println("expired:", <-expired)
	// Output:
	// touched: true
	// cut: true
	// expired: gopher
}

func ExampleTimingWheel_After() {
	tw := timingwheel.New()
	answers := make(chan string)
	select {
	case answer := <-answers:
		fmt.Println(answer)
	case <-tw.After(10 * time.Millisecond):
		fmt.Println("no answer in time")
	}
	// Output: no answer in time
}

func ExampleTimingWheel_NewTimer() {
	tw := timingwheel.New()
	answers := make(chan string, 1)
	timeout := tw.NewTimer(time.Minute)
	for _, request := range []string{"one", "two"} {
		timeout.Reset(time.Minute) // nothing stale is received after it
		answers <- "answer to " + request
		select {
		case answer := <-answers:
			fmt.Println(answer)
		case <-timeout.C:
			fmt.Println("no answer in time")
		}
	}
	fmt.Println("was pending:", timeout.Stop())
	// Output:
	// answer to one
	// answer to two
	// was pending: true
}

func ExampleTimingWheel_NewTicker() {
	tw := timingwheel.New()
	ticker := tw.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for n := range 3 {
		<-ticker.C
		fmt.Println("tick", n+1)
	}
	// Output:
	// tick 1
	// tick 2
	// tick 3
}

func ExampleTimingWheel_WithTimeout() {
	tw := timingwheel.New()
	ctx, cancel := tw.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel() // as soon as the work is done
	select {
	case <-time.After(time.Minute): // the work
		fmt.Println("done")
	case <-ctx.Done():
		fmt.Println(ctx.Err())
	}
	// Output: context deadline exceeded
}

func ExampleTimingWheel_WithTimeoutCause() {
	tw := timingwheel.New()
	ctx, cancel := tw.WithTimeoutCause(context.Background(), time.Millisecond,
		errors.New("the database is slow"))
	defer cancel()
	<-ctx.Done()
	fmt.Println(ctx.Err())
	fmt.Println(context.Cause(ctx))
	// Output:
	// context deadline exceeded
	// the database is slow
}

func ExampleTimer_Stop() {
	tw := timingwheel.New()
	t := tw.AfterFunc(time.Hour, func() {})
	fmt.Println(t.Stop(), t.Stop())
	// Output: true false
}

func ExampleTimer_Reset() {
	tw := timingwheel.New()
	t := tw.AfterFunc(time.Hour, func() {})
	fmt.Println("was pending:", t.Reset(2*time.Hour))
	t.Stop()
	fmt.Println("was pending:", t.Reset(time.Hour))
	// Output:
	// was pending: true
	// was pending: false
}

func ExampleTimer_ResetAt() {
	tw := timingwheel.New()
	var a, b timingwheel.Timer
	tw.Init(&a, func() {})
	tw.Init(&b, func() {})
	deadline := time.Now().Add(time.Minute) // one clock reading for a batch
	a.ResetAt(deadline)
	b.ResetAt(deadline)
	fmt.Println(tw.Len())
	// Output: 2
}

func ExampleTimer_Pending() {
	tw := timingwheel.New()
	t := tw.AfterFunc(time.Hour, func() {})
	fmt.Println(t.Pending())
	t.Stop()
	fmt.Println(t.Pending())
	// Output:
	// true
	// false
}

func ExampleTimingWheel_Stop() {
	tw := timingwheel.New()
	t := tw.AfterFunc(time.Hour, func() {})
	tw.Stop()
	fmt.Println(t.Pending(), tw.AfterFunc(0, func() {}).Pending())
	// Output: false false
}

func ExampleTimingWheel_Drain() {
	tw := timingwheel.New()
	tw.AfterFunc(2*time.Hour, func() { fmt.Println("report") })
	tw.AfterFunc(time.Hour, func() { fmt.Println("mail") })
	for _, u := range tw.Drain() {
		u.F() // or store u.Deadline for the next start of the program
	}
	// Output:
	// mail
	// report
}

func ExampleTimingWheel_Shutdown() {
	tw := timingwheel.New()
	tw.AfterFunc(0, func() {
		time.Sleep(10 * time.Millisecond)
		fmt.Println("callback done")
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(tw.Shutdown(ctx))
	// Output:
	// callback done
	// <nil>
}

func ExampleTimingWheel_Len() {
	tw := timingwheel.New()
	tw.AfterFunc(time.Hour, func() {})
	tw.ScheduleFunc(timingwheel.Every(time.Hour), func() {})
	fmt.Println(tw.Len())
	// Output: 2
}

func ExampleTimingWheel_Stats() {
	tw := timingwheel.New()
	tw.AfterFunc(time.Hour, func() {})
	tw.AfterFunc(time.Hour, func() {}).Stop()
	s := tw.Stats() // expvar.Publish("timers", expvar.Func(func() any { return tw.Stats() }))
	b, _ := json.Marshal(map[string]int64{"started": s.Started, "stopped": s.Stopped,
		"pending": s.Pending})
	fmt.Println(string(b))
	// Output: {"pending":1,"started":2,"stopped":1}
}

func ExampleWithExecutor() {
	jobs := make(chan func(), 100)
	go func() { // one worker; a pool is a few more
		for f := range jobs {
			f()
		}
	}()
	defer close(jobs)
	tw := timingwheel.New(timingwheel.WithExecutor(func(f func()) { jobs <- f }))
	done := make(chan struct{})
	tw.AfterFunc(time.Millisecond, func() { close(done) })
	<-done
	fmt.Println("ran on the worker")
	// Output: ran on the worker
}

func ExampleWithInline() {
	tw := timingwheel.New(timingwheel.WithInline())
	done := make(chan struct{})
	tw.AfterFunc(5*time.Millisecond, func() { fmt.Println("second"); close(done) })
	tw.AfterFunc(time.Millisecond, func() { fmt.Println("first") }) // must not block
	<-done
	// Output:
	// first
	// second
}

func ExampleWithPanicHandler() {
	done := make(chan struct{})
	tw := timingwheel.New(timingwheel.WithPanicHandler(func(recovered any, stack []byte) {
		fmt.Println("recovered:", recovered)
		close(done)
	}))
	tw.AfterFunc(0, func() { panic("oops") })
	<-done
	// Output: recovered: oops
}

func ExampleWithSlowCallback() {
	noticed, done := make(chan struct{}), make(chan struct{})
	tw := timingwheel.New(timingwheel.WithInline(),
		timingwheel.WithSlowCallback(10*time.Millisecond, func(c timingwheel.SlowCallback) {
			// A program would log c.Name and c.For; wheeldebug.LogSlow does.
			if c.Over {
				fmt.Println("a callback was slow, by 10 ms at least:", c.For >= 10*time.Millisecond)
				close(done)
			} else {
				fmt.Println("a callback is slow")
				close(noticed)
			}
		}))
	tw.AfterFunc(time.Millisecond, func() { <-noticed }) // holds up all other timers
	<-done
	// Output:
	// a callback is slow
	// a callback was slow, by 10 ms at least: true
}

// retry calls f until it succeeds, with gaps that double. It does not know which clock it has.
func retry(clock timingwheel.Clock, gap time.Duration, f func() error, done func()) {
	clock.AfterFunc(gap, func() {
		if f() == nil {
			done()
			return
		}
		retry(clock, 2*gap, f, done)
	})
}

// A library that accepts a Clock works with package time and with a wheel.
func ExampleClock() {
	tw := timingwheel.New()
	defer tw.Stop()
	for _, clock := range []timingwheel.Clock{timingwheel.PackageTime(), tw.Clock()} {
		tries, done := 0, make(chan struct{})
		retry(clock, time.Millisecond, func() error {
			if tries++; tries < 3 {
				return errors.New("not yet")
			}
			return nil
		}, func() { close(done) })
		<-done
		fmt.Println("tries:", tries)
	}
	// Output:
	// tries: 3
	// tries: 3
}
