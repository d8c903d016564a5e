//go:build !js && !wasip1

// Package examples tests all programs in this folder by running them.
package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// short has a short run of each program: flags, patterns that the output must match, and wrong
// flags. A program that takes long also has a line in example_flags of .ci/run, and each has a row
// in the table of README.md.
var short = map[string]struct {
	flags string
	want  []string
	wrong []string
}{
	"quickstart": {"", []string{"AfterFunc: called", "Stop: true", "Reset: true", "Reset: called",
		"gopher closed", "Every: beat", "stopped, true", "the clock shows",
		"the callback has returned", "no goroutine of the wheel is left"}, nil},
	"levels": {"-scale 100", []string{"third wheel, slot 2,", "second wheel, slot 1,",
		"first wheel, slot 22,", `\d s  it fires`},
		[]string{"-delay 0", "-delay 1728", "-scale 0"}},
	"devices": {"-scale 40000", []string{"lamp-hall off, at attempt",
		"CEST  fan on", "all is well"}, []string{"-scale -1"}},
	"heartbeats": {"-scale 8 -clients 1000", []string{"50 clients die", "20 of them return",
		"the wheel woke", "all is well"}, []string{"-clients 3"}},
	"httpidle": {"-scale 60", []string{"connection of anna, reason: idle",
		"connection of ben, reason: idle", "connection of dora, reason: idle",
		"connection of finn, reason: read idle", "dora: got the last answer", "all is well"},
		[]string{"-scale NaN"}},
	"idleserver": {"-conns 200 -idle 300ms -run 2s", []string{`\b200 opened`, `\b0 forgotten`,
		`= \d+ fired`, "all is well"}, []string{"-conns 0", "-idle 1ms", "-run 0"}},
	"lastread": {"-scale 9000", []string{`to come: \[.*"dan"`, "none was lost"},
		[]string{"-scale 1e9"}},
	"notifier": {"-scale 1800 -timeout 10m", []string{
		`#1 to fails/3 \(every\), attempt \d+: delivered`,
		`#2 to hangs/2 \(every\), attempt 1: no answer in time`,
		`#3 to fails/2 \(steps\), attempt \d: delivered`,
		`#4 to fails/99 \(steps\), attempt 4: .*, which was the last`,
		`#5 to fails/99 \(every\) was not delivered`, "nothing was forgotten"},
		[]string{"-timeout 0"}},
	"orders": {"-scale 400", []string{"of ada is paid", "of cleo is cancelled",
		" 0 timers are pending", "the stock adds up"}, nil},
	"reminders": {"-scale 70000 -subscribers 40", []string{"reminder to ben",
		"escalation to the head", "all is well"}, []string{"-subscribers 3"}},
}

// build builds all programs, with the race detector if the test has it, and returns their folder.
var build = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "examples")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-o", folder}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	if out, err := exec.Command("go", append(args, "./...")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return folder, nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if folder, err := build(); err == nil {
		os.RemoveAll(folder)
	}
	os.Exit(status)
}

// command returns a program that is ready to run.
func command(t *testing.T, name, flags string) *exec.Cmd {
	if testing.Short() {
		t.Skip("builds and runs every example")
	}
	folder, err := build()
	require.NoError(t, err)
	return exec.CommandContext(t.Context(), filepath.Join(folder, name), strings.Fields(flags)...)
}

// TestPrograms runs every program for a short time, calls it wrongly, and asks it for help.
func TestPrograms(t *testing.T) {
	sources, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.Len(t, short, len(sources))
	for name, tc := range short {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wrong := range append(tc.wrong, "-nonsense", "stray") {
				cmd := command(t, name, wrong)
				out, _ := cmd.CombinedOutput()
				require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s: %s", wrong, out)
				require.Regexp(t, `-h |usage: go run \./examples/`, string(out), wrong)
			}
			out, err := command(t, name, "-h").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Regexp(t, `(?m)^usage: go run \./examples/`+name, string(out))

			out, err = command(t, name, tc.flags).CombinedOutput()
			t.Logf("\n%s", out)
			require.NoError(t, err)
			for _, want := range tc.want {
				require.Regexp(t, want, string(out))
			}
			require.NotContains(t, string(out), "never printed")
			for line := range strings.Lines(string(out)) {
				require.LessOrEqual(t, utf8.RuneCountInString(line), 81, "80 columns: %s", line)
			}
		})
	}
}
