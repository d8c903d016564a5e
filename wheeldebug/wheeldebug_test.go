package wheeldebug

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// get returns the answer of h to a GET request, and its body.
func get(h http.Handler, target string) (*http.Response, string) {
	return ask(h, http.MethodGet, target)
}

func ask(h http.Handler, method, target string) (*http.Response, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	res := w.Result()
	body, _ := io.ReadAll(res.Body)
	return res, string(body)
}

// readings returns the wheels in a JSON answer. A field that reading lacks fails the test.
func readings(t *testing.T, h http.Handler, target string) []reading {
	res, body := get(h, target)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	var answer struct {
		Wheels []reading `json:"wheels"`
	}
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&answer))
	return answer.Wheels
}

func TestAnswers(t *testing.T) {
	tw, other := timingwheel.New(), timingwheel.New()
	var set, none Set
	set.Add("b", tw)
	set.Add("a", other)
	for _, c := range []struct {
		name, method, target string
		handler              http.Handler
		status               int
		contentType          string
	}{
		{"page", "GET", "/debug/wheel/", &set, 200, "text/html; charset=utf-8"},
		{"page without a slash", "GET", "/debug/wheel", &set, 200, "text/html; charset=utf-8"},
		{"page by name", "GET", "/?wheel=b", &set, 200, "text/html; charset=utf-8"},
		{"page asked for as such", "GET", "/?format=html", &set, 200, "text/html; charset=utf-8"},
		{"page of a handler", "GET", "/", Handler(tw), 200, "text/html; charset=utf-8"},
		{"page of an empty set", "GET", "/", &none, 200, "text/html; charset=utf-8"},
		{"head", "HEAD", "/", &set, 200, "text/html; charset=utf-8"},
		{"json", "GET", "/debug/wheel/?format=json", &set, 200, "application/json"},
		{"json by name", "GET", "/?wheel=b&format=json", &set, 200, "application/json"},
		{"head of json", "HEAD", "/?format=json", &set, 200, "application/json"},
		{"unknown wheel", "GET", "/?wheel=c", &set, 404, "text/plain; charset=utf-8"},
		{"unknown wheel in json", "GET", "/?wheel=c&format=json", &set, 404,
			"text/plain; charset=utf-8"},
		{"unknown wheel of an empty set", "GET", "/?wheel=c", &none, 404,
			"text/plain; charset=utf-8"},
		{"unknown format", "GET", "/?format=xml", &set, 400, "text/plain; charset=utf-8"},
		{"post", "POST", "/", &set, 405, "text/plain; charset=utf-8"},
		{"delete", "DELETE", "/?wheel=b", &set, 405, "text/plain; charset=utf-8"},
		{"options", "OPTIONS", "/", &set, 405, "text/plain; charset=utf-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, _ := ask(c.handler, c.method, c.target)
			require.Equal(t, c.status, res.StatusCode)
			require.Equal(t, c.contentType, res.Header.Get("Content-Type"))
			require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
			require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
			if c.status == 405 {
				require.Equal(t, "GET, HEAD", res.Header.Get("Allow"))
			}
		})
	}
}

