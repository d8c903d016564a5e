// Httpidle is an HTTP server whose connections are closed by package netidle when they have
// waited a minute for a request or half a minute for the rest of a body, or are 230 seconds
// old. Its clients play four minutes: two are silent and lose their connections, as does one
// that stalls in the middle of an upload; a busy one keeps hers, one waits for a report that
// takes longer than the limits, and one never stops and is closed for its age. At the end the
// program checks what became of each, and the exit status is 1 if it was not what was
// promised.
//
//	go run ./examples/httpidle              four minutes in eight seconds
//	go run ./examples/httpidle -scale 1     in real time
//	go run ./examples/httpidle -addr localhost:8080 -scale 6
//
// The last serves until it is interrupted and plays nothing; try it with
//
//	telnet localhost 8080
//	curl localhost:8080/ localhost:8080/report
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// The durations of the service, as they would be in production.
const (
	idleLimit  = time.Minute
	bodyLimit  = 30 * time.Second
	lifeLimit  = 230 * time.Second
	reportTime = 150 * time.Second
)

func main() {
	flags := flag.NewFlagSet("httpidle", flag.ExitOnError)
	scale := flags.Float64("scale", 30, "how many seconds of the story pass in one")
	addr := flags.String("addr", "", "serve at this `address` until interrupted, and play no story")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "An HTTP server that closes idle and old connections, and clients that try it.\n\nusage: go run ./examples/httpidle [flags]\n\n")
		flags.PrintDefaults()
	}
	flags.Parse(os.Args[1:])
	if flags.NArg() > 0 || !(*scale >= 0.01 && *scale <= 1000) {
		fmt.Fprintln(os.Stderr, "httpidle: -scale is between 0.01 and 1000, and there are no arguments (-h lists the flags)")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *scale, *addr); err != nil {
		fmt.Fprintln(os.Stderr, "httpidle:", err)
		os.Exit(1)
	}
}

// run serves at addr until ctx ends, or, if addr is empty, plays the story.
func run(ctx context.Context, out io.Writer, scale float64, addr string) error {
	clock := newClock(out, scale)
	play := addr == ""
	if play {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	tw := timingwheel.New()
	book := &ledger{names: make(map[string]string), reasons: make(map[string]netidle.Reason)}
	r := &reaper{
		tw: tw,
		limits: netidle.HTTPLimits{
			Idle: clock.real(idleLimit), Body: clock.real(bodyLimit), Response: clock.real(bodyLimit),
			Life: clock.real(lifeLimit),
		},
		reaped: func(c *netidle.Conn, why netidle.Reason) {
			clock.say("server: closed the connection of %s, reason: %v", book.note(c, why), why)
		},
	}
	server := &http.Server{Handler: handler(clock)}
	served := make(chan error, 1)
	go func() { served <- r.serve(server, l) }()
	clock.say("server: at %v, idle limit %v, body limit %v, lifetime %v", l.Addr(), idleLimit, bodyLimit, lifeLimit)

	if play {
		err = story(ctx, clock, book, l.Addr().String())
	} else {
		<-ctx.Done()
	}

	// Connections first, then the wheel: it holds their limits.
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ending), tw.Shutdown(ending))
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	if n := tw.Len(); n != 0 {
		err = errors.Join(err, fmt.Errorf("%d timers left", n))
	}
	return err
}

func handler(clock *clock) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	mux.HandleFunc("/report", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(clock.real(reportTime)):
			io.WriteString(w, "the report\n")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			fmt.Fprintf(w, "%d bytes\n", n)
		}
	})
	return mux
}

// ledger knows whose connection it is and why it was closed.
type ledger struct {
	mu      sync.Mutex
	names   map[string]string // by the client's address
	reasons map[string]netidle.Reason
}

func (b *ledger) enter(addr net.Addr, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[addr.String()] = name
}

func (b *ledger) note(c *netidle.Conn, why netidle.Reason) (name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	addr := c.RemoteAddr().String()
	b.reasons[addr] = why
	if name = b.names[addr]; name == "" {
		name = addr
	}
	return name
}

// reason returns why the connection from addr was closed, 0 if it was not. The client may
// see the end a moment before the hook does.
func (b *ledger) reason(addr net.Addr) netidle.Reason {
	for patience := 0; ; patience++ {
		b.mu.Lock()
		why := b.reasons[addr.String()]
		b.mu.Unlock()
		if why != 0 || patience == 1000 {
			return why
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// clock tells the time of the story, and is the one place that knows the scale.
type clock struct {
	start time.Time
	scale float64
	mu    sync.Mutex
	out   io.Writer
}

func newClock(out io.Writer, scale float64) *clock {
	return &clock{start: time.Now(), scale: scale, out: out}
}

// real returns how long a duration of the story takes.
func (c *clock) real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.scale) }

func (c *clock) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.start).Seconds() * c.scale
	fmt.Fprintf(c.out, "%6.1f s  %s\n", now, fmt.Sprintf(format, args...))
}
