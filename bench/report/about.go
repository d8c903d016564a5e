package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// This file says what a report was made on, and by what.

// about are the lines at the head of the report.
func about(ctx context.Context, o options, args []string) []string {
	lines := []string{
		fmt.Sprintf("Machine: %s, %d procs, %s/%s", cpuModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
		"Go: " + runtime.Version(),
		"Commit: " + commit(ctx),
		"Command: `" + strings.Join(append([]string{"go run ./bench/report"}, args...), " ") + "`",
		"Date: " + time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		fmt.Sprintf("Runs: %d, interleaved", o.runs),
		"Peers: " + strings.Join(versions(), ", "),
	}
	if left := o.leftOut(); len(left) > 0 {
		lines = append(lines, "Not run: "+strings.Join(left, ", "))
	}
	if o.quick {
		lines = append(lines, "A quick run: small sizes and short times, whose figures say little")
	}
	if env := goEnv(); env != "" {
		lines = append(lines, "Environment: "+env)
	}
	return lines
}

// cpuModel is as the kernel tells it, where it does.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.SplitSeq(string(text), "\n") {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	if runtime.GOOS == "darwin" {
		if out, err := exec.Command("sysctl", "-n", "machdep.cpu.brand_string").Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return "processor of unknown model"
}

// commit is the commit that is checked out, and whether anything is changed.
func commit(ctx context.Context) string {
	hash, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output()
	switch {
	case err != nil:
		return strings.TrimSpace(string(hash)) + ", perhaps with changes"
	case len(changed) > 0:
		return strings.TrimSpace(string(hash)) + ", with changes (dirty)"
	}
	return strings.TrimSpace(string(hash))
}

// versions are the peers' modules.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return []string{"unknown versions"}
	}
	peers := []string{"github.com/zeromicro/go-zero", "github.com/dubbogo/gost", "github.com/siddontang/go"}
	var vs []string
	for _, m := range info.Deps {
		if slices.Contains(peers, m.Path) {
			vs = append(vs, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
		}
	}
	return vs
}

// goEnv are the settings of the runtime that change figures.
func goEnv() string {
	var set []string
	for _, name := range []string{"GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GODEBUG", "GOAMD64", "GOEXPERIMENT"} {
		if v, ok := os.LookupEnv(name); ok && v != "" {
			set = append(set, name+"="+v)
		}
	}
	return strings.Join(set, " ")
}
