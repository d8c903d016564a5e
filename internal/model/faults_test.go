//go:build timingwheel_pause

package model

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file ties the model to the code. For each trap of the model it has the same mistake as a
// patch to the code, and names the test in forced_test.go, at the top of the repository, that
// forces the interleaving. The tests must pass on the code as it is, and each must fail with its
// patch applied:
//
//	go test -tags timingwheel_pause -run 'Faults|PausePoints' ./internal/model
//
// If you change a line that a patch quotes, change the patch too: a patch that does not fit fails
// the test. docs/design.md shows the table.

// A fault is a mistake that can be built into the code.
type fault struct {
	trap   string // of the model; empty if the model has none for it
	what   string
	points string // the pause points that the test needs, separated by commas
	test   string
	file   string

	// patch has a line of the code after each space and minus, and what the fault makes of it
	// after each space and plus. A line of @@ begins another place of the file.
	patch string
}

var faults = []fault{
	{
		trap: "TRAP_LOST_WAKEUP",
		what: "a leaving driver looks at every `next` before it stores in `armed` " +
			"that no alarm is set",
		points: "resting",
		test:   "TestForcedLostWakeup",
		file:   "alarm.go",
		patch: `
-	a.armed.Store(unset)
 	first := a.lookAt.Load()
@@
 	_ = pause("resting")
+	a.armed.Store(unset)
`,
	},
	{
		trap:   "TRAP_WAKE_BEFORE_NEXT",
		what:   "a caller looks at `armed` before it stores `next`",
		points: "filed, leaving",
		test:   "TestForcedLookBeforeNext",
		file:   "shard.go",
		patch: `
+	armed := s.engine.alarm.armed.Load()
+	_ = pause("filed")
 	e := s.placeLocked(t, deadline, now)
-	_ = pause("filed")
-	s.engine.alarm.wakeAt(e)
+	if e < armed {
+		s.engine.alarm.wakeAt(e)
+	}
`,
	},
	{
		trap:   "TRAP_WAKE_UNCOMPARED",
		what:   "wakeAt does not look again once it has the lock",
		points: "waking",
		test:   "TestForcedLaterTickLast",
		file:   "alarm.go",
		patch: `
-	if e < a.armed.Load() {
-		a.setLocked(e)
-	}
+	a.setLocked(e)
`,
	},
	{
		trap:   "TRAP_SETTLE",
		what:   "the driver stores `next` after it has released the shard's lock",
		points: "settling",
		test:   "TestForcedSettle",
		file:   "flush.go",
		patch: `
+	s.mu.Unlock()
 	_ = pause("settling")
+	s.mu.Lock()
 	s.next.Store(next)
`,
	},
	{
		trap: "TRAP_STOP_IDENTITY",
		what: "Stop looks where the timer is before it has the lock " +
			"(at its neighbour: the code has no pointer to a bucket)",
		points: "stopping",
		test:   "TestForcedStopOfAMovedTimer",
		file:   "timer.go",
		patch: `
+	at := t.next
 	_ = pause("stopping")
@@
 	s.mu.Lock()
+	if t.next != at {
+		s.mu.Unlock()
+		return false
+	}
 	_, was := s.stopLocked(t) // else the driver or another caller came first
`,
	},
	{
		trap:   "TRAP_RESET_BY_STORE",
		what:   "Reset relies on what it read before it had the lock",
		points: "rearming",
		test:   "TestForcedResetOfAStoppedTimer",
		file:   "shard.go",
		patch: `
+	word := t.word.Load()
 	_ = pause("rearming")
@@
-	return s.armLocked(t, pending, deadline, now)
+	s.armLocked(t, pending, deadline, now)
+	return isPending(word)
`,
	},
	{
		trap:   "TRAP_RESET_BY_STORE",
		what:   "the driver claims by a store over a word that it read before",
		points: "claiming, touching",
		test:   "TestForcedExtensionDuringTheClaim",
		file:   "flush.go",
		patch: `
-	if !t.word.CompareAndSwap(word, to) {
-		return false
-	}
+	t.word.Store(to)
 	_ = pause("claimed")
`,
	},
	{
		trap:   "TRAP_EXTEND_COMPARE",
		what:   "Reset extends a timer by what it read outside the word that it swaps",
		points: "extending",
		test:   "TestForcedExtensionOfAnotherArming",
		file:   "timer.go",
		patch: `
-	word := t.word.Load()
-	old, _ := deadlineOf(word), pause("extending")
+	old, _ := deadlineOf(t.word.Load()), pause("extending")
+	word := t.word.Load()
`,
	},
	{
		trap:   "TRAP_STOP_ADD",
		what:   "a caller looks at `stopped` before it has the lock, and only then",
		points: "rearming",
		test:   "TestForcedResetMeetsTheWheelsStop",
		file:   "shard.go",
		patch: `
+	if s.engine.stopped.Load() {
+		return false
+	}
 	_ = pause("rearming")
@@
-	if s.engine.stopped.Load() {
+	if false {
 		// Looked at under the lock. Otherwise the timer could slip in behind the sweep of halt.
`,
	},
	{
		trap:   "TRAP_STALE_CLOCK",
		what:   "the caller's reading of the clock alone decides where a timer belongs",
		points: "touching",
		test:   "TestForcedStaleReading",
		file:   "shard.go",
		patch: `
-	if deadline <= now || e <= s.wheel.now {
+	if deadline <= now {
`,
	},
	{
		trap:   "TRAP_CATCH_UP",
		what:   "the clock of a shard goes past a bucket that waits for the driver",
		points: "rung",
		test:   "TestForcedLateDriver",
		file:   "shard.go",
		patch: `
-		to = min(to, head.attention-1)
+		_ = head
`,
	},
	{
		trap:   "TRAP_LAP",
		what:   "a wheel's span is a slot longer",
		points: "between pieces",
		test:   "TestForcedNextLap",
		file:   "wheel.go",
		patch: `
-	w.span = w.interval + min(w.interval, math.MaxInt64-w.interval)
+	w.span = w.interval + min(w.interval+tick, math.MaxInt64-w.interval)
`,
	},
	{
		trap:   "TRAP_TWO_DRIVERS",
		what:   "a ring does not look whether a driver is at work",
		points: "rung",
		test:   "TestForcedTwoRings",
		file:   "driver.go",
		patch: `
-	if a.driving {
+	if false {
`,
	},
	{
		trap: "TRAP_GOEXIT",
		what: "leave is not deferred",
		test: "TestForcedGoexit",
		file: "driver.go",
		patch: `
-		defer d.leave()
 		defer endRegion(region("driver"))
 		d.turn()
+		d.leave()
`,
	},
	{
		trap:   "TRAP_ALARM_AFTER_STOP",
		what:   "a leaving driver does not look again whether the wheel was stopped",
		points: "leaving",
		test:   "TestForcedStopAsTheDriverLeaves",
		file:   "alarm.go",
		patch: `
-	if a.engine.stopped.Load() {
+	if false {
 		// Looked at under the lock that halt takes next, so either this sees it
`,
	},
	{
		trap:   "TRAP_ALARM_FIRST",
		what:   "the wheel's Stop silences the alarm before it sets `stopped`",
		points: "halting, leaving",
		test:   "TestForcedDriverLeavesDuringStop",
		file:   "halt.go",
		patch: `
-	e.stopped.Store(true)
+	e.alarm.silence()
 	_ = pause("halting")
-	e.alarm.silence() // again, if another Stop has not come to it yet: Shutdown waits for the ring
+	e.stopped.Store(true)
`,
	},
	{
		trap:   "TRAP_ALARM_OPEN",
		what:   "the wheel's Stop leaves `armed` as it is",
		points: "filed",
		test:   "TestForcedStopAsATimerIsFiled",
		file:   "alarm.go",
		patch: `
-	a.armed.Store(awake)
 	a.stopBellLocked()
 }
`,
	},
	{
		trap:   "TRAP_SILENCE_ONCE",
		what:   "a second Stop of the wheel does not silence the alarm",
		points: "halting",
		test:   "TestForcedShutdownOvertakesStop",
		file:   "halt.go",
		patch: `
-	e.stopped.Store(true)
+	first := !e.stopped.Swap(true)
 	_ = pause("halting")
-	e.alarm.silence() // again, if another Stop has not come to it yet: Shutdown waits for the ring
+	if first {
+		e.alarm.silence()
+	}
`,
	},
	{
		trap:   "TRAP_SWEEP_ONCE",
		what:   "a second Stop of the wheel does not sweep",
		points: "halting",
		test:   "TestForcedStopOvertakesStop",
		file:   "halt.go",
		patch: `
-	e.stopped.Store(true)
+	if e.stopped.Swap(true) {
+		e.alarm.silence()
+		return
+	}
 	_ = pause("halting")
`,
	},
	{
		trap:   "TRAP_RING_UNCOUNTED",
		what:   "an alarm that has rung and not reached the driver is forgotten",
		points: "rung",
		test:   "TestForcedShutdownMeetsARing",
		file:   "alarm.go",
		patch: `
-	if a.quiet == nil || a.engine.executor.inflight.Load() > 0 || a.driving || a.ringing > 0 {
+	if a.quiet == nil || a.engine.executor.inflight.Load() > 0 || a.driving {
`,
	},
	{
		trap:   "TRAP_ALARM_STOP",
		what:   "the ring counts as gone whether or not the alarm's Stop prevented it",
		points: "rung",
		test:   "TestForcedShutdownMeetsARing",
		file:   "alarm.go",
		patch: `
-	if a.waker.bell != nil && a.waker.bell.Stop() {
+	if a.waker.bell != nil && (a.waker.bell.Stop() || a.ringing > 0) {
`,
	},
	{
		trap: "TRAP_ALARM_RESET",
		what: "every setting of the alarm counts as a ring to come",
		test: "TestForcedShutdownAfterAMovedAlarm",
		file: "alarm.go",
		patch: `
-	case !w.bell.Reset(d):
+	case !w.bell.Reset(d) || true:
`,
	},
	{
		trap:   "TRAP_QUIET_ORDER",
		what:   "a callback looks at `stopped` before it counts down",
		points: "returning",
		test:   "TestForcedShutdownMeetsTheLastCallback",
		file:   "executor.go",
		patch: `
-	last := x.inflight.Add(-1) == 0
+	stopped := x.engine.stopped.Load()
 	_ = pause("returning")
-	if last && x.engine.stopped.Load() {
+	if x.inflight.Add(-1) == 0 && stopped {
`,
	},

	// The model lacks these, or what they are about: goroutines that start later than the claim,
	// Init, the wall clock, and lookAt.
	{
		what:   "Reset extends a timer by a store over a word that it read before",
		points: "extending",
		test:   "TestForcedExtensionOfAStoppedTimer",
		file:   "timer.go",
		patch: `
-		t.word.CompareAndSwap(word, makeWord(pending, deadline))
+		t.word.Swap(makeWord(pending, deadline)) >= 0
`,
	},
	{
		what:   "the driver counts callbacks after it has started them",
		points: "started",
		test:   "TestForcedCallbackIsCounted",
		file:   "executor.go",
		patch: `
-	x.inflight.Add(int64(len(fs)))
 	for i, f := range fs {
@@
 		_ = pause("started")
 	}
+	x.inflight.Add(int64(len(fs)))
 }
`,
	},
	{
		what:   "the driver reads the callback after the swap that claims the timer",
		points: "claimed",
		test:   "TestForcedInitAfterTheClaim",
		file:   "flush.go",
		patch: `
-	f := t.f // read before the word says idle: from then on Init may change it
 	if timed, ok := s.claimLocked(t, word, makeWord(idle, 0)); ok {
+		f := t.f
`,
	},
	{
		what:   "Drain reads the callback after the swap that takes the timer",
		points: "swept",
		test:   "TestForcedInitDuringDrain",
		file:   "halt.go",
		patch: `
-		f := t.f // read before the word says idle: from then on Init may change it
 		word, _ := t.disarm(idle)
 		_ = pause("swept")
+		f := t.f
`,
	},
	{
		what: "the driver moves a timer that follows the wall clock by a store " +
			"over a word that it read before",
		points: "touching",
		test:   "TestForcedExtensionDuringALookAtTheWallClock",
		file:   "schedule.go",
		patch: `
-	if s.takeLocked(&r.timer, word, makeWord(onWall, deadline)) {
+	r.timer.word.Store(word)
+	if s.takeLocked(&r.timer, word, makeWord(onWall, deadline)) {
`,
	},
	{
		what: "a leaving driver looks at `lookAt` before it stores in `armed` " +
			"that no alarm is set",
		points: "resting",
		test:   "TestForcedStopAsTheDriverRests",
		file:   "alarm.go",
		patch: `
+	first := a.lookAt.Load()
+	_ = pause("resting")
 	a.armed.Store(unset)
-	first := a.lookAt.Load()
`,
	},
	{
		what:   "a caller that leaves the wheel idle looks at `armed` before it stores `lookAt`",
		points: "letting go, leaving",
		test:   "TestForcedLookBeforeLookAt",
		file:   "alarm.go",
		patch: `
-		a.lookAt.Store(look)
+		armed := a.armed.Load()
 		_ = pause("letting go")
-		a.wakeAt(look)
+		a.lookAt.Store(look)
+		if look < armed {
+			a.wakeAt(look)
+		}
`,
	},
	{
		what:   "a driver takes `lookAt` back as it leaves, and not as it takes over",
		points: "leaving",
		test:   "TestForcedStopUnderALook",
		file:   "driver.go",
		patch: `
-	look := a.lookAt.Swap(unset)
+	look := a.lookAt.Load()
@@
 	a.driving = false
+	a.lookAt.Store(unset)
`,
	},
	{
		what:   "a driver that was woken to give the bell back does so whatever it finds",
		points: "rung, settling, leaving, resting",
		test:   "TestForcedTimerAsTheBellIsGivenBack",
		file:   "alarm.go",
		patch: `
-	if first == unset && a.precise && a.waker.bell != nil {
+	if (first == unset || a.idle) && a.precise && a.waker.bell != nil {
`,
	},
}

