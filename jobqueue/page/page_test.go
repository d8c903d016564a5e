package page

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
	"github.com/go-timingwheel/timingwheel/jobqueue/store"
	"github.com/go-timingwheel/timingwheel/jobqueue/store/memory"
)

var quiet = slog.New(slog.DiscardHandler)

// some returns a Client with a few jobs.
func some(t *testing.T) *jobqueue.Client {
	c := jobqueue.NewMemory(jobqueue.WithLogger(quiet))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for _, key := range []string{"a", "b", "c"} {
		_, err := c.Add(t.Context(), "orders/expire", []byte("body of "+key), jobqueue.Key(key),
			jobqueue.In(time.Hour))
		require.NoError(t, err)
	}
	_, err := c.Add(t.Context(), "mail", []byte("\xff\x00 secret"), jobqueue.MaxAttempts(1))
	require.NoError(t, err)
	got, err := c.Reserve(t.Context(), "mail", 1, time.Minute)
	require.NoError(t, err)
	require.NoError(t, got[0].Nack(t.Context(), errors.New("no such address")))
	return c
}

// ask returns the answer of h to a request, and its body. Pairs of names and values are headers.
func ask(h http.Handler, method, target, body string, headers ...string) (*http.Response, string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	res := w.Result()
	answer, _ := io.ReadAll(res.Body)
	return res, string(answer)
}

func TestAnswers(t *testing.T) {
	c := some(t)
	h := Handler(c)
	job, err := c.Get(t.Context(), "orders/expire", jobqueue.ByKey("a"))
	require.NoError(t, err)
	const isHTML, isJSON = "text/html; charset=utf-8", "application/json"
	for _, c := range []struct {
		method, target string
		status         int
		kind           string
	}{
		{"GET", "/jobs/", 200, isHTML},
		{"GET", "/jobs", 200, isHTML},
		{"HEAD", "/jobs/", 200, isHTML},
		{"GET", "/?format=html", 200, isHTML},
		{"GET", "/?queue=orders%2Fexpire", 200, isHTML},
		{"GET", "/?queue=orders%2Fexpire&state=delayed", 200, isHTML},
		{"GET", "/?queue=orders%2Fexpire&state=delayed&limit=1", 200, isHTML},
		{"GET", "/?queue=orders%2Fexpire&key=a", 200, isHTML},
		{"GET", "/?queue=orders%2Fexpire&id=" + job.ID.String(), 200, isHTML},
		{"GET", "/?queue=orders", 404, isHTML},
		{"GET", "/?queue=orders%2Fexpire&key=z", 404, isHTML},
		{"GET", "/?queue=orders%2Fexpire&id=17", 400, isHTML},
		{"GET", "/?queue=orders%2Fexpire&state=lost", 400, isHTML},
		{"GET", "/?format=json", 200, isJSON},
		{"HEAD", "/?format=json", 200, isJSON},
		{"GET", "/?format=json&queue=mail", 200, isJSON},
		{"GET", "/?format=json&queue=mail&state=dead", 200, isJSON},
		{"GET", "/?format=json&queue=mail&state=dead&limit=1000", 200, isJSON},
		{"GET", "/?format=json&show=due", 200, isJSON},
		{"GET", "/?format=json&show=due&queue=mail", 200, isJSON},
		{"GET", "/?format=json&queue=orders%2Fexpire&key=a", 200, isJSON},
		{"GET", "/?format=json&queue=nothing", 404, isJSON},
		{"GET", "/?format=json&queue=nothing&show=due", 404, isJSON},
		{"GET", "/?format=json&queue=mail&key=a", 404, isJSON},
		{"GET", "/?format=json&queue=mail&id=x", 400, isJSON},
		{"GET", "/?format=json&queue=mail&state=lost", 400, isJSON},
		{"GET", "/?format=json&queue=mail&state=dead&limit=0", 400, isJSON},
		{"GET", "/?format=json&queue=mail&state=dead&limit=1001", 400, isJSON},
		{"GET", "/?format=json&show=everything", 400, isJSON},
		{"GET", "/?format=xml", 400, isJSON},
		{"PUT", "/", 405, isJSON},
		{"DELETE", "/?queue=mail", 405, isJSON},
		{"OPTIONS", "/", 405, isJSON},
	} {
		t.Run(c.method+" "+c.target, func(t *testing.T) {
			res, body := ask(h, c.method, c.target, "")
			require.Equal(t, c.status, res.StatusCode, body)
			require.Equal(t, c.kind, res.Header.Get("Content-Type"))
			require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
			require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
			require.Equal(t, "same-origin", res.Header.Get("Cross-Origin-Resource-Policy"))
			if c.kind == isJSON {
				require.True(t, json.Valid([]byte(body)), body)
			}
			if c.status == 405 {
				require.Equal(t, "GET, HEAD, POST", res.Header.Get("Allow"))
			}
		})
	}
}

