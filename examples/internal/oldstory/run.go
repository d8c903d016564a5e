package oldstory

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"
)

// A Run is one run of a program: its clock, its output, and the check of its outcome. The
// clock maps times of the story to times of the machine. Programs use it where times come in
// and go out, so that everything in between knows the machine's time only.
type Run struct {
	Addr   string    // from -addr; empty for a run that plays the story
	Out    io.Writer // for what Printf does not print; not to be used at the same time
	Passed string    // from Program; empty for a run that shows nothing

	// Fixed when the run begins.
	scale   float64   // seconds of the story in one second
	opening time.Time // in the story
	began   time.Time // the same moment on the machine's wall clock, which calendars follow
	layout  string

	printing sync.Mutex // from reading the clock to the end of the line
	mu       sync.Mutex // guards what is in check.go
	events   map[string]*event
	faults   []error
}

// NewRun returns a run that begins now, for tests.
func NewRun(opening time.Time, scale float64) *Run {
	return &Run{Out: io.Discard, scale: scale, opening: opening, began: time.Now().Round(0),
		layout: time.TimeOnly}
}

// Real returns how long d takes to play, rounded up so that nothing is early.
func (r *Run) Real(d time.Duration) time.Duration {
	if r.scale == 1 { // exactly: a float64 holds a hundred days in nanoseconds and no more
		return d
	}
	return time.Duration(math.Ceil(float64(d) / r.scale))
}

// RealAt returns when the story reaches t, rounded up too.
func (r *Run) RealAt(t time.Time) time.Time { return r.began.Add(r.Real(t.Sub(r.opening))) }

// StoryAt returns what the clocks of the story show at a time of the machine. StoryAt of
// RealAt(t) is not before t.
func (r *Run) StoryAt(real time.Time) time.Time {
	d := real.Sub(r.began)
	if r.scale != 1 {
		d = time.Duration(math.Round(float64(d) * r.scale))
	}
	return r.opening.Add(d)
}

// Printf prints a line with the time of the story, and indents further lines. Any goroutine
// may call it; lines appear in the order of their times.
func (r *Run) Printf(format string, args ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	now := r.StoryAt(time.Now()).Format(r.layout)
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n"+strings.Repeat(" ", len(now)+2))
	fmt.Fprintf(r.Out, "%s  %s\n", now, text)
}

// A Scene is something that happens at a time of the story.
type Scene struct {
	after time.Duration
	do    func(context.Context) error
}

// At returns a scene that happens d after the opening.
func At(d time.Duration, do func(context.Context) error) Scene { return Scene{d, do} }

// Play plays the scenes in order, each not before its time, until one fails or ctx ends.
func (r *Run) Play(ctx context.Context, scenes ...Scene) error {
	for _, s := range scenes {
		if err := r.Until(ctx, s.after); err != nil {
			return err
		}
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Until sleeps until d after the opening.
func (r *Run) Until(ctx context.Context, d time.Duration) error {
	return Sleep(ctx, time.Until(r.began.Add(r.Real(d))))
}

// Sleep returns after d of the machine's time, or with an error when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return ctx.Err()
	}
}
