package oldstory

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
	"time"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/wheeldebug"
)

// endWithin is how long requests and callbacks get to finish at the end of a program.
const endWithin = 10 * time.Second

// maxBody is far more than a request of the examples takes.
const maxBody = 1 << 16

// Within calls end, such as a wheel's Shutdown, with a context that gives it time.
func Within(end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	return end(ctx)
}

// Listen starts an HTTP server. stop waits for requests in progress, and ends the contexts of
// those that would not finish by themselves, such as streams.
func Listen(addr string, h http.Handler) (url string, stop func() error, err error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	srv := &http.Server{Handler: h, ReadHeaderTimeout: endWithin,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() error {
		end()
		err := Within(srv.Shutdown)
		if cause := <-ended; !errors.Is(cause, http.ErrServerClosed) {
			err = errors.Join(err, cause)
		}
		return err
	}, nil
}

// Serve answers HTTP requests: at r.Addr until ctx ends, with a page that shows the wheel, or, if
// r.Addr is empty, at a free port of this machine while play plays the story.
func (r *Run) Serve(ctx context.Context, tw *timingwheel.TimingWheel, mux *http.ServeMux,
	play func(context.Context, *Client) error) error {
	mux.Handle("GET /debug/wheel/", wheeldebug.Handler(tw))
	url, stop, err := Listen(cmp.Or(r.Addr, "127.0.0.1:0"), mux)
	if err != nil {
		return err
	}
	r.Printf("a server listens at %s; a second here is %v seconds there", url, r.scale)
	if r.Addr == "" {
		c := &Client{URL: url, http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
		err = play(ctx, c)
		c.http.CloseIdleConnections()
	} else {
		r.Printf("%s/debug/wheel/ shows its wheel", url)
		<-ctx.Done()
	}
	return errors.Join(err, stop())
}

// Handle makes a handler of f: in is the request's JSON, or the zero value if there is no
// body, and the result is the answer. An error of f is answered with status 409.
func Handle[In, Out any](f func(r *http.Request, in In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		var answer any
		status := http.StatusBadRequest
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in)
		if err == nil || err == io.EOF {
			status = http.StatusConflict
			answer, err = f(r, in)
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			answer = map[string]string{"error": err.Error()}
			w.WriteHeader(status)
		}
		json.NewEncoder(w).Encode(answer) // an error means that the client has gone
	}
}

// ID returns the number in the path; 0, which no item has, if that is not a number.
func ID(r *http.Request) int {
	id, _ := strconv.Atoi(r.PathValue("id"))
	return id
}

// ErrRefused is in what Call returns if the handler, made by Handle, has returned an error.
var ErrRefused = errors.New("refused")

// A Client talks to the service of a story.
type Client struct {
	URL  string
	http http.Client
}

// Call sends in, unless it is nil, and reads the answer into out, unless that is nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	answer, err := c.Stream(ctx, method, path, &body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		out = new(any)
	}
	return json.NewDecoder(answer).Decode(out)
}

// Stream sends a request and returns the body of the answer while it comes in.
func (c *Client) Stream(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text)); resp.StatusCode == http.StatusConflict {
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil, err
}