const (
	root   = "../.."
	design = root + "/docs/design.md"
	tag    = "timingwheel_pause"

	circles = "the driver runs in circles" // what the forced tests say for a fault that makes it so
)

// What a test binary is made of; the other tests are left out to build it sooner.
var testFiles = []string{"check_test.go", "forced_test.go"}

// TestFaults runs the tests on the code as it is, and each on the code with its fault.
func TestFaults(t *testing.T) {
	out, err := exec.Command(build(t, nil), "-test.v").CombinedOutput()
	require.NoError(t, err, "%s", out)
	untried := map[string]bool{}
	for _, m := range passed.FindAllSubmatch(out, -1) {
		untried[string(m[1])] = true
	}
	require.NotEmpty(t, untried)

	for _, f := range faults {
		delete(untried, f.test)
		t.Run(f.test+" "+f.trap, func(t *testing.T) {
			t.Parallel()
			faulty := build(t, map[string]string{f.file: f.apply(t)})
			out, err := exec.Command(faulty, "-test.run=^"+f.test+"$",
				"-test.timeout=1m").CombinedOutput()
			require.Error(t, err, "%s passes although %s", f.test, f.what)
			require.Regexp(t, "panic: "+circles+"|--- FAIL: "+f.test+" ", string(out),
				"for another reason")
			require.NotContains(t, string(out), "panic: runtime error", "for another reason")
			t.Logf("%s:\n%s", f.what, out)
		})
	}
	require.Empty(t, untried, "no fault shows that these can fail")
}

