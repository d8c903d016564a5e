// Idleserver opens several thousand real TCP connections on the loopback interface and closes each
// of them once it has been silent for too long. Every connection contains its own Timer, and all
// of them share one wheel. Some clients keep talking; the others fall silent at random moments.
//
// The program shows what happens while it runs, and checks every connection: none may be closed
// early, and none forgotten.
//
//	go run ./examples/idleserver
//	go run ./examples/idleserver -conns 1000 -idle 500ms -run 5s
//	go run ./examples/idleserver -run 10m -addr localhost:6060
//
// The last shows the wheel as it turns at http://localhost:6060/debug/wheel/. File server.go is
// the part to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
	"github.com/go-timingwheel/timingwheel/wheeldebug"
)

const (
	// forgottenAfter is how much later than its deadline a connection may be closed before it
	// counts as forgotten. The wheel needs about a millisecond; a busy machine takes the rest.
	forgottenAfter = 5 * time.Second

	talksPerIdle = 4  // messages of a client per idle timeout
	maxDials     = 32 // at the same time
	headroom     = 64 // files beside the connections
)

// A swarm is the server with its clients, and what becomes of them.
type swarm struct {
	*story.Run
	conns           int
	idle, run, tick time.Duration
	talking         float64
	addr            string

	tw    *timingwheel.TimingWheel
	srv   *server
	dials chan struct{} // holds a value for each dial in progress

	delayed  atomic.Int32 // closed although the client meant to talk
	mu       sync.Mutex
	opened   int
	lateness []time.Duration
	failed   error // the first dial that failed
}

func main() {
	s := &swarm{dials: make(chan struct{}, maxDials)}
	story.Program{
		Name: "idleserver",
		About: "Idleserver serves many loopback connections, both ends of them in this process, and closes\n" +
			"the idle ones with one timing wheel.",
		Passed: "no connection was closed early, and none was forgotten",
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&s.conns, "conns", 5000, "open `n` connections, or as many as the file limit allows")
			f.DurationVar(&s.idle, "idle", 2*time.Second, "close a connection after this long without a message")
			f.DurationVar(&s.run, "run", 10*time.Second, "how long the clients talk")
			f.Float64Var(&s.talking, "talking", 0.25,
				"`fraction` of the clients that talk until the end,\nfour times per idle timeout; the others fall silent")
			f.DurationVar(&s.tick, "tick", time.Millisecond, "tick of the wheel")
			f.StringVar(&s.addr, "addr", "", "show the wheel on a page at this `address`, such as localhost:6060")
		},
		Play: func(ctx context.Context, r *story.Run) error {
			s.Run = r
			if s.conns < 1 || s.idle < 20*time.Millisecond || s.run < 100*time.Millisecond ||
				!(s.talking >= 0 && s.talking <= 1) || s.tick <= 0 || s.tick > s.idle { // the middle one this way round for NaN
				return story.Misuse("-conns must be at least 1, -idle 20ms, -run 100ms, -talking from 0 to 1, and -tick positive and at most -idle")
			}
			return s.play(ctx)
		},
	}.Main()
}

func (s *swarm) play(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if room := (story.FileLimit() - headroom) / 2; s.conns > room { // both ends are in this process
		fmt.Fprintf(s.Out, "The file limit of this process allows %d connections instead of %d.\n", room, s.conns)
		s.conns = room
	}
	cpu, began := story.CPUTime(), time.Now()
	s.tw = timingwheel.New(timingwheel.WithTick(s.tick))
	s.srv = newServer(s.tw, s.idle, ln, func(late time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lateness = append(s.lateness, late)
	})
	ctx, hangUp := context.WithCancel(ctx)
	var accepting, clients sync.WaitGroup
	var failed error
	accepting.Go(func() { failed = s.srv.serve() })
	for range s.conns {
		clients.Go(func() { s.client(ctx) })
	}
	// What is overdue after the run must be closed by its timer. The talkers talk on meanwhile.
	err = errors.Join(s.watch(ctx), s.Await(ctx, 0, func() error {
		if n := s.srv.overdue(); n > 0 {
			return fmt.Errorf("%d connections are forgotten", n)
		}
		return nil
	}))
	took := time.Since(began)
	hangUp()
	open := s.srv.close()
	clients.Wait()
	accepting.Wait()
	err = errors.Join(err, failed, story.Within(s.tw.Shutdown))
	s.report(open, took, story.CPUTime()-cpu)
	return err
}

