//go:build unix

// Package chromium tests pages in a real browser: it drives Chromium without a window, by the
// DevTools protocol over a pair of pipes. Chromium's command line alone can load a page and dump
// it, but not in real time, not narrower than 500 pixels, and without reporting the page's errors.
//
// The page may renew itself at any moment. So a test waits with Until for what it is about to use,
// and never counts on a renewal that should have come.
package chromium

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Reply bounds the wait for one answer. A loaded machine takes seconds to start a browser.
const Reply = 2 * time.Minute

// find returns the path of a Chromium.
func find(t *testing.T) string {
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

// A Browser is a running Chromium with one page. Its methods are for the goroutine of the test, and
// fail the test if the browser does not do what they ask for.
type Browser struct {
	t       *testing.T
	to      *os.File
	session string
	last    int
	answers chan message

	mu         sync.Mutex // guards the rest, which the reader of the pipe writes
	complaints []string   // errors on the console, exceptions, and violations of the policy
	requests   []string   // addresses
	forgiven   []string   // regular expressions for complaints
}

type message struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Start starts a browser, which ends with the test. If there is none, the test is skipped, or fails
// if TIMINGWHEEL_REQUIRE_BROWSER is set.
func Start(t *testing.T) *Browser {
	path := find(t)
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

	b := &Browser{t: t, to: to, answers: make(chan message, 1)}
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
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&session)
	b.session = session.SessionID
	for _, domain := range []string{"Runtime", "Log", "Network", "Page"} {
		b.Call(domain+".enable", nil, nil)
	}
	return b
}

// read receives the answers and events of the browser until it is gone. Each ends with a zero byte.
func (b *Browser) read(from *os.File) {
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

func (b *Browser) note(m message) {
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

func (b *Browser) send(method string, params any, session string) error {
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

// Call calls a method of the browser, and stores the result in to if that is not nil.
func (b *Browser) Call(method string, params, to any) {
	b.t.Helper()
	require.NoError(b.t, b.try(method, params, to), method)
}

func (b *Browser) try(method string, params, to any) error {
	b.t.Helper()
	require.NoError(b.t, b.send(method, params, b.session), method)
	timeout := time.After(Reply)
	for {
		select {
		case m, ok := <-b.answers:
			require.True(b.t, ok, "%s: the browser is gone", method)
			switch {
			case m.ID != b.last:
				continue
			case m.Error != nil:
				return errors.New(m.Error.Message)
			case to != nil:
				return json.Unmarshal(m.Result, to)
			}
			return nil
		case <-timeout:
			require.Fail(b.t, method+": no answer")
		}
	}
}

// Eval evaluates an expression on the page, waits for its value if it is a promise, and stores the
// value in to if that is not nil.
func (b *Browser) Eval(expression string, to any) {
	b.t.Helper()
	require.NoError(b.t, b.tryEval(expression, to), expression)
}

func (b *Browser) tryEval(expression string, to any) error {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	err := b.try("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}, &result)
	switch {
	case err != nil:
		return err
	case result.ExceptionDetails != nil:
		return fmt.Errorf("exception: %s", result.ExceptionDetails)
	case to != nil:
		return json.Unmarshal(result.Result.Value, to)
	}
	return nil
}

// Until waits for an expression to be true. One that throws is not true yet: what it looks at may
// come with the next renewal, or with the page that a click has opened.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(Reply); ; time.Sleep(50 * time.Millisecond) {
		var yes bool
		err := b.tryEval("!!("+expression+")", &yes)
		if yes {
			return
		}
		require.True(b.t, time.Now().Before(end), "never true: %s: %v", expression, err)
	}
}

// Look sets the size of the window, in pixels, and light or dark.
func (b *Browser) Look(width, height int, scheme string) {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
	b.Call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// Open loads an address, and returns when the document is complete.
func (b *Browser) Open(address string) {
	b.t.Helper()
	var result struct{ ErrorText string }
	b.Call("Page.navigate", map[string]any{"url": address}, &result)
	require.Empty(b.t, result.ErrorText, address)
	b.Until(fmt.Sprintf("document.readyState === 'complete' && location.href === %q", address))
}

// Follow opens the address of a link on the page.
func (b *Browser) Follow(selector string) {
	b.t.Helper()
	var address string
	b.Eval(fmt.Sprintf("document.querySelector(%q).href", selector), &address)
	b.Open(address)
}

// Shoot writes a picture of the page's top, or of all of it.
func (b *Browser) Shoot(file string, whole bool) {
	b.t.Helper()
	var picture struct{ Data string }
	b.Call("Page.captureScreenshot",
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