// TestFaultsAreComplete: every trap of the model has a fault, every pause point serves one, and
// docs/design.md shows the table.
func TestFaultsAreComplete(t *testing.T) {
	traps, want := map[string]bool{}, map[string]bool{}
	points := map[string]bool{}
	table := "| trap | fault | pause points | test |\n|---|---|---|---|\n"
	for _, f := range faults {
		for _, point := range strings.Split(f.points, ", ") {
			points[point] = true
		}
		trap := "none"
		if f.trap != "" {
			traps[f.trap] = true
			trap = strings.TrimPrefix(f.trap, "TRAP_")
		}
		table += "| " + strings.Join([]string{trap, f.what, f.points, f.test}, " | ") + " |\n"
	}
	delete(points, "")
	for _, c := range configurations {
		for _, macro := range strings.Fields(c.macros) {
			if strings.HasPrefix(macro, "TRAP_") {
				want[macro] = true
			}
		}
	}
	require.Equal(t, keys(want), keys(traps), "the traps of the model, and those that have a fault")

	var inCode []string
	for _, name := range sources(t) {
		for _, m := range pausePoint.FindAllStringSubmatch(read(t, name), -1) {
			inCode = append(inCode, m[1])
			require.Contains(t, read(t, "pause_on.go"), "\n//\t"+m[1]+"  ",
				"pause_on.go says where a point lies")
		}
	}
	slices.Sort(inCode)
	require.Equal(t, inCode, keys(points),
		"the pause points in the code, and those that faults need")

	text, err := os.ReadFile(design)
	require.NoError(t, err)
	require.True(t, strings.Contains(string(text), table),
		"docs/design.md must have this table:\n%s", table)
}

