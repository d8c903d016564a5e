//go:build !js && !wasip1

// Package examples tests all programs in this folder by running them.
package examples

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = time.Minute

// short runs of the programs: flags, patterns that the output must match, and wrong flags.
var short = map[string]struct {
	flags string
	want  []string
	wrong []string
}{
	"quickstart": {"", []string{"AfterFunc: called", "Stop: true", "Reset: true", "Reset: called", "gopher closed", "Every: beat",
		"stopped, true", "the clock shows", "the callback has returned", "no goroutine of the wheel is left"}, nil},
	"levels": {"-scale 100", []string{"third wheel, slot 2,", "second wheel, slot 1,", "first wheel, slot 22,", "310 s  it fires"},
		[]string{"-delay 0", "-delay 1728", "-scale 0"}},
	"devices": {"-scale 40000", []string{"lamp-hall off, at attempt", `\d CEST  fan on`, "all is well"}, []string{"-scale -1"}},
	"heartbeats": {"-scale 8 -clients 1000", []string{"50 clients die", "20 of them return", "the wheel woke", "all is well"},
		[]string{"-clients 3"}},
	"httpidle": {"-scale 60", []string{"connection of anna, reason: idle", "connection of ben, reason: idle", "connection of dora, reason: idle", "connection of finn, reason: read idle",
		"dora: got the last answer", "all is well"}, []string{"-scale NaN"}},
	"idleserver": {"-conns 200 -idle 300ms -run 2s", []string{`opened +200 `, `forgotten +0 `, "= fired", "all is well"},
		[]string{"-conns 0", "-idle 1ms", "-run 0", "-talking 1.1", "-talking NaN", "-tick 0", "-tick 3s"}},
	"lastread": {"-scale 9000", []string{`to come: \["dan"\]`, "none was lost"}, []string{"-scale 1e9"}},
	"notifier": {"-scale 1800 -timeout 10m", []string{`#1 to fails/3 \(every\), attempt \d+: delivered`, `#2 to hangs/2 \(every\), attempt 1: no answer in time`,
		`#3 to fails/2 \(steps\), attempt \d: delivered`, `#4 to fails/99 \(steps\), attempt 4: .*, which was the last`,
		`#5 to fails/99 \(every\) was not delivered`, "nothing was forgotten"}, []string{"-timeout 0"}},
	"orders":    {"-scale 400", []string{"ada pays", "the shop tells cleo", "0 timers are pending", "the stock adds up"}, nil},
	"reminders": {"-scale 70000 -subscribers 40", []string{"reminder to ben", "escalation to the head", "all is well"}, []string{"-subscribers 3"}},
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
	folder, err := build()
	require.NoError(t, err)
	return exec.CommandContext(t.Context(), filepath.Join(folder, name), strings.Fields(flags)...)
}

// TestPrograms runs every program for a short time, calls it wrongly, and asks it for help.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs every example")
	}
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
		})
	}
}

// TestTable has devices check a table.
func TestTable(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every example")
	}
	file := filepath.Join(t.TempDir(), "house.txt")
	for table, want := range map[string]string{
		"0 8 mon lamp on\n0 9 mon fan off # comment": `(?s)Mon 20.* 08:00 .*  lamp on\nMon 20.* 09:00 .*  fan off\n$`,
		"\n0 25 mon lamp on":                         `house.txt: line 2: hour "25"`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(table), 0o600))
		out, _ := command(t, "devices", "-table "+file).CombinedOutput()
		require.Regexp(t, want, string(out))
	}
	require.Error(t, command(t, "devices", "-table "+file+"x").Run())
}

// A screen is the output of a program that is running. mu guards what is on it.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// await waits until the output matches a pattern, and returns the match.
func (s *screen) await(t *testing.T, pattern string) (found string) {
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		found = regexp.MustCompile(pattern).FindString(s.b.String())
		return found != ""
	}, patience, 5*time.Millisecond, pattern)
	return found
}

