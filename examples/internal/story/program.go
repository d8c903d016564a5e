// Package story is the plumbing that the programs in examples share: a clock whose
// hours pass in seconds, a diary with the time of the story in front of each line, the
// command line, HTTP with JSON at both ends, and what judges the outcome. What the
// programs show is not in here, but in the file that each of them names for copying.
package story

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

// A Program is one that plays a story, or serves at an address until it is
// interrupted.
type Program struct {
	Name  string
	About string // for the help, a sentence or two

	Scale    float64 // the default of -scale
	MaxScale float64 // beyond it the real network would be too slow for the story
	Opening  time.Time
	Layout   string // of the time in the diary, as in time.Format; by default its hours, minutes and seconds
	Serves   bool   // there is a flag -addr

	Flags func(*flag.FlagSet) // more flags; nil for none

	// Play does all the work. addr is empty if the story is to be played. When it
	// returns, everything that it started has ended.
	Play func(ctx context.Context, d *Diary, addr string) error
}

// misuse is an error of whoever typed the command line.
type misuse struct{ error }

// Misuse returns an error that says what is wrong with the command line.
func Misuse(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

// Main is the function main of a program. The exit status is 1 if the program failed
// or was interrupted in its story, and 2 if it was called wrongly; an error is one line,
// which then names -h.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status, message := p.exit(p.Run(ctx, os.Stdout, os.Args[1:]...))
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

// Run is Main without a process around it, for tests.
func (p Program) Run(ctx context.Context, out io.Writer, args ...string) error {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, and Main prints it
	usage := fmt.Sprintf("how many seconds of the story pass in one (default %v", p.Scale)
	addr := ""
	if p.Serves {
		flags.StringVar(&addr, "addr", "", "serve at this `address` until ctrl-C, and play no story")
		usage += ", with -addr 1"
	}
	scale := flags.Float64("scale", 0, usage+")")
	if p.Flags != nil {
		p.Flags(flags)
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(out, "%s\n\nusage: go run ./examples/%s [flags]\n\n", p.About, p.Name)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return err
	case err != nil:
		return misuse{err}
	case flags.NArg() > 0:
		return Misuse("unexpected argument %q", flags.Arg(0))
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "scale" })
	switch {
	case given && !(*scale >= 0.1 && *scale <= p.MaxScale): // this way round for NaN
		return Misuse("-scale %v: must be at least 0.1 and at most %v", *scale, p.MaxScale)
	case !given && addr == "":
		*scale = p.Scale
	case !given:
		*scale = 1
	}
	clock, layout := NewClock(p.Opening, *scale), cmp.Or(p.Layout, time.TimeOnly)
	if addr != "" {
		clock.Opening, layout = clock.began, time.DateTime
	}
	return p.Play(ctx, NewDiary(out, clock, layout), addr)
}