// TestMounted: the addresses in the page lead back to the handler, under a prefix or stripped of
// it, with a slash at the end or without.
func TestMounted(t *testing.T) {
	var set Set
	set.Add("one", timingwheel.New())
	set.Add("two", timingwheel.New())
	mux := http.NewServeMux()
	mux.Handle("/debug/wheel/", &set)
	mux.Handle("/exact", &set)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", &set))
	address := regexp.MustCompile(`href="([^"]*)"`)
	for _, page := range []string{"/debug/wheel/", "/exact", "/stripped/",
		"/debug/wheel/?wheel=one"} {
		path, query, _ := strings.Cut(page, "?")
		res, body := get(mux, page)
		require.Equal(t, 200, res.StatusCode, path)
		var seen []string
		for _, m := range address.FindAllStringSubmatch(body, -1) {
			if m[1] == "data:," || m[1] == "" { // the icon, and the row that the script copies
				continue
			}
			base := &url.URL{Path: path}
			there, err := base.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			require.NoError(t, err)
			require.Equal(t, path, there.Path)
			res, _ := get(mux, there.String())
			require.Equal(t, 200, res.StatusCode, there)
			seen = append(seen, there.RawQuery)
		}
		if query == "" {
			require.Equal(t, []string{"", "wheel=one", "wheel=two", "format=json", "wheel=one",
				"wheel=two"}, seen)
		} else {
			require.Equal(t, []string{"", "wheel=one", "wheel=two", "format=json&wheel=one"}, seen)
		}
	}
	res, _ := get(mux, "/debug/wheel")
	require.Equal(t, "/debug/wheel/", res.Header.Get("Location"), "the mux adds the slash")
}

// TestSelfContained: the page loads nothing, and its policy allows only its own script and style.
func TestSelfContained(t *testing.T) {
	res, body := get(Handler(timingwheel.New()), "/")
	require.Less(t, len(body), 64<<10)

	const namespace = "http://www.w3.org/2000/svg" // a name, not an address
	require.NotRegexp(t, `(?i)\bhttps?:|\bwss?:|["'(=]\s*//`,
		strings.ReplaceAll(body, namespace, ""))
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
		hash := base64.StdEncoding.EncodeToString(sum[:])
		require.Contains(t, policy, element+"-src 'sha256-"+hash+"';")
	}
}

// TestHostileNames: any name of a wheel is text on the page, leads to the wheel, and comes back
// unchanged in the JSON.
func TestHostileNames(t *testing.T) {
	plain := 0
	for _, name := range []string{
		"plain", `<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`,
		`' onfocus='alert(1)`, `</title></style></script>`, `javascript:alert(1)`,
		`a&b=c&wheel=d#e?f`, "{{ .Name }}", "\u2028`${1}`", "héllo 時輪", "a\x00b", "../../x",
		"%3Cb%3E", "\xff\xfe",
	} {
		var set Set
		set.Add(name, timingwheel.New())
		set.Add("zz", timingwheel.New())
		_, body := get(&set, "/?wheel="+url.QueryEscape(name))
		tags := len(regexp.MustCompile(`<[a-zA-Z/!]`).FindAllString(body, -1))
		quotes := strings.Count(body, `"`) + strings.Count(body, `'`)
		if name == "plain" {
			plain = tags*10_000 + quotes
		}
		require.Equal(t, plain, tags*10_000+quotes, "%q adds to the page's markup", name)

		link := regexp.MustCompile(`href="(\?wheel=[^"]*)" aria-current`).FindStringSubmatch(body)
		require.NotNil(t, link, "%q", name)
		res, _ := get(&set, "/"+strings.ReplaceAll(link[1], "&amp;", "&"))
		require.Equal(t, 200, res.StatusCode, "%q: %s", name, link[1])

		got := readings(t, &set, "/?format=json&wheel="+url.QueryEscape(name))
		require.Len(t, got, 1)
		require.Equal(t, strings.ToValidUTF8(name, "\ufffd"),
			strings.ReplaceAll(got[0].Name, "\ufffd\ufffd", "\ufffd"))
	}
}

