package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file plays the story.

// awaitWithin is how much longer than the story's time something may take before the
// story fails: far longer than the wheel needs, for a machine that has better things
// to do.
const awaitWithin = 10 * time.Second

type story struct {
	out     io.Writer
	began   time.Time
	scale   float64
	witness *witness
}

// run plays the story, and returns an error if a verdict was wrong or missing.
func run(out io.Writer, scale float64, clients int) (err error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	st := &story{out: out, began: time.Now(), scale: scale}
	cpuBefore, cpuKnown := cpuTime()
	fmt.Fprintf(out, "%d clients on %d hosts, a heartbeat every %v, suspected after %v of silence.\n",
		clients, (clients+perHost-1)/perHost, interval, limit)
	fmt.Fprintf(out, "A second of the story takes %v. A packet carries the heartbeats of a host.\n\n", st.real(time.Second))

	st.witness = newWitness(clients, st.real(limit), awaitWithin)
	wheel := timingwheel.New(timingwheel.WithTick(st.real(tick)))
	d := newDetector(wheel, clients, st.real(limit), st.witness.judge)
	s := listen(conn, clients, func(clients []int, at time.Time) {
		st.witness.heard(clients, at)
		for _, i := range clients {
			d.beat(i, at)
		}
	})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
		defer cancel()
		err = errors.Join(err, s.close(), wheel.Shutdown(ctx))
	}()
	h, err := startHosts(conn.LocalAddr().String(), clients, st.real(interval))
	if err != nil {
		return err
	}
	defer h.stop()

	if err := st.await("every client was heard, nobody is suspected"); err != nil {
		return err
	}
	st.sleep(3 * time.Second)
	victims := rand.Perm(clients)[:clients/20]
	st.say("%d clients die", len(victims))
	st.witness.mark(victims, true)
	h.kill(victims)
	if err := st.await("all of them are suspected, and nobody else"); err != nil {
		return err
	}
	st.sleep(2 * time.Second)
	lucky := victims[:len(victims)*2/5]
	st.say("%d of them come back", len(lucky))
	st.witness.mark(lucky, false)
	h.revive(lucky)
	if err := st.await("these are suspected no more, the others still are"); err != nil {
		return err
	}
	st.sleep(2 * time.Second)
	if err := st.await("nothing has changed, and the story ends"); err != nil {
		return err
	}

	took := time.Since(st.began)
	cpuAfter, _ := cpuTime()
	half, most, all, starved := st.witness.summary()
	beats, packets, stats := s.beats.Load(), s.packets.Load(), wheel.Stats()
	fmt.Fprintf(out, "\nAll is well. In real time:\n")
	fmt.Fprintf(out, "  detection   %v after the limit for half of the dead, %v for 99 %%, %v at most\n", ms(half), ms(most), ms(all))
	fmt.Fprintf(out, "  heartbeats  %d in %d packets in %v, each a touch of a timer\n", beats, packets, took.Round(10*time.Millisecond))
	fmt.Fprintf(out, "  the wheel   woke %d times, fired %d timers, moved %d that had been pushed on\n", stats.Wakeups, stats.Fired, stats.Reinserted)
	if cpuKnown {
		cpu := cpuAfter - cpuBefore
		fmt.Fprintf(out, "  CPU         %v for everything, the clients included: %.1f %% of the %d processors, %v a heartbeat\n",
			cpu.Round(time.Millisecond), 100*float64(cpu)/float64(took)/float64(runtime.GOMAXPROCS(0)), runtime.GOMAXPROCS(0),
			(cpu / time.Duration(beats)).Round(time.Nanosecond))
	}
	if starved > 0 {
		fmt.Fprintf(out, "%d times a client that lived was suspected, and rightly: this machine was so busy that nothing\nhad been read from it for %v. It was heard again.\n", starved, limit)
	}
	return nil
}

func ms(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// real returns how long a duration of the story takes.
func (st *story) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / st.scale)
}

func (st *story) sleep(d time.Duration) { time.Sleep(st.real(d)) }

func (st *story) say(format string, args ...any) {
	fmt.Fprintf(st.out, "%5.1f s  %s\n", time.Since(st.began).Seconds()*st.scale, fmt.Sprintf(format, args...))
}

// await waits until exactly the dead are suspected.
func (st *story) await(what string) error {
	deadline := time.Now().Add(st.real(limit+interval) + awaitWithin)
	for {
		err := st.witness.agreed()
		if err == nil {
			st.say("%s", what)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