// TestChanges: every change, as a request, and what refuses it.
func TestChanges(t *testing.T) {
	c := some(t)
	h := Handler(c)
	dead, _, err := c.List(t.Context(), "mail", jobqueue.Dead, "", 1)
	require.NoError(t, err)
	id := dead[0].ID.String()
	for _, c := range []struct {
		request, want string
		status        int
	}{
		{`{"do":"add","queue":"letters","body":"hi","in":"3d","key":"k"}`, `"id":"`, 200},
		{`{"do":"add","queue":"letters","key":"k","on_conflict":"fail"}`, `"code":"key_exists"`,
			409},
		{`{"do":"add","queue":"letters","body_base64":"/wA=","at":"2100-01-01T00:00:00Z"}`, `"n":1`,
			200},
		{`{"do":"add","queue":"letters","body_base64":"/wA=","body":"x"}`, `one body`, 400},
		{`{"do":"add","queue":"letters","at":"2100-01-01T00:00:00Z","in":"1s"}`, `one time`, 400},
		{`{"do":"add","queue":"letters","every":"1h","times":2,"until":"2100-01-01T00:00:00Z"}`,
			`"n":1`, 200},
		{`{"do":"add","queue":"letters","priority":-1,"max_attempts":3,"retain":"1h"}`,
			`"n":1`, 200},
		{`{"do":"add","queue":"letters","every":"soon"}`, `not a duration`, 400},
		{`{"do":"add","queue":"letters","cron":"* *"}`, `"code":"bad_schedule"`, 400},
		{`{"do":"add","queue":"letters","cron":"* * * * *","zone":"Mars"}`, `"code":"bad_zone"`,
			400},
		{`{"do":"add","queue":"letters","scheduler":"none"}`, `"code":"bad_schedule"`, 400},
		{`{"do":"add","queue":""}`, `"code":"bad_name"`, 400},
		{`{"do":"reschedule","queue":"letters","key":"k","in":"0s"}`, `"n":1`, 200},
		{`{"do":"reschedule","queue":"letters","key":"k","at":"2100-01-01T00:00:00Z"}`, `"n":1`,
			200},
		{`{"do":"reschedule","queue":"letters","key":"k"}`, `needs a time`, 400},
		{`{"do":"reschedule","queue":"letters","in":"1s"}`, `needs the id or the key`, 400},
		{`{"do":"cancel","queue":"letters","key":"k"}`, `"n":1`, 200},
		{`{"do":"cancel","queue":"letters","key":"k"}`, `"code":"not_found"`, 404},
		{`{"do":"cancel","queue":"letters","key":"k","id":"` + id + `"}`, `needs the id or the key`,
			400},
		{`{"do":"cancel","queue":"letters","id":"17"}`, `not the id of a job`, 400},
		{`{"do":"pause","queue":"mail"}`, `"n":1`, 200},
		{`{"do":"cancel","queue":"mail","id":"` + id + `","state":"done"}`, `only dead`, 400},
		{`{"do":"requeue","queue":"mail"}`, `needs an id, or all`, 400},
		{`{"do":"requeue","queue":"mail","id":"` + id + `"}`, `"id":"` + id + `"`, 200},
		{`{"do":"requeue","queue":"mail","id":"` + id + `"}`, `"code":"not_found"`, 404},
		{`{"do":"cancel","queue":"mail","id":"` + id + `","state":"dead"}`, `"code":"not_dead"`,
			409},
		{`{"do":"requeue","queue":"mail","all":true}`, `"n":0`, 200},
		{`{"do":"resume","queue":"mail"}`, `"n":1`, 200},
		{`{"do":"purge","queue":"mail","state":"ready"}`, `"n":1`, 200},
		{`{"do":"purge","queue":"mail","state":"leased"}`, `"code":"invalid"`, 400},
		{`{"do":"purge","queue":"mail"}`, `not a state`, 400},
		{`{"do":"backup","backup":"monday"}`, `"code":"no_backup"`, 501},
		{`{"do":"explode","queue":"mail"}`, `not something to do`, 400},
		{`{"do":"pause","queue":"mail","twice":true}`, `unknown field`, 400},
		{`{`, `unexpected EOF`, 400},
		{`[]`, `cannot unmarshal`, 400},
	} {
		res, body := ask(h, "POST", "/", c.request)
		require.Equal(t, c.status, res.StatusCode, "%s: %s", c.request, body)
		require.Contains(t, body, c.want, c.request)
	}
	res, _ := ask(h, "POST", "/", `{"do":"add","queue":"q","body":"`+strings.Repeat("x",
		2<<20)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
}

// TestCrossSite: no page of another site can have a browser change anything.
func TestCrossSite(t *testing.T) {
	c := some(t)
	h := Handler(c)
	const cancel = `{"do":"cancel","queue":"orders/expire","key":"a"}`
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
		{"Content-Type", "text/plain"}, // what a form can send
		{"Content-Type", "application/x-www-form-urlencoded"},
		{"Content-Type", "multipart/form-data; boundary=x"},
		{"Content-Type", "text/plain; application/json"},
		{"Content-Type", ""},
	} {
		res, body := ask(h, "POST", "http://jobs.example/", cancel, headers...)
		require.Contains(t, []int{http.StatusForbidden, http.StatusUnsupportedMediaType},
			res.StatusCode, "%v: %s", headers, body)
		_, err := c.Get(t.Context(), "orders/expire", jobqueue.ByKey("a"))
		require.NoError(t, err, "%v", headers)
	}
	for i, headers := range [][]string{
		{}, // a program
		{"Sec-Fetch-Site", "same-origin", "Origin", "http://jobs.example"},
		{"Origin", "http://jobs.example", "Content-Type", "application/json; charset=utf-8"},
	} {
		request := strings.Replace(cancel, `"a"`, `"`+string(rune('a'+i))+`"`, 1)
		res, body := ask(h, "POST", "http://jobs.example/", request, headers...)
		require.Equal(t, 200, res.StatusCode, "%v: %s", headers, body)
	}
}

