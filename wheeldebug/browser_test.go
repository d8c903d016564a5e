//go:build unix

package wheeldebug

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

var (
	screenshots = flag.String("screenshots", "",
		"have TestBrowser write pictures of the page into this `folder`")
	settle = flag.Duration("settle", 0,
		"how long TestBrowser lets the charts fill before it takes pictures")
)

// busy uses a wheel as servers do, until stop is called: timeouts of seconds to hours, most of them
// stopped or extended, and some that fire.
func busy(tw *timingwheel.TimingWheel) (stop func()) {
	const conns = 20_000
	idle := make([]timingwheel.Timer, conns)
	for i := range idle {
		tw.Init(&idle[i], func() {})
		idle[i].Reset(30*time.Second + rand.N(60*time.Second))
	}
	for range 30_000 {
		tw.AfterFunc(time.Minute+rand.N(23*time.Hour), func() {})
	}
	for range 3000 {
		tw.AfterFunc(50*time.Hour, func() {}) // more in one slot than are counted
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		pulse := time.NewTicker(10 * time.Millisecond)
		defer pulse.Stop()
		for began := time.Now(); ; {
			select {
			case <-done:
				return
			case <-pulse.C:
			}
			load := 1.5 + math.Sin(time.Since(began).Seconds()/7)
			for range int(20 * load) {
				tw.AfterFunc(rand.N(400*time.Millisecond), func() {})
				tw.AfterFunc(rand.N(20*time.Second), func() {})
				tw.AfterFunc(5*time.Second, func() {}).Stop()
				idle[rand.N(conns)].Reset(time.Minute)
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// shows is true on the page of the wheel with that name, after two readings.
const shows = `document.readyState === "complete" && document.body.dataset.wheel === %q &&
	typeof past === "object" && past.length >= 2`

// turn is the text for the turn of the lowest level.
const turn = `document.querySelector("[data-each=levels] td:nth-child(3)").textContent`

// TestBrowser loads the page in a real browser: light and dark, wide and narrow, without scripts,
// paused and hidden. The numbers change, nothing overflows, every text has enough contrast, and the
// browser reports no error.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes seconds to start")
	}
	b := startBrowser(t)
	const hostile = "<b>'\"&?"
	tw, other := timingwheel.New(), timingwheel.New()
	defer func() {
		other.Stop()
		require.NoError(t, tw.Shutdown(t.Context()))
	}()
	defer busy(tw)()
	var set Set
	set.Add("sessions", tw)
	set.Add("retries", other)
	var polls atomic.Int64
	mux := http.NewServeMux()
	var down atomic.Bool
	mux.HandleFunc("/debug/wheel/", func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler) // as if no one listened
		}
		if r.FormValue("format") == "json" {
			polls.Add(1)
		}
		set.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	address := server.URL + "/debug/wheel/?wheel=sessions"
	readmes := map[string]string{
		"light-wide": "screenshot-light", "dark-wide": "screenshot-dark",
		"light-narrow": "screenshot-narrow",
	}
	picture := func(name string, whole bool) {
		if *screenshots != "" {
			b.shoot(filepath.Join(*screenshots, cmp.Or(readmes[name], "look-"+name)+".png"), whole)
		}
	}

	b.open(address)
	b.until("past.length >= 2")
	time.Sleep(*settle)
	for _, c := range []struct {
		name, scheme  string
		width, height int
	}{
		{"light-wide", "light", 1400, 1000},
		{"dark-wide", "dark", 1400, 1000},
		{"light-narrow", "light", 360, 800},
		{"dark-narrow", "dark", 360, 800},
		{"light-middle", "light", 800, 1000},
	} {
		b.look(c.width, c.height, c.scheme)
		b.requireMoves()
		b.requireFits(c.name)
		b.requireReadable(c.name)
		picture(c.name, false)
		picture(c.name+"-whole", true)
	}

	// The same formats in Go and in the script.
	for ns, want := range formatted {
		var got string
		b.eval(fmt.Sprintf("duration(%v)", ns), &got)
		require.Equal(t, want, got, "%v", ns)
	}

	// The page explains the slot under the pointer.
	b.eval(`(() => {
		const box = rings[0].svg.getBoundingClientRect();
		rings[0].svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width * 0.5 + 1, clientY: box.top + box.height * 0.1 }));
	})()`, nil)
	b.until(`/^slot [0-9]+, due in .* timers?$/.test(rings[0].about.textContent)`)

	// While paused or hidden it does not ask. Afterwards it asks again.
	b.requireRests(&polls, "pause.click()", "pause.click()")
	b.requireRests(&polls,
		`Object.defineProperty(document, "hidden", { value: true, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`,
		`delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))`)

	// An idle wheel, with a name that needs escaping.
	set.Remove("retries")
	set.Add(hostile, other)
	b.look(1400, 1000, "light")
	b.open(address + "&again")
	b.follow(`nav a:nth-child(2)`)
	b.until(fmt.Sprintf(shows, hostile))
	b.requireFits("idle")
	b.until(turn + ` === "–"`) // none before the first timer
	picture("idle-wide", false)

	// Stopped.
	other.Stop()
	b.until(`document.querySelector(".badge").textContent === "stopped"`)
	picture("stopped-wide", false)

	// Two levels fill the row.
	few := timingwheel.New()
	defer few.Stop()
	set.Add("few", few)
	few.AfterFunc(time.Minute, func() {})
	b.open(server.URL + "/debug/wheel/?wheel=few")
	b.until("typeof past === 'object' && past.length >= 2")
	for _, width := range []int{1400, 800} {
		b.look(width, 1000, "light")
		b.until("rings.length === 2")
		var hole float64
		b.eval(`document.getElementById("rings").getBoundingClientRect().right -
			rings[rings.length - 1].figure.getBoundingClientRect().right`, &hole)
		require.Less(t, hole, 2.0, "beside the last ring")
		b.requireFits("few")
		picture(fmt.Sprintf("few-%d", width), true)
	}

	// A backlog that grows is in red, and a long name fits.
	jobs := make(chan func(), 10_000)
	slow := timingwheel.New(timingwheel.WithExecutor(func(f func()) { jobs <- f }))
	defer func() {
		slow.Stop()
		for range slow.Stats().Waiting {
			(<-jobs)()
		}
	}()
	long := strings.Repeat("pneumonoultramicroscopicsilicovolcanoconiosis", 3)
	set.Add(long, slow)
	backlog := slow.ScheduleFunc(timingwheel.Every(200*time.Millisecond), func() {})
	b.look(360, 800, "light")
	b.open(server.URL + "/debug/wheel/")
	b.until(`document.querySelectorAll("[data-each=wheels] tr").length === 4`)
	b.requireFits("overview")
	b.requireReadable("overview")
	picture("overview-narrow", false)
	b.look(1400, 600, "light")
	b.requireFits("overview")
	b.until(`document.querySelector("[data-each=wheels] .warn") !== null`)
	picture("overview-wide", false)
	b.follow(`[data-each=wheels] a[href*=pneumono]`)
	b.until(fmt.Sprintf(shows, long))
	b.until(`document.querySelector("td[data-v=waiting]").classList.contains("warn")`)
	b.until(`document.querySelector(".chart small.warn") !== null`)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{360, 1400} {
			b.look(width, 800, scheme)
			b.requireFits("long name")
			b.requireReadable("long name")
			picture(fmt.Sprintf("backlog-%s-%d", scheme, width), false)
		}
	}
	backlog.Stop()
	b.until(`!document.querySelector("td[data-v=waiting]").classList.contains("warn")`)
	b.requireQuiet(server.URL)

	// First the wheel is gone, then the server. When they come back, the page shows them again.
	b.open(server.URL + "/debug/wheel/?wheel=few")
	b.until("typeof past === 'object' && past.length >= 1")
	set.Remove("few")
	b.until(`document.getElementById("status").textContent === "no numbers: this wheel is gone"`)
	set.Add("few", few)
	b.until(`document.getElementById("state").dataset.state === "running" &&
		!document.documentElement.classList.contains("stale")`)
	var running, badge string
	const color = `getComputedStyle(document.getElementById("state")).color`
	b.eval(color, &running)
	down.Store(true)
	b.until(`document.getElementById("state").textContent === "no answer"`)
	b.until(`/^no numbers for .*s: /.test(document.getElementById("status").textContent)`)
	b.eval(color, &badge)
	require.NotEqual(t, running, badge)
	picture("gone-wide", false)
	down.Store(false)
	b.until(`document.getElementById("state").textContent === "running" &&
		document.getElementById("status").textContent === ""`)
	set.Remove("few")
	set.Remove(long)

	// Without scripts the page has the numbers of one reading.
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	for _, width := range []int{1400, 360} {
		b.look(width, 1000, "light")
		b.open(address)
		var rows int
		b.eval(`document.querySelectorAll("main table tr").length`, &rows)
		require.Greater(t, rows, 40)
		var text string
		b.eval(`document.body.innerText`, &text)
		require.Contains(t, text, "Without scripts this page shows one reading")
		require.NotContains(t, text, "Pause")
		b.requireFits("without scripts")
		b.requireReadable("without scripts")
		picture(fmt.Sprintf("no-script-%d", width), true)
	}
}

