//go:build unix

package page

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This file drives Chromium without a window, by the DevTools protocol over a pair of pipes. Its
// command line alone can load a page and dump it, but not in real time, not narrower than 500
// pixels, and without reporting the page's errors.

// reply bounds the wait for one answer. A loaded machine takes seconds to start a browser.
const reply = 2 * time.Minute

// findChromium returns the path of a Chromium, or skips the test. With
// TIMINGWHEEL_REQUIRE_BROWSER set it fails instead.
func findChromium(t *testing.T) string {
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "no chromium on PATH to test the page with (Debian: apt-get install chromium)"
	if os.Getenv("TIMINGWHEEL_REQUIRE_BROWSER") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// A browser is a running Chromium with one page. Its methods are for one goroutine.
type browser struct {
	t       *testing.T
	to      *os.File
	session string
	last    int
	answers chan message

	mu         sync.Mutex // guards the rest, which the reader of the pipe writes
	complaints []string   // errors on the console, exceptions, and violations of the policy
	requests   []string   // addresses
}

type message struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

func startBrowser(t *testing.T) *browser {
	path := findChromium(t)
	theirsIn, to, err := os.Pipe()
	require.NoError(t, err)
	from, theirsOut, err := os.Pipe()
	require.NoError(t, err)
	args := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(),
		"--no-first-run", "--disable-gpu", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-dev-shm-usage", "--mute-audio", "--hide-scrollbars",
		"--force-color-profile=srgb", "--lang=en-US",
	}
	if os.Geteuid() == 0 { // the sandbox refuses to run as root; the page is ours
		args = append(args, "--no-sandbox")
	}
	cmd := exec.Command(path, append(args, "about:blank")...)
	cmd.ExtraFiles = []*os.File{theirsIn, theirsOut} // 3 and 4, as Chromium expects
	var output bytes.Buffer
	cmd.Stderr = &output
	cmd.WaitDelay = 10 * time.Second // for processes that it has started and left behind
	require.NoError(t, cmd.Start())
	theirsIn.Close()
	theirsOut.Close()

	b := &browser{t: t, to: to, answers: make(chan message, 1)}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		b.read(from)
	}()
	t.Cleanup(func() {
		b.send("Browser.close", nil, "")
		exited := make(chan error, 1)
		go func() { exited <- cmd.Wait() }()
		select {
		case <-exited:
		case <-time.After(30 * time.Second):
			cmd.Process.Kill()
			<-exited
		}
		to.Close()
		from.Close()
		<-reading
		if t.Failed() {
			t.Logf("chromium said:\n%s", output.String())
		}
	})

	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&session)
	b.session = session.SessionID
	for _, domain := range []string{"Runtime", "Log", "Network", "Page"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// read receives the answers and events of the browser until it is gone. Each ends with a zero byte.
func (b *browser) read(from *os.File) {
	defer close(b.answers)
	for r := bufio.NewReader(from); ; {
		data, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(data[:len(data)-1], &m) != nil {
			continue
		}
		if m.ID != 0 {
			b.answers <- m
			continue
		}
		b.note(m)
	}
}

func (b *browser) note(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var p struct {
		Type    string
		Args    json.RawMessage
		Entry   struct{ Level, Text, URL string }
		Request struct{ URL string }
	}
	json.Unmarshal(m.Params, &p)
	switch m.Method {
	case "Runtime.exceptionThrown":
		b.complaints = append(b.complaints, string(m.Params))
	case "Runtime.consoleAPICalled":
		if p.Type == "error" || p.Type == "warning" || p.Type == "assert" {
			b.complaints = append(b.complaints, p.Type+": "+string(p.Args))
		}
	case "Log.entryAdded":
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			b.complaints = append(b.complaints, p.Entry.Text+" "+p.Entry.URL)
		}
	case "Network.requestWillBeSent":
		b.requests = append(b.requests, p.Request.URL)
	}
}

func (b *browser) send(method string, params any, session string) error {
	b.last++
	request := map[string]any{"id": b.last, "method": method}
	if params != nil {
		request["params"] = params
	}
	if session != "" {
		request["sessionId"] = session
	}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, err = b.to.Write(append(data, 0))
	return err
}

// call calls a method of the browser, and stores the result in to if that is not nil.
func (b *browser) call(method string, params, to any) {
	b.t.Helper()
	require.NoError(b.t, b.send(method, params, b.session), method)
	timeout := time.After(reply)
	for {
		select {
		case m, ok := <-b.answers:
			require.True(b.t, ok, "%s: the browser is gone", method)
			if m.ID != b.last {
				continue
			}
			require.Nil(b.t, m.Error, "%s: %+v", method, m.Error)
			if to != nil {
				require.NoError(b.t, json.Unmarshal(m.Result, to), method)
			}
			return
		case <-timeout:
			require.Fail(b.t, method+": no answer")
		}
	}
}

// eval evaluates an expression on the page, waits for its value if it is a promise, and stores the
// value in to if that is not nil.
func (b *browser) eval(expression string, to any) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}, &result)
	require.Nil(b.t, result.ExceptionDetails, "%s: %s", expression, result.ExceptionDetails)
	if to != nil {
		require.NoError(b.t, json.Unmarshal(result.Result.Value, to), expression)
	}
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(reply); ; time.Sleep(50 * time.Millisecond) {
		var yes bool
		b.eval("!!("+expression+")", &yes)
		if yes {
			return
		}
		require.True(b.t, time.Now().Before(end), "never true: %s", expression)
	}
}

// look sets the size of the window, in pixels, and light or dark.
func (b *browser) look(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// open loads an address, and returns when the document is complete.
func (b *browser) open(address string) {
	b.t.Helper()
	var result struct{ ErrorText string }
	b.call("Page.navigate", map[string]any{"url": address}, &result)
	require.Empty(b.t, result.ErrorText, address)
	b.until(fmt.Sprintf("document.readyState === 'complete' && location.href === %q", address))
}

// shoot writes a picture of the page's top, or of all of it.
func (b *browser) shoot(file string, whole bool) {
	b.t.Helper()
	var picture struct{ Data string }
	b.call("Page.captureScreenshot",
		map[string]any{"format": "png", "captureBeyondViewport": whole}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	require.NoError(b.t, err)
	if small, err := inPalette(data); err == nil {
		data = small
	}
	require.NoError(b.t, os.WriteFile(file, data, 0o644))
}

// inPalette makes a picture smaller: it keeps the 256 most frequent colours. The others are at the
// edges of letters.
func inPalette(data []byte) ([]byte, error) {
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	pixels := map[color.Color]int{}
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			pixels[picture.At(x, y)]++
		}
	}
	palette := color.Palette(slices.SortedFunc(maps.Keys(pixels),
		func(a, b color.Color) int { return pixels[b] - pixels[a] }))
	palette = palette[:min(len(palette), 256)]
	index := map[color.Color]uint8{}
	for c := range pixels {
		index[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, index[picture.At(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}

// requireQuiet fails the test if the browser has reported an error, or a request to another origin.
func (b *browser) requireQuiet(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.complaints)
	require.NotEmpty(b.t, b.requests)
	for _, address := range b.requests {
		if !strings.HasPrefix(address, "data:") && address != "about:blank" &&
			!strings.HasPrefix(address, origin+"/") {
			require.Fail(b.t, "a request elsewhere", address)
		}
	}
}