// TestHosts: a name that points to the loopback interface does not reach a page that listens there,
// unless it is known.
func TestHosts(t *testing.T) {
	c := some(t)
	status := func(h http.Handler, local, host string) int {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		addr := &net.TCPAddr{IP: net.ParseIP(local), Port: 6060}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, host := range []string{"localhost", "localhost:6060", "LOCALHOST:1",
		"jobs.localhost:6060", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:6060"} {
		require.Equal(t, 200, status(Handler(c), "127.0.0.1", host), host)
		require.Equal(t, 200, status(Handler(c), "::1", host), host)
	}
	for _, host := range []string{"evil.example", "evil.example:6060", "localhost.evil.example", "",
		"10.0.0.1", "0.0.0.0", "[::]:1"} {
		require.Equal(t, 403, status(Handler(c), "127.0.0.1", host), host)
		require.Equal(t, 200, status(Handler(c), "10.0.0.7", host), host)
	}
	h := Handler(c, Hosts("jobs.example", "other.example"))
	require.Equal(t, 200, status(h, "127.0.0.1", "Jobs.example:443"))
	require.Equal(t, 200, status(h, "127.0.0.1", "other.example"))
	require.Equal(t, 403, status(h, "127.0.0.1", "evil.example"))
}

// TestReadOnly: nothing can be changed, and there is no button.
func TestReadOnly(t *testing.T) {
	c := some(t)
	h := Handler(c, ReadOnly(), Backups(t.TempDir()))
	for _, do := range []string{"add", "cancel", "reschedule", "requeue", "pause", "resume",
		"purge", "backup", "x"} {
		res, body := ask(h, "POST", "/",
			`{"do":"`+do+`","queue":"orders/expire","key":"a","in":"1s","state":"delayed"}`)
		require.Equal(t, http.StatusForbidden, res.StatusCode)
		require.Contains(t, body, `"code":"read_only"`)
	}
	for _, target := range []string{"/", "/?queue=orders%2Fexpire", "/?queue=mail&state=dead",
		"/?queue=orders%2Fexpire&key=a"} {
		_, body := ask(h, "GET", target, "")
		require.NotContains(t, body, `data-do=`, target)
		require.NotContains(t, body, "<dialog", target)
		_, body = ask(Handler(c), "GET", target, "")
		require.Contains(t, body, `data-do=`, target)
	}
	_, body := ask(h, "GET", "/?format=json", "")
	require.Contains(t, body, `"read_only":true`)
}

// TestHideBodies: no answer has anything of a body.
func TestHideBodies(t *testing.T) {
	c := some(t)
	for _, target := range []string{
		"/?", "/?queue=orders%2Fexpire", "/?queue=orders%2Fexpire&state=delayed",
		"/?queue=orders%2Fexpire&key=a",
		"/?queue=mail", "/?queue=mail&state=dead",
	} {
		for _, format := range []string{"", "&format=json"} {
			_, body := ask(Handler(c, HideBodies()), "GET", target+format, "")
			for _, secret := range []string{"body of", "secret", "ff00", "ff 00", "/wAg"} {
				require.NotContains(t, body, secret, target+format)
			}
		}
	}
	_, body := ask(Handler(c), "GET", "/?queue=orders%2Fexpire&key=a", "")
	require.Contains(t, body, "body of a")
}

// TestBackups: a request names a backup, and cannot choose the folder.
func TestBackups(t *testing.T) {
	c, err := jobqueue.Open(filepath.Join(t.TempDir(), "jobs.db"), jobqueue.WithLogger(quiet))
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Add(t.Context(), "q", []byte("x"), jobqueue.In(time.Hour))
	require.NoError(t, err)
	folder := t.TempDir()
	h := Handler(c, Backups(folder))
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, "/etc/x", ".hidden", "a\x00",
		"é", strings.Repeat("x", 101)} {
		data, err := json.Marshal(manage.Action{Do: manage.DoBackup, Backup: name})
		require.NoError(t, err)
		res, body := ask(h, "POST", "/", string(data))
		require.Equal(t, 400, res.StatusCode, "%q: %s", name, body)
	}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries)
	res, body := ask(h, "POST", "/", `{"do":"backup","backup":"monday-1.db"}`)
	require.Equal(t, 200, res.StatusCode, body)
	res, _ = ask(h, "POST", "/", `{"do":"backup","backup":"monday-1.db"}`)
	require.NotEqual(t, 200, res.StatusCode, "the name is taken")
	copied, err := jobqueue.Open(filepath.Join(folder, "monday-1.db"), jobqueue.WithLogger(quiet))
	require.NoError(t, err)
	stats, err := copied.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, stats.Queues[0].Delayed)
	require.NoError(t, copied.Close())
}

