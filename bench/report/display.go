package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A display shows how far the runs are: a line for each that is done and, on a terminal, a line
// below them for the one under way.
type display struct {
	w        io.Writer
	terminal bool
	jobs     []job
	rounds   int
	n        int // runs that are done or skipped
	made     int // runs that were made
	began    time.Time
	started  time.Time
	pace     pace
}

func newDisplay(w io.Writer) *display {
	d := &display{w: w}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		d.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return d
}

func (d *display) begin(jobs []job, rounds int) {
	d.jobs, d.rounds, d.began = jobs, rounds, time.Now()
	fmt.Fprintf(d.w, "%d runs, about %s\n", len(jobs), short(d.pace.left(jobs)))
}

func (d *display) end() {
	d.wipe()
	fmt.Fprintf(d.w, "%d runs in %s\n", d.made, short(time.Since(d.began)))
}

// skip counts a run that is not made.
func (d *display) skip(j job) {
	d.n++
	d.pace.took(j, 0)
}

func (d *display) start(j job) {
	d.started = time.Now()
	d.progress(0)
}

// line describes the current run. The time left includes it.
func (d *display) line() string {
	j, digits := d.jobs[d.n], len(fmt.Sprint(len(d.jobs)))
	return fmt.Sprintf("[%*d/%d, %5s left] round %d/%d  %-11s %6s pending  %d procs  %-10s",
		digits, d.n+1, len(d.jobs), short(d.pace.left(d.jobs[d.n:])),
		j.Round, d.rounds, j.Workload, count(j.Pending), j.Procs, j.Impl)
}

// progress rewrites the line at the bottom.
func (d *display) progress(done float64) {
	if d.terminal {
		fmt.Fprintf(d.w, "\r%s %3.0f %%\x1b[K", d.line(), 100*done)
	}
}

// done writes the run's final line.
func (d *display) done(result string) {
	d.wipe()
	took := time.Since(d.started)
	fmt.Fprintf(d.w, "%s %6.1f s  %s\n", d.line(), took.Seconds(), result)
	d.pace.took(d.jobs[d.n], took)
	d.n++
	d.made++
}

func (d *display) wipe() {
	if d.terminal {
		fmt.Fprint(d.w, "\r\x1b[K")
	}
}

// A pace estimates how long runs take.
type pace struct {
	known            map[job]time.Duration // from an earlier round
	actual, expected time.Duration         // of the runs that were made
}

// took notes how long a run took, or 0 if it was skipped.
func (p *pace) took(j job, d time.Duration) {
	if p.known == nil {
		p.known = map[job]time.Duration{}
	}
	if d > 0 {
		p.actual += d
		p.expected += expect(j)
	}
	j.Round = 0
	p.known[j] = d
}

// left estimates the time of runs that have not been made. It takes a run's time from the round
// before. In the first round it corrects the guess by the runs so far.
func (p *pace) left(jobs []job) time.Duration {
	factor := 1.0
	if p.expected > 10*time.Second {
		factor = float64(p.actual) / float64(p.expected)
	}
	var sum, guessed time.Duration
	for _, j := range jobs {
		guess := expect(j)
		j.Round = 0
		if known, ok := p.known[j]; ok {
			sum += known
		} else {
			guessed += guess
		}
	}
	return sum + time.Duration(factor*float64(guessed))
}

// expect guesses how long a run takes: the time that it measures, and a microsecond for each
// timer to start and stop it.
func expect(j job) time.Duration {
	const start, perTimer = 150 * time.Millisecond, time.Microsecond
	timers := j.Pending
	if c := j.workload(); j.N == 0 {
		timers += c.N
	} else {
		timers += j.N
	}
	return start + j.minTime() + time.Duration(timers)*perTimer
}

// short writes a duration in minutes or seconds.
func short(d time.Duration) string {
	if d >= 2*time.Minute {
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
