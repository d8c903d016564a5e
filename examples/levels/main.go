// Levels draws the textbook case of a hierarchical timing wheel: wheels of 12 slots, the lowest
// with a tick of one second, and a timer of 310 seconds.
//
// In the textbook the timer starts in slot 2 of the third wheel, moves at 288 s to slot 1 of the
// second, at 300 s to slot 10 of the first, and fires at 310 s. Here it goes the same way, but
// moves earlier: the timers of a bucket move down during the slot before it is due, when nothing
// else is. So this one moves at 144 s and at 288 s. For that each wheel has its slots twice, and
// slot 10 becomes slot 22.
//
//	go run ./examples/levels    310 seconds in 15
package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// slots is the wheel size. A wheel has its slots twice: a timer lies in the finest wheel that
// reaches its deadline in less than two turns.
const slots = 12

func main() {
	delay := flag.Int("delay", 310, "delay of the timer in `seconds` of the story, from 1 to 1727")
	story.Program{
		Scale: 20,
		Play: func(r *story.Run) {
			tick := r.Real(time.Second)
			fmt.Fprintf(r.Out, "Each row is a wheel of %d slots, twice. %v stand for 1 s.\n"+
				"< > is the slot of the current time, * the slot of the timer.\n", slots, tick)
			story.Must(walk(r.Out, tick, min(max(1, *delay), 1727)))
		},
		Passed: "the timer did not fire early",
	}.Main()
}

// walk starts a timer that fires after so many ticks, draws the wheels when it has moved to another
// one, and returns when it has fired. Stats tells which wheel holds the timer, as it is the only
// one. The slot follows from the deadline.
func walk(out io.Writer, tick time.Duration, delay int) error {
	start := time.Now()
	tw := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithWheelSize(slots))
	defer tw.Stop()
	fired := make(chan time.Duration, 1)
	var timer timingwheel.Timer
	tw.Init(&timer, func() { fired <- time.Since(start) })
	// Counted from an instant just before the wheel began. Counted from now, 310 ticks would end
	// a few microseconds into the next tick, and round up to 311.
	timer.ResetAt(start.Add(time.Duration(delay) * tick))

	for before, verb := -1, "is filed in"; ; {
		now, levels := int(time.Since(start)/tick), tw.Stats().Levels
		holder := slices.IndexFunc(levels,
			func(l timingwheel.LevelStats) bool { return l.Busy > 0 })
		if holder >= 0 && holder != before && timer.Pending() {
			width := widths[holder]
			fmt.Fprintf(out, "\nat %3d s  it %s the %s wheel, slot %d, due at %d s\n\n",
				now, verb, ordinals[holder], delay/width%(2*slots), delay/width*width)
			draw(out, len(levels), now, holder, delay)
			before, verb = holder, "moves to"
		}
		select {
		case after := <-fired:
			fmt.Fprintf(out, "\nat %3d s  it fires\n", after/tick)
			if early := time.Duration(delay)*tick - after; early > 0 {
				return fmt.Errorf("the timer fired %v early", early)
			}
			return nil
		case <-time.After(max(tick/10, time.Millisecond)):
		}
	}
}

var (
	ordinals = [...]string{"first", "second", "third"}
	widths   = [...]int{1, slots, slots * slots} // of a slot, in ticks
)

// draw shows the wheels, the coarsest on top, in 80 columns.
func draw(out io.Writer, levels, now, holder, delay int) {
	for i := levels - 1; i >= 0; i-- {
		fmt.Fprintf(out, "%3d s  ", widths[i])
		for slot := range 2 * slots {
			mark, format := ".", " %s "
			if i == holder && slot == delay/widths[i]%(2*slots) {
				mark = "*"
			}
			if slot == now/widths[i]%(2*slots) {
				format = "<%s>"
			}
			fmt.Fprintf(out, format, mark)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprint(out, "      ")
	for slot := range 2 * slots {
		fmt.Fprintf(out, "%3d", slot)
	}
	fmt.Fprintln(out)
}