// TestMounted: the addresses in the page lead back to the handler, under a prefix or stripped of
// it, with a slash at the end or without.
func TestMounted(t *testing.T) {
	c := some(t)
	mux := http.NewServeMux()
	mux.Handle("/debug/jobs/", Handler(c))
	mux.Handle("/exact", Handler(c))
	mux.Handle("/stripped/", http.StripPrefix("/stripped", Handler(c)))
	address := regexp.MustCompile(`href="([^"]*)"`)
	for _, path := range []string{"/debug/jobs/", "/exact", "/stripped/"} {
		for _, query := range []string{"", "?queue=orders%2Fexpire",
			"?queue=orders%2Fexpire&state=delayed&limit=2", "?queue=mail"} {
			res, body := ask(mux, "GET", path+query, "")
			require.Equal(t, 200, res.StatusCode)
			seen := map[string]bool{}
			for _, m := range address.FindAllStringSubmatch(body, -1) {
				if m[1] == "data:," {
					continue
				}
				there, err := (&url.URL{Path: path}).Parse(html.UnescapeString(m[1]))
				require.NoError(t, err)
				require.Equal(t, path, there.Path)
				res, _ := ask(mux, "GET", there.String(), "")
				require.Equal(t, 200, res.StatusCode, there)
				seen[there.RawQuery] = true
			}
			require.Greater(t, len(seen), 2)
		}
	}
}

