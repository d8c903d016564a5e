// Devices switches the plugs and lamps of a house at the times of a table:
//
//	# minute hour weekday device     on/off
//	30       6    mon-fri boiler     on
//	0        22   *       lamp-hall  off
//
// The program serves the devices itself, over HTTP. It plays a night and a day in Berlin, in which
// the clocks are put forward and a device is off the network for a while, and checks what each
// device has done.
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
	"net/http"
	"os"
	"sync"
	"time"
	_ "time/tzdata" // Berlin's clock, wherever the program runs

	"github.com/go-timingwheel/timingwheel"
	story "github.com/go-timingwheel/timingwheel/examples/internal/oldstory"
)

const (
	retryAfter   = 5 * time.Minute
	answerWithin = 10 * time.Second // in real time: it depends on the network and not on the story
)

var berlin, _ = time.LoadLocation("Europe/Berlin")

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

// asked is what the table must lead to, worked out by hand.
var asked = map[string][]time.Time{
	"boiler on":      {on(1, 8, 0)},
	"boiler off":     {on(0, 21, 0), on(1, 21, 0)},
	"lamp-hall on":   {on(0, 18, 0), on(1, 18, 0)},
	"lamp-hall off":  {on(0, 22, 0), on(1, 22, 0)},
	"fan on":         {on(1, 3, 0), on(1, 3, 30)},
	"fan off":        {on(1, 5, 0)},
	"dehumidify off": {on(1, 4, 30)},
}

// switches is how often the devices change, all of them being off at first.
var switches = map[string]int{
	"boiler on": 1, "boiler off": 1, "lamp-hall on": 2, "lamp-hall off": 2, "fan on": 1, "fan off": 1,
}

func main() {
	var file string
	story.Program{
		Name:     "devices",
		About:    "Devices switches the plugs and lamps of a house at the times of a table.",
		Passed:   "every device did what the table says, nothing before its time;\ndehumidify was never switched on, as this night had no 02:30",
		Scale:    12600,
		MaxScale: 1e5,
		Opening:  on(0, 17, 30),
		Layout:   "Mon 15:04 MST",
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&file, "table", "",
				"check the table in this `file`, list its times of the next week, and play no story")
		},
		Play: func(ctx context.Context, r *story.Run) error {
			if file != "" {
				r.Passed = ""
				return list(r.Out, file)
			}
			fmt.Fprintf(r.Out, "%s\n", houseTable)
			return (&night{Run: r, offline: make(map[string]bool), on: make(map[string]bool)}).play(ctx)
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
	end := time.Now().AddDate(0, 0, 7)
	for at := t.Next(time.Now()); !at.IsZero() && at.Before(end); at = t.Next(at) {
		for _, l := range t.at(at) {
			fmt.Fprintf(out, "%s  %s\n", at.Format("Mon 2006-01-02 15:04 MST"), l)
		}
	}
	return nil
}

func (l line) String() string {
	return l.device + " " + map[bool]string{true: "on", false: "off"}[l.on]
}

// A night is the story. Its devices are off at first.
type night struct {
	*story.Run
	mu       sync.Mutex
	offline  map[string]bool
	on       map[string]bool
	replaced int // orders: on a machine that stood still, two for a device may come at once
}

// set is what a device does when it is told to.
func (n *night) set(r *http.Request, on bool) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := line{device: r.PathValue("device"), on: on}
	if n.offline[l.device] {
		return false, errors.New("off the network")
	}
	if n.on[l.device] != on {
		n.on[l.device] = on
		n.See(time.Now(), "%s is switched", l)
	}
	return on, nil
}

func (n *night) play(ctx context.Context) error {
	t, err := parseTable(houseTable)
	if err != nil {
		return err
	}
	tw, mux := timingwheel.New(), http.NewServeMux()
	mux.Handle("PUT /{device}", story.Handle(n.set))
	err = n.Serve(ctx, tw, mux, func(ctx context.Context, c *story.Client) error {
		h := newHouse(tw, t, n.Real(retryAfter), func(ctx context.Context, device string, on bool) error {
			ctx, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			return c.Call(ctx, http.MethodPut, "/"+device, on, nil)
		}, n.reported)
		defer h.close()
		// The schedule ends by itself. Stop might take away the last run when it is late.
		end := on(1, 22, 30)
		tw.ScheduleFunc(inStory{n.Run, h, end}, h.run, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
		at := func(t time.Time, offline bool, what string) story.Scene {
			return story.At(t.Sub(on(0, 17, 30)), func(context.Context) error {
				n.mu.Lock()
				n.offline["lamp-hall"] = offline
				n.mu.Unlock()
				n.Printf("%s", what)
				return nil
			})
		}
		for line, times := range asked {
			for _, t := range times {
				n.Want(1, 1, n.RealAt(t), "%s for %s ends", line, t)
			}
			n.Want(0, switches[line], n.RealAt(times[len(times)-1]), "%s is switched", line)
		}
		n.Want(0, switches["fan on"], n.RealAt(on(1, 3, 0)), "fan on is switched") // it is on at 3:30
		return errors.Join(n.Play(ctx,
			at(on(0, 21, 0), true, "the router is unplugged: lamp-hall is off the network"),
			at(on(0, 23, 30), false, "the router is back"),
			at(on(1, 1, 59), false, "in a minute it will be 03:00"),
			at(end, false, "the story ends"),
		), n.Await(ctx, n.Real(retryAfter), n.Verdict))
	})
	for line, times := range switches {
		seen := len(n.Seen("%s is switched", line))
		n.Check(seen >= times-n.replaced, "%s: switched %d times instead of %d", line, seen, times)
	}
	return errors.Join(err, story.Within(tw.Shutdown))
}

func (n *night) reported(r report) {
	switch {
	case r.replaced:
		n.Printf("%s is replaced by a later order", r.line)
	case r.err == nil && r.attempts > 1:
		n.Printf("%s, at attempt %d; it was due at %s", r.line, r.attempts, r.at.Format("15:04"))
	case r.err == nil:
		n.Printf("%s", r.line)
	case r.attempts == 1:
		n.Printf("%s: no answer, tried again every %v", r.line, retryAfter)
	}
	if r.replaced || r.err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.See(time.Now(), "%s for %s ends", r.line, r.at)
		if r.replaced {
			n.replaced++
		}
	}
}

// inStory runs a Scheduler that knows the times of the story on the machine's clock, by which
// ScheduleFunc asks it. The roundings of RealAt and StoryAt ensure that the time that returns is
// not before the one that went out, otherwise that run would be asked for twice. It may be some
// microseconds of the story later, which a table of minutes does not notice.
type inStory struct {
	*story.Run
	scheduler timingwheel.Scheduler
	end       time.Time // of the story, after which there are no runs
}

func (s inStory) Next(t time.Time) time.Time {
	next := s.scheduler.Next(s.StoryAt(t))
	if next.IsZero() || next.After(s.end) {
		return time.Time{}
	}
	return s.RealAt(next)
}
