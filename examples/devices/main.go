// Devices switches the plugs and lamps of a house at the times of a table:
//
//	# minute hour weekday device     on/off
//	30       6    mon-fri boiler     on
//	0        22   *       lamp-hall  off
//
// The program plays a night and a day in Berlin in which the clocks are put forward and a device is
// off the network for a while, and checks what each device has done.
//
//	go run ./examples/devices                  28 hours in eight seconds
//	go run ./examples/devices -scale 3600      the same in 28
//	go run ./examples/devices -table house.txt check a table and list its next times
//
// Files table.go (the table is a timingwheel.Scheduler) and house.go (orders, and further attempts
// if they fail) are the parts to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // Berlin's clock, on any machine

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

const retryAfter = 5 * time.Minute

var (
	berlin, _ = time.LoadLocation("Europe/Berlin")
	opening   = on(0, 17, 30)
	end       = on(1, 22, 30)
)

// on returns a time of the story. Day 0 is a Saturday. In the night after it the clocks go from
// 1:59 to 3:00.
func on(day, hour, minute int) time.Time {
	return time.Date(2027, time.March, 27+day, hour, minute, 0, 0, berlin)
}

const houseTable = `# minute hour weekday device      on/off
30       6    mon-fri boiler      on
0        8    sat,sun boiler      on
0        21   *       boiler      off
0        18   *       lamp-hall   on
0        22   *       lamp-hall   off
*/30     3    sun     fan         on     # at 3:00, and at 3:30 again
0        5    *       fan         off
30       2    *       dehumidify  on     # not in the night that has no 2:30
30       4    *       dehumidify  off
`

// asked is what the table must lead to, worked out by hand: when the device is told, and how often
// it changes. At first all devices are off.
var asked = map[string]struct {
	times    []time.Time
	switches int
}{
	"boiler on":      {[]time.Time{on(1, 8, 0)}, 1},
	"boiler off":     {[]time.Time{on(0, 21, 0), on(1, 21, 0)}, 1},
	"lamp-hall on":   {[]time.Time{on(0, 18, 0), on(1, 18, 0)}, 2},
	"lamp-hall off":  {[]time.Time{on(0, 22, 0), on(1, 22, 0)}, 2},
	"fan on":         {[]time.Time{on(1, 3, 30), on(1, 3, 0)}, 1},
	"fan off":        {[]time.Time{on(1, 5, 0)}, 1},
	"dehumidify off": {[]time.Time{on(1, 4, 30)}, 0},
}

func main() {
	file := flag.String("table", "", "list what the table in this `file` switches in the next week")
	story.Program{
		Name:  "devices",
		About: "Devices switches the plugs and lamps of a house at the times of a table.",
		Passed: "every device did what the table says, none early;\n" +
			"dehumidify was never switched on: this night had no 02:30",
		Scale:    12600,
		MaxScale: 1e5,
		Opening:  opening,
		Layout:   "Mon 15:04 MST",
		Play: func(r *story.Run) {
			if *file != "" {
				r.Passed = ""
				story.Must(list(r.Out, *file))
				return
			}
			n := &night{Run: r, on: make(map[string]bool)}
			n.play()
		},
	}.Main()
}

// list prints when the table in a file switches what, in the next week.
func list(out io.Writer, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t, err := parseTable(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	now := time.Now()
	for at := t.Next(now); !at.IsZero() && at.Before(now.AddDate(0, 0, 7)); at = t.Next(at) {
		for _, l := range t.at(at) {
			fmt.Fprintf(out, "%s  %s\n", at.Format("Mon 2006-01-02 15:04 MST"), l)
		}
	}
	return nil
}

func (l line) String() string {
	return l.device + " " + map[bool]string{true: "on", false: "off"}[l.on]
}

// A night is the story.
type night struct {
	*story.Run
	offline  atomic.Bool // lamp-hall
	mu       sync.Mutex  // guards what follows
	on       map[string]bool
	replaced int // orders: if the machine stood still, two for a device may come at once
}

func (n *night) play() {
	fmt.Fprintf(n.Out, "%s\n", houseTable)
	t, err := parseTable(houseTable)
	story.Must(err)
	tw := timingwheel.New()
	h := newHouse(tw, t, n.Real(retryAfter), n.tell, n.report)
	// The schedule ends by itself. Stop might take away the last run when it is late.
	tw.ScheduleFunc(inStory{n.Run, h}, h.run,
		timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
	for line, want := range asked {
		for _, t := range want.times {
			n.Want(1, 1, n.RealAt(t), "%s for %s ends", line, t)
		}
		last := want.times[len(want.times)-1] // of fan on, the first: it is still on at 3:30
		n.Want(0, want.switches, n.RealAt(last), "%s is switched", line)
	}
	at := func(t time.Time, offline bool, what string) story.Scene {
		return story.Scene{At: t.Sub(opening), Do: func() {
			n.offline.Store(offline)
			n.Printf("%s", what)
		}}
	}
	n.Play(
		at(on(0, 21, 0), true, "the router is unplugged: lamp-hall is off the network"),
		at(on(0, 23, 30), false, "the router is back"),
		at(on(1, 1, 59), false, "in a minute it will be 03:00"),
		at(end, false, "the story ends"),
	)
	story.Must(n.Await(n.Real(retryAfter), n.Verdict))
	h.close()
	story.Within(tw.Shutdown)
	for line, want := range asked {
		seen := len(n.Seen("%s is switched", line))
		n.Check(seen >= want.switches-n.replaced, "%s: seen %d times", line, seen)
	}
}

// tell is how the house tells a device.
func (n *night) tell(_ context.Context, device string, on bool) error {
	if device == "lamp-hall" && n.offline.Load() {
		return errors.New("off the network")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.on[device] != on {
		n.on[device] = on
		n.See(time.Now(), "%s is switched", line{device: device, on: on})
	}
	return nil
}

func (n *night) report(o order, err error, replaced bool) {
	switch {
	case replaced:
		n.Printf("%s is replaced by a later order", o.line)
	case err == nil:
		n.Printf("%s, at attempt %d; due at %s", o.line, o.attempts, o.at.Format("15:04"))
	case o.attempts == 1:
		n.Printf("%s: no answer, tried again every %v", o.line, retryAfter)
	}
	if replaced || err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.See(time.Now(), "%s for %s ends", o.line, o.at)
		if replaced {
			n.replaced++
		}
	}
}

// inStory runs a Scheduler that knows the times of the story on the machine's clock. RealAt and
// StoryAt round so that the time that returns is not before the one that went out; otherwise
// ScheduleFunc would ask for that run twice. It may be some microseconds of the story later, which
// does not matter to a table of minutes.
type inStory struct {
	*story.Run
	scheduler timingwheel.Scheduler
}

func (s inStory) Next(t time.Time) time.Time {
	next := s.scheduler.Next(s.StoryAt(t))
	if next.IsZero() || next.After(end) {
		return time.Time{}
	}
	return s.RealAt(next)
}
