// Levels draws the textbook case of a hierarchical timing wheel: wheels of 12 slots, the lowest
// with a tick of one second, and a timer of 310 seconds.
//
// In the textbook the timer starts in slot 2 of the third wheel, moves at 288 s to slot 1 of the
// second, at 300 s to slot 10 of the first, and fires at 310 s. Here it takes the same way, but
// moves earlier: the timers of a bucket move down during the slot before it is due, whenever
// nothing else is. So this one moves at 144 s and at 288 s. For that each wheel has its slots
// twice, and slot 10 becomes slot 22.
//
//	go run ./examples/levels             310 seconds in 15
//	go run ./examples/levels -scale 1    in real time
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

func main() {
	var delay int
	story.Program{
		Name:     "levels",
		About:    "Levels draws how a timer moves down the wheels, one drawing for each move.",
		Scale:    20,
		MaxScale: 1000,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&delay, "delay", 310, "delay of the timer in `seconds` of the story, up to 1727")
		},
		Play: func(_ context.Context, r *story.Run) error {
			if delay < 1 || delay > 1727 {
				return story.Misuse("-delay %d: must be between 1 and 1727", delay)
			}
			tick := r.Real(time.Second)
			fmt.Fprintf(r.Out, "Wheels of %d slots, a tick of %v standing for 1 s, and a timer of %d s.\n",
				slots, tick, delay)
			return walk(r.Out, tick, delay)
		},
	}.Main()
}