// TestPausePointsLeaveNothing: without the build tag, a program with the pause points and one
// without them are the same, byte for byte.
func TestPausePointsLeaveNothing(t *testing.T) {
	without := map[string]string{}
	for _, name := range sources(t) {
		text := read(t, name)
		blank := pauseLine.ReplaceAllString(text, "")
		blank = pauseInLine.ReplaceAllString(blank, " := $1")
		require.False(t, pausePoint.MatchString(blank), "%s has a pause point in another form",
			name)
		if blank != text {
			without[name] = blank
		}
	}
	require.NotEmpty(t, without)
	program := func(args ...string) []byte {
		file := filepath.Join(t.TempDir(), "program")
		args = append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-buildid=", "-o",
			file}, args...)
		run(t, "go", append(args, root+"/examples/quickstart")...)
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		return code
	}
	require.True(t, slices.Equal(program("-overlay", overlay(t, without)), program()),
		"on %s pause points leave something in a release build", runtime.GOARCH)
	require.False(t, slices.Equal(program("-tags", tag), program()),
		"with the tag they leave nothing either")
}

var (
	pausePoint  = regexp.MustCompile(`(?m)^\t.*pause\("([^"]*)"\)$`)
	pauseLine   = regexp.MustCompile(`(?m)^\t+_ = pause\("[^"]*"\)$`)
	pauseInLine = regexp.MustCompile(`(?m), _ := (.*), pause\("[^"]*"\)$`)

	passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) `)
)

// sources returns the names of the files of the root package that are no tests.
func sources(t *testing.T) (names []string) {
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			names = append(names, filepath.Base(file))
		}
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// apply returns the file with the fault built in.
func (f fault) apply(t *testing.T) string {
	code := read(t, f.file)
	for hunk := range strings.SplitSeq(f.patch, "@@\n") {
		var was, is strings.Builder
		for line := range strings.Lines(strings.TrimPrefix(hunk, "\n")) {
			if line[0] != '+' {
				was.WriteString(line[1:])
			}
			if line[0] != '-' {
				is.WriteString(line[1:])
			}
		}
		require.Equal(t, 1, strings.Count(code, was.String()),
			"the fault that %s needs this in %s, once; has the code moved on?\n%s",
			f.what, f.file, was.String())
		code = strings.Replace(code, was.String(), is.String(), 1)
	}
	return code
}

// build returns the test binary of the forced tests, with other contents for some files.
func build(t *testing.T, files map[string]string) string {
	t.Helper()
	replaced := maps.Clone(files)
	if replaced == nil {
		replaced = map[string]string{}
	}
	tests, err := filepath.Glob(filepath.Join(root, "*_test.go"))
	require.NoError(t, err)
	for _, test := range tests {
		if name := filepath.Base(test); !slices.Contains(testFiles, name) {
			replaced[name] = ""
		}
	}
	binary := filepath.Join(t.TempDir(), "forced")
	run(t, "go", "test", "-c", "-vet=off", "-tags", tag, "-overlay", overlay(t, replaced), "-o",
		binary, root)
	return binary
}

// overlay returns the name of a file that has the go command see other contents for some files of
// the root package, and those with an empty one not at all.
func overlay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for name, content := range files {
		original, err := filepath.Abs(filepath.Join(root, name))
		require.NoError(t, err)
		replace[original] = ""
		if content != "" {
			replace[original] = filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(replace[original], []byte(content), 0o666))
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, text, 0o666))
	return file
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
}
