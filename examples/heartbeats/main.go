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
//	go run ./examples/heartbeats                            15 seconds of the story in eight
//	go run ./examples/heartbeats -scale 1 -clients 100000   in real time, and more of them
//	go run ./examples/heartbeats -addr 127.0.0.1:7070       a server to try by hand
//
//	echo 1 2 3 | nc -u -w1 127.0.0.1 7070
//
// Detector.go is the part to copy.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	interval = time.Second     // between two heartbeats of a client
	limit    = 5 * time.Second // of silence

	// tick is as coarse as the limit allows: what rounding adds does not matter
	// beside the interval, and the wheel wakes a tenth as often as by default.
	tick = 10 * time.Millisecond

	// maxPacket is the largest that UDP can carry.
	maxPacket = 1 << 16
)

func main() { program().Main() }

func program() story.Program {
	var clients int
	return story.Program{
		Name:     "heartbeats",
		About:    "Heartbeats watches clients that send heartbeats over UDP, and suspects those that are silent.",
		Scale:    2,
		MaxScale: 20, // a limit of 250 ms, which heartbeats keep on a machine that has a little to do
		Layout:   "04:05.0",
		Serves:   true,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&clients, "clients", 10000, "`n` clients, of which one in twenty dies")
		},
		Play: func(ctx context.Context, d *story.Diary, addr string) error {
			if clients < 20 || clients > 200000 {
				return story.Misuse("-clients %d: must be between 20 and 200000", clients)
			}
			return run(ctx, d, addr, clients)
		},
	}
}

func run(ctx context.Context, d *story.Diary, addr string, clients int) error {
	wheel := timingwheel.New(timingwheel.WithTick(d.Real(tick)))
	w := newWitness(clients, d.Real(limit))
	change := w.judge
	if addr != "" {
		change = func(v verdict) {
			if v.suspect {
				d.Printf("client %d is suspected, silent for %v", v.client, v.at.Sub(v.heard).Round(time.Millisecond))
			} else {
				d.Printf("client %d is back", v.client)
			}
		}
	}
	det := newDetector(wheel, clients, d.Real(limit), change)
	at, stop, err := listen(addr, clients, func(clients []int, at time.Time) {
		w.heard(clients, at)
		for _, i := range clients {
			det.beat(i, at)
		}
	})
	if err != nil {
		return err
	}
	d.Printf("a server watches %d clients at %s; a second here is %v seconds there", clients, at, d.Scale)
	if addr == "" {
		err = play(ctx, d, w, at, wheel.Stats)
	} else {
		<-ctx.Done()
	}
	return errors.Join(err, stop(), story.Within(wheel.Shutdown))
}

// listen reads heartbeats from UDP until stop is called. A packet holds the numbers of
// clients that are well, with white space between them: an agent on a host speaks for all
// clients there. What is no client's number is left out. heard is called for each packet,
// on one goroutine, and must not keep the slice.
func listen(addr string, clients int, heard func(clients []int, at time.Time)) (at string, stop func() error, err error) {
	conn, err := net.ListenPacket("udp", cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return "", nil, err
	}
	var failed error
	read := func() {
		packet := make([]byte, maxPacket)
		var who []int
		for {
			n, _, err := conn.ReadFrom(packet)
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					failed = err
				}
				return
			}
			now := time.Now() // the one clock reading for all of the packet
			who = who[:0]
			for field := range bytes.FieldsSeq(packet[:n]) {
				if i, err := strconv.Atoi(string(field)); err == nil && i >= 0 && i < clients {
					who = append(who, i)
				}
			}
			heard(who, now)
		}
	}
	var reading sync.WaitGroup
	reading.Go(read)
	return conn.LocalAddr().String(), func() error {
		conn.Close()
		reading.Wait()
		return failed
	}, nil
}
