// Package story runs the programs in examples. It holds what all of them need and none of them is
// about: the command line, a clock whose hours pass in seconds, output that begins with the time
// of the story, and checks of the outcome. The code that is worth copying does not use it.
package story

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"
	"time"
)

// A Program plays a story and checks its outcome. It may define flags of its own with package
// flag before it calls Main.
type Program struct {
	Name   string
	About  string // for -h: a sentence or two
	Passed string // what the story has shown if it ends well

	Scale   float64   // default of the flag -scale; 0 for a program without this flag
	Opening time.Time // time of the story when it begins
	Layout  string    // of the time on each line, as in time.Format; the default is time.TimeOnly

	Play func(*Run) // everything that it starts has ended when it returns

	// Child is what a process does that Start has started, until ctx ends.
	Child func(ctx context.Context, args []string) error
}

// Main is the main function of a program. The exit status is 1 if the story fails, and 2 if the
// command line is wrong.
func (p Program) Main() {
	scale := cmp.Or(p.Scale, 1)
	fastest := 10 * scale // beyond it timers and goroutines would be too coarse for the story
	if p.Scale != 0 {
		flag.Float64Var(&scale, "scale", p.Scale, "`seconds` of the story that pass in one")
	}
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "%s\n\nusage: go run ./examples/%s [flags]\n\n",
			p.About, p.Name)
		flag.PrintDefaults()
	}
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix(p.Name + ": ")
	if os.Getenv(childMark) != "" {
		child(p.Child)
		return
	}
	if flag.NArg() > 0 {
		Misuse("unexpected argument: %s", flag.Arg(0))
	}
	if !(scale >= 0.1 && scale <= fastest) { // NaN fails both comparisons
		Misuse("-scale must be between 0.1 and %v", fastest)
	}
	r := NewRun(p.Opening, scale)
	r.Out, r.layout = os.Stdout, cmp.Or(p.Layout, time.TimeOnly)
	Must(r.play(p))
}

// Misuse says what is wrong with the command line and exits as package flag does.
func Misuse(format string, args ...any) {
	fmt.Fprintf(flag.CommandLine.Output(), format+"\n", args...)
	flag.Usage()
	os.Exit(2)
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
	if err == nil {
		err = r.Verdict()
	}
	if err == nil {
		r.Printf("all is well: %s", p.Passed)
	}
	return err
}

// A platform file replaces these if the platform tells: the user and system time that this process
// has used, how much memory it holds apart from files, and how many files it may have open, at most
// maxFiles.
var (
	CPUTime   = func() string { return "unknown" }
	Memory    = func() string { return "unknown" }
	FileLimit = func() int { return maxFiles }
)

const maxFiles = 1 << 30 // more than an example needs