// TestServe uses the services as the comments of their main.go suggest, and interrupts them.
func TestServe(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds every example, and needs interrupts")
	}
	future, past := `"at":"2099-01-01T10:00:00Z"`, `"at":"1999-01-01T10:00:00Z"`
	for name, tc := range map[string]struct {
		requests [][3]string // method and path, body, pattern of status and answer
		want     string      // at the end
	}{
		"orders": {[][3]string{
			{"POST /orders", `{"customer":"ada", "item":"mug", "quantity":2}`, `200 {"id":1,"customer":"ada","item":"mug","quantity":2,"state":"unpaid"}`},
			{"POST /orders", `{"item":"mug", "quantity":4}`, "409 .*in stock"},
			{"POST /orders", `{"item":"hat", "quantity":1}`, "409 .*in stock"},
			{"POST /orders", `"mugs, please"`, "400 "},
			{"POST /orders/1/payment", "", `200 .*"state":"paid"`},
			{"POST /orders/1/payment", "", "409 .*already paid"},
			{"POST /orders/one/payment", "", "409 .*no such order"},
			{"POST /orders", `{"item":"mug", "quantity":1}`, `200 {"id":2`},
			{"GET /debug/wheel/", "", "(?s)200 .*Timing wheel"},
		}, "2 timers are pending"},
		"notifier": {[][3]string{
			{"POST /notifications", `{"url":"URL/fails/1", "policy":"steps", "body":1}`, `200 {"id":1,"url":"URL/fails/1","policy":"steps","attempts":0}`},
			{"POST /notifications", `{"policy":"never"}`, "409 .*policy must be"},
			{"PRINTED", "", "#1 to fails/1 .*503"},
			{"GET /notifications", "", `200 \[{"id":1,.*"attempts":1`},
		}, `#1 to fails/1 \(steps\) was not delivered \(attempts: 1\)`},
		"lastread": {[][3]string{
			{"GET /news/ada", "", `200 \[\]`}, {"GET /news/ben", "", `200 \[\]`}, {"GET /waiting", "", "200 2"},
			{"DELETE /readers/ben", "", "200 true"}, {"DELETE /readers/ben", "", "200 false"}, {"GET /waiting", "", "200 1"},
		}, `to come: \["ada"\]`},
		"reminders": {[][3]string{
			{"POST /meetings", `{"text":"a", "with":["anna"], "at":"2098-01-01T10:00:00Z"}`, `200 {"id":1,"text":"a","with":\["anna"\],"at":"2098-`},
			{"POST /meetings/1/move", "{" + future + "}", `200 .*"at":"2099-`},
			{"POST /meetings/1/move", "{" + past + "}", "409 .*passed"},
			{"POST /meetings/1/cancel", "", `200 .*"at":"2099-`},
			{"POST /meetings/1/cancel", "", "409 .*no such item"},
			{"POST /tickets", `{"text":"a"}`, `200 {"id":1`},
			{"POST /tickets/1/answer", "", `200 {"id":1`},
			{"POST /tickets/1/answer", "", "409 "},
			{"POST /pushes", `{"text":"a",` + future + "}", "200 "},
			{"POST /pushes", `{"text":"a",` + past + "}", "409 "},
		}, ""},
		"heartbeats": {[][3]string{
			{"UDP", "7 10000 -1 x", "client 7 is suspected"}, {"UDP", "7", "client 7 has returned"},
		}, ""},
		"httpidle": {[][3]string{{"GET /", "", "200 hello"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out screen
			cmd := command(t, name, "-addr 127.0.0.1:0")
			if name == "heartbeats" {
				cmd.Args = append(cmd.Args, "-scale", "10")
			}
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			address := out.await(t, `127.0.0.1:\d+`)
			for _, r := range tc.requests {
				r[1], r[2] = strings.ReplaceAll(r[1], "URL", "http://"+address), strings.ReplaceAll(r[2], "URL", "http://"+address)
				switch method, path, _ := strings.Cut(r[0], " "); method {
				case "PRINTED":
					out.await(t, r[2])
				case "UDP":
					conn, err := net.Dial("udp", address)
					require.NoError(t, err)
					fmt.Fprint(conn, r[1])
					conn.Close()
					out.await(t, r[2])
				default:
					req, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(r[1]))
					require.NoError(t, err)
					resp, err := http.DefaultClient.Do(req)
					require.NoError(t, err)
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					require.NoError(t, err)
					require.Regexp(t, "^"+r[2], fmt.Sprintf("%d %s", resp.StatusCode, body), r[0])
				}
			}
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			require.NoError(t, cmd.Wait(), "%s", &out.b)
			require.Regexp(t, tc.want, out.b.String())

			out2, err := command(t, name, "-addr 127.0.0.1:-1").CombinedOutput()
			require.Error(t, err, "%s", out2)
		})
	}
}
