//go:build unix

package wheeldebug

import (
	"cmp"
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
	"github.com/go-timingwheel/timingwheel/internal/chromium"
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
	b := chromium.Start(t)
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
			panic(http.ErrAbortHandler) // as if the server were gone
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
			b.Shoot(filepath.Join(*screenshots, cmp.Or(readmes[name], "look-"+name)+".png"), whole)
		}
	}

	b.Open(address)
	b.Until("past.length >= 2")
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
		b.Look(c.width, c.height, c.scheme)
		requireMoves(t, b)
		b.RequireFits(c.name)
		b.RequireReadable(c.name, 50)
		picture(c.name, false)
		picture(c.name+"-whole", true)
	}

	// The same formats in Go and in the script.
	for ns, want := range formatted {
		var got string
		b.Eval(fmt.Sprintf("duration(%v)", ns), &got)
		require.Equal(t, want, got, "%v", ns)
	}

	// The page explains the slot under the pointer.
	b.Eval(`(() => {
		const box = rings[0].svg.getBoundingClientRect();
		rings[0].svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width * 0.5 + 1, clientY: box.top + box.height * 0.1 }));
	})()`, nil)
	b.Until(`/^slot [0-9]+, due in .* timers?$/.test(rings[0].about.textContent)`)

	// While paused or hidden it does not ask. Afterwards it asks again.
	const rest = 1500 * time.Millisecond // it asks each second
	b.RequireRests(&polls, rest, "pause.click()", "pause.click()")
	b.RequireRests(&polls, rest,
		`Object.defineProperty(document, "hidden", { value: true, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`,
		`delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))`)

	// An idle wheel, with a name that needs escaping.
	set.Remove("retries")
	set.Add(hostile, other)
	b.Look(1400, 1000, "light")
	b.Open(address + "&again")
	b.Follow(`nav a:nth-child(2)`)
	b.Until(fmt.Sprintf(shows, hostile))
	b.RequireFits("idle")
	b.Until(turn + ` === "–"`) // none before the first timer
	picture("idle-wide", false)

	// Stopped.
	other.Stop()
	b.Until(`document.querySelector(".badge").textContent === "stopped"`)
	picture("stopped-wide", false)

	// Two levels fill the row.
	few := timingwheel.New()
	defer few.Stop()
	set.Add("few", few)
	few.AfterFunc(time.Minute, func() {})
	b.Open(server.URL + "/debug/wheel/?wheel=few")
	b.Until("typeof past === 'object' && past.length >= 2")
	for _, width := range []int{1400, 800} {
		b.Look(width, 1000, "light")
		b.Until("rings.length === 2")
		var hole float64
		b.Eval(`document.getElementById("rings").getBoundingClientRect().right -
			rings[rings.length - 1].figure.getBoundingClientRect().right`, &hole)
		require.Less(t, hole, 2.0, "beside the last ring")
		b.RequireFits("few")
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
	b.Look(360, 800, "light")
	b.Open(server.URL + "/debug/wheel/")
	b.Until(`document.querySelectorAll("[data-each=wheels] tr").length === 4`)
	b.RequireFits("overview")
	b.RequireReadable("overview", 50)
	picture("overview-narrow", false)
	b.Look(1400, 600, "light")
	b.RequireFits("overview")
	b.Until(`document.querySelector("[data-each=wheels] .warn") !== null`)
	picture("overview-wide", false)
	b.Follow(`[data-each=wheels] a[href*=pneumono]`)
	b.Until(fmt.Sprintf(shows, long))
	b.Until(`document.querySelector("td[data-v=waiting]").classList.contains("warn")`)
	b.Until(`document.querySelector(".chart small.warn") !== null`)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{360, 1400} {
			b.Look(width, 800, scheme)
			b.RequireFits("long name")
			b.RequireReadable("long name", 50)
			picture(fmt.Sprintf("backlog-%s-%d", scheme, width), false)
		}
	}
	backlog.Stop()
	b.Until(`!document.querySelector("td[data-v=waiting]").classList.contains("warn")`)
	b.RequireQuiet(server.URL)

	// First the wheel is gone, then the server. When they come back, the page shows them again.
	b.Open(server.URL + "/debug/wheel/?wheel=few")
	b.Until("typeof past === 'object' && past.length >= 1")
	set.Remove("few")
	b.Until(`document.getElementById("status").textContent === "no numbers: this wheel is gone"`)
	set.Add("few", few)
	b.Until(`document.getElementById("state").dataset.state === "running" &&
		!document.documentElement.classList.contains("stale")`)
	var running, badge string
	const color = `getComputedStyle(document.getElementById("state")).color`
	b.Eval(color, &running)
	down.Store(true)
	b.Until(`document.getElementById("state").textContent === "no answer"`)
	b.Until(`/^no numbers for .*s: /.test(document.getElementById("status").textContent)`)
	b.Eval(color, &badge)
	require.NotEqual(t, running, badge)
	picture("gone-wide", false)
	down.Store(false)
	b.Until(`document.getElementById("state").textContent === "running" &&
		document.getElementById("status").textContent === ""`)
	set.Remove("few")
	set.Remove(long)

	// Without scripts the page has the numbers of one reading.
	b.Call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	for _, width := range []int{1400, 360} {
		b.Look(width, 1000, "light")
		b.Open(address)
		var rows int
		b.Eval(`document.querySelectorAll("main table tr").length`, &rows)
		require.Greater(t, rows, 40)
		var text string
		b.Eval(`document.body.innerText`, &text)
		require.Contains(t, text, "Without scripts this page shows one reading")
		require.NotContains(t, text, "Pause")
		b.RequireFits("without scripts")
		b.RequireReadable("without scripts", 50)
		picture(fmt.Sprintf("no-script-%d", width), true)
	}
}

// requireMoves fails unless counters, a chart and the hands change.
func requireMoves(t *testing.T, b *chromium.Browser) {
	t.Helper()
	const state = `({
		fired: document.querySelector("[data-v=fired]").textContent,
		started: document.querySelector("[data-v=started]").textContent,
		placed: document.querySelector("[data-k=placed]").textContent,
		line: document.querySelector("#charts .line").getAttribute("d"),
		slots: rings[0].few.getAttribute("d"),
	})`
	var before, after map[string]string
	b.Eval(state, &before)
	for end := time.Now().Add(chromium.Reply); ; time.Sleep(100 * time.Millisecond) {
		b.Eval(state, &after)
		moved := 0
		for key, value := range after {
			if value != "" && value != before[key] {
				moved++
			}
		}
		if moved == len(before) {
			break
		}
		require.True(t, time.Now().Before(end), "not all moved: %v, %v", before, after)
	}

	// A hand turns between two readings, too.
	var hands []string
	b.Eval(`new Promise(done => {
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
	require.Greater(t, len(distinct), 2, "%v", hands)
}
