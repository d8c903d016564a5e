package story

import (
	"context"
	"fmt"
	"io"
	"math"
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
