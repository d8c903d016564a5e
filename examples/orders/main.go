// Orders is a shop, served over HTTP. An order takes its goods from the stock at once.
// If it is not paid, the customer is reminded after 20 minutes, and after 30 the order
// is cancelled and the goods go back. Paying stops both.
//
// The program plays half an hour of the shop with customers of its own, some of which
// pay at the very last moment, and checks what became of every order and of the stock.
//
//	go run ./examples/orders                                    half an hour in three seconds
//	go run ./examples/orders -addr 127.0.0.1:8080 -scale 60     a shop to try by hand
//
//	curl -d '{"customer": "ada", "item": "mug", "quantity": 2}' 127.0.0.1:8080/orders
//	curl -X POST 127.0.0.1:8080/orders/1/payment
//	curl 127.0.0.1:8080/orders/1
//	curl 127.0.0.1:8080/stock/mug
//
// Orders.go is the part to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

const (
	payWithin    = 30 * time.Minute
	remindBefore = 10 * time.Minute

	// storyScale makes half an hour three seconds: short, and a millisecond, which
	// is about how late a timer is, still less than a second of the story.
	storyScale = 600

	// maxScale leaves the half hour 100 ms, in which requests can be answered.
	maxScale = 18000

	// stopWithin is how long requests and callbacks that are under way get at the end.
	stopWithin = 10 * time.Second
)

// goods is what the shop has at the start.
func goods() map[string]int { return map[string]int{"mug": 5, "lamp": 3, "poster": 100} }

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
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// parse reads the command line; help goes to out.
func parse(args []string, out io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, and main prints it
	flags.StringVar(&cfg.addr, "addr", "", "serve at this `address` until interrupted, and play no story")
	flags.Float64Var(&cfg.scale, "scale", 0, fmt.Sprintf("how many seconds of the story pass in one (default %d, with -addr 1)", storyScale))
	flags.Usage = func() {} // or every error would come with the help
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, "Orders is a shop whose orders are cancelled, with their stock returned, when they are")
			fmt.Fprintln(out, "unpaid after 30 minutes; a reminder comes 10 minutes before. Paying stops both.")
			fmt.Fprintln(out, "\nusage: go run ./examples/orders [flags]")
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
	seen := &ledger{records: make(map[int]*record)}
	tw := timingwheel.New()
	shop := newOrders(tw, says.real(payWithin), says.real(remindBefore), goods(),
		func(d details) {
			seen.note(d.ID, func(r *record) { r.reminders = append(r.reminders, time.Now()) })
			if !isLatecomer(d.Customer) {
				says.line("shop reminds %s: order %d is unpaid, %.0f minutes left", d.Customer, d.ID, remindBefore.Minutes())
			}
		},
		func(d details) {
			seen.note(d.ID, func(r *record) { r.cancellations = append(r.cancellations, time.Now()) })
			if !isLatecomer(d.Customer) {
				says.line("shop cancels order %d of %s: %d x %s back in stock", d.ID, d.Customer, d.Quantity, d.Item)
			}
		})

	addr := cfg.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	url, stop, err := serve(addr, handler(shop))
	if err != nil {
		return err
	}
	if cfg.addr == "" {
		says.line("a shop opens at %s; a second here is %v seconds there", url, cfg.scale)
		err = play(ctx, says, seen, url)
	} else {
		says.line("a shop opens at %s, until you interrupt it; a second here is %v seconds there", url, cfg.scale)
		<-ctx.Done()
	}

	// First the requests, which arm timers, then the timers.
	err = errors.Join(err, stop())
	unfinished := tw.Len()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if err := errors.Join(err, tw.Shutdown(ctx)); err != nil {
		return err
	}
	if cfg.addr != "" {
		says.line("the shop closes, %d timers were pending", unfinished)
		return nil
	}
	if unfinished > 0 {
		return fmt.Errorf("%d timers are pending when all orders are paid or cancelled", unfinished)
	}
	if err := judge(seen.records, shop.stock, says.real(payWithin), says.real(remindBefore)); err != nil {
		return err
	}
	says.line("the shop closes: every order was either paid or cancelled, nothing came early, and the stock adds up")
	return nil
}