// follow opens the address of a link on the page.
func (b *browser) follow(selector string) {
	b.t.Helper()
	var address string
	b.eval(fmt.Sprintf("document.querySelector(%q).href", selector), &address)
	b.open(address)
}

// requireMoves fails unless counters, a chart and the hands change.
func (b *browser) requireMoves() {
	b.t.Helper()
	const state = `({
		fired: document.querySelector("[data-v=fired]").textContent,
		started: document.querySelector("[data-v=started]").textContent,
		placed: document.querySelector("[data-k=placed]").textContent,
		line: document.querySelector("#charts .line").getAttribute("d"),
		slots: rings[0].few.getAttribute("d"),
	})`
	var before, after map[string]string
	b.eval(state, &before)
	for end := time.Now().Add(reply); ; time.Sleep(100 * time.Millisecond) {
		b.eval(state, &after)
		moved := 0
		for key, value := range after {
			if value != "" && value != before[key] {
				moved++
			}
		}
		if moved == len(before) {
			break
		}
		require.True(b.t, time.Now().Before(end), "not all moved: %v, %v", before, after)
	}

	// A hand turns between two readings, too.
	var hands []string
	b.eval(`new Promise(done => {
		const seen = [];
		const look = () => {
			seen.push(past.length + " " + rings[1].hand.getAttribute("transform"));
			if (seen.length < 20) requestAnimationFrame(look); else done(seen);
		};
		look();
	})`, &hands)
	distinct := map[string]bool{}
	for _, hand := range hands {
		distinct[hand] = true
	}
	require.Greater(b.t, len(distinct), 2, "%v", hands)
}

