// Devices switches the plugs and lamps of a house at the times of a table. It plays a night and a
// day in Berlin in which the clocks are put forward and a device is off the network for a while,
// and checks what each device has done.
//
//	go run ./examples/devices    28 hours in eight seconds
//
// Files table.go (the table is a timingwheel.Scheduler) and house.go (orders, and further attempts
// if they fail) are the parts to copy.
package main

import (
	"context"
	"errors"
	"fmt"
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

var houseTable = table{
	{6, 30, workdays, "boiler", true},
	{8, 0, weekend, "boiler", true},
	{21, 0, daily, "boiler", false},
	{18, 0, daily, "lamp-hall", true},
	{22, 0, daily, "lamp-hall", false},
	{3, 0, "Sun", "fan", true},
	{3, 30, "Sun", "fan", true}, // again
	{5, 0, daily, "fan", false},
	{2, 30, daily, "dehumidify", true}, // but this night has no 02:30
	{4, 30, daily, "dehumidify", false},
}

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
	"fan on":         {[]time.Time{on(1, 3, 30), on(1, 3, 0)}, 1}, // not again at 3:30
	"fan off":        {[]time.Time{on(1, 5, 0)}, 1},
	"dehumidify off": {[]time.Time{on(1, 4, 30)}, 0},
}

func main() {
	story.Program{
		Scale:   12600,
		Opening: opening,
		Layout:  "Mon 15:04 MST",
		Play:    func(r *story.Run) { (&night{Run: r, on: make(map[string]bool)}).play() },
		Passed:  "every device did what the table says, none early",
	}.Main()
}

// A night is the story.
type night struct {
	*story.Run
	offline  atomic.Bool  // lamp-hall
	replaced atomic.Int32 // orders: if the machine stood still, two for a device may come at once

	mu sync.Mutex
	on map[string]bool // by device
}

func (n *night) play() {
	for _, l := range houseTable {
		fmt.Fprintf(n.Out, "%02d:%02d  %-14s %s\n", l.hour, l.minute, l, l.days)
	}
	fmt.Fprintln(n.Out)
	tw := timingwheel.New()
	h := newHouse(tw, houseTable, n.Real(retryAfter), n.tell, n.report)
	// The schedule ends by itself. Stop might take away the last run when it is late.
	tw.ScheduleFunc(inStory{n.Run, h}, h.run,
		timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
	for line, want := range asked {
		for _, t := range want.times {
			n.Want(1, 1, n.RealAt(t), "%s for %s ends", line, t)
		}
		last := want.times[len(want.times)-1]
		n.Want(0, want.switches, n.RealAt(last), "%s is switched", line)
	}
	at := func(t time.Time, offline bool, what string) {
		n.Until(t.Sub(opening))
		n.offline.Store(offline)
		n.Printf("%s", what)
	}
	at(on(0, 21, 0), true, "the router is unplugged: lamp-hall is off the network")
	at(on(0, 23, 30), false, "the router is back")
	at(on(1, 1, 59), false, "in a minute it will be 03:00")
	at(end, false, "the story ends")
	story.Must(n.Await(n.Real(retryAfter), n.Verdict))
	h.close()
	story.Within(tw.Shutdown)
	for line, want := range asked {
		seen := len(n.Seen("%s is switched", line))
		n.Check(seen >= want.switches-int(n.replaced.Load()), "%s: seen %d times", line, seen)
	}
}

// tell is how the house tells a device.
func (n *night) tell(_ context.Context, l line) error {
	if l.device == "lamp-hall" && n.offline.Load() {
		return errors.New("off the network")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.on[l.device] != l.on {
		n.on[l.device] = l.on
		n.See(time.Now(), "%s is switched", l)
	}
	return nil
}

func (n *night) report(o order, err error, replaced bool) {
	switch {
	case replaced:
		n.replaced.Add(1)
		n.Printf("%s is replaced by a later order", o.line)
	case err == nil:
		n.Printf("%s, at attempt %d; due at %s", o.line, o.attempts, o.at.Format("15:04"))
	case o.attempts == 1:
		n.Printf("%s: no answer, tried again every %v", o.line, retryAfter)
		return
	default:
		return
	}
	n.See(time.Now(), "%s for %s ends", o.line, o.at)
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