// watch prints a line per second until the run is over.
func (s *swarm) watch(ctx context.Context) error {
	fmt.Fprintf(s.Out,
		"%d connections to an echo server, closed after %v without a message; one wheel, tick %v.\n",
		s.conns, s.idle, s.tick)
	fmt.Fprintf(s.Out,
		"%.0f %% of the clients talk until the end, every %v; the others fall silent at random.\n\n",
		100*s.talking, s.idle/talksPerIdle)
	if s.addr != "" {
		url, stop, err := story.Listen(s.addr, wheeldebug.Handler(s.tw))
		if err != nil {
			return err
		}
		defer stop()
		fmt.Fprintf(s.Out, "The wheel is shown at %s/debug/wheel/ while the clients talk.\n\n", url)
	}
	fmt.Fprintln(s.Out, "    time     open  touches/s  closed as idle  pending timers")
	for end, before := time.Now().Add(s.run), int64(0); time.Until(end) > 0; {
		began := time.Now()
		if err := story.Sleep(ctx, min(time.Second, time.Until(end))); err != nil {
			return err
		}
		s.mu.Lock()
		closed := len(s.lateness)
		s.mu.Unlock()
		s.srv.mu.Lock()
		open := len(s.srv.conns)
		s.srv.mu.Unlock()
		touches := s.srv.touches.Load()
		fmt.Fprintf(s.Out, "%6.1f s  %7d  %9.0f  %14d  %14d\n", (s.run - time.Until(end)).Seconds(), open,
			float64(touches-before)/time.Since(began).Seconds(), closed, s.tw.Len())
		before = touches
	}
	fmt.Fprintln(s.Out)
	return nil
}

// client opens a connection and talks until it falls silent, and then waits for its end.
func (s *swarm) client(ctx context.Context) {
	s.dials <- struct{}{}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.srv.ln.Addr().String())
	<-s.dials
	s.mu.Lock()
	if err == nil {
		s.opened++
	} else if s.failed == nil && ctx.Err() == nil {
		s.failed = err
	}
	s.mu.Unlock()
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	// The moment is drawn so that the timeout usually ends within the run.
	silentAt := rand.N(max(s.run/10, (s.run-s.idle)/10*9))
	talker, began := rand.Float64() < s.talking, time.Now()
	for message := []byte("still up"); talker || time.Since(began) < silentAt; {
		_, err := c.Write(message)
		if err == nil {
			_, err = io.ReadFull(c, message)
		}
		if err == nil {
			err = story.Sleep(ctx, s.idle/talksPerIdle)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.delayed.Add(1)
			}
			return
		}
	}
	io.Copy(io.Discard, c)
}

func (s *swarm) report(open int, took, cpu time.Duration) {
	p := func(format string, args ...any) { fmt.Fprintf(s.Out, format+"\n", args...) }
	slices.Sort(s.lateness)
	early, _ := slices.BinarySearch(s.lateness, 0)
	inTime, _ := slices.BinarySearch(s.lateness, s.tick+forgottenAfter)
	forgotten := len(s.lateness) - inTime
	s.Check(s.opened > 0, "no connection was opened")
	s.Check(early == 0, "%d connections were closed early", early)
	s.Check(forgotten == 0, "%d connections were closed more than %v after their deadline", forgotten,
		forgottenAfter)
	p("Connections")
	p("  opened             %7d   of %d", s.opened, s.conns)
	if s.failed != nil {
		p("  the first that failed: %v", s.failed)
	}
	p("  closed as idle     %7d   of which %d were about to talk, but the machine was too busy",
		len(s.lateness), s.delayed.Load())
	p("  closed early       %7d", early)
	p("  forgotten          %7d   not closed within %v of the deadline", forgotten, s.tick+forgottenAfter)
	p("  open at the end    %7d\n", open)
	if n := len(s.lateness); n > 0 {
		q := func(q float64) time.Duration { return s.lateness[int(q*float64(n-1))].Round(time.Microsecond) }
		p("Lateness, from the deadline to the callback")
		p("  p50 %v   p90 %v   p99 %v   p99.9 %v   max %v\n", q(.5), q(.9), q(.99), q(.999), q(1))
	}
	touches, st := max(s.srv.touches.Load(), 1), s.tw.Stats()
	p("Cost\n  touches     %d, each of them one Reset, in %.1f s", touches, took.Seconds())
	if cpu > 0 {
		p("  CPU         %.2f s user + system, %.1f us per touch, with opening the connections and the",
			cpu.Seconds(), float64(cpu.Microseconds())/float64(touches))
		p("              echo traffic of both ends; the wheel is a small part")
	}
	p("\nWheel\n  started %d = fired %d + stopped %d + dropped %d + pending %d", st.Started, st.Fired,
		st.Stopped, st.Dropped, st.Pending)
	p("  wake-ups %d, reinserted %d, levels %d, timers in the longest hold of the lock %d\n", st.Wakeups,
		st.Reinserted, len(st.Levels), st.LongestHold)
	s.Check(st.Pending+st.Dropped == 0, "%d timers were left", st.Pending+st.Dropped)
}
