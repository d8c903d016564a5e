// Lastread is a news server that mails each reader a digest two hours after his last
// read. Every read pushes the digest on, so there is one timer for each reader who has
// been there lately, and nothing for those who have had their digest.
//
// The program plays five hours of it with readers of its own, some of which come back
// at the very moment of their digest, and checks that no digest was early, lost, or sent
// once too often.
//
//	go run ./examples/lastread                                    five hours in five seconds
//	go run ./examples/lastread -addr 127.0.0.1:8080 -scale 600    a server to try by hand
//
//	curl 127.0.0.1:8080/news/ada
//	curl -d '{"title": "Wheel reinvented"}' 127.0.0.1:8080/articles
//	curl 127.0.0.1:8080/waiting
//
// Debounce.go is the part to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sort"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

const (
	quiet = 2 * time.Hour

	// storyScale makes two hours two seconds.
	storyScale = 3600

	// maxScale leaves two hours 100 ms, in which requests can be answered.
	maxScale = 72000

	// stopWithin is how long requests and callbacks that are under way get at the end.
	stopWithin = 10 * time.Second
)

type config struct {
	scale float64
	addr  string // empty: play the story
}

func main() {
	cfg, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "lastread:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lastread:", err)
		os.Exit(1)
	}
}

// parse reads the command line; help goes to out.
func parse(args []string, out io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("lastread", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, and main prints it
	flags.StringVar(&cfg.addr, "addr", "", "serve at this `address` until interrupted, and play no story")
	flags.Float64Var(&cfg.scale, "scale", 0, fmt.Sprintf("how many seconds of the story pass in one (default %d, with -addr 1)", storyScale))
	flags.Usage = func() {} // or every error would come with the help
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, "Lastread is a news server that mails each reader a digest two hours after his last read.")
			fmt.Fprintln(out, "\nusage: go run ./examples/lastread [flags]")
			fmt.Fprintln(out)
			flags.SetOutput(out)
			flags.PrintDefaults()
		}
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
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
	seen := &ledger{records: make(map[string]*record)}
	tw := timingwheel.New()
	n := newNews(tw, says.real(quiet), func(reader string, unread []string) {
		seen.note(reader, func(r *record) { r.digests = append(r.digests, time.Now()) })
		if !isRegular(reader) {
			return
		}
		says.line("digest to %s, who was last here two hours ago: %d new", reader, len(unread))
	})
	addr := cfg.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	url, stop, err := serve(addr, handler(n))
	if err != nil {
		return err
	}
	says.line("a news server opens at %s; a second here is %v seconds there", url, cfg.scale)
	if cfg.addr == "" {
		err = play(ctx, says, seen, url)
	} else {
		<-ctx.Done()
	}

	// First the requests, which push digests on, then those, then the wheel, which
	// waits for mails that are being written.
	err = errors.Join(err, stop())
	left := n.digests.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err = errors.Join(err, tw.Shutdown(ctx))
	sort.Strings(left)
	says.line("the server closes, and hands back the digests that were to come: %d %s", len(left), strings.Join(left, " "))
	if err != nil || cfg.addr != "" {
		return err
	}
	for _, reader := range left {
		seen.note(reader, func(r *record) { r.listed++ })
	}
	if err := judge(seen.records, says.real(quiet)); err != nil {
		return err
	}
	says.line("no digest was early, none was lost, and none came while its reader was still about")
	return nil
}