// TestSelfContained: the page loads nothing, and its policy allows only its own script and style.
func TestSelfContained(t *testing.T) {
	c := some(t)
	for _, target := range []string{"/", "/?queue=mail", "/?queue=orders%2Fexpire&key=a",
		"/?queue=nothing"} {
		res, body := ask(Handler(c), "GET", target, "")
		require.Less(t, len(body), 64<<10)
		require.NotRegexp(t, `(?i)\bhttps?:|\bwss?:|["'(=]\s*//`, body)
		require.NotRegexp(t, `(?i)<(iframe|object|embed|img|form|base)\b`, body)
		require.NotRegexp(t, `(?i)@import|url\([^#]|<[^>]*\s(src|style|on\w+)\s*=`, body)
		policy := res.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none';")
		require.NotContains(t, policy, "unsafe")
		for _, element := range []string{"script", "style"} {
			whole := regexp.MustCompile(`(?s)<` + element + `>(.*?)</` + element + `>`)
			parts := whole.FindAllStringSubmatch(body, -1)
			require.Len(t, parts, 1)
			sum := sha256.Sum256([]byte(parts[0][1]))
			require.Contains(t, policy,
				element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';")
		}
	}
}

// TestHostile: names, keys, bodies and errors of any kind are text on the page and come back
// unchanged in the JSON.
func TestHostile(t *testing.T) {
	plain := 0
	for _, text := range []string{
		"plain", `<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`,
		`' onfocus='alert(1)`,
		`</title></style></script></pre>`, `javascript:alert(1)`, `a&b=c&queue=d#e?f`,
		"{{ .Name }}", "héllo 時輪",
		"../../x", "%3Cb%3E",
	} {
		c := jobqueue.NewMemory(jobqueue.WithLogger(quiet))
		_, err := c.Add(t.Context(), text, []byte(text), jobqueue.Key(text),
			jobqueue.MaxAttempts(1))
		require.NoError(t, err)
		got, err := c.Reserve(t.Context(), text, 1, time.Minute)
		require.NoError(t, err)
		require.NoError(t, got[0].Bury(t.Context(), text))
		tags := 0
		q := url.QueryEscape(text)
		for _, target := range []string{"/", "/?queue=" + q, "/?state=dead&queue=" + q, "/?queue=" +
			q + "&id=" + got[0].ID.String()} {
			res, body := ask(Handler(c), "GET", target, "")
			require.Equal(t, 200, res.StatusCode)
			_, main, _ := strings.Cut(body, "<body>")
			tags = tags*1000 + len(regexp.MustCompile(`<[a-zA-Z/!]`).FindAllString(main, -1))
		}
		if text == "plain" {
			plain = tags
		}
		require.Equal(t, plain, tags, "%q adds to the page's markup", text)
		_, body := ask(Handler(c), "GET", "/?format=json&queue="+q+"&id="+got[0].ID.String(), "")
		var job manage.Job
		require.NoError(t, json.Unmarshal([]byte(body), &job))
		require.Equal(t, []string{text, text, text, text},
			[]string{job.Queue, job.Key, job.Body, job.LastError})
		require.NoError(t, c.Close())
	}
}

// counting counts what is read from a store.
type counting struct {
	store.Store
	queues, dues atomic.Int64
	slow         time.Duration
}

func (s *counting) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	s.queues.Add(1)
	return s.Store.Queues(ctx)
}

func (s *counting) Due(ctx context.Context, queue string, ends []time.Duration) ([]int, error) {
	s.dues.Add(1)
	time.Sleep(s.slow)
	return s.Store.Due(ctx, queue, ends)
}

// TestShared: requests share readings, so a store is read seldom however many people look, and the
// seldomer the longer it takes. A change is seen at once.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memory.New(), slow: 100 * time.Millisecond}
		c := jobqueue.New(s)
		defer c.Close()
		_, err := c.Add(t.Context(), "q", nil, jobqueue.In(time.Hour))
		require.NoError(t, err)
		h := Handler(c)
		for range 100 {
			res, _ := ask(h, "GET", "/?format=json&show=due", "")
			require.Equal(t, 200, res.StatusCode)
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, s.dues.Load(), int64(3), "at most a fiftieth of the time")
		s.queues.Store(0)
		for range 100 {
			ask(h, "GET", "/?format=json", "")
		}
		require.LessOrEqual(t, s.queues.Load(), int64(1))
		res, _ := ask(h, "POST", "/", `{"do":"pause","queue":"q"}`)
		require.Equal(t, 200, res.StatusCode)
		_, body := ask(h, "GET", "/?format=json", "")
		require.Contains(t, body, `"paused":true`)
	})
}

