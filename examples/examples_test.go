//go:build !js && !wasip1

// Package examples tests all programs in this folder by running them.
package examples

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// short describes a short run of each program: flags, and patterns that the output must match. A
// program that takes long also has a line in example_flags of .ci/run, and each has a row in the
// table of README.md.
var short = map[string]struct {
	flags string
	want  []string
}{
	"quickstart": {"", []string{"AfterFunc: called", "Stop: true", "Reset: true", "Reset: called",
		"gopher closed", "Every: beat", "stopped, true", "the clock shows",
		"the callback has returned", "no goroutine of the wheel is left"}},
	"levels": {"-scale 100", []string{"third wheel, slot 2,", "second wheel, slot 1,",
		"first wheel, slot 22,", `\d s  it fires`}},
	"devices": {"-scale 40000", []string{"lamp-hall off, at attempt", "CEST  fan on",
		"all is well"}},
	"heartbeats": {"-scale 8 -clients 1000", []string{"50 clients die", "20 of them return",
		"the wheel woke", "all is well"}},
	"httpidle": {"-scale 60", []string{"connection of anna, reason: idle",
		"connection of ben, reason: idle", "connection of dora, reason: idle",
		"connection of finn, reason: read idle", "dora: got the last answer", "all is well"}},
	"idleserver": {"-conns 200 -run 3s", []string{`\b200 opened`, `= \d+ fired`, "all is well"}},
	"lastread":   {"-scale 9000", []string{`to come: \[.*"dan"`, "all is well"}},
	"futuremail": {"-letters 5000", []string{"5000 letters are kept", "kill -9",
		"it keeps 5000 letters", "20 letters were due and are delivered", "all is well"}},
	"notifier": {"-scale 1800 -timeout 10m", []string{
		`/fails/3, notify/every, attempt \d+: delivered`,
		`/hangs/2, notify/every, attempt 1: no answer in time`,
		`/fails/2, notify/steps, attempt \d: delivered`,
		`/fails/99, notify/steps is given up after 4: answered 503`,
		`/fails/99, notify/every is still tried after \d+`, "nothing was forgotten"}},
	"orders": {"-scale 900", []string{"kill -9: .* unpaid", "open again, after",
		`6\d\d orders: 0 unpaid`, "cancelled after their minute, or", "none was lost"}},
	"ttlqueue": {"", []string{`1s by the job queue has come after 1\.`,
		"1s by a TTL queue has come after 10|there is no RabbitMQ", "all is well"}},
	"reminders": {"-scale 70000", []string{"reminder to ben", "escalation to the head",
		"all is well"}},
}

// TestPrograms builds all programs, with the race detector if the test has it, and runs each of
// them for a short time.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs every example")
	}
	sources, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.Len(t, short, len(sources))
	folder := t.TempDir()
	args := []string{"build", "-o", folder}
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "./...")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(t *testing.T, name, flags string) (out string, status int) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, name),
			strings.Fields(flags)...)
		text, _ := cmd.CombinedOutput()
		return string(text), cmd.ProcessState.ExitCode()
	}
	for name, tc := range short {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, status := run(t, name, tc.flags)
			t.Logf("\n%s", out)
			require.Zero(t, status)
			for _, want := range tc.want {
				require.Regexp(t, want, out)
			}
			require.NotContains(t, out, "never printed")
			for line := range strings.Lines(out) {
				require.LessOrEqual(t, utf8.RuneCountInString(line), 81, "80 columns: %s", line)
			}
		})
	}
	t.Run("usage", func(t *testing.T) {
		for flags, want := range map[string]int{"-h": 0, "-nonsense": 2, "stray": 2,
			"-scale NaN": 2, "-scale 0": 2, "-scale 201": 2} {
			out, status := run(t, "levels", flags)
			require.Equal(t, want, status, flags)
			require.Contains(t, out, "usage: go run ./examples/levels", flags)
		}
	})
}
