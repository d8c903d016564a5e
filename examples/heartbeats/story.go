package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// This file plays the story. Its clients live on hosts, each with a socket, which sends
// the heartbeats of all its clients in one packet.

// perHost clients make packets of some 600 bytes, which any network takes.
const perHost = 100

func play(ctx context.Context, d *story.Diary, w *witness, addr string, stats func() timingwheel.Stats) error {
	clients := len(w.seen)
	cpuBefore, began := story.CPUTime(), time.Now()
	ctx, end := context.WithCancel(ctx)
	var hosts sync.WaitGroup
	defer hosts.Wait()
	defer end()
	for first := 0; first < clients; first += perHost {
		conn, err := net.Dial("udp", addr)
		if err != nil {
			return err
		}
		hosts.Go(func() {
			defer conn.Close()
			host(ctx, conn, first, w.dead, d.Real(interval))
		})
	}

	// reach waits until exactly the dead are suspected, and for a while more.
	reach := func(what string, more time.Duration) error {
		if err := story.Await(ctx, d.Real(limit+interval), w.agreed); err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		d.Printf("%s", what)
		return story.Sleep(ctx, d.Real(more))
	}
	if err := reach("every client was heard, nobody is suspected", 3*time.Second); err != nil {
		return err
	}
	victims := rand.Perm(clients)[:clients/20]
	d.Printf("%d clients die", len(victims))
	w.mark(victims, true)
	if err := reach("all of them are suspected, and nobody else", 2*time.Second); err != nil {
		return err
	}
	lucky := victims[:len(victims)*2/5]
	d.Printf("%d of them come back", len(lucky))
	w.mark(lucky, false)
	if err := reach("these are suspected no more, the others still are", 2*time.Second); err != nil {
		return err
	}
	if err := reach("nothing has changed, and the story ends", 0); err != nil {
		return err
	}

	took, cpu, s := time.Since(began), story.CPUTime()-cpuBefore, stats()
	half, most, beats, starved := w.summary()
	d.Printf("all is well: %d suspicions, none early, none missing; in real time", len(victims)+starved)
	d.Printf("  they came %v after the limit for half of the dead, %v at most", half, most)
	d.Printf("  %d heartbeats in %v, each a touch of a timer; the wheel woke %d times", beats, took.Round(10*time.Millisecond), s.Wakeups)
	if cpu > 0 {
		d.Printf("  CPU %v for everything, the clients included: %.1f %% of the %d processors", cpu.Round(time.Millisecond),
			100*float64(cpu)/float64(took)/float64(runtime.GOMAXPROCS(0)), runtime.GOMAXPROCS(0))
	}
	if starved > 0 {
		d.Printf("  %d times a client that lived was suspected, and rightly: on this busy machine nothing was read from it for so long", starved)
	}
	return nil
}

// host sends the heartbeats of its clients, the first and those after it, every interval:
// the hosts one after the other within it.
func host(ctx context.Context, conn net.Conn, first int, dead []atomic.Bool, interval time.Duration) {
	var packet []byte
	next := time.Now().Add(interval * time.Duration(first) / time.Duration(len(dead)))
	for ; story.Sleep(ctx, time.Until(next)) == nil; next = next.Add(interval) {
		packet = packet[:0]
		for i := first; i < min(first+perHost, len(dead)); i++ {
			if !dead[i].Load() {
				packet = append(strconv.AppendInt(packet, int64(i), 10), ' ')
			}
		}
		conn.Write(packet) // one that cannot be sent is a packet lost, as UDP has it
	}
}
