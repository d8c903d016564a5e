// Heartbeats watches ten thousand clients, each of which sends a heartbeat every second over UDP.
// A client that is silent for five seconds is suspected until it is heard again. In the story 500
// clients die at the same moment, and 200 of them return. The program checks that exactly the dead
// are suspected, none of them early. On a machine so busy that it reads nothing from a live client
// for that long, the suspicion is right and is counted separately.
//
//	go run ./examples/heartbeats                            15 seconds of the story in eight
//	go run ./examples/heartbeats -scale 1 -clients 100000   in real time, and more clients
//
// File detector.go is the part to copy.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	interval = time.Second // between two heartbeats of a client
	limit    = 5 * time.Second
	tick     = 10 * time.Millisecond // fine enough for the limit, with a tenth of the wake-ups
	perHost  = 100                   // clients that share a packet
)

func main() {
	clients := flag.Int("clients", 10000, "how many are watched, at least 20; one in twenty dies")
	story.Program{
		Scale:  2,
		Layout: "04:05.0",
		Play: func(r *story.Run) {
			seen := make([]sight, max(20, *clients))
			(&witness{Run: r, limit: r.Real(limit), seen: seen}).watch()
		},
		Passed: "exactly the dead were suspected, none of them early",
	}.Main()
}

// A witness plays the clients, passes their heartbeats to the detector, and checks its verdicts.
type witness struct {
	*story.Run
	limit time.Duration

	mu      sync.Mutex // guards what follows
	seen    []sight    // by client
	beats   int
	starved int             // live clients that were suspected
	delays  []time.Duration // from the limit to the suspicion of a dead client
}

// A sight is what is known of a client.
type sight struct {
	heard           time.Time // the last heartbeat passed to the detector
	dead, suspected bool
}

func (w *witness) watch() {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	story.Must(err)
	tw := timingwheel.New(timingwheel.WithTick(w.Real(tick)))
	d := newDetector(tw, len(w.seen), w.limit, w.judge)
	clients, err := net.Dial("udp", conn.LocalAddr().String())
	story.Must(err)
	var running sync.WaitGroup
	running.Go(func() { w.read(conn, d) })
	running.Go(func() { w.send(clients) })
	victims := rand.Perm(len(w.seen))[:len(w.seen)/20]
	lucky := victims[:len(victims)*2/5]
	w.scene("the clients start", nil, "every client was heard, none is suspected")
	w.scene(fmt.Sprint(len(victims), " clients die"), victims, "exactly these are suspected")
	w.scene(fmt.Sprint(len(lucky), " of them return"), lucky, "these are suspected no longer")
	w.scene("nothing changes", nil, "nothing has changed, and the story ends")
	conn.Close()
	clients.Close()
	running.Wait()
	story.Within(tw.Shutdown)
	w.Printf("%d suspicions of the dead, after the limit in real time by\n%s",
		len(w.delays), story.Percentiles(w.delays))
	w.Printf("%d suspicions of live clients from which this busy machine read nothing", w.starved)
	w.Printf("%d heartbeats, each a Reset of a timer; the wheel woke %d times",
		w.beats, tw.Stats().Wakeups)
}

// scene has clients die or return, and waits until the detector knows.
func (w *witness) scene(change string, who []int, reached string) {
	w.Printf("%s", change)
	w.mu.Lock()
	for _, i := range who {
		w.seen[i].dead = !w.seen[i].dead
	}
	w.mu.Unlock()
	if err := w.Await(w.Real(limit+interval), w.agreed); err != nil {
		story.Must(fmt.Errorf("waiting until %s: %w", reached, err))
	}
	w.Printf("%s", reached)
	time.Sleep(w.Real(2 * time.Second))
}

// agreed returns nil if every client was heard and exactly the dead are suspected.
func (w *witness) agreed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.seen {
		if s.heard.IsZero() || s.dead != s.suspected {
			return fmt.Errorf("client %d: heard %t, dead %t, suspected %t",
				i, !s.heard.IsZero(), s.dead, s.suspected)
		}
	}
	return w.Verdict()
}

func (w *witness) judge(v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.seen[v.client]
	w.Check(s.suspected != v.suspect, "client %d: the same verdict twice", v.client)
	if s.suspected = v.suspect; !v.suspect {
		return
	}
	late := v.at.Sub(v.heard) - w.limit
	w.Check(late >= 0, "client %d was suspected %v early", v.client, -late)
	w.Check(!v.heard.Before(s.heard), "client %d was suspected although it was heard", v.client)
	if s.dead {
		w.delays = append(w.delays, late)
	} else {
		w.starved++
	}
}

// read reads packets until conn is closed. A packet holds the numbers of clients that are well,
// with white space between them: a host speaks for all its clients.
func (w *witness) read(conn net.PacketConn, d *detector) {
	packet := make([]byte, 1<<16)
	for {
		n, _, err := conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		story.Must(err)
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

// send sends the heartbeats of all clients once per interval, those of a host in one packet.
func (w *witness) send(conn net.Conn) {
	began, every := time.Now(), w.Real(interval)
	hosts := (len(w.seen) + perHost - 1) / perHost
	for n := 0; ; n++ {
		time.Sleep(time.Until(began.Add(every * time.Duration(n) / time.Duration(hosts))))
		var packet []byte
		w.mu.Lock()
		for i := n % hosts * perHost; i < min((n%hosts+1)*perHost, len(w.seen)); i++ {
			if !w.seen[i].dead {
				packet = append(strconv.AppendInt(packet, int64(i), 10), ' ')
			}
		}
		w.mu.Unlock()
		// A packet that cannot be sent is lost, as UDP allows.
		if _, err := conn.Write(packet); errors.Is(err, net.ErrClosed) {
			return
		}
	}
}
