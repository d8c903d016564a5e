// Package command is the command jobqueue, which looks at the jobs of a job queue and changes them.
// Two programs share it: jobqueue/cmd/jobqueue, and one that opens stores in Redis too, whose
// module has the dependencies.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
)

// An OpenRedis opens the store at a URL that begins with redis:// or rediss://. The caller has to
// call end.
type OpenRedis func(ctx context.Context, u *url.URL) (c *jobqueue.Client, end func() error,
	err error)

// Main runs the command that the program was called with, and ends the process. With a nil open it
// has no stores in Redis.
func Main(open OpenRedis) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := Run(ctx, open, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// Run runs a command and returns the exit status.
func Run(
	ctx context.Context, open OpenRedis, args []string, in io.Reader, out, errs io.Writer,
) int {
	p := &program{
		in: in, out: out, errs: errs, getenv: os.Getenv,
		open: openFile, openRedis: open, client: &http.Client{Timeout: time.Minute},
	}
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		p.isTerminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p.main(ctx, args)
}

// The exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

// A program is what a run of the command has to do with the world.
type program struct {
	in         io.Reader
	out, errs  io.Writer
	getenv     func(string) string
	isTerminal bool // whether out can be cleared
	open       func(path string) (s manage.Service, close func() error, err error)
	openRedis  OpenRedis // nil if it cannot
	client     *http.Client
}

// A command is one of the things to do.
type command struct {
	name, args, about string
	run               func(*call) error
	help              string // more about it
}

func commands() []command {
	return []command{
		{"stats", "[QUEUE]", "show the queues, or one in detail", stats, ""},
		{"list", "[QUEUE]", "list jobs: leased, ready, delayed", list,
			"Without -state it lists the live jobs, the first of each state. For the rest of\na long list pass -state, and -after with what the page before ended with."},
		{"dead", "[QUEUE]", "list dead jobs with their errors", dead, ""},
		{"due", "[QUEUE]", "count what comes due in the next minute, hour, day", due, ""},
		{"show", "QUEUE ID", "show a job with its body and its last error", show,
			"A body that is not text is shown as a hexadecimal dump."},
		{"watch", "[QUEUE]", "show the queues of a running process again and again", watch, ""},
		{"add", "QUEUE [BODY]", "add a job and print its id", add,
			"Without BODY the body is empty; with - it is read from the standard input."},
		{"cancel", "QUEUE ID...", "remove jobs, dead ones too", cancel, ""},
		{"reschedule", "QUEUE ID...", "move the due time of jobs", reschedule, ""},
		{"requeue", "QUEUE ID...", "make dead jobs ready again", requeue, ""},
		{"pause", "QUEUE", "deliver no job of a queue until it is resumed", pause, ""},
		{"resume", "QUEUE", "undo pause", resume, ""},
		{"purge", "QUEUE", "remove all jobs of a queue in a state", purge, ""},
		{"backup", "PATH", "copy the store, as it is at one moment", backup,
			"With -url, PATH is a plain name in the folder that the process allows.\n" +
				"A store in Redis is copied by Redis itself, with BGSAVE."},
		{"verify", "PATH", "read all of a store and report what is damaged", verify,
			"No process may have it open. Nothing is changed. It is for a store in a\n" +
				"directory: Redis has redis-check-aof and redis-check-rdb."},
	}
}

const usage = `jobqueue looks at the jobs of a job queue and changes them.

usage: jobqueue COMMAND [flags] [arguments]

`

const whereHelp = `
Every command needs to know where the jobs are:

  -file PATH   a store that no process has open (or $JOBQUEUE_FILE)
  -url URL     the page of a running process, or a store in Redis, such as
               redis://localhost:6379/0 (or $JOBQUEUE_URL)

Durations are written as 90s, 1h30m or 3d, and instants as
2006-01-02T15:04:05Z or, in local time, 2006-01-02 15:04:05.

Exit status: 0 done, 1 something failed, 2 the command line makes no sense.
jobqueue COMMAND -h explains a command, and jobqueue -version tells the version.
`

// A usageError is a command line that makes no sense.
type usageError struct{ error }

func misused(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// main runs the command and returns the exit status.
func (p *program) main(ctx context.Context, args []string) int {
	if len(args) == 0 {
		p.usage(p.errs)
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "-h", "-help", "--help", "help":
		if len(rest) == 0 {
			p.usage(p.out)
			return 0
		}
		name, rest = rest[0], []string{"-h"}
	case "-version", "--version", "version":
		fmt.Fprintln(p.out, "jobqueue", version())
		return 0
	}
	for _, c := range commands() {
		if c.name == name {
			return p.run(ctx, c, rest)
		}
	}
	fmt.Fprintf(p.errs, "jobqueue: there is no command %s; jobqueue -h lists them\n",
		manage.Quote(name))
	return exitUsage
}

func (p *program) usage(w io.Writer) {
	fmt.Fprint(w, usage)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-25s %s\n", c.name+" "+c.args, c.about)
	}
	fmt.Fprint(w, whereHelp)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}

// A call is a command with its command line.
type call struct {
	*program
	ctx   context.Context
	args  []string // before parse as they were given, afterwards without flags
	flags *flag.FlagSet

	file, url      string
	json, wide     bool
	manage.Service // after open
}

func (p *program) run(ctx context.Context, cmd command, args []string) int {
	c := &call{program: p, ctx: ctx, args: args,
		flags: flag.NewFlagSet(cmd.name, flag.ContinueOnError)}
	c.flags.SetOutput(io.Discard)
	c.flags.StringVar(&c.file, "file", "",
		"the `path` of a store that no process has open\n(default $JOBQUEUE_FILE)")
	c.flags.StringVar(&c.url, "url", "",
		"the `address` of the page of a running process, or of a store in Redis\n"+
			"(default $JOBQUEUE_URL)")
	c.flags.BoolVar(&c.json, "json", false, "print JSON, an object on a line")
	c.flags.BoolVar(&c.wide, "wide", false, "do not cut tables to 80 columns")
	err := cmd.run(c)
	var use usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(p.out, "usage: jobqueue %s [flags] %s\n\n%s.\n", cmd.name, cmd.args,
			upper(cmd.about))
		if cmd.help != "" {
			fmt.Fprintln(p.out, cmd.help)
		}
		fmt.Fprintln(p.out)
		c.flags.SetOutput(p.out)
		c.flags.PrintDefaults()
		return 0
	case errors.As(err, &use):
		fmt.Fprintf(p.errs, "jobqueue %[1]s: %[2]v\n"+
			"usage: jobqueue %[1]s [flags] %[3]s; jobqueue %[1]s -h explains it\n",
			cmd.name, err, cmd.args)
		return exitUsage
	case errors.Is(err, errReported):
	default:
		p.complain(err)
	}
	return exitFailed
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// errReported is a failure that was printed already.
var errReported = errors.New("reported")

func (p *program) complain(err error) {
	fmt.Fprintln(p.errs, "jobqueue:", manage.Line(strings.TrimPrefix(err.Error(), "jobqueue: ")))
}

// parse reads the flags, which may stand before, between and behind the arguments, and checks the
// number of these. most is -1 for any number.
func (c *call) parse(least, most int) error {
	rest := c.args
	c.args = nil
	for {
		if err := c.flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			return err
		} else if err != nil {
			return usageError{err}
		}
		left := c.flags.Args()
		if len(left) == 0 {
			break
		}
		if n := len(rest) - len(left); n > 0 && rest[n-1] == "--" { // no flags behind it
			c.args = append(c.args, left...)
			break
		}
		c.args = append(c.args, left[0])
		rest = left[1:]
	}
	switch {
	case len(c.args) < least:
		return misused("an argument is missing")
	case most >= 0 && len(c.args) > most:
		return misused("unexpected argument %s", manage.Quote(c.args[most]))
	}
	return nil
}

