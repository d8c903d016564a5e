// Idleserver opens several thousand real TCP connections on the loopback
// interface and closes each of them once it has been silent for too long. Every
// connection carries its own Timer, and all of them share one wheel. Some
// clients keep talking; the others fall silent at random moments.
//
// It shows what happens while it runs, and at the end it checks every single
// connection: none may have been closed early, and none forgotten. If one was,
// the exit status is 1.
//
//	go run ./examples/idleserver
//	go run ./examples/idleserver -conns 1000 -idle 500ms -run 5s
//	go run ./examples/idleserver -run 10m -addr localhost:6060
//
// The last shows the wheel as it turns at http://localhost:6060/debug/wheel/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

const (
	// forgottenAfter is how much later than its deadline a silent connection may
	// be closed before it counts as forgotten. The wheel needs about a
	// millisecond; the rest is for a machine that has better things to do.
	forgottenAfter = 5 * time.Second

	// shutdownWithin is how long the callbacks that are under way get at the end.
	shutdownWithin = 10 * time.Second

	// minIdle is the shortest idle timeout within which a client can be relied
	// upon to talk.
	minIdle = 20 * time.Millisecond

	// minRun is enough for the first connections to be opened.
	minRun = 100 * time.Millisecond
)

type config struct {
	conns   int
	idle    time.Duration
	run     time.Duration
	talking float64
	tick    time.Duration
	quiet   bool
	addr    string // of the page that shows the wheel; empty for none
}

func main() {
	cfg, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "idleserver:", err, "(-h lists the flags)")
		os.Exit(2)
	}
	r, err := run(cfg, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "idleserver:", err)
		os.Exit(1)
	}
	r.print(os.Stdout)
	if !r.ok() {
		os.Exit(1)
	}
}

// parse reads the command line; help goes to out.
func parse(args []string, out io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("idleserver", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, and main prints it
	flags.IntVar(&cfg.conns, "conns", 5000, "open `n` connections, or as many as the file limit allows")
	flags.DurationVar(&cfg.idle, "idle", 2*time.Second, "close a connection after this long without a message")
	flags.DurationVar(&cfg.run, "run", 10*time.Second, "how long the clients talk")
	flags.Float64Var(&cfg.talking, "talking", 0.25, "`fraction` of the clients that talk until the end,\nfour times per idle timeout; the others fall silent")
	flags.DurationVar(&cfg.tick, "tick", time.Millisecond, "tick of the wheel")
	flags.BoolVar(&cfg.quiet, "quiet", false, "print the summary only")
	flags.StringVar(&cfg.addr, "addr", "", "show the wheel on a page at this `address`, such as localhost:6060")
	flags.Usage = func() {} // or every error would come with the help
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, "Idleserver serves many loopback connections, both ends of them in this process,")
			fmt.Fprintln(out, "and closes the idle ones by one timing wheel.")
			fmt.Fprintln(out, "\nFlags:")
			flags.SetOutput(out)
			flags.PrintDefaults()
		}
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return cfg, cfg.check()
}

func (cfg config) check() error {
	switch {
	case cfg.conns < 1:
		return fmt.Errorf("-conns %d: at least one connection is needed", cfg.conns)
	case cfg.idle < minIdle:
		return fmt.Errorf("-idle %v: too short for a client to talk in time, %v at least", cfg.idle, minIdle)
	case cfg.run < minRun:
		return fmt.Errorf("-run %v: too short, %v at least", cfg.run, minRun)
	case !(cfg.talking >= 0 && cfg.talking <= 1): // this way round for NaN
		return fmt.Errorf("-talking %v: must be between 0 and 1", cfg.talking)
	case cfg.tick <= 0:
		return fmt.Errorf("-tick %v: must be positive", cfg.tick)
	case cfg.tick > cfg.idle:
		return fmt.Errorf("-tick %v: longer than -idle %v", cfg.tick, cfg.idle)
	}
	return nil
}

// run is the whole demonstration. When it returns, everything it started has
// ended, and the result speaks about all connections.
func run(cfg config, out io.Writer) (result, error) {
	if cfg.quiet {
		out = io.Discard
	}
	wanted := cfg.conns
	if cfg.conns = affordable(wanted); cfg.conns < 1 {
		return result{}, errors.New("the file limit of this process leaves no room for a connection")
	}
	explain(out, cfg, wanted)

	cpuBefore, _ := cpuTime()
	wheel := timingwheel.New(timingwheel.WithTick(cfg.tick))
	if cfg.addr != "" {
		hidePage, err := showPage(out, cfg.addr, wheel)
		if err != nil {
			return result{}, err
		}
		defer hidePage()
	}
	srv, err := listen(wheel, cfg.idle)
	if err != nil {
		return result{}, err
	}
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	crowd := newCrowd(cfg, srv)
	crowd.start(ctx)

	watch(out, srv, cfg.run)

	// Whatever is past its deadline now has to be closed by its timer. The
	// talkers talk on meanwhile, or they would become idle too.
	srv.awaitOverdue(cfg.tick + forgottenAfter)
	took := srv.now()
	hangUp()
	srv.close()
	crowd.wait()

	ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	if err := wheel.Shutdown(ctx); err != nil {
		return result{}, fmt.Errorf("shutting down the wheel: %w", err)
	}
	cpuAfter, cpuKnown := cpuTime()

	// Only now that nothing runs any more is the record of every connection
	// final and free of races, so only now is judged.
	r := result{
		config:   cfg,
		wanted:   wanted,
		took:     took,
		touches:  srv.touches.Load(),
		cpu:      cpuAfter - cpuBefore,
		cpuKnown: cpuKnown,
		stats:    wheel.Stats(),
		verdict:  judge(srv.records(crowd.talkers()), cfg.idle, cfg.tick+forgottenAfter),
		opening:  crowd.firstError(),
	}
	switch {
	case srv.failed != nil:
		return r, fmt.Errorf("accepting connections: %w", srv.failed)
	case r.verdict.opened == 0 && r.opening != nil:
		return r, fmt.Errorf("opening connections: %w", r.opening)
	case r.verdict.opened == 0:
		return r, errors.New("no connection was opened in time")
	}
	return r, nil
}

// affordable returns how many connections the file limit allows, at most n. Each
// takes two files, as both ends are in this process.
func affordable(n int) int {
	// For the standard streams, the listener, the poller, and what a test that
	// calls run has open.
	const headroom = 64
	limit, known := fileLimit()
	if !known {
		return n
	}
	room := (limit - min(limit, headroom)) / 2
	return int(min(uint64(n), room))
}
