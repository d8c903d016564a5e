// Notifier is a service that delivers notifications, posting them over HTTP to
// receivers that fail for a while. It tries every 300 s, or by steps: at once, after 2
// minutes, 10 minutes and an hour. A success ends it; by steps it gives up after the
// last. A receiver that hangs is left after a minute, and when the service stops it
// lists what it could not deliver.
//
// The program plays 73 minutes of it with receivers of its own, and checks that no
// attempt came early, none beside or after another that it should not, and that every
// notification ended as it had to.
//
//	go run ./examples/notifier                                   73 minutes in 7 seconds
//	go run ./examples/notifier -addr 127.0.0.1:8080 -scale 60    a service to try by hand
//
//	curl -d '{"url": "http://127.0.0.1:9999/", "policy": "steps", "body": "hello"}' 127.0.0.1:8080/notifications
//	curl 127.0.0.1:8080/notifications
//
// Notifier.go is the part to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// policies in real time.
func policies() map[string]policy {
	return map[string]policy{
		"every": {name: "every", gaps: []time.Duration{0, 300 * time.Second}, forever: true},
		"steps": {name: "steps", gaps: []time.Duration{0, 2 * time.Minute, 10 * time.Minute, time.Hour}},
	}
}

const (
	// storyScale makes the steps, 72 minutes, seven seconds, and leaves a receiver
	// 100 ms for its answer.
	storyScale = 600

	// maxScale leaves 300 s of the story 50 ms.
	maxScale = 6000

	// requestTimeout is ample for a receiver that is well.
	requestTimeout = time.Minute

	// stopWithin is how long requests that are under way get at the end.
	stopWithin = 10 * time.Second
)

type config struct {
	scale   float64
	timeout time.Duration
	addr    string // empty: play the story
}

func main() {
	cfg, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "notifier:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notifier:", err)
		os.Exit(1)
	}
}

// parse reads the command line; help goes to out.
func parse(args []string, out io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("notifier", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, and main prints it
	flags.StringVar(&cfg.addr, "addr", "", "serve at this `address` until interrupted, and play no story")
	flags.Float64Var(&cfg.scale, "scale", 0, fmt.Sprintf("how many seconds of the story pass in one (default %d, with -addr 1)", storyScale))
	flags.DurationVar(&cfg.timeout, "timeout", requestTimeout, "how long a receiver may take to answer, in the time of the story")
	flags.Usage = func() {} // or every error would come with the help
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, "Notifier posts notifications to receivers that fail for a while, every 300 s or by")
			fmt.Fprintln(out, "steps of 0 s, 2 min, 10 min and 1 h, until they succeed.")
			fmt.Fprintln(out, "\nusage: go run ./examples/notifier [flags]")
			fmt.Fprintln(out)
			flags.SetOutput(out)
			flags.PrintDefaults()
		}
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.timeout <= 0:
		return cfg, fmt.Errorf("-timeout %v: must be positive", cfg.timeout)
	case cfg.scale == 0 && cfg.addr == "":
		cfg.scale = storyScale
	case cfg.scale == 0:
		cfg.scale = 1
	case !(cfg.scale > 0 && cfg.scale <= maxScale): // this way round for NaN
		return cfg, fmt.Errorf("-scale %v: must be above 0 and at most %d", cfg.scale, maxScale)
	}
	return cfg, nil
}

// run is the whole program. When it returns, everything that it started has ended.
func run(ctx context.Context, cfg config, out io.Writer) error {
	says := &diary{clock: clock{start: time.Now(), scale: cfg.scale}, out: out}
	paced := policies()
	for name, p := range paced {
		for i, gap := range p.gaps {
			p.gaps[i] = says.real(gap)
		}
		paced[name] = p
	}
	seen := &ledger{records: make(map[int]*record)}
	tw := timingwheel.New()
	transport := &http.Transport{}
	nt := newNotifier(tw, &http.Client{Transport: transport, Timeout: says.real(cfg.timeout)}, func(r result) {
		seen.note(r.ID, func(rec *record) { rec.results = append(rec.results, r) })
		says.line("%s", describe(r))
	})

	rs := newReceivers()
	there, stopReceivers, err := serve("127.0.0.1:0", rs.handler())
	if err != nil {
		return err
	}
	addr := cfg.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	here, stopServer, err := serve(addr, handler(nt, paced))
	if err != nil {
		return errors.Join(err, stopReceivers())
	}
	says.line("a notifier listens at %s/notifications; a second here is %v seconds there", here, cfg.scale)
	says.line("receivers: %s/fails/N refuses the first N attempts, /hangs/N does not answer them", there)
	if cfg.addr == "" {
		err = play(ctx, says, seen, here, there)
	} else {
		<-ctx.Done()
	}

	// First the requests, which make notifications, then those, then the wheel.
	err = errors.Join(err, stopServer())
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	says.line("the notifier stops")
	undelivered := nt.stop(ctx)
	for _, s := range undelivered {
		says.line("%s was not delivered (attempts: %d)", title(s), s.Attempts)
	}
	transport.CloseIdleConnections() // or the receivers would wait for them
	// With a context of its own, as stop may have used up the other.
	ctx, cancel = context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err = errors.Join(err, tw.Shutdown(ctx), stopReceivers())
	if err != nil || cfg.addr != "" {
		return err
	}
	for _, s := range undelivered {
		seen.note(s.ID, func(rec *record) { rec.listed++ })
	}
	if err := judge(seen.records, rs.taken, paced); err != nil {
		return err
	}
	says.line("no attempt was early, none overlapped, none followed a success, and nothing was forgotten")
	return nil
}

func describe(r result) string {
	s := fmt.Sprintf("%s, attempt %d: ", title(r.status), r.Attempts)
	var net net.Error
	switch {
	case r.err == nil:
		return s + "delivered"
	case errors.As(r.err, &net) && net.Timeout():
		s += "no answer in time"
	default:
		s += r.err.Error()
	}
	if r.last {
		s += ", which was the last"
	}
	return s
}

func title(s status) string {
	path := s.URL
	if u, err := url.Parse(s.URL); err == nil && len(u.Path) > 1 {
		path = u.Path
	}
	return fmt.Sprintf("#%d to %s (%s)", s.ID, path, s.Policy)
}
