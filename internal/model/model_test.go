// Package model holds a model of the protocol between the callers of a timing wheel, its driver and
// its alarm, in Promela, the language of the model checker Spin. The model is protocol.pml, which
// says what it contains and what it proves; this test runs Spin on it.
//
// There are two kinds of configuration. In a sound one every property has to
// hold in every interleaving, and the test logs how many states there were.
// Together they have to reach every statement of the model, or it would claim
// more than it has tried. A trap has a known mistake built in, and the property
// that it breaks has to be found broken.
//
// The test needs spin and a C compiler called gcc, and is skipped without them, unless
// TIMINGWHEEL_REQUIRE_MODEL is set: then it fails. -short leaves out the larger configurations and
// does not check what is reached.
package model

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	source = "protocol.pml"

	// maxDepth bounds the length of a run, in steps. The longest that were seen
	// have some 230; a run that is cut off fails the test.
	maxDepth = 10_000

	// maxMemory is for one configuration, in MiB. The largest takes half of it.
	maxMemory = 2_000

	missing = "%s is not on PATH: the model of the protocol is not checked; " +
		"install spin and gcc (Debian, Ubuntu: apt-get install spin gcc; macOS: brew install spin gcc)"
)

// A configuration is a set of macros for protocol.pml.
type configuration struct {
	name   string
	macros string // separated by spaces, without the -D
	breaks string // the property that a trap breaks; empty if all must hold
	large  bool   // left out with -short
}

