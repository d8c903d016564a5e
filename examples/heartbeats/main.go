// Heartbeats watches ten thousand clients, each of which sends a heartbeat every second over UDP.
// A client that is silent for five seconds is suspected until it is heard again. Each client has
// a Timer that every heartbeat extends, without a lock and with one clock reading for a packet of
// a hundred heartbeats.
//
// In the story 500 clients die at the same moment, and 200 of them return. The program checks
// that exactly the dead are suspected, none of them early. On a machine so busy that it reads
// nothing from a live client for that long, the suspicion is right and is counted separately.
//
//	go run ./examples/heartbeats                            15 seconds of the story in eight
//	go run ./examples/heartbeats -scale 1 -clients 100000   in real time, and more clients
//	go run ./examples/heartbeats -addr 127.0.0.1:7070       a server to try by hand
//
//	echo 1 2 3 | nc -u -w1 127.0.0.1 7070
//
// File detector.go is the part to copy.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

const (
	interval = time.Second // between two heartbeats of a client
	limit    = 5 * time.Second
	tick     = 10 * time.Millisecond // fine enough for the limit, and a tenth of the default's wake-ups
	perHost  = 100                   // clients that share a socket and its packets of some 600 bytes
)

func main() {
	var clients int
	story.Program{
		Name:     "heartbeats",
		About:    "Heartbeats watches clients that send heartbeats over UDP, and suspects those that are silent.",
		Passed:   "exactly the dead were suspected, none of them early",
		Scale:    2,
		MaxScale: 20, // a limit of 250 ms
		Layout:   "04:05.0",
		Serves:   true,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&clients, "clients", 10000, "`n` clients, of which one in twenty dies")
		},
		Play: func(ctx context.Context, r *story.Run) error {
			if clients < 20 || clients > 200000 {
				return story.Misuse("-clients %d: must be between 20 and 200000", clients)
			}
			w := &witness{Run: r, limit: r.Real(limit), seen: make([]sight, clients),
				dead: make([]atomic.Bool, clients)}
			return w.watch(ctx)
		},
	}.Main()
}

// A witness reads the heartbeats, passes them to the detector, and judges its verdicts.
type witness struct {
	*story.Run
	limit time.Duration
	dead  []atomic.Bool // by client

	mu      sync.Mutex
	seen    []sight // by client
	beats   int
	starved int // live clients that were suspected
	delays  []time.Duration
}

type sight struct {
	heard     time.Time // what the detector must know of
	suspected bool
}

