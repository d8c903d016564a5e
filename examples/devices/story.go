package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file plays the story and judges it.

// houseTable is the one of the story.
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

// An ask is an order of the story, worked out by hand: day 0 is the Saturday.
type ask struct {
	day, hour, minute int
	on                bool
}

// asked is what the table has to come to, for each device in order.
var asked = map[string][]ask{
	"boiler":     {{0, 21, 0, false}, {1, 8, 0, true}, {1, 21, 0, false}},
	"lamp-hall":  {{0, 18, 0, true}, {0, 22, 0, false}, {1, 18, 0, true}, {1, 22, 0, false}},
	"fan":        {{1, 3, 0, true}, {1, 3, 30, true}, {1, 5, 0, false}},
	"dehumidify": {{1, 4, 30, false}},
}

const (
	retryAfter = 5 * time.Minute

	// shutdownWithin is how long callbacks under way get at the end.
	shutdownWithin = 10 * time.Second

	// awaitWithin is how long the last orders may take to be carried out after the
	// story. Milliseconds do; the rest is for a machine that has better things to do.
	awaitWithin = 10 * time.Second
)

type story struct {
	clock storyClock
	lines *log.Logger
	plugs map[string]*plug

	mu      sync.Mutex
	settled map[string][]report // of each device: orders carried out or replaced
}

// run plays the story, and returns an error if a device did not do what it had to.
func run(out io.Writer, scale float64) (err error) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	// on is a time of the story, day 0 being a Saturday. In the night after it the
	// clocks go from 1:59 to 3:00.
	on := func(day, hour, minute int) time.Time {
		return time.Date(2027, time.March, 27+day, hour, minute, 0, 0, berlin)
	}
	opening, finish := on(0, 17, 30), on(1, 23, 0)

	t, err := parseTable(houseTable)
	if err != nil {
		return err
	}
	st := &story{lines: log.New(out, "", 0), plugs: map[string]*plug{}, settled: map[string][]report{}}
	addrs := map[string]string{}
	for name := range asked {
		p, err := newPlug()
		if err != nil {
			return err
		}
		defer p.close()
		st.plugs[name], addrs[name] = p, p.addr()
	}
	fmt.Fprintf(out, "%s\n", houseTable)
	st.clock = newStoryClock(opening, scale)
	fmt.Fprintf(out, "A house in Berlin from %s to %s. An hour takes %v, so a millisecond of\nlateness shows as %v.\n\n",
		opening.Format("Mon 2 Jan 2006 15:04"), finish.Format("Mon 15:04"),
		st.clock.duration(time.Hour).Round(time.Microsecond), time.Duration(scale*float64(time.Millisecond)).Round(time.Second))

	wheel := timingwheel.New()
	h, err := newHouse(wheel, t, addrs, st.clock.duration(retryAfter), tell, st.reported)
	if err != nil {
		return err
	}
	defer func() { // before the plugs close
		ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
		defer cancel()
		h.close()
		err = errors.Join(err, wheel.Shutdown(ctx))
	}()
	switching := wheel.ScheduleFunc(inStory{st.clock, h}, h.run, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())

	lamp := st.plugs["lamp-hall"]
	st.wait(on(0, 21, 0))
	lamp.setOffline(true)
	st.say("somebody unplugs the router: lamp-hall is off the network")
	st.wait(on(0, 23, 30))
	lamp.setOffline(false)
	st.say("the router is back")
	st.wait(on(1, 1, 59))
	st.say("in a minute it will be 03:00")
	st.wait(finish)
	switching.Stop()

	for deadline := time.Now().Add(awaitWithin); st.judge(on) != nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := st.judge(on); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nAll is well: every device did what the table says, in its order, nothing before its time;\ndehumidify was never switched on, as this night had no 02:30.\n")
	return nil
}

func (st *story) wait(until time.Time) { time.Sleep(time.Until(st.clock.real(until))) }

func (st *story) say(format string, args ...any) {
	st.lines.Printf("%s  %s", st.clock.story(time.Now()).Format("Mon 15:04 MST"), fmt.Sprintf(format, args...))
}

func (st *story) reported(r report) {
	what := r.device + " " + word(r.order.on)
	switch {
	case r.replaced:
		st.say("%s: given up, %v", what, errReplaced)
	case r.err != nil:
		st.say("%s: no answer, tried again every %v", what, retryAfter)
	case r.order.attempts > 1:
		st.say("%s, at attempt %d; it was due at %s", what, r.order.attempts, r.order.at.Format("15:04"))
	default:
		st.say("%s", what)
	}
	if r.replaced || r.err == nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.settled[r.device] = append(st.settled[r.device], r)
	}
}

// judge compares what the devices have done with what was worked out. An order
// that was replaced is not missed: on a machine that stood still for a while two
// may come at once, and then the later one counts.
func (st *story) judge(on func(day, hour, minute int) time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	for name, asks := range asked {
		settled := st.settled[name]
		if len(settled) != len(asks) {
			return fmt.Errorf("%s: %d orders were settled and not %d", name, len(settled), len(asks))
		}
		changes := st.plugs[name].history()
		state := false
		for _, a := range asks {
			at := on(a.day, a.hour, a.minute)
			i := slices.IndexFunc(settled, func(r report) bool { return r.order.at.Equal(at) && r.order.on == a.on })
			switch {
			case i < 0:
				return fmt.Errorf("%s: nothing about %s on %s", name, word(a.on), at)
			case settled[i].replaced || a.on == state:
				continue
			case len(changes) == 0:
				return fmt.Errorf("%s was not switched %s on %s", name, word(a.on), at)
			case changes[0].on != a.on || changes[0].at.Before(st.clock.real(at)):
				return fmt.Errorf("%s was switched %s on %s instead of %s on %s",
					name, word(changes[0].on), st.clock.story(changes[0].at), word(a.on), at)
			}
			state = a.on
			changes = changes[1:]
		}
		if len(changes) > 0 {
			return fmt.Errorf("%s was switched %s on %s for no reason", name, word(changes[0].on), st.clock.story(changes[0].at))
		}
	}
	return nil
}
