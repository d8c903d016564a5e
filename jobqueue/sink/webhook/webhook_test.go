package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestSignature has the example of the specification's own libraries.
func TestSignature(t *testing.T) {
	p, err := New(WithSecret(secret))
	require.NoError(t, err)
	const id, at, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	require.Equal(t, want, p.sign(id, at, []byte(body)))

	p, err = New(WithSecret("whsec_"+strings.Repeat("AAAA", 8)), WithSecret(secret))
	require.NoError(t, err)
	all := strings.Fields(p.sign(id, at, []byte(body)))
	require.Len(t, all, 2)
	require.Equal(t, want, all[1])
	require.NotEqual(t, want, all[0])
}

func TestSecretsThatAreRefused(t *testing.T) {
	for _, bad := range []string{"", "whsec_AAAA", "whsec_not base64!",
		"whsec_" + strings.Repeat("AAAA", 22)} {
		_, err := New(WithSecret(bad))
		require.ErrorContains(t, err, "webhook: the secret")
		require.NotContains(t, err.Error(), "not base64!")
	}
	require.Panics(t, func() { WithTimeout(-1) })
}

// An endpoint is a transport that gives answers in turn, and the last of them for ever.
type endpoint struct {
	answers []answer

	mu   sync.Mutex
	at   []time.Duration // of the attempts
	seen []*http.Request
	body string
}

type answer struct {
	code  int // 0 for none
	retry string
	err   error
}

var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble

func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a := e.answers[min(len(e.at), len(e.answers)-1)]
	e.at = append(e.at, time.Since(start))
	e.seen = append(e.seen, r)
	e.body = string(body)
	switch {
	case a.err != nil:
		return nil, a.err
	case a.code == 0:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	resp := &http.Response{StatusCode: a.code, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader("hello"))}
	if a.retry != "" {
		resp.Header.Set("Retry-After", a.retry)
	}
	if a.code/100 == 3 {
		resp.Header.Set("Location", "http://elsewhere/")
	}
	return resp, nil
}

// TestWhatAnAnswerMeans posts a job on the fake clock. Its attempts are a minute apart, three at
// most.
func TestWhatAnAnswerMeans(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for name, test := range map[string]struct {
		url     string
		answers []answer
		at      []time.Duration
		dead    string
	}{
		"200":      {answers: []answer{{code: 200}}, at: []time.Duration{0}},
		"204":      {answers: []answer{{code: 204}}, at: []time.Duration{0}},
		"500, 202": {answers: []answer{{code: 500}, {code: 202}}, at: []time.Duration{0, m}},
		"404": {answers: []answer{{code: 404}}, at: []time.Duration{0, m, 2 * m},
			dead: "webhook: the receiver answered 404 Not Found"},
		"redirects are not followed": {answers: []answer{{code: 307}},
			at:   []time.Duration{0, m, 2 * m},
			dead: "webhook: the receiver answered 307 Temporary Redirect"},
		"gone": {answers: []answer{{code: 500}, {code: 410}}, at: []time.Duration{0, m},
			dead: "webhook: the receiver answered 410 Gone"},
		"429 for ten seconds": {answers: []answer{{code: 429, retry: "10"}, {code: 200}},
			at: []time.Duration{0, 10 * s}},
		"503 until a date": {
			answers: []answer{{code: 503, retry: "Sat, 01 Jan 2000 05:00:00 GMT"}, {code: 200}},
			at:      []time.Duration{0, 5 * h}},
		"503 until a date in the past": {
			answers: []answer{{code: 503, retry: "Fri, 31 Dec 1999 05:00:00 GMT"}, {code: 200}},
			at:      []time.Duration{0, time.Millisecond}},
		"429 for ever": {answers: []answer{{code: 429, retry: "3600"}},
			at:   []time.Duration{0, h, 2 * h},
			dead: "webhook: the receiver answered 429 Too Many Requests: retry in 1h0m0s"},
		"503 for years": {
			answers: []answer{{code: 503, retry: "99999999"}, {code: 200}},
			at:      []time.Duration{0, 24 * h}},
		"503, whenever": {
			answers: []answer{{code: 503, retry: "soon"}, {code: 200}},
			at:      []time.Duration{0, m}},
		"503": {
			answers: []answer{{code: 503}, {code: 200}},
			at:      []time.Duration{0, m}},
		"500 does not wait": {
			answers: []answer{{code: 500, retry: "10"}, {code: 200}},
			at:      []time.Duration{0, m}},
		"no answer": {answers: []answer{{}}, at: []time.Duration{0, m + 5*s, 2*m + 10*s},
			dead: "webhook: no answer in time"},
		"no connection": {answers: []answer{{err: errors.New("connection refused")}},
			at: []time.Duration{0, m, 2 * m}, dead: "webhook: connection refused"},
		"no URL": {url: "http://user:secret@host:x", dead: `webhook: invalid port ":x" after host`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &endpoint{answers: test.answers}
				p, err := New(WithTransport(e), WithSecret(secret), WithTimeout(5*s),
					WithHeader("X-From", "shop"))
				require.NoError(t, err)
				q := jobqueue.NewMemory()
				url := "http://user:secret@host/"
				if test.url != "" {
					url = test.url
				}
				q.Handle("hooks", p.To(url), jobqueue.Backoff(m), jobqueue.Attempts(3))
				id, err := q.Add(t.Context(), "hooks", []byte("body"))
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 100*h)
				defer cancel()
				require.NoError(t, q.Run(ctx))
				require.Equal(t, test.at, e.at)
				job, err := q.Get(t.Context(), "hooks", jobqueue.ByID(id))
				if test.dead == "" {
					require.ErrorIs(t, err, jobqueue.ErrNotFound)
				} else {
					require.NoError(t, err)
					require.Equal(t, jobqueue.Dead, job.State)
					require.Equal(t, test.dead, job.LastError)
				}
				for i, r := range e.seen {
					at := start.Add(e.at[i])
					require.Equal(t, "body", e.body)
					require.Equal(t, http.MethodPost, r.Method)
					require.Equal(t, "application/json", r.Header.Get("Content-Type"))
					require.Equal(t, "shop", r.Header.Get("X-From"))
					require.Equal(t, id.String(), r.Header.Get(ID))
					stamp := r.Header.Get(Timestamp)
					require.Equal(t, p.sign(id.String(), stamp, []byte("body")),
						r.Header.Get(Signature))
					seconds, err := time.ParseDuration(stamp + "s")
					require.NoError(t, err)
					require.Equal(t, at.Unix(), int64(seconds.Seconds()))
				}
				require.NoError(t, q.Close())
			})
		})
	}
}

// TestOverTheNetwork uses the transport of net/http.
func TestOverTheNetwork(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.URL.Path+" "+string(body)+" "+r.Header.Get(Signature))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	p, err := New(WithTransport(transport))
	require.NoError(t, err)
	err = p.To(server.URL+"/hook")(t.Context(), &jobqueue.Job{Body: []byte("hi")})
	require.EqualError(t, err, "webhook: the receiver answered 302 Found")
	require.Equal(t, []string{"/hook hi "}, got)
}
