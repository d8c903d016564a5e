// Command report runs the benchmarks of this repository on this library, package time, the floor
// and other libraries. It writes a Markdown report with charts. Run it at the top of the
// repository:
//
//	go run ./bench/report -quick          # under a minute, for a look, to bench/scratch
//	go run ./bench/report                 # all of it, in about 20 minutes, to bench/results
//	go run ./bench/report -render         # bench/results again, from the figures of the last run
//	go run ./bench/report -workloads Fire,Burst -impls wheel,time
//
// A run of everything needs an idle machine and a tree without uncommitted changes. It writes
// report.md, the charts, results.json with the figures, and the table of figures in README.md.
// Every other run writes to bench/scratch, which git ignores.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		os.Exit(child(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// Where the files are, from the top of the repository.
var (
	resultsDir = filepath.Join("bench", "results")
	scratchDir = filepath.Join("bench", "scratch")
	readmeFile = "README.md"
)

// resultsFile has the figures of a report, in its folder.
const resultsFile = "results.json"

func run(ctx context.Context, args []string, w io.Writer) error {
	o, err := parse(args, w)
	if err != nil {
		return err
	}
	if o.render {
		return render(o.out, w)
	}
	r := &report{Runs: o.runs, Workloads: o.described()}
	for _, im := range impls {
		r.Impls = append(r.Impls, im.Name)
	}
	if err := r.tellSource(ctx, o, args); err != nil {
		return err
	}
	// Fail now rather than after the work.
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if o.out == resultsDir {
		if _, err := readmeWith(readmeFile, ""); err != nil {
			return err
		}
	}
	r.Results = o.measure(ctx, newDisplay(w))
	if r.Stopped = ctx.Err() != nil; r.Stopped && o.out == resultsDir {
		fmt.Fprintf(w, "interrupted: %s stays as it was\n", resultsDir)
		o.out = scratchDir
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
	}
	if err := r.store(filepath.Join(o.out, resultsFile)); err != nil {
		return err
	}
	return render(o.out, w)
}

// render writes report.md and its charts from the figures in the same folder, and removes the
// charts of an earlier report. If the folder is bench/results, it also writes README.md's table of
// figures.
func render(dir string, w io.Writer) error {
	r, err := load(filepath.Join(dir, resultsFile))
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	r.draw()
	for _, c := range r.charts {
		if err := os.WriteFile(filepath.Join(dir, c.file), c.svg(), 0o644); err != nil {
			return err
		}
	}
	name := filepath.Join(dir, "report.md")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(r.write(f), f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s and %d charts beside it\n", name, len(r.charts))
	if dir != resultsDir {
		return nil
	}
	if err := r.rewriteReadme(readmeFile); err != nil {
		return err
	}
	fmt.Fprintf(w, "the table of figures in %s\n", readmeFile)
	return nil
}