var configurations = []configuration{
	{name: "callers", macros: "CALLS=3"},
	{name: "one timer", macros: "TIMERS=1 CALLS=4"},
	{name: "three callers", macros: "CALLERS=3 TIMERS=1"},
	{name: "hold of two timers", macros: "HOLD=2"},
	{name: "never", macros: "WITH_NEVER TIMERS=1"},
	{name: "inline", macros: "EXECUTOR=INLINE GOEXIT CALLS=2"},
	{name: "inline, one timer", macros: "EXECUTOR=INLINE GOEXIT TIMERS=1"},
	{name: "late start", macros: "LATE_START", large: true},
	{name: "stop", macros: "STOPPERS=1 CALLS=2"},
	{name: "stop, one timer", macros: "STOPPERS=1 TIMERS=1 CALLERS=1"},
	{name: "stop, never", macros: "STOPPERS=1 CALLS=2 WITH_NEVER"},
	{name: "stop, hold of two timers", macros: "STOPPERS=1 CALLS=2 HOLD=2"},
	{name: "stop, inline", macros: "STOPPERS=1 CALLS=2 EXECUTOR=INLINE GOEXIT"},
	{name: "stop, custom", macros: "STOPPERS=1 CALLS=2 EXECUTOR=CUSTOM"},
	{name: "stop, late start", macros: "STOPPERS=1 CALLS=2 LATE_START"},
	{name: "stop twice", macros: "STOPPERS=2 CALLERS=1 CALLS=2"},
	{name: "extend", macros: "EXTEND_CAS", large: true},
	{name: "extend, one timer", macros: "EXTEND_CAS TIMERS=1 CALLS=4", large: true},
	{name: "extend, never", macros: "EXTEND_CAS TIMERS=1 WITH_NEVER"},
	{name: "extend, inline", macros: "EXTEND_CAS TIMERS=1 EXECUTOR=INLINE"},
	{name: "extend, late start", macros: "EXTEND_CAS TIMERS=1 LATE_START"},
	{name: "extend, stop", macros: "EXTEND_CAS STOPPERS=1 CALLS=2"},
	{name: "two shards", macros: "SHARDS=2", large: true},
	{name: "two shards, inline", macros: "SHARDS=2 CALLS=2 EXECUTOR=INLINE GOEXIT"},
	{name: "two shards, late start", macros: "SHARDS=2 CALLS=2 LATE_START"},
	{name: "two shards, stop", macros: "SHARDS=2 CALLS=2 STOPPERS=1", large: true},
	{name: "two shards, stop twice", macros: "SHARDS=2 CALLS=1 STOPPERS=2"},
	{name: "two shards, stop, late start", macros: "SHARDS=2 CALLS=1 STOPPERS=1 LATE_START"},
	{name: "two shards, extend", macros: "SHARDS=2 CALLS=2 EXTEND_CAS"},

	{name: "lost wake-up", macros: "TRAP_LOST_WAKEUP", breaks: "uncovered"},
	{name: "lost wake-up, seen at the end", macros: "TRAP_LOST_WAKEUP NO_COVERAGE",
		breaks: "lost_wakeup"},
	{name: "lost wake-up, two shards", macros: "TRAP_LOST_WAKEUP NO_COVERAGE SHARDS=2 CALLS=2",
		breaks: "lost_wakeup"},
	{name: "lost wake-up, late start", macros: "TRAP_LOST_WAKEUP NO_COVERAGE LATE_START CALLS=1",
		breaks: "lost_wakeup"},
	{name: "look before next", macros: "TRAP_WAKE_BEFORE_NEXT", breaks: "uncovered"},
	{name: "look before next, seen at the end", macros: "TRAP_WAKE_BEFORE_NEXT NO_COVERAGE",
		breaks: "lost_wakeup"},
	{name: "wake without comparison", macros: "TRAP_WAKE_UNCOMPARED", breaks: "uncovered"},
	{name: "wake without comparison, two shards", macros: "TRAP_WAKE_UNCOMPARED SHARDS=2",
		breaks: "uncovered"},
	{name: "settle without the lock", macros: "TRAP_SETTLE", breaks: "uncovered"},
	{name: "settle without the lock, seen at the end", macros: "TRAP_SETTLE NO_COVERAGE",
		breaks: "lost_wakeup"},
	{name: "stop without identity", macros: "TRAP_STOP_IDENTITY", breaks: "wrong_false"},
	{name: "reset by store", macros: "TRAP_RESET_BY_STORE", breaks: "wrong_true"},
	{name: "stop against an add", macros: "TRAP_STOP_ADD STOPPERS=1 CALLS=2",
		breaks: "armed_after_stop"},
	{name: "stale clock", macros: "TRAP_STALE_CLOCK", breaks: "uncovered"},
	{name: "clock past a bucket", macros: "TRAP_CATCH_UP", breaks: "passed_bucket"},
	{name: "two laps in a bucket", macros: "TRAP_LAP", breaks: "two_laps"},
	{name: "two drivers", macros: "TRAP_TWO_DRIVERS", breaks: "two_drivers"},
	{name: "goexit", macros: "TRAP_GOEXIT EXECUTOR=INLINE GOEXIT", breaks: "lost_wakeup"},
	{name: "alarm of a stopped wheel", macros: "TRAP_ALARM_AFTER_STOP STOPPERS=1 CALLS=2",
		breaks: "alarm_after_stop"},
	{name: "alarm stopped first", macros: "TRAP_ALARM_FIRST NO_COVERAGE STOPPERS=1 CALLS=2",
		breaks: "alarm_after_stop"},
	{name: "alarm left open", macros: "TRAP_ALARM_OPEN STOPPERS=1 CALLS=2",
		breaks: "alarm_after_stop"},
	{name: "alarm left to the first stop", macros: "TRAP_SILENCE_ONCE STOPPERS=2 CALLERS=1 CALLS=1",
		breaks: hangs},
	{name: "sweep left to the first stop", macros: "TRAP_SWEEP_ONCE STOPPERS=2 CALLERS=1 CALLS=1",
		breaks: "armed_after_stop"},
	{name: "ring not counted", macros: "TRAP_RING_UNCOUNTED STOPPERS=1 CALLS=2",
		breaks: "quiet_too_early"},
	{name: "ring counted as prevented", macros: "TRAP_ALARM_STOP STOPPERS=1 CALLS=2",
		breaks: "quiet_too_early"},
	{name: "moved ring counted twice", macros: "TRAP_ALARM_RESET STOPPERS=1 CALLS=2",
		breaks: hangs},
	{name: "stopped looked at first", macros: "TRAP_QUIET_ORDER STOPPERS=1 CALLS=2", breaks: hangs},
	{name: "extend, reset by store", macros: "EXTEND_CAS TRAP_RESET_BY_STORE",
		breaks: "fired_early"},
	{name: "extend, comparison outside the word", macros: "EXTEND_CAS TRAP_EXTEND_COMPARE",
		breaks: "uncovered"},
}

// hangs stands for Spin's own property: no process waits forever.
const hangs = "invalid end state"

