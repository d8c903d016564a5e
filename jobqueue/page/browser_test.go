//go:build unix

package page

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/internal/chromium"
	"github.com/go-timingwheel/timingwheel/jobqueue"
)

var (
	screenshots = flag.String("screenshots", "",
		"have TestBrowser write pictures of the page into this `folder`")
	settle = flag.Duration("settle", 0,
		"how long TestBrowser lets the queues run before it takes pictures")
)

// shop fills a Client with the queues of a shop and works on them until stop is called.
func shop(t *testing.T) (c *jobqueue.Client, stop func()) {
	c = jobqueue.NewMemory(jobqueue.WithLogger(quiet))
	ctx, cancel := context.WithCancel(context.Background())
	add := func(queue, body string, opts ...jobqueue.AddOption) {
		_, err := c.Add(ctx, queue, []byte(body), opts...)
		require.NoError(t, err)
	}
	for i := range 4000 {
		in := time.Duration(rand.ExpFloat64() * float64(25*time.Minute))
		add("orders/expire", fmt.Sprintf(`{"order":%d,"customer":"c-%03d"}`, 10_000+i, i%700),
			jobqueue.In(2*time.Second+in), jobqueue.Key(fmt.Sprintf("order-%d", 10_000+i)))
	}
	for i := range 900 {
		add("mail/letters", "Dear me,\n\nthis is what I thought today.",
			jobqueue.In(time.Hour+time.Duration(i)*5*time.Minute))
	}
	for i := range 4 {
		add("webhooks", fmt.Sprintf(`{"url":"https://shop%d.example/hook","event":"order.paid"}`,
			i), jobqueue.MaxAttempts(2))
	}
	add("reports", "", jobqueue.Cron("0 6 * * *", "Europe/Berlin"), jobqueue.Key("daily"))
	for i := range 3 {
		add("imports", fmt.Sprintf("batch %d of the price list", i))
	}
	add("images", "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR", jobqueue.In(3*time.Hour),
		jobqueue.Priority(-5))
	require.NoError(t, c.Limit(ctx, "orders/", jobqueue.Limits{Jobs: 100_000, Bytes: 50_000_000}))
	require.NoError(t, c.Pause(ctx, "images"))

	c.Handle("orders/expire", func(context.Context, *jobqueue.Job) error {
		time.Sleep(rand.N(8 * time.Millisecond))
		return nil
	})
	c.Handle("webhooks", func(_ context.Context, job *jobqueue.Job) error {
		return errors.New("POST https://shop.example/hook: 503 Service Unavailable")
	}, jobqueue.Backoff(time.Millisecond))
	closed := make(chan struct{})
	c.Handle("imports", func(ctx context.Context, _ *jobqueue.Job) error {
		select {
		case <-ctx.Done(): // cancelled
		case <-closed:
		}
		return nil
	}, jobqueue.Workers(2))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return c, func() {
		cancel()
		close(closed)
		require.NoError(t, <-ended)
		require.NoError(t, c.Close())
	}
}