// TestRate: rates are those of the last ten seconds or so.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := jobqueue.NewMemory()
		defer c.Close()
		h := Handler(c)
		rate := func() *manage.Rate {
			_, body := ask(h, "GET", "/?format=json&queue=q", "")
			var o manage.Overview
			require.NoError(t, json.Unmarshal([]byte(body), &o))
			return o.Queues[0].Rate
		}
		add := func() {
			_, err := c.Add(t.Context(), "q", nil, jobqueue.In(time.Hour))
			require.NoError(t, err)
		}
		add()
		require.Nil(t, rate(), "there is nothing before")
		for range 30 {
			for range 5 {
				add()
				time.Sleep(200 * time.Millisecond)
			}
			require.InDelta(t, 5, rate().Added, 0.01)
			require.LessOrEqual(t, rate().Over, 11*time.Second)
		}
		time.Sleep(10 * time.Second)
		require.Zero(t, rate().Added)
		time.Sleep(2 * time.Minute)
		require.Nil(t, rate(), "the reading before is too old")
	})
}

// TestDue: the counts of each span are those of its steps, and no job is counted twice or missing.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := jobqueue.NewMemory()
		defer c.Close()
		for _, in := range []time.Duration{
			0, time.Millisecond, time.Second, time.Second + 1, 59 * time.Second, time.Minute,
			61 * time.Second, time.Hour,
			time.Hour + time.Minute, 23 * time.Hour, 24 * time.Hour, 24*time.Hour +
				time.Millisecond, 1000 * time.Hour,
		} {
			_, err := c.Add(t.Context(), "q", nil, jobqueue.In(in))
			require.NoError(t, err)
		}
		_, body := ask(Handler(c), "GET", "/?format=json&show=due", "")
		var d manage.Due
		require.NoError(t, json.Unmarshal([]byte(body), &d))
		require.Equal(t, 1, d.Overdue)
		require.Equal(t, 2, d.Later)
		found := func(span int) map[int]int {
			counts := map[int]int{}
			for i, n := range d.Spans[span].Counts {
				if n > 0 {
					counts[i] = n
				}
			}
			return counts
		}
		require.Equal(t, map[int]int{0: 2, 1: 1, 58: 1, 59: 1}, found(0))
		require.Equal(t, map[int]int{0: 5, 1: 1, 59: 1}, found(1))
		require.Equal(t, map[int]int{0: 7, 1: 1, 22: 1, 23: 1}, found(2))
	})
}

// TestREADME: README.md has every field of the JSON and every code of an error.
func TestREADME(t *testing.T) {
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var fields func(typ reflect.Type)
	fields = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			fields(typ.Elem())
		case reflect.Struct:
			if typ.PkgPath() != reflect.TypeFor[manage.Job]().PkgPath() {
				return
			}
			for i := range typ.NumField() {
				name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				require.Contains(t, string(data), "`"+name+"`", "%v", typ)
				fields(typ.Field(i).Type)
			}
		}
	}
	for _, v := range []any{manage.Overview{}, manage.Due{}, manage.Jobs{}, manage.Action{},
		manage.Result{}, manage.Failure{}} {
		fields(reflect.TypeOf(v))
	}
	for _, do := range []string{
		manage.DoAdd, manage.DoCancel, manage.DoReschedule, manage.DoRequeue, manage.DoPause,
		manage.DoResume, manage.DoPurge, manage.DoBackup,
	} {
		require.Contains(t, string(data), "`"+do+"`")
	}
	for _, code := range manage.Codes() {
		require.Contains(t, string(data), "`"+code+"`")
	}
}

func TestHandlerOfNil(t *testing.T) {
	require.PanicsWithValue(t, "page: Handler of a nil Client", func() { Handler(nil) })
}