// requireRests fails if the page asks while it should rest, or does not ask afterwards.
func (b *browser) requireRests(polls *atomic.Int64, rest, goOn string) {
	b.t.Helper()
	b.eval(rest, nil)
	b.until("!asking")
	before := polls.Load()
	time.Sleep(1500 * time.Millisecond)
	require.Equal(b.t, before, polls.Load(), "asked after %s", rest)
	b.eval(goOn, nil)
	for end := time.Now().Add(reply); polls.Load() == before; time.Sleep(10 * time.Millisecond) {
		require.True(b.t, time.Now().Before(end), "did not go on")
	}
}

// requireFits fails if the page is wider than the window, or a text is cut off or wider than its
// container.
func (b *browser) requireFits(name string) {
	b.t.Helper()
	var wide []string
	b.eval(`(() => {
		const wide = [];
		if (document.documentElement.scrollWidth > innerWidth) wide.push("the page: " + document.documentElement.scrollWidth);
		for (const el of document.querySelectorAll("body *")) {
			if (el.closest("svg, noscript, template")) continue;
			const box = el.getBoundingClientRect();
			if (!box.width || el.parentElement.closest(".scroll")) continue;
			if (box.left < -0.5 || box.right > innerWidth + 0.5) wide.push(el.outerHTML.slice(0, 80) + " ends at " + box.right);
			if (!el.matches(".scroll, select, option") && el.scrollWidth > el.clientWidth + 1 && getComputedStyle(el).display !== "inline") wide.push(el.outerHTML.slice(0, 80) + " holds " + el.scrollWidth + " in " + el.clientWidth);
		}
		return wide;
	})()`, &wide)
	require.Empty(b.t, wide, name)
}

// requireReadable fails if the contrast of a text with its background is below 4.5, the minimum of
// WCAG (AA).
func (b *browser) requireReadable(name string) {
	b.t.Helper()
	var faint []string
	var seen json.Number
	b.eval(`(() => {
		const parse = s => { const n = s.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
		const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const ground = el => { for (; el; el = el.parentElement) { const c = parse(getComputedStyle(el).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
		const faint = []; let seen = 0;
		const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walker.nextNode()) {
			const el = walker.currentNode.parentElement;
			if (!walker.currentNode.textContent.trim() || !el.getClientRects().length || el.closest("noscript, script, template, option")) continue;
			const style = getComputedStyle(el);
			const a = light(parse(el.closest("svg") ? style.fill : style.color)), b = light(ground(el));
			const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			seen++;
			if (contrast < 4.5) faint.push(el.outerHTML.slice(0, 80) + ": " + contrast.toFixed(2));
		}
		window.textsSeen = seen;
		return faint;
	})()`, &faint)
	require.Empty(b.t, faint, name)
	b.eval("textsSeen", &seen)
	n, err := seen.Int64()
	require.NoError(b.t, err)
	require.Greater(b.t, n, int64(50))
}