func (w *witness) watch(ctx context.Context) error {
	conn, err := net.ListenPacket("udp", cmp.Or(w.Addr, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	tw := timingwheel.New(timingwheel.WithTick(w.Real(tick)))
	d := newDetector(tw, len(w.seen), w.limit, w.judge)
	var failed error
	var reading sync.WaitGroup
	reading.Go(func() { failed = w.read(conn, d) })
	w.Printf("a server watches %d clients at %s; they are silent after %v here", len(w.seen),
		conn.LocalAddr(), w.limit)
	if w.Addr == "" {
		err = w.play(ctx, conn.LocalAddr().String(), tw)
	} else {
		<-ctx.Done()
	}
	conn.Close()
	reading.Wait()
	return errors.Join(err, failed, story.Within(tw.Shutdown))
}

// read reads packets until conn is closed. A packet holds the numbers of clients that are well,
// with white space between them: an agent speaks for all clients on its host.
func (w *witness) read(conn net.PacketConn, d *detector) error {
	packet := make([]byte, 1<<16)
	for {
		n, _, err := conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		now := time.Now()
		for field := range bytes.FieldsSeq(packet[:n]) {
			if i, err := strconv.Atoi(string(field)); err == nil && i >= 0 && i < len(w.seen) {
				d.beat(i, now)
				w.mu.Lock()
				w.beats++
				w.seen[i].heard = now
				w.mu.Unlock()
			}
		}
	}
}

func (w *witness) judge(v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.seen[v.client]
	w.Check(s.suspected != v.suspect, "client %d: the same verdict twice", v.client)
	s.suspected = v.suspect
	silent := v.at.Sub(v.heard)
	switch {
	case w.Addr != "" && v.suspect:
		w.Printf("client %d is suspected, silent for %v", v.client, silent.Round(time.Millisecond))
	case w.Addr != "":
		w.Printf("client %d has returned", v.client)
	case v.suspect && w.dead[v.client].Load():
		w.delays = append(w.delays, silent-w.limit)
	case v.suspect:
		w.starved++
	}
	if v.suspect {
		w.Check(silent >= w.limit, "client %d was suspected %v early", v.client, w.limit-silent)
		w.Check(!v.heard.Before(s.heard), "client %d was suspected although it was heard", v.client)
	}
}

// agreed returns nil if every client was heard and exactly the dead are suspected.
func (w *witness) agreed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.seen {
		if dead := w.dead[i].Load(); s.heard.IsZero() || dead != s.suspected {
			return fmt.Errorf("client %d: heard %t, dead %t, suspected %t", i, !s.heard.IsZero(), dead, s.suspected)
		}
	}
	return w.Verdict()
}

func (w *witness) play(ctx context.Context, addr string, tw *timingwheel.TimingWheel) error {
	cpu, began, clients := story.CPUTime(), time.Now(), len(w.dead)
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
			w.host(ctx, conn, first)
		})
	}
	victims := rand.Perm(clients)[:clients/20]
	lucky := victims[:len(victims)*2/5]
	for _, step := range []struct {
		change  string
		dead    bool
		who     []int
		reached string
		more    time.Duration // to watch what was reached
	}{
		{"the clients start", false, nil, "every client was heard, none is suspected", 3 * time.Second},
		{fmt.Sprintf("%d clients die", len(victims)), true, victims,
			"all of them are suspected, and no others", 2 * time.Second},
		{fmt.Sprintf("%d of them return", len(lucky)), false, lucky,
			"these are no longer suspected, the others still are", 2 * time.Second},
		{"nothing changes", false, nil, "nothing has changed, and the story ends", 0},
	} {
		w.Printf("%s", step.change)
		for _, i := range step.who {
			w.dead[i].Store(step.dead)
		}
		if err := w.Await(ctx, w.Real(limit+interval), w.agreed); err != nil {
			return fmt.Errorf("waiting until %s: %w", step.reached, err)
		}
		w.Printf("%s", step.reached)
		if err := story.Sleep(ctx, w.Real(step.more)); err != nil {
			return err
		}
	}
	took, cpu := time.Since(began), story.CPUTime()-cpu
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Printf("%d suspicions, %d of them of live clients from which this busy machine read nothing; in real time", len(w.delays)+w.starved, w.starved)
	if n := len(w.delays); n > 0 {
		slices.Sort(w.delays)
		w.Printf("  they came %v after the limit for half of the dead, %v at most",
			w.delays[n/2].Round(10*time.Microsecond), w.delays[n-1].Round(10*time.Microsecond))
	}
	w.Printf("  %d heartbeats in %v, each a Reset of a timer; the wheel woke %d times", w.beats,
		took.Round(10*time.Millisecond), tw.Stats().Wakeups)
	if cpu > 0 {
		w.Printf("  CPU %v for everything, the clients included: %.1f %% of %d processors",
			cpu.Round(time.Millisecond),
			100*float64(cpu)/float64(took)/float64(runtime.GOMAXPROCS(0)), runtime.GOMAXPROCS(0))
	}
	return nil
}

// host sends the heartbeats of its clients once per interval. The hosts take turns.
func (w *witness) host(ctx context.Context, conn net.Conn, first int) {
	var packet []byte
	every := w.Real(interval)
	next := time.Now().Add(every * time.Duration(first) / time.Duration(len(w.dead)))
	for ; story.Sleep(ctx, time.Until(next)) == nil; next = next.Add(every) {
		packet = packet[:0]
		for i := first; i < min(first+perHost, len(w.dead)); i++ {
			if !w.dead[i].Load() {
				packet = append(strconv.AppendInt(packet, int64(i), 10), ' ')
			}
		}
		conn.Write(packet) // a packet that cannot be sent is lost, as UDP allows
	}
}
