// Package story runs the programs in examples. It holds what all of them need but none is about:
// the command line, a clock whose hours pass in seconds, output that begins with the time of the
// story, and checks of the outcome. The code that is worth copying does not use it.
package story

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A Program plays a story and checks its outcome. It may define flags of its own with package
// flag before it calls Main.
type Program struct {
	Scale   float64    // default of the flag -scale; 0 for a program without this flag
	Opening time.Time  // time of the story when it begins
	Layout  string     // of the time on each line, as in time.Format; the default is time.TimeOnly
	Play    func(*Run) // everything that it starts has ended when it returns
	Passed  string     // what the story has shown if it ends well

	// Child is what a process does that Start has started, until ctx ends.
	Child func(ctx context.Context, args []string) error
}

// Main is the main function of a program. The exit status is 1 if the story fails, and 2 if the
// command line is wrong.
func (p Program) Main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	scale := cmp.Or(p.Scale, 1)
	fastest := 10 * scale // beyond it timers and goroutines would be too coarse for the story
	if p.Scale != 0 {
		flag.Float64Var(&scale, "scale", p.Scale, fmt.Sprintf(
			"`seconds` of the story that pass in one, from 0.1 to %v", fastest))
	}
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: go run ./examples/%s [flags]\n", name)
		flag.PrintDefaults()
	}
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix(name + ": ")
	if os.Getenv(childMark) != "" {
		child(p.Child)
		return
	}
	if flag.NArg() > 0 || !(scale >= 0.1 && scale <= fastest) { // NaN fails both comparisons
		flag.Usage()
		os.Exit(2)
	}
	r := NewRun(p.Opening, scale)
	r.Out, r.layout = os.Stdout, cmp.Or(p.Layout, time.TimeOnly)
	Must(r.play(p))
}

// Must ends the program unless err is nil.
func Must(err error) {
	if err != nil {
		log.Fatal(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// play plays the story and returns what is wrong.
func (r *Run) play(p Program) error {
	before := runtime.NumGoroutine()
	p.Play(r)
	err := r.Await(0, func() error {
		if n := runtime.NumGoroutine() - before; n > 0 {
			return fmt.Errorf("%d goroutines are left", n)
		}
		return nil
	})
	err = cmp.Or(err, r.Verdict(), os.RemoveAll(r.folder))
	if err == nil {
		r.Printf("all is well: %s", p.Passed)
	}
	return err
}