func TestProtocol(t *testing.T) {
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("TIMINGWHEEL_REQUIRE_MODEL") != "" {
				t.Fatalf(missing, tool)
			}
			t.Skipf(missing, tool)
		}
	}
	model, err := filepath.Abs(source)
	require.NoError(t, err)

	text, err := os.ReadFile(model)
	require.NoError(t, err)

	var mu sync.Mutex
	var unreached []map[string]bool // of each sound configuration
	marks := map[string]bool{}      // of all of them together
	t.Run("configurations", func(t *testing.T) {
		for _, c := range configurations {
			t.Run(c.name, func(t *testing.T) {
				if c.large && testing.Short() {
					t.Skip("large")
				}
				t.Parallel()
				out := explore(t, model, c)
				if c.breaks != "" {
					require.Equal(t, c.breaks, violation(out), out)
					return
				}
				require.Contains(t, out, "errors: 0\n", out)
				t.Logf("%s states, %s steps deep", find(out, states), find(out, depth))
				mu.Lock()
				defer mu.Unlock()
				unreached = append(unreached, unreachedIn(out))
				for _, m := range reached.FindAllStringSubmatch(out, -1) {
					marks[m[1]] = true
				}
			})
		}
	})
	if t.Failed() || testing.Short() {
		return
	}
	t.Run("everything is reached", func(t *testing.T) {
		if len(unreached) != soundConfigurations() {
			t.Skip("not all configurations ran")
		}
		require.Empty(t, reachedByNone(unreached), "statements that no sound configuration reaches")
		for _, m := range mark.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, marks, m[1], "no sound configuration reaches this")
		}
	})
}

func soundConfigurations() int {
	n := 0
	for _, c := range configurations {
		if c.breaks == "" {
			n++
		}
	}
	return n
}

// explore builds the verifier for c, runs it and returns its report.
func explore(t *testing.T, model string, c configuration) string {
	t.Helper()
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
		return string(out)
	}

	args := []string{"-a", "-DMARKS"}
	for _, m := range strings.Fields(c.macros) {
		args = append(args, "-D"+m)
	}
	run("spin", append(args, model)...)
	// Building takes longer than running, the more it is optimised; a trap is
	// found at once. The verifier is C that Spin wrote: its warnings are of no use.
	optimise := "-O1"
	if c.breaks != "" {
		optimise = "-O0"
	}
	run("gcc", optimise, "-w", "-DSAFETY", fmt.Sprintf("-DMEMLIM=%d", maxMemory), "-o", "pan",
		"pan.c")
	out := run(filepath.Join(dir, "pan"), fmt.Sprintf("-m%d", maxDepth), "-w23")
	require.NotContains(t, out, "out of memory")
	require.NotContains(t, out, "MEMLIM") // it stops there, and reports no error
	require.NotContains(t, out, "max search depth too small")
	return out
}

var (
	states    = regexp.MustCompile(`(\d+) states, stored`)
	depth     = regexp.MustCompile(`depth reached (\d+)`)
	assertion = regexp.MustCompile(`assertion violated\s+!\((\w+)\)`)
	process   = regexp.MustCompile(`^unreached in proctype (\w+)`)
	reached   = regexp.MustCompile(`(?m)^reached: (\w+)$`)
	mark      = regexp.MustCompile(`(?m)^\s.*REACHED\((\w+)\)`)
	statement = regexp.MustCompile(`^\s.*` + regexp.QuoteMeta(source) + `:(\d+), state \d+, "(.*)"`)
)

func find(out string, re *regexp.Regexp) string {
	if m := re.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return "?"
}

// violation returns the property that the report says is broken, or "".
func violation(out string) string {
	if m := assertion.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if strings.Contains(out, "pan:1: "+hangs) {
		return hangs
	}
	return ""
}

// unreachedIn returns the lines of the model that a report lists as unreached, each with its
// process. Not by the statements' text, which depends on the macros. Ends are left out: a process
// that serves forever has none.
func unreachedIn(out string) map[string]bool {
	found := map[string]bool{}
	in := ""
	for line := range strings.Lines(out) {
		if m := process.FindStringSubmatch(line); m != nil {
			in = m[1]
		}
		if m := statement.FindStringSubmatch(line); m != nil && m[2] != "-end-" {
			found[fmt.Sprintf("%s, line %s", in, m[1])] = true
		}
	}
	return found
}

// reachedByNone returns what is in every set.
func reachedByNone(sets []map[string]bool) []string {
	var all []string
	for s := range sets[0] {
		if !slices.ContainsFunc(sets, func(set map[string]bool) bool { return !set[s] }) {
			all = append(all, s)
		}
	}
	slices.Sort(all)
	return all
}
