package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A display tells somebody who waits how far the runs are: a line for each that
// is done, and on a terminal below them one that moves.
type display struct {
	w        io.Writer
	terminal bool
	total    int
	n        int // runs that are done or left out
	made     int // of which these were made
	began    time.Time
	started  time.Time
	what     string
}

func newDisplay(w io.Writer) *display {
	d := &display{w: w}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		d.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return d
}

func (d *display) begin(total int) {
	d.total, d.began = total, time.Now()
	fmt.Fprintf(d.w, "%d runs\n", total)
}

func (d *display) end() {
	d.wipe()
	fmt.Fprintf(d.w, "%d runs in %v\n", d.made, time.Since(d.began).Round(time.Second))
}

// skip counts a run that is left out.
func (d *display) skip() { d.n++ }

func (d *display) start(what string) {
	d.what, d.started = what, time.Now()
	d.progress(0)
}

// progress moves the line at the bottom.
func (d *display) progress(done float64) {
	if d.terminal {
		fmt.Fprintf(d.w, "\r[%*d/%d] %s %3.0f %%%s\x1b[K", digits(d.total), d.n+1, d.total, d.what, 100*done, d.left())
	}
}

// done writes the run's line for good.
func (d *display) done(result string) {
	d.wipe()
	d.n++
	d.made++
	fmt.Fprintf(d.w, "[%*d/%d] %s %6.1f s  %s\n", digits(d.total), d.n, d.total, d.what, time.Since(d.started).Seconds(), result)
}

func (d *display) wipe() {
	if d.terminal {
		fmt.Fprint(d.w, "\r\x1b[K")
	}
}

// left guesses from the runs so far how long the rest takes.
func (d *display) left() string {
	if d.n < 5 {
		return ""
	}
	rest := time.Duration(float64(time.Since(d.began)) / float64(d.n) * float64(d.total-d.n))
	return fmt.Sprintf("   about %v left", rest.Round(time.Second))
}

func digits(n int) int { return len(fmt.Sprint(n)) }
