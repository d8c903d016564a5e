package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Run is one run of a program: its clock, its output and the checks of its outcome. The clock
// maps times of the story to times of the machine, which are all that the code to copy knows.
type Run struct {
	Out io.Writer // for what Printf does not print; Printf must not run at the same time

	// Fixed when the run begins.
	scale   float64   // seconds of the story in one second
	opening time.Time // in the story
	began   time.Time // the same moment on the machine's wall clock, which calendars follow
	layout  string
	folder  string // see Folder

	mu     sync.Mutex // guards Out while Printf runs, and what follows
	events map[string]*event
	faults []error
}

// NewRun returns a run that begins now and prints nothing, for tests.
func NewRun(opening time.Time, scale float64) *Run {
	return &Run{Out: io.Discard, scale: scale, opening: opening, began: time.Now().Round(0),
		layout: time.TimeOnly, events: make(map[string]*event)}
}

// Real returns how long d takes to play, rounded up so that nothing is early. A float64 is exact
// for a hundred days in nanoseconds.
func (r *Run) Real(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(float64(d) / r.scale))
}

// RealAt returns when the story reaches t, rounded up too.
func (r *Run) RealAt(t time.Time) time.Time { return r.began.Add(r.Real(t.Sub(r.opening))) }

// StoryAt returns what the clocks of the story show at a time of the machine. StoryAt(RealAt(t))
// is not before t.
func (r *Run) StoryAt(real time.Time) time.Time {
	return r.opening.Add(time.Duration(math.Round(float64(real.Sub(r.began)) * r.scale)))
}

// Printf prints a line that begins with the time of the story, and indents the lines after it.
// Lines appear in the order of their times.
func (r *Run) Printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.StoryAt(time.Now()).Format(r.layout)
	indent := "\n" + strings.Repeat(" ", len(now)+2)
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", indent)
	fmt.Fprintf(r.Out, "%s  %s\n", now, text)
}

// Until sleeps until d after the opening.
func (r *Run) Until(d time.Duration) { time.Sleep(time.Until(r.began.Add(r.Real(d)))) }

// A program checks its outcome by events, which are sentences such as "order 3 is cancelled": it
// says which it wants, and notes those that it sees.
type event struct {
	seen        []time.Time
	least, most int       // how often it must be seen
	earliest    time.Time // the last time is not before
}

// patience is how much longer than planned something may take before it counts as a fault. A busy
// machine makes a story late, but nothing early, lost or repeated.
const patience = 30 * time.Second

func (r *Run) eventLocked(name string) *event {
	if r.events[name] == nil {
		r.events[name] = &event{}
	}
	return r.events[name]
}

// Want says how often an event must be seen, and the earliest instant for the last time, instead
// of what an earlier call said. An event that no call wants must not be seen.
func (r *Run) Want(least, most int, earliest time.Time, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.eventLocked(fmt.Sprintf(format, args...))
	e.least, e.most, e.earliest = least, most, earliest
}

// See notes that an event happened at an instant.
func (r *Run) See(at time.Time, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.eventLocked(fmt.Sprintf(format, args...))
	e.seen = append(e.seen, at)
}

// Seen returns the instants at which an event happened.
func (r *Run) Seen(format string, args ...any) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.eventLocked(fmt.Sprintf(format, args...)).seen
}

// Check notes a fault unless ok.
func (r *Run) Check(ok bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok {
		r.faults = append(r.faults, fmt.Errorf(format, args...))
	}
}

// Verdict returns all faults as one error, or nil.
func (r *Run) Verdict() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	faults := slices.Clip(r.faults)
	for name, e := range r.events {
		if n := len(e.seen); n < e.least || n > e.most {
			faults = append(faults, fmt.Errorf("%s: seen %d times, want %d to %d",
				name, n, e.least, e.most))
		} else if n > 0 && e.seen[n-1].Before(e.earliest) {
			faults = append(faults, fmt.Errorf("%s: %v early", name, e.earliest.Sub(e.seen[n-1])))
		}
	}
	return errors.Join(faults...)
}

// Await calls done until it returns nil, and gives up with its last error after the planned time
// and some patience.
func (r *Run) Await(planned time.Duration, done func() error) error {
	for end := time.Now().Add(planned + patience); ; time.Sleep(5 * time.Millisecond) {
		if err := done(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Folder returns a new folder for the story's files, which is removed after Play.
func (r *Run) Folder() string {
	folder, err := os.MkdirTemp("", "story")
	Must(err)
	r.folder = folder
	return folder
}

// Background runs f on a goroutine. The function that it returns ends the context, waits for f, and
// returns the error of f.
func Background(f func(context.Context) error) (end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// Together calls f for 0 to n-1 at the same time.
func Together(n int, f func(i int)) {
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { f(i) })
	}
	running.Wait()
}

// Within calls end, such as a wheel's Shutdown, with a context that lasts ten seconds.
func Within(end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	Must(end(ctx))
}

// Percentiles sorts d and describes how it is distributed.
func Percentiles(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	at := func(q float64) time.Duration {
		return d[int(q*float64(len(d)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %v  p90 %v  p99 %v  max %v", at(.5), at(.9), at(.99), at(1))
}

// Notes are what a test in a bubble of testing/synctest sees happen, in order.
type Notes struct {
	mu    sync.Mutex
	lines []string
}

// Add notes that something happens now, as in "20m0s ben is reminded".
func (n *Notes) Add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	since := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) // when a bubble begins
	n.lines = append(n.lines, fmt.Sprint(since, " ", fmt.Sprintf(format, args...)))
}

// Lines returns the notes. Those of one instant have no order; compare with ElementsMatch.
func (n *Notes) Lines() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lines
}