// where finds out where the jobs are.
func (c *call) where() error {
	if c.file == "" && c.url == "" {
		c.file, c.url = c.getenv("JOBQUEUE_FILE"), c.getenv("JOBQUEUE_URL")
	}
	switch {
	case c.file != "" && c.url != "":
		return misused("either -file or -url")
	case c.file == "" && c.url == "":
		return misused("where are the jobs? Pass -file or -url")
	}
	return nil
}

// using opens the Service, calls do, and closes it. The command line was parsed and checked.
func (c *call) using(do func() error) error {
	if err := c.where(); err != nil {
		return err
	}
	if u, err := url.Parse(c.url); err == nil && (u.Scheme == "redis" || u.Scheme == "rediss") {
		return c.usingRedis(u, do)
	}
	if c.url != "" {
		remote, err := manage.NewRemote(c.url, c.client)
		if err != nil {
			return usageError{err}
		}
		c.Service = remote
		return do()
	}
	s, done, err := c.open(c.file)
	if err != nil {
		return fileError(c.file, err)
	}
	c.Service = s
	return errors.Join(do(), done())
}

func (c *call) usingRedis(u *url.URL, do func() error) error {
	if c.openRedis == nil {
		return misused("this program has no stores in Redis; the one with them is " +
			"github.com/go-timingwheel/timingwheel/jobqueue/redisstore/cmd/jobqueue")
	}
	client, end, err := c.openRedis(c.ctx, u)
	if err != nil {
		return fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	c.Service = manage.Local{Client: client}
	return errors.Join(do(), end())
}

// fileError says what to do about a store that cannot be opened.
func fileError(path string, err error) error {
	if errors.Is(err, jobqueue.ErrLocked) {
		return fmt.Errorf("%s: another process has it open; if that serves the page, "+
			"pass its address with -url instead of -file", path)
	}
	return err
}

// isStore returns an error if there is no store in a path, so that none is made there.
func isStore(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if found, err := filepath.Glob(filepath.Join(path, "MANIFEST-*")); err != nil ||
		len(found) == 0 {
		return fmt.Errorf("%s: there is no job queue in it", path)
	}
	return nil
}

// print prints a value as JSON on a line.
func (c *call) print(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s\n", data)
	return err
}

// arg returns an argument, or "" if there are fewer.
func (c *call) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

// duration defines a flag for a duration, whose text is kept.
func (c *call) duration(text *string, name, usage string) {
	c.flags.Func(name, usage, func(s string) error {
		_, err := manage.ParseDuration(s)
		*text = s
		return err
	})
}

// An instant is a flag for a point in time.
type instant struct{ time.Time }

func (t *instant) String() string { return "" }

func (t *instant) Set(s string) (err error) {
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t.Time, err = time.ParseInLocation(layout, s, time.Local); err == nil {
			return nil
		}
	}
	if t.Time, err = time.Parse(time.RFC3339, s); err != nil {
		return errors.New("not an instant, such as 2006-01-02T15:04:05Z or \"2006-01-02 15:04:05\"")
	}
	return nil
}
