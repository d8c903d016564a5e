// Idleserver opens two thousand TCP connections on the loopback interface and closes each of them
// when it has been silent for too long. Some clients keep talking; the others fall silent at random
// moments. They check that no connection is closed early, and none forgotten.
//
//	go run ./examples/idleserver
//	go run ./examples/idleserver -conns 20000    if it may have 40,000 files open
//	go run ./examples/idleserver -run 10m -addr localhost:6060
//
// The last shows the wheel while it turns, at http://localhost:6060/debug/wheel/. File server.go
// is the part to copy.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
	"github.com/go-timingwheel/timingwheel/wheeldebug"
)

const (
	idle         = 2 * time.Second // for so long a connection may be silent
	talkers      = 0.25            // of the clients talk until the end
	talksPerIdle = 4               // messages of a client per idle timeout

	// A connection that is closed so long after its deadline counts as forgotten. The wheel needs
	// about a millisecond; a busy machine takes the rest.
	forgottenAfter = 5 * time.Second
)

// A swarm is the clients of the server, and what becomes of them.
type swarm struct {
	*story.Run
	conns int
	run   time.Duration
	addr  string

	over     context.Context // ends when the server closes
	silent   atomic.Int32    // clients that wait for the server to close their connections
	messages atomic.Int64    // answered, each of them a Reset

	mu       sync.Mutex
	lateness []time.Duration // of the connections that were closed as idle
}

func main() {
	conns := flag.Int("conns", 2000, "open `n` connections; each takes two files")
	run := flag.Duration("run", 10*time.Second, "how long the clients talk, at least 100ms")
	addr := flag.String("addr", "", "show the wheel at this `address`, such as localhost:6060")
	story.Program{
		Layout: "04:05.0",
		Play: func(r *story.Run) {
			s := &swarm{Run: r, conns: *conns, run: max(100*time.Millisecond, *run), addr: *addr}
			s.play()
		},
		Passed: "no connection was closed early, and none was forgotten",
	}.Main()
}

func (s *swarm) play() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	story.Must(err)
	fmt.Fprintf(s.Out, "%d connections to an echo server, closed after %v without a message.\n"+
		"A quarter of the clients talk to the end, every %v; the others fall silent.\n\n",
		s.conns, idle, idle/talksPerIdle)
	tw := timingwheel.New()
	if s.addr != "" {
		page, err := net.Listen("tcp", s.addr)
		story.Must(err)
		server := &http.Server{Handler: wheeldebug.Handler(tw), ReadHeaderTimeout: time.Minute}
		go server.Serve(page)
		defer server.Close()
		fmt.Fprintf(s.Out, "http://%s/debug/wheel/ shows the wheel meanwhile.\n\n", page.Addr())
	}
	srv := newServer(tw, idle)
	var end context.CancelFunc
	s.over, end = context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { story.Must(srv.serve(ln)) })
	for range s.conns {
		dialing := time.Now()
		c, err := net.Dial("tcp", ln.Addr().String())
		story.Must(err)
		running.Go(func() { s.talk(c, dialing) })
	}
	s.watch(tw)
	// The clients that are silent now wait for their timers. The talkers talk on meanwhile.
	story.Must(s.Await(idle, func() error {
		if n := s.silent.Load(); n > 0 {
			return fmt.Errorf("%d connections are forgotten", n)
		}
		return nil
	}))
	end()
	ln.Close()
	open := srv.close()
	running.Wait()
	story.Within(tw.Shutdown)
	s.report(open, tw.Stats())
}

// watch prints a line per second until the run is over.
func (s *swarm) watch(tw *timingwheel.TimingWheel) {
	for end, before := time.Now().Add(s.run), int64(0); time.Until(end) > 0; {
		time.Sleep(min(time.Second, time.Until(end)))
		s.mu.Lock()
		closed := len(s.lateness)
		s.mu.Unlock()
		messages := s.messages.Load()
		s.Printf("%5d pending timers, %5d messages, %5d connections closed as idle",
			tw.Len(), messages-before, closed)
		before = messages
	}
}

// talk sends messages until the client falls silent, and then waits for the end. The connection
// may be idle from last on, which is just before its last answered message.
func (s *swarm) talk(c net.Conn, last time.Time) {
	defer c.Close()
	// The moment is drawn so that the timeout usually ends within the run.
	silentAt := rand.N(max(s.run/10, (s.run-idle)/10*9))
	talker, began := rand.Float64() < talkers, time.Now()
	for message := []byte("still up"); talker || time.Since(began) < silentAt; {
		sending := time.Now()
		c.Write(message) // if that fails, reading the answer does too
		if _, err := io.ReadFull(c, message); err != nil {
			if s.over.Err() == nil { // this machine was too busy to talk in time
				s.closed(min(0, time.Since(last)-idle)) // how late is unknown
			}
			return
		}
		last = sending
		s.messages.Add(1)
		select {
		case <-s.over.Done():
			return
		case <-time.After(idle / talksPerIdle):
		}
	}
	s.silent.Add(1)
	defer s.silent.Add(-1)
	io.Copy(io.Discard, c)
	if late := time.Since(last) - idle; s.over.Err() == nil {
		s.closed(late)
	}
}

func (s *swarm) closed(late time.Duration) {
	s.Check(late >= 0, "a connection was closed %v early", -late)
	s.Check(late < forgottenAfter, "a connection was closed after %v", late)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lateness = append(s.lateness, late)
}

func (s *swarm) report(open int, st timingwheel.Stats) {
	s.Check(s.conns > 0, "no connection was opened")
	s.Check(st.Pending+st.Dropped == 0, "%d timers were left", st.Pending+st.Dropped)
	fmt.Fprintf(s.Out, `
connections  %d opened: %d closed as idle, %d open at the end
lateness     %s
wheel        %d timers started = %d fired + %d stopped
             %d messages, each of them a Reset; %d wake-ups

`, s.conns, len(s.lateness), open, story.Percentiles(s.lateness),
		st.Started, st.Fired, st.Stopped, s.messages.Load(), st.Wakeups)
}
