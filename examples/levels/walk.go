package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// slots is the wheel size. A wheel has its slots twice: a timer lies in the finest wheel that
// reaches its deadline in less than two turns.
const slots = 12

// walk starts a timer that fires after so many ticks, draws the wheels whenever it has moved to
// another one, and returns when it has fired. Stats tells which wheel holds the timer, as it is
// the only one. The slot follows from the deadline.
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

	for before, poll := -1, max(tick/10, time.Millisecond); ; {
		now := int(time.Since(start) / tick)
		if levels := tw.Stats().Levels; timer.Pending() {
			for i, level := range levels {
				if level.Busy == 0 || i == before {
					continue
				}
				verb := "moves to"
				if before < 0 {
					verb = "is filed in"
				}
				before = i
				width := int(level.Tick / tick) // of a slot, in ticks
				fmt.Fprintf(out, "\nat %3d s  it %s the %s wheel, slot %d, which is due at %d s\n\n",
					now, verb, ordinals[i], delay/width%(2*slots), delay/width*width)
				draw(out, len(levels), now, i, delay)
			}
		}
		select {
		case after := <-fired:
			fmt.Fprintf(out, "\nat %3d s  it fires\n", after/tick)
			if early := time.Duration(delay)*tick - after; early > 0 {
				return fmt.Errorf("the timer fired %v early", early)
			}
			return nil
		case <-time.After(poll):
		}
	}
}

var ordinals = [...]string{"first", "second", "third"}

// draw shows the wheels, the coarsest on top: the slot of the current time in angle brackets, the
// slot of the timer as a star.
func draw(out io.Writer, levels, now, holder, delay int) {
	width := 1
	for range levels - 1 {
		width *= slots
	}
	for i := levels - 1; i >= 0; i-- {
		var row strings.Builder
		for slot := range 2 * slots {
			mark, format := ".", " %s "
			if i == holder && slot == delay/width%(2*slots) {
				mark = "*"
			}
			if slot == now/width%(2*slots) {
				format = "<%s>"
			}
			fmt.Fprintf(&row, format, mark)
		}
		fmt.Fprintf(out, "  %-6s wheel, %4d s a slot  %s  at %d s\n", ordinals[i], width, row.String(),
			now/width*width)
		width /= slots
	}
	fmt.Fprintf(out, "%30s ", "slot")
	for slot := range 2 * slots {
		fmt.Fprintf(out, "%2d ", slot)
	}
	fmt.Fprintln(out)
}
