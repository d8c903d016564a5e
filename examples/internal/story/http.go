package story

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// endWithin is how long requests and callbacks under way get at the end of a program: a
// machine with better things to do has to come by in between.
const endWithin = 10 * time.Second

// maxBody is far more than a request of the examples takes.
const maxBody = 1 << 16

// Within calls end, such as a wheel's Shutdown, with a context that gives it time.
func Within(end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	return end(ctx)
}

// Serve answers requests at addr until ctx ends or, if addr is empty, at a free port of
// this machine while play plays the story. At the end it waits for requests under way; the
// contexts of those that would never end, such as streams, end before.
func (d *Diary) Serve(ctx context.Context, addr string, h http.Handler, play func(context.Context, *Client) error) error {
	ln, err := net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	srv := &http.Server{Handler: h, ReadHeaderTimeout: endWithin, BaseContext: func(net.Listener) context.Context { return requests }}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	url := "http://" + ln.Addr().String()
	d.Printf("a server listens at %s; a second here is %v seconds there", url, d.Scale)
	if addr == "" {
		c := NewClient(url)
		err = play(ctx, c)
		c.Close()
	} else {
		<-ctx.Done()
	}
	end()
	err = errors.Join(err, Within(srv.Shutdown))
	if cause := <-ended; !errors.Is(cause, http.ErrServerClosed) {
		err = errors.Join(err, cause)
	}
	return err
}

// Codes tells the status that an error is answered with: 400 if it is not among them.
type Codes map[error]int

// Handle makes a handler of f: In is what the request brings as JSON, its zero value if
// there is no body, and Out is what is answered.
func Handle[In, Out any](codes Codes, f func(r *http.Request, in In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in)
		var answer any
		if err == nil || err == io.EOF {
			answer, err = f(r, in)
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			code := http.StatusBadRequest
			for known, its := range codes {
				if errors.Is(err, known) {
					code = its
				}
			}
			answer = map[string]string{"error": err.Error()}
			w.WriteHeader(code)
		}
		json.NewEncoder(w).Encode(answer) // an error means that the client has gone
	}
}

// ID returns the number in the path, or 0, which nothing has, for what is none.
func ID(r *http.Request) int {
	id, _ := strconv.Atoi(r.PathValue("id"))
	return id
}

// A Refusal is an answer other than 200.
type Refusal struct {
	Code int
	Text string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d %s", r.Code, r.Text) }

// Refused reports whether err is a Refusal with one of the codes.
func Refused(err error, codes ...int) bool {
	var r *Refusal
	for _, code := range codes {
		if errors.As(err, &r) && r.Code == code {
			return true
		}
	}
	return false
}

// A Client talks to a service that speaks JSON. It keeps connections for the many
// customers of a story; Close, when no call is under way, ends them.
type Client struct {
	URL  string
	http http.Client
}

// NewClient has calls go to the service at url.
func NewClient(url string) *Client {
	return &Client{url, http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
}

// Close ends the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call sends in, unless it is nil, and reads the answer into out, unless that is nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	answer, err := c.do(ctx, method, path, &body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		out = new(any)
	}
	return json.NewDecoder(answer).Decode(out)
}

// Stream returns the answer to a GET while it comes in, until ctx ends.
func (c *Client) Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return nil, &Refusal{resp.StatusCode, strings.TrimSpace(string(text))}
	}
	return resp.Body, nil
}