func TestSet(t *testing.T) {
	names := func(s *Set) (names []string) {
		for _, r := range readings(t, s, "/?format=json") {
			names = append(names, r.Name)
		}
		return names
	}
	var set Set
	_, body := get(&set, "/?format=json")
	require.JSONEq(t, `{"wheels":[]}`, body)
	_, body = get(&set, "/")
	require.Contains(t, body, "There is no wheel here yet.")
	require.NotContains(t, body, "<script")

	set.Add("b", timingwheel.New())
	set.Add("a", timingwheel.New())
	set.Add("c", timingwheel.New())
	require.Equal(t, []string{"a", "b", "c"}, names(&set))
	_, body = get(&set, "/")
	require.Contains(t, body, `data-wheel=""`, "all of them")
	for _, name := range []string{"a", "b", "c"} {
		require.Contains(t, body, `data-f="wheel" href="?wheel=`+name+`">`+name+"<")
	}
	_, body = get(&set, "/?wheel=c")
	require.Contains(t, body, `data-wheel="c"`)

	set.Remove("a")
	set.Remove("unknown")
	require.Equal(t, []string{"b", "c"}, names(&set))
	res, _ := get(&set, "/?wheel=a")
	require.Equal(t, 404, res.StatusCode)
	set.Add("a", timingwheel.New())
	require.Equal(t, []string{"a", "b", "c"}, names(&set))
}

func TestMisuse(t *testing.T) {
	tw := timingwheel.New()
	var set Set
	set.Add("taken", tw)
	for _, c := range []struct {
		name, message string
		call          func()
	}{
		{"handler of nil", "wheeldebug: Handler with a nil TimingWheel", func() { Handler(nil) }},
		{"add of nil", "wheeldebug: Add of a nil TimingWheel", func() { set.Add("x", nil) }},
		{"no name", "wheeldebug: Add with an empty name", func() { set.Add("", tw) }},
		{"twice", `wheeldebug: Add of a second wheel as "taken"`, func() { set.Add("taken", tw) }},
		{"not made", "timingwheel: Len on a TimingWheel that New did not make",
			func() { Handler(new(timingwheel.TimingWheel)) }},
	} {
		t.Run(c.name, func(t *testing.T) { require.PanicsWithValue(t, c.message, c.call) })
	}
	require.Len(t, readings(t, &set, "/?format=json"), 1, "nothing was added, and the lock is free")
}

// TestNoGoroutine: neither a handler nor a request starts a goroutine or wakes an idle wheel. A
// bubble fails if a goroutine stays behind.
func TestNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := timingwheel.New()
		h := Handler(tw)
		for range 10 {
			get(h, "/")
			get(h, "/?format=json")
			time.Sleep(time.Second)
		}
		require.Zero(t, tw.Stats().Wakeups)
	})
}

// TestWhileBusy reads, adds and removes wheels while one is at work, for the race detector.
// Counters agree with each other and never go back.
func TestWhileBusy(t *testing.T) {
	tw := timingwheel.New(timingwheel.WithWheelSize(8))
	var set Set
	set.Add("busy", tw)
	done := make(chan struct{})
	var workers sync.WaitGroup
	workers.Go(func() {
		defer close(done)
		for i := range 30_000 {
			x := tw.AfterFunc(time.Duration(i%3000)*time.Microsecond, func() {})
			if i%3 == 0 {
				x.Stop()
			}
			if i%1000 == 0 {
				time.Sleep(5 * time.Millisecond) // so that there are several readings
			}
		}
	})
	workers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				set.Add("other", timingwheel.New())
				get(&set, "/?wheel=other")
				set.Remove("other")
			}
		}
	})
	for range 3 {
		workers.Go(func() {
			var last reading
			for looking := true; looking; {
				select {
				case <-done:
					looking = false
				default:
				}
				res, _ := get(&set, "/?wheel=busy")
				if res.StatusCode != 200 {
					t.Error(res.Status)
				}
				_, body := get(&set, "/?wheel=busy&format=json")
				var answer struct{ Wheels []reading }
				if err := json.Unmarshal([]byte(body), &answer); err != nil ||
					len(answer.Wheels) != 1 {
					t.Error(err, body)
					return
				}
				r := answer.Wheels[0]
				if r.Pending != r.Started-r.Fired-r.Stopped-r.Dropped || r.Started < last.Started ||
					r.Fired < last.Fired || r.At < last.At {
					t.Errorf("%+v after %+v", r, last)
				}
				last = r
			}
		})
	}
	workers.Wait()
	require.NoError(t, tw.Shutdown(t.Context()))
}
