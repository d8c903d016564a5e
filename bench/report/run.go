package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/bench/internal/workload"
)

// This file runs one workload on one implementation in a process of its own, so that the heap, the
// timers and the goroutines of one run never slow down another.

// childFlag, as the first argument, makes the program the child of a run.
const childFlag = "-child"

// A job tells a child what to run, as JSON. Zero values are the workload's own.
type job struct {
	Workload, Impl string
	Pending, Procs int
	Duration       time.Duration
	N              int
	Round          int // counted from 1; it makes no difference to the child
}

func (j job) place() place { return place{j.Workload, j.Pending, j.Procs} }

// workload returns the job's workload, or the zero Workload if there is none of that name.
func (j job) workload() workload.Workload {
	wl, _ := find(workload.All, j.Workload, nameOfWorkload)
	return wl
}

func (j job) toCase(im workload.Impl) workload.Case {
	return workload.Case{Impl: im, Pending: j.Pending, Procs: j.Procs, Duration: j.Duration, N: j.N}
}

// minTime returns how long the job measures.
func (j job) minTime() time.Duration { return j.workload().MinTime(j.toCase(workload.Impl{})) }

// A reply is what a child writes to its standard output, as JSON.
type reply struct {
	Result workload.Result
	Lacks  string
	Failed string
}

// progressPrefix marks the lines of a child's standard error that report its progress. The other
// lines come from the runtime and the libraries.
const progressPrefix = "progress "

// child runs a job and returns the exit status.
func child(arg string) int {
	out := os.Stdout
	os.Stdout = os.Stderr // so that a library that prints does not spoil the reply
	var j job
	err := json.Unmarshal([]byte(arg), &j)
	var rep reply
	if err == nil {
		rep, err = j.do()
	}
	if err != nil {
		rep = reply{Failed: err.Error()}
	}
	if err := json.NewEncoder(out).Encode(rep); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (j job) do() (reply, error) {
	wl := j.workload()
	if wl.Name == "" {
		return reply{}, fmt.Errorf("no workload is called %q", j.Workload)
	}
	im, ok := find(impls, j.Impl, nameOfImpl)
	if !ok {
		return reply{}, fmt.Errorf("no implementation is called %q", j.Impl)
	}
	// Ask Linux to kill this process, not the parent, if memory runs out. Other systems do not have
	// the file.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o644)
	if missing := wl.Lacks(im); missing != "" {
		return reply{Lacks: missing}, nil
	}
	c := j.toCase(im)
	c.Progress = func(done float64) { fmt.Fprintf(os.Stderr, "%s%.3f\n", progressPrefix, done) }
	res, err := wl.Run(c)
	return reply{Result: res}, err
}

// run starts the child and waits for its reply, for at most the time that the job measures plus
// extra. The reply tells any error: a failed run is a line in the report and does not end it.
func (j job) run(ctx context.Context, extra time.Duration, progress func(done float64)) reply {
	self, err := os.Executable()
	if err != nil {
		return reply{Failed: err.Error()}
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return reply{Failed: err.Error()}
	}
	limit := j.minTime() + extra
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(limited, self, childFlag, string(arg))
	cmd.Stdout = &out
	cmd.WaitDelay = time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return reply{Failed: err.Error()}
	}
	if err := cmd.Start(); err != nil {
		return reply{Failed: err.Error()}
	}
	said := follow(stderr, progress)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return reply{Failed: "interrupted"}
	case limited.Err() != nil:
		return reply{Failed: fmt.Sprintf("not done after %v", limit.Round(time.Second))}
	case err != nil:
		return blame(err, said)
	}
	var rep reply
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		return reply{Failed: "unreadable reply: " + err.Error()}
	}
	return rep
}

// follow reads a child's standard error to its end. It returns the line that says what went wrong:
// the first line of a panic, or else the first line.
func follow(r io.Reader, progress func(done float64)) (said string) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), progressPrefix); ok {
			if done, err := strconv.ParseFloat(text, 64); err == nil {
				progress(done)
			}
			continue
		}
		text := lines.Text()
		bad := strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
		if said == "" || bad && !strings.HasPrefix(said, "panic: ") {
			said = text
		}
	}
	_, _ = io.Copy(io.Discard, r) // what follows a line that is too long
	return said
}

// blame makes a reply for a child that ended without one.
func blame(err error, said string) reply {
	if missing, ok := strings.CutPrefix(said, "panic: "+lackingPrefix); ok {
		missing, _, _ = strings.Cut(missing, " [recovered") // added by the runtime
		return reply{Lacks: missing}
	}
	if said == "" {
		return reply{Failed: err.Error()}
	}
	return reply{Failed: fmt.Sprintf("%v: %s", err, said)}
}

// find returns the entry with the name.
func find[T any](list []T, name string, nameOf func(T) string) (found T, ok bool) {
	for _, e := range list {
		if nameOf(e) == name {
			return e, true
		}
	}
	return found, false
}
