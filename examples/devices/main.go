// Devices switches the plugs and lamps of a house at the times of a table:
//
//	# minute hour weekday device     on/off
//	30       6    mon-fri boiler     on
//	0        22   *       lamp-hall  off
//
// The devices are served over HTTP by the program itself. It plays a night and a day in
// Berlin, in which the clocks are put forward and one of the devices is off the
// network for a while, and checks at the end what each device has done.
//
//	go run ./examples/devices                  28 hours in eight seconds
//	go run ./examples/devices -scale 3600      the same in 28
//	go run ./examples/devices -table house.txt check a table and list its next times
//
// Table.go (the table is a timingwheel.Scheduler) and house.go (orders, and further
// attempts where they do not get through) are the parts to copy.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
	_ "time/tzdata" // Berlin's clock, wherever the program runs

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const (
	retryAfter = 5 * time.Minute

	// answerWithin is how long a device may take to answer. A real network decides, and
	// not the story.
	answerWithin = 10 * time.Second
)

func word(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func main() { program().Main() }

func program() story.Program {
	var file string
	return story.Program{
		Name:     "devices",
		About:    "Devices switches the plugs and lamps of a house at the times of a table.",
		Scale:    12600,
		MaxScale: 1e5,
		Opening:  on(0, 17, 30),
		Layout:   "Mon 15:04 MST",
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&file, "table", "", "check the table in this `file`, list its times of the next week, and play no story")
		},
		Play: func(ctx context.Context, d *story.Diary, _ string) error {
			if file != "" {
				return list(d.Out, file, time.Now())
			}
			return run(ctx, d)
		},
	}
}

// list prints when the table in a file switches what, in the week after now.
func list(out io.Writer, file string, now time.Time) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t, err := parseTable(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for at := t.Next(now); !at.IsZero() && !at.After(now.AddDate(0, 0, 7)); at = t.Next(at) {
		for _, l := range t.at(at) {
			fmt.Fprintf(out, "%s  %s %s\n", at.Format("Mon 2006-01-02 15:04 MST"), l.device, word(l.on))
		}
	}
	return nil
}

func run(ctx context.Context, d *story.Diary) error {
	fmt.Fprintf(d.Out, "%s\n", houseTable)
	n := newNight(d)
	if err := d.Serve(ctx, "", n.handler(), n.play); err != nil {
		return err
	}
	if err := n.judge(); err != nil {
		return err
	}
	d.Printf("all is well: every device did what the table says, in its order, nothing before its time;\n" +
		"dehumidify was never switched on, as this night had no 02:30")
	return nil
}

// inStory lets a Scheduler that knows the times of the story run on the machine's
// clock, with which ScheduleFunc asks it. The clock's roundings see to it that the time
// that comes back in is never before the one that went out, or that run would be asked
// for twice. (They may put it behind by some microseconds of the story, which a table of
// minutes does not notice.)
type inStory struct {
	clock     *story.Clock
	scheduler timingwheel.Scheduler
	end       time.Time // of the story, after which there are no runs; zero for none
}

func (s inStory) Next(t time.Time) time.Time {
	next := s.scheduler.Next(s.clock.StoryAt(t))
	if next.IsZero() || !s.end.IsZero() && next.After(s.end) {
		return time.Time{}
	}
	return s.clock.RealAt(next)
}