// TestBrowser loads the page in a real browser: light and dark, wide and narrow, without scripts,
// paused and hidden. It renews itself, nothing overflows, every text has enough contrast, the
// buttons do what they say after a question, and the browser reports no error.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes seconds to start")
	}
	b := chromium.Start(t)
	c, stop := shop(t)
	defer stop()
	var polls atomic.Int64
	var down atomic.Bool
	handler := Handler(c)
	mux := http.NewServeMux()
	mux.HandleFunc("/jobs/", func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler) // as if no one listened
		}
		polls.Add(1)
		handler.ServeHTTP(w, r)
	})
	mux.Handle("/reading/", Handler(c, ReadOnly(), HideBodies()))
	server := httptest.NewServer(mux)
	defer server.Close()
	address := server.URL + "/jobs/"
	readmes := map[string]string{
		"light-wide": "screenshot-light", "dark-wide": "screenshot-dark",
		"light-narrow": "screenshot-narrow",
	}
	picture := func(name string, whole bool) {
		if *screenshots != "" {
			b.Shoot(filepath.Join(*screenshots, cmp.Or(readmes[name], "look-"+name)+".png"), whole)
		}
	}
	looks := func(name string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{1400, 800, 360} {
				b.Look(width, 900, scheme)
				b.RequireFits(name)
				b.RequireReadable(name, 5)
				picture(fmt.Sprintf("%s-%s-%d", name, scheme, width), true)
			}
		}
	}

	time.Sleep(*settle)
	b.Open(address)
	b.Until(`document.querySelectorAll("[aria-labelledby=h-dead] tbody tr").length === 4`)
	b.Until("reads >= 2")
	for _, look := range []struct {
		name, scheme  string
		width, height int
	}{
		{"light-wide", "light", 1400, 1000},
		{"dark-wide", "dark", 1400, 1000},
		{"light-narrow", "light", 360, 1000},
	} {
		b.Look(look.width, look.height, look.scheme)
		picture(look.name, false)
	}
	looks("all")

	// A queue, lists and jobs.
	b.Forgive(404, "queue=nothing")
	binary, _, err := c.List(t.Context(), "images", jobqueue.Delayed, "", 1)
	require.NoError(t, err)
	for _, page := range []struct{ name, query string }{
		{"queue", "?queue=orders%2Fexpire"},
		{"dead", "?queue=webhooks"},
		{"list", "?queue=mail%2Fletters&state=delayed"},
		{"job", "?queue=reports&key=daily"},
		{"binary", "?queue=images&id=" + binary[0].ID.String()},
		{"nothing", "?queue=nothing"},
	} {
		b.Open(address + page.query)
		b.Until("reads >= 1")
		looks(page.name)
	}
	b.Look(1400, 900, "light")

	// Every change, through its dialog. Going back changes nothing.
	ctx := t.Context()
	press := func(do, more string) {
		t.Helper()
		b.Until(fmt.Sprintf(`document.querySelector("button[data-do=%s]%s")`, do, more))
		b.Eval(fmt.Sprintf(`document.querySelector("button[data-do=%s]%s").click()`, do, more), nil)
		b.Until("dialog.open")
	}
	confirm := func(said string) {
		t.Helper()
		b.Eval(`document.getElementById("ask-yes").click()`, nil)
		b.Until(fmt.Sprintf(`!dialog.open && complaint.textContent.includes(%q)`, said))
	}
	count := func(queue string, state jobqueue.State) (n int) {
		t.Helper()
		for _, err := range c.Jobs(ctx, queue, state) {
			require.NoError(t, err)
			n++
		}
		return n
	}
	b.Open(address + "?queue=webhooks")
	require.NoError(t, c.Pause(ctx, "webhooks")) // so that what is requeued stays
	press("requeue", "")
	b.RequireFits("dialog")
	b.RequireReadable("dialog", 5)
	picture("dialog-wide", false)
	b.Eval(`document.getElementById("ask-no").click()`, nil)
	b.Until("!dialog.open")
	require.Equal(t, 4, count("webhooks", jobqueue.Dead))
	rows := func(n int) {
		t.Helper()
		b.Until(fmt.Sprintf(
			`document.querySelectorAll("[aria-labelledby=h-dead] tbody tr").length === %d`, n))
	}
	press("requeue", "")
	confirm(": requeued")
	rows(3)
	require.Equal(t, 3, count("webhooks", jobqueue.Dead))
	press("remove", "")
	confirm(": removed")
	rows(2)
	require.Equal(t, 2, count("webhooks", jobqueue.Dead))

	// A row may be old. A job that was requeued since then stays.
	b.Forgive(409, "/jobs/")
	press("remove", "")
	gone, _, err := c.List(ctx, "webhooks", jobqueue.Dead, "", 1)
	require.NoError(t, err)
	require.NoError(t, c.Requeue(ctx, "webhooks", gone[0].ID))
	b.Eval(`document.getElementById("ask-yes").click()`, nil)
	b.Until(`document.getElementById("ask-problem").textContent.includes("not dead any more")`)
	b.Eval(`document.getElementById("ask-no").click()`, nil)
	b.Until("!dialog.open")
	require.Equal(t, 2, count("webhooks", jobqueue.Ready))
	rows(1)
	press("requeueall", "")
	confirm("1 job requeued")
	require.Equal(t, 3, count("webhooks", jobqueue.Ready))
	press("resume", "")
	confirm("webhooks: resumed")
	press("pause", "")
	confirm("webhooks: paused")
	b.Until(`document.querySelector(".badge[data-state=paused]")`)

	b.Open(address + "?queue=imports")
	press("cancel", "[data-running]")
	require.Equal(t, 2, count("imports", jobqueue.Leased))
	confirm("cancelled while it was being worked on")
	for end := time.Now().Add(chromium.Reply); count("imports",
		jobqueue.Ready) > 0; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "the next one does not begin")
	}

	daily := func() time.Duration {
		t.Helper()
		job, err := c.Get(ctx, "reports", jobqueue.ByKey("daily"))
		require.NoError(t, err)
		return time.Until(job.Due)
	}
	b.Open(address + "?queue=reports&key=daily")
	press("reschedule", "")
	b.Look(360, 800, "dark")
	b.RequireFits("reschedule")
	b.RequireReadable("reschedule", 5)
	picture("reschedule-narrow", false)
	b.Forgive(400, "/jobs/")
	b.Eval(`document.getElementById("ask-in").value = "soon"`, nil)
	b.Eval(`document.getElementById("ask-yes").click()`, nil)
	b.Until(`document.getElementById("ask-problem").textContent.includes("not a duration")`)
	b.Eval(`document.getElementById("ask-in").value = "3d"`, nil)
	confirm(": rescheduled")
	require.InDelta(t, 72*time.Hour, daily(), float64(2*time.Minute))
	press("reschedule", "")
	b.Eval(`(() => {
		const t = new Date(Date.now() + 3600e3 * 5), two = n => String(n).padStart(2, "0");
		document.getElementById("ask-at").value = `+"`${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}T${two(t.getHours())}:${two(t.getMinutes())}`"+`;
	})()`, nil)
	confirm(": rescheduled")
	require.InDelta(t, 5*time.Hour, daily(), float64(3*time.Minute))
	b.Forgive(404, "key=daily")
	press("cancel", "")
	confirm(": cancelled")
	b.Until(`document.querySelector(".problem").textContent.includes("not there any more")`)

	// While updates are paused or the page is hidden it does not ask. Afterwards it asks again.
	b.Look(1400, 900, "light")
	b.Open(address)
	b.Until("reads >= 1")
	const rest = 2500 * time.Millisecond // it asks every two seconds
	b.RequireRests(&polls, rest, "hold.click()", "hold.click()")
	b.RequireRests(&polls, rest,
		`Object.defineProperty(document, "hidden", { value: true, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`,
		`delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))`)

	// Renewing keeps the focus, and a row stays the row of its queue.
	b.Eval(`(() => {
		window.row = document.querySelector("tr[data-row='orders/expire']");
		row.querySelector("a").focus();
	})()`, nil)
	_, err = c.Add(ctx, "a-new-first-queue", nil, jobqueue.In(time.Hour))
	require.NoError(t, err)
	b.Until(`document.querySelector("tr[data-row='a-new-first-queue']")`)
	b.Until(`document.activeElement.textContent === "orders/expire" && document.contains(row)`)
	b.Open(address + "?queue=mail%2Fletters&state=delayed")
	b.Until("reads >= 1")
	b.Eval(`(() => {
		window.rows = [...document.querySelectorAll("tbody tr")];
		rows[2].querySelector("a").focus();
	})()`, nil)
	letters, _, err := c.List(ctx, "mail/letters", jobqueue.Delayed, "", 1)
	require.NoError(t, err)
	require.NoError(t, c.Cancel(ctx, "mail/letters", jobqueue.ByID(letters[0].ID)))
	b.Until(`!document.contains(rows[0])`)
	b.Until(`document.querySelector("tbody tr") === rows[1]`)
	b.Until(`document.activeElement.closest("tr") === rows[2]`)
	b.RequireQuiet(server.URL)

	// The server is gone for a while.
	down.Store(true)
	b.Until(`/^no answer for \d+ s: /.test(complaint.textContent)`)
	picture("gone", false)
	down.Store(false)
	b.Until(`complaint.textContent === "" && !document.documentElement.classList.contains("stale")`)

	// A hostile queue and key are texts. A page for reading has no buttons and no bodies.
	const hostile = "<b>'\"&?#%41"
	_, err = c.Add(ctx, hostile, []byte("secret"), jobqueue.Key("</code><script>alert(1)</script>"),
		jobqueue.In(time.Hour))
	require.NoError(t, err)
	b.Open(address)
	b.Until(fmt.Sprintf(`[...document.querySelectorAll("th a")].some(a => a.textContent === %q)`,
		hostile))
	b.Eval(fmt.Sprintf(`[...document.querySelectorAll("th a")]
		.find(a => a.textContent === %q).click()`, hostile), nil)
	b.Until(fmt.Sprintf(`document.querySelector("#h-queue") &&
		document.querySelector("#h-queue").textContent === %q`, hostile))
	press("cancel", "")
	confirm(": cancelled")
	b.Open(server.URL + "/reading/?queue=orders%2Fexpire")
	b.Until("reads >= 1")
	var buttons int
	b.Eval(`document.querySelectorAll("main button, dialog").length`, &buttons)
	require.Zero(t, buttons)
	looks("reading")

	// Without scripts the page has all that there is to read.
	b.Call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	for _, width := range []int{1400, 360} {
		b.Look(width, 1000, "light")
		b.Open(address)
		var text string
		b.Eval(`document.body.innerText`, &text)
		require.Contains(t, text, "Without scripts this page is for reading")
		require.Contains(t, text, "orders/expire")
		require.NotContains(t, text, "Pause")
		b.RequireFits("without scripts")
		b.RequireReadable("without scripts", 5)
		picture(fmt.Sprintf("no-script-%d", width), true)
	}
}
