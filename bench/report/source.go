package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// This file tells what a report was made on, and by which code.

// tellSource fills in the head of the report. It returns an error if bench/results would get
// figures of code that no commit has.
func (r *report) tellSource(ctx context.Context, o options, args []string) error {
	commit, dirty := commit(ctx)
	if dirty {
		if o.everything() && !o.dirty {
			return errors.New("the tree has uncommitted changes: " +
				"commit them, or set -dirty to mark the report")
		}
		commit += " with uncommitted changes"
		r.Warning = "These figures are of code with uncommitted changes."
	}
	if o.quick {
		r.Warning += " A quick run has small sizes and short times, so its figures mean little."
		r.Warning = strings.TrimSpace(r.Warning)
	}
	machine := fmt.Sprintf("%s, %d processors, %s/%s",
		cpuModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	command := strings.Join(append([]string{"go run ./bench/report"}, args...), " ")
	now := time.Now().UTC()
	r.CPUs = runtime.NumCPU()
	r.Source = fmt.Sprintf("`%s` on %s; %s; commit %s; %s",
		command, machine, runtime.Version(), commit, now.Format(time.DateOnly))
	r.About = []string{
		"Machine: " + machine,
		"Go: " + runtime.Version(),
		"Commit: " + commit,
		"Command: `" + command + "`",
		"Date: " + now.Format("2006-01-02 15:04 UTC"),
		fmt.Sprintf("Rounds: %d", o.runs),
		"Other libraries: " + strings.Join(versions(), ", "),
		"Most pending timers: " + pendingLimitsText(),
	}
	if left := o.leftOut(); len(left) > 0 {
		r.About = append(r.About, "Not run: "+strings.Join(left, ", "))
	}
	if env := goEnv(); env != "" {
		r.About = append(r.About, "Environment: "+env)
	}
	return nil
}

// pendingLimitsText writes pendingLimits.
func pendingLimitsText() string {
	var parts []string
	for _, im := range impls {
		if limit := pendingLimit(im.Name); limit != otherPendingLimit {
			parts = append(parts, im.Name+" "+count(limit))
		}
	}
	return strings.Join(parts, ", ") + ", others " + count(otherPendingLimit)
}

// cpuModel returns the processor's model, if the system tells it.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.SplitSeq(string(text), "\n") {
			key, value, _ := strings.Cut(line, ":")
			if strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	if runtime.GOOS == "darwin" {
		out, err := exec.Command("sysctl", "-n", "machdep.cpu.brand_string").Output()
		if err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return "unknown processor"
}

// commit returns the commit that is checked out, and whether the tree differs from it anywhere but
// in the results.
func commit(ctx context.Context) (hash string, dirty bool) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown", false
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--",
		":(top)", ":(top,exclude)bench/results").Output()
	return strings.TrimSpace(string(out)), err != nil || len(changed) > 0
}

// versions returns the versions of the other libraries.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return []string{"unknown versions"}
	}
	var vs []string
	for _, m := range info.Deps {
		name := strings.TrimPrefix(m.Path, "github.com/")
		if slices.Contains([]string{"zeromicro/go-zero", "dubbogo/gost", "siddontang/go"}, name) {
			vs = append(vs, name+" "+m.Version)
		}
	}
	return vs
}

// goEnv returns the settings of the runtime that change figures.
func goEnv() string {
	var set []string
	for _, name := range []string{
		"GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GODEBUG", "GOAMD64", "GOEXPERIMENT",
	} {
		if v, ok := os.LookupEnv(name); ok && v != "" {
			set = append(set, name+"="+v)
		}
	}
	return strings.Join(set, " ")
}
