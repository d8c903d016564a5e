package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/examples/internal/story"
)

// This file plays the story and judges it.

var berlin = func() *time.Location {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err) // time/tzdata has it
	}
	return loc
}()

// on is a time of the story, day 0 being a Saturday. In the night after it the clocks go
// from 1:59 to 3:00.
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

// An ask is an order of the story, worked out by hand.
type ask struct {
	at time.Time
	on bool
}

// asked is what the table has to come to, for each device in order.
var asked = map[string][]ask{
	"boiler":     {{on(0, 21, 0), false}, {on(1, 8, 0), true}, {on(1, 21, 0), false}},
	"lamp-hall":  {{on(0, 18, 0), true}, {on(0, 22, 0), false}, {on(1, 18, 0), true}, {on(1, 22, 0), false}},
	"fan":        {{on(1, 3, 0), true}, {on(1, 3, 30), true}, {on(1, 5, 0), false}},
	"dehumidify": {{on(1, 4, 30), false}},
}

// A plug is a device, off at first, and what it did, at instants of the machine.
type plug struct {
	offline, on bool
	changes     []change
}

type change struct {
	at time.Time
	on bool
}

// A night is the story; mu guards what its plugs do and what the house reports.
type night struct {
	*story.Diary
	mu    sync.Mutex
	plugs map[string]*plug
	done  map[string][]report // of each device: orders carried out or replaced
}

func newNight(d *story.Diary) *night {
	n := &night{Diary: d, plugs: map[string]*plug{}, done: map[string][]report{}}
	for name := range asked {
		n.plugs[name] = &plug{}
	}
	return n
}

// handler serves the plugs.
func (s *night) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /{plug}", story.Handle(nil, func(r *http.Request, on bool) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.plugs[r.PathValue("plug")]
		if p == nil || p.offline {
			return false, errors.New("off the network")
		}
		if p.on != on {
			p.on = on
			p.changes = append(p.changes, change{time.Now(), on})
		}
		return on, nil
	}))
	return mux
}

func (s *night) play(ctx context.Context, plugs *story.Client) error {
	t, err := parseTable(houseTable)
	if err != nil {
		return err
	}
	paths := map[string]string{}
	for name := range s.plugs {
		paths[name] = "/" + name
	}
	wheel := timingwheel.New()
	h, err := newHouse(wheel, t, paths, s.Real(retryAfter), func(ctx context.Context, path string, on bool) error {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		return plugs.Call(ctx, http.MethodPut, path, on, nil)
	}, s.reported)
	if err != nil {
		return err
	}
	// After a suspend of the machine the missed runs come one by one, in their order.
	// The schedule ends by itself: Stop might take away the last run when it is late.
	end := on(1, 22, 30)
	wheel.ScheduleFunc(inStory{s.Clock, h, end}, h.run, timingwheel.RunMissed(), timingwheel.QueueWhileRunning())
	at := func(t time.Time, offline bool, what string) story.Scene {
		return story.At(t.Sub(s.Opening), func(context.Context) error {
			s.mu.Lock()
			s.plugs["lamp-hall"].offline = offline
			s.mu.Unlock()
			s.Printf("%s", what)
			return nil
		})
	}
	err = s.Play(ctx,
		at(on(0, 21, 0), true, "somebody unplugs the router: lamp-hall is off the network"),
		at(on(0, 23, 30), false, "the router is back"),
		at(on(1, 1, 59), false, "in a minute it will be 03:00"),
		at(end, false, "the story ends"))
	if err == nil {
		err = story.Await(ctx, s.Real(retryAfter), s.settled)
	}
	h.close()
	return errors.Join(err, story.Within(wheel.Shutdown))
}

func (s *night) reported(r report) {
	what := r.device + " " + word(r.order.on)
	switch {
	case r.replaced:
		s.Printf("%s: given up, %v", what, errReplaced)
	case r.err != nil:
		s.Printf("%s: no answer, tried again every %v", what, retryAfter)
	case r.order.attempts > 1:
		s.Printf("%s, at attempt %d; it was due at %s", what, r.order.attempts, r.order.at.Format("15:04"))
	default:
		s.Printf("%s", what)
	}
	if r.replaced || r.err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done[r.device] = append(s.done[r.device], r)
	}
}

// settled returns nil when as many orders as were given have come to their end.
func (s *night) settled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, asks := range asked {
		if n := len(s.done[name]); n != len(asks) {
			return fmt.Errorf("%s: %d orders were settled and not %d", name, n, len(asks))
		}
	}
	return nil
}

// judge compares what the devices have done with what was worked out. An order that was
// replaced is not missed: on a machine that stood still for a while two may come at once,
// and then the later one counts.
func (s *night) judge() error {
	var j story.Judge
	err := s.settled()
	j.Check(err == nil, "%v", err)
	for name, asks := range asked {
		settled := s.done[name]
		var want []ask
		state := false
		for _, a := range asks {
			i := slices.IndexFunc(settled, func(r report) bool { return r.order.at.Equal(a.at) && r.order.on == a.on })
			j.Check(i >= 0, "%s: nothing about %s on %s", name, word(a.on), a.at)
			if i >= 0 && !settled[i].replaced && a.on != state {
				state = a.on
				want = append(want, a)
			}
		}
		changes := s.plugs[name].changes
		j.Check(len(changes) == len(want), "%s was switched %d times and not %d times", name, len(changes), len(want))
		for i := range min(len(changes), len(want)) {
			j.Check(changes[i].on == want[i].on, "%s was switched %s instead of %s", name, word(changes[i].on), word(want[i].on))
			early := s.RealAt(want[i].at).Sub(changes[i].at)
			j.Check(early <= 0, "%s was switched %v early", name, early)
		}
	}
	return j.Err()
}
