// Levels draws the textbook case of a hierarchical timing wheel: wheels of 12
// slots, the lowest with a tick of one second, and a timer of 310 seconds.
//
// In the textbook it starts in slot 2 of the third wheel, moves when that is due, at
// 288 s, to slot 1 of the second, at 300 s to slot 10 of the first, and fires at 310 s.
// Here it comes by the same slots, but earlier: the timers of a bucket move down during
// the slot before it is due, whenever nothing else is. So this one moves at 144 s and
// at 288 s. For that each wheel has its slots twice, and slot 10 may be 22.
//
//	go run ./examples/levels             310 seconds in 15
//	go run ./examples/levels -scale 1    in real time
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/internal/inspect"
)

const slots = 12

func main() {
	flags := flag.NewFlagSet("levels", flag.ExitOnError)
	scale := flags.Float64("scale", 20, "how many seconds of the story pass in one")
	delay := flags.Int("delay", 310, "the timer's delay in seconds of the story, up to 1727")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Draws a timer's way down the wheels, one drawing a move.\n\nusage: go run ./examples/levels [flags]\n\n")
		flags.PrintDefaults()
	}
	flags.Parse(os.Args[1:])
	if flags.NArg() > 0 || !(*scale >= 0.01 && *scale <= 1000) || *delay < 1 || *delay > 1727 {
		fmt.Fprintln(os.Stderr, "levels: -scale is between 0.01 and 1000, -delay between 1 and 1727, and there are no arguments (-h lists the flags)")
		os.Exit(2)
	}
	if err := run(os.Stdout, time.Duration(float64(time.Second) / *scale), *delay); err != nil {
		fmt.Fprintln(os.Stderr, "levels:", err)
		os.Exit(1)
	}
}

// run plays the story with a tick of the given length, which stands for a second.
func run(out io.Writer, tick time.Duration, delay int) error {
	start := time.Now()
	tw := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithWheelSize(slots))
	defer tw.Stop()

	fmt.Fprintf(out, "Wheels of %d slots, a tick of %v standing for 1 s, and a timer of %d s.\n", slots, tick, delay)
	fired := make(chan time.Duration, 1)
	var timer timingwheel.Timer
	tw.Init(&timer, func() { fired <- time.Since(start) })
	// Counted from an instant just before the wheel began: 310 s counted from
	// now would end a few microseconds into the next tick, and round up to 311.
	timer.ResetAt(start.Add(time.Duration(delay) * tick))

	var last place
	for poll := max(tick/10, time.Millisecond); ; {
		levels := inspect.Take(tw, inspect.Count{Limit: 1}).Levels
		if at, ok := find(levels); ok && at != last && timer.Pending() {
			verb := "it moves to"
			if last == (place{}) {
				verb = "it is filed in"
			}
			last = at
			fmt.Fprintf(out, "\nat %5.1f s  %s the %s wheel, slot %d, which is due at %d s\n\n",
				float64(time.Since(start))/float64(tick), verb, ordinal(at.level), at.slot, at.due/tick)
			draw(out, levels, tick)
		}
		select {
		case after := <-fired:
			fmt.Fprintf(out, "\nat %5.1f s  it fires\n", float64(after)/float64(tick))
			if early := time.Duration(delay)*tick - after; early > 0 {
				return fmt.Errorf("fired %v early", early)
			}
			return nil
		case <-time.After(poll):
		}
	}
}

// place is where the timer lies.
type place struct {
	level, slot int
	due         time.Duration
}

func find(levels []inspect.Level) (place, bool) {
	for i, level := range levels {
		for _, slot := range level.Slots {
			return place{i, index(slot.Expiration, level), slot.Expiration}, true
		}
	}
	return place{}, false
}

// index returns the slot of an instant in a wheel that has each of its slots twice. (In
// memory there are more, as their number is rounded up to a power of two.)
func index(at time.Duration, level inspect.Level) int { return int(at/level.Tick) % (2 * slots) }

// draw shows the wheels, the coarsest on top: the slot of the current time in
// angle brackets, slots with timers as a star.
func draw(out io.Writer, levels []inspect.Level, tick time.Duration) {
	for i := len(levels) - 1; i >= 0; i-- {
		level := levels[i]
		var row strings.Builder
		for slot := range 2 * slots {
			mark := "."
			for _, s := range level.Slots {
				if index(s.Expiration, level) == slot {
					mark = "*"
				}
			}
			if index(level.Now, level) == slot {
				mark = "<" + mark + ">"
			} else {
				mark = " " + mark + " "
			}
			row.WriteString(mark)
		}
		fmt.Fprintf(out, "  %-6s wheel, %4d s a slot  %s  at %d s\n", ordinal(i), level.Tick/tick, row.String(), level.Now/tick)
	}
	var numbers strings.Builder
	for slot := range 2 * slots {
		fmt.Fprintf(&numbers, "%2d ", slot)
	}
	fmt.Fprintf(out, "  %-6s %22s%s\n", "", "slot ", numbers.String())
}

func ordinal(level int) string { return [...]string{"first", "second", "third"}[level] }
