// Package story runs the programs in examples. It has what all of them need and none of them
// is about: the command line, a clock whose hours pass in seconds, output with the time of
// the story on each line, HTTP with JSON at both ends, and a check of the outcome. The part
// of a program that is worth copying does not use this package.
package oldstory

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

// A Program plays a story, or serves at an address until it is interrupted.
type Program struct {
	Name   string
	About  string // for the help, a sentence or two
	Passed string // what the program has shown when its story ends well

	Scale    float64   // the default of -scale; 0 for a program without this flag
	MaxScale float64   // beyond it the real network would be too slow for the story
	Opening  time.Time // the time of the story at which it begins
	Layout   string    // of the time in the output, as in time.Format; by default time.TimeOnly
	Serves   bool      // the program has the flag -addr

	Flags func(*flag.FlagSet) // adds more flags; may be nil

	// Play does all the work. When it returns, everything that it started has ended.
	Play func(context.Context, *Run) error
}

// misuse is an error in the command line.
type misuse struct{ error }

// Misuse returns an error that says what is wrong with the command line.
func Misuse(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

// Main is the function main of a program. The exit status is 1 if the program failed or was
// interrupted in its story, and 2 if the command line was wrong. An error is one line.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status, message := p.exit(p.run(ctx, os.Stdout, os.Args[1:]...))
	stop()
	if message != "" {
		fmt.Fprintln(os.Stderr, message)
	}
	os.Exit(status)
}

func (p Program) exit(err error) (status int, message string) {
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0, ""
	case errors.Is(err, context.Canceled):
		return 1, p.Name + ": interrupted"
	}
	message = p.Name + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.As(err, new(misuse)) {
		return 2, message + " (-h lists the flags)"
	}
	return 1, message
}

func (p Program) run(ctx context.Context, out io.Writer, args ...string) error {
	r := &Run{Out: out, Passed: p.Passed, scale: 1, opening: p.Opening, layout: cmp.Or(p.Layout, time.TimeOnly)}
	if err := p.parse(r, args); err != nil {
		return err
	}
	before := runtime.NumGoroutine()
	r.began = time.Now().Round(0)
	if r.Addr != "" {
		r.opening, r.layout = r.began, time.DateTime
	}
	if err := p.Play(ctx, r); err != nil {
		return err
	}
	if err := r.Await(context.WithoutCancel(ctx), 0, func() error {
		if n := runtime.NumGoroutine() - before; n > 0 {
			return fmt.Errorf("%d goroutines are left", n)
		}
		return nil
	}); err != nil || r.Addr != "" || r.Passed == "" {
		return err
	}
	if err := r.Verdict(); err != nil {
		return err
	}
	r.Printf("all is well: %s", r.Passed)
	return nil
}

func (p Program) parse(r *Run, args []string) error {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, and Main prints it
	usage := "seconds of the story that pass in one"
	if p.Serves {
		flags.StringVar(&r.Addr, "addr", "",
			"serve at this `address` until ctrl-C, in real time, and play no story")
		usage += " (with -addr the default is 1)"
	}
	if p.Scale != 0 {
		flags.Float64Var(&r.scale, "scale", p.Scale, usage)
	}
	if p.Flags != nil {
		p.Flags(flags)
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(r.Out, "%s\n\nusage: go run ./examples/%s [flags]\n\n", p.About, p.Name)
		flags.SetOutput(r.Out)
		flags.PrintDefaults()
		return err
	case err != nil:
		return misuse{err}
	case flags.NArg() > 0:
		return Misuse("unexpected argument %q", flags.Arg(0))
	}
	scaled := false
	flags.Visit(func(f *flag.Flag) { scaled = scaled || f.Name == "scale" })
	if scaled && !(r.scale >= 0.1 && r.scale <= p.MaxScale) { // this way round for NaN
		return Misuse("-scale %v: must be between 0.1 and %v", r.scale, p.MaxScale)
	}
	if r.Addr != "" && !scaled {
		r.scale = 1
	}
	return nil
}

// CPUTime returns the CPU time that this process has used, user and system; 0 if the platform
// does not tell.
var CPUTime = func() time.Duration { return 0 }

// FileLimit returns how many files this process may have open, at most maxFiles.
var FileLimit = func() int { return maxFiles }

// maxFiles stands for no limit that the examples would reach.
const maxFiles = 1 << 30
