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

	"github.com/go-timingwheel/timingwheel/bench"
)

// This file runs one workload on one implementation in a process of its own, so
// that the heap, the timers and the goroutines of one run never slow down another.

// childFlag, as the first argument, makes the program the child of a run.
const childFlag = "-child"

// A job is what a child is told to do, as JSON.
type job struct {
	Workload, Impl string
	Pending, Procs int
	Duration       time.Duration
	N              int
}

func (j job) place() place { return place{j.Workload, j.Pending, j.Procs} }

// A reply is what a child says on its standard output, as JSON.
type reply struct {
	Result bench.Result
	Lacks  string
	Failed string
}

// progressPrefix marks the lines of a child's standard error that tell how far it
// is. The rest is what the runtime and the libraries have to say.
const progressPrefix = "progress "

// child does a job and returns the exit status.
func child(arg string) int {
	out := os.Stdout
	os.Stdout = os.Stderr // a library that prints must not spoil the reply
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
	wl, ok := find(bench.Workloads, j.Workload, func(w bench.Workload) string { return w.Name })
	if !ok {
		return reply{}, fmt.Errorf("no workload is called %q", j.Workload)
	}
	im, ok := find(impls, j.Impl, func(i bench.Impl) string { return i.Name })
	if !ok {
		return reply{}, fmt.Errorf("no implementation is called %q", j.Impl)
	}
	// If memory runs out it is to hit this process and not the parent. Where there
	// is no such file there is no such killer.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o644)
	if wl.Lacks != nil {
		if missing := wl.Lacks(im); missing != "" {
			return reply{Lacks: missing}, nil
		}
	}
	res, err := wl.Run(bench.Case{
		Impl: im, Pending: j.Pending, Procs: j.Procs, Duration: j.Duration, N: j.N,
		Progress: func(done float64) { fmt.Fprintf(os.Stderr, "%s%.3f\n", progressPrefix, done) },
	})
	return reply{Result: res}, err
}

// run starts the child and waits for its reply. Whatever goes wrong is in the
// reply: a failed run is a line in the report, not the end of it.
func (j job) run(ctx context.Context, timeout time.Duration, progress func(done float64)) reply {
	self, err := os.Executable()
	if err != nil {
		return reply{Failed: err.Error()}
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return reply{Failed: err.Error()}
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
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
		return reply{Failed: fmt.Sprintf("not done after %v", timeout)}
	case err != nil:
		return blame(err, said)
	}
	var rep reply
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		return reply{Failed: "its reply cannot be read: " + err.Error()}
	}
	return rep
}

// follow reads a child's standard error to its end, and returns the line that
// says what went wrong: the first of a panic, or else the first line of all.
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
		bad := strings.HasPrefix(lines.Text(), "panic: ") || strings.HasPrefix(lines.Text(), "fatal error: ")
		if said == "" || bad && !strings.HasPrefix(said, "panic: ") {
			said = lines.Text()
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long
	return said
}

// blame makes a reply of a child that ended by itself without one.
func blame(err error, said string) reply {
	if missing, ok := strings.CutPrefix(said, "panic: "+lackingPrefix); ok {
		missing, _, _ = strings.Cut(missing, " [recovered") // the runtime's remark
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
