package netidle

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds a server with HTTPLimits and its client for tests: on a pipe in a bubble, with
// and without TLS.

// httpLimits has a different limit for each phase, so that a test notices the wrong one.
var httpLimits = HTTPLimits{
	Header:   9 * second,
	Body:     20 * second,
	Response: 30 * second,
	Idle:     60 * second,
	Hijacked: Limits{ReadIdle: 100 * second},
	Lifetime: 10 * time.Hour,
}

// httpWorld is a server on a pipe, and the client's end.
type httpWorld struct {
	t        *testing.T
	start    time.Time
	client   net.Conn
	in       *bufio.Reader // from client
	handlers sync.WaitGroup

	pipe      *deafConn // under client
	scheme    string
	once      sync.Once       // for transport
	transport *http.Transport // of HTTP/2; made by ask2
	pings     time.Duration   // how often it sends them; 0 for never
}

// runHTTP runs client against a server in a bubble, and requires that the connection is closed for
// the given reason at the given time. If the reason is 0, only the client may close it.
func runHTTP(t *testing.T, useTLS bool, limits HTTPLimits, handler http.HandlerFunc,
	client func(w *httpWorld), why Reason, at time.Duration, protos ...string) {
	t.Helper()
	config := tlsConfig(t)
	synctest.Test(t, func(t *testing.T) {
		w := &httpWorld{t: t, start: time.Now(), scheme: "http"}
		tw := timingwheel.New()
		var s timeouts
		server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetHTTP2(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		server.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.handlers.Add(1)
			defer w.handlers.Done()
			handler(rw, r)
		})
		conn, peer := net.Pipe()
		served := make(chan error, 1)
		l := HTTPListener(server, newPipeListener(conn), tw, limits, s.hook(w.start))
		w.pipe = &deafConn{Conn: peer, closed: make(chan struct{})}
		w.client = w.pipe
		if useTLS {
			server.TLSConfig = config.Clone()
			go func() { served <- server.ServeTLS(l, "", "") }()
			w.client = tls.Client(w.pipe, &tls.Config{InsecureSkipVerify: true, NextProtos: protos})
			w.scheme = "https"
		} else {
			go func() { served <- server.Serve(l) }()
		}
		w.in = bufio.NewReader(w.client)
		client(w)
		if why != 0 {
			time.Sleep(at + second - time.Since(w.start))
		}
		synctest.Wait()
		whys, ats := s.list()
		if why == 0 {
			require.Empty(t, whys)
		} else {
			require.Equal(t, []Reason{why}, whys)
			require.Equal(t, []time.Duration{at}, ats)
		}
		w.pipe.Close()
		server.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		w.handlers.Wait()
		synctest.Wait()
		require.Zero(t, tw.Len())
		tw.Stop()
	})
}

func tlsConfig(t *testing.T) *tls.Config {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	return &tls.Config{Certificates: server.TLS.Certificates}
}

const (
	get        = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"
	post       = "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\n"
	postInBits = "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
)

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

func echoBody(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		w.Write(body)
	}
}

// works computes for an hour before it answers.
func works(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Hour)
	hello(w, r)
}

// say writes at the given time. It ignores errors, as the server may have closed the connection.
func (w *httpWorld) say(at time.Duration, what string) {
	time.Sleep(at - time.Since(w.start))
	w.client.Write([]byte(what))
}

// trickle writes one byte each step.
func (w *httpWorld) trickle(from, step time.Duration, what string) {
	for i := range len(what) {
		w.say(from+time.Duration(i)*step, what[i:i+1])
	}
}

// answer reads a response and returns its body.
func (w *httpWorld) answer() string {
	w.t.Helper()
	response, err := http.ReadResponse(w.in, nil)
	require.NoError(w.t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return string(body)
}

// ask2 sends a request with the body by HTTP/2 and returns the body of the response. If the
// connection is closed, it returns "".
func (w *httpWorld) ask2(body io.Reader) string {
	w.t.Helper()
	w.once.Do(func() {
		dial := func(context.Context, string, string) (net.Conn, error) { return w.client, nil }
		w.transport = &http.Transport{DialContext: dial, DialTLSContext: dial,
			Protocols: new(http.Protocols)}
		w.transport.Protocols.SetHTTP2(true)
		w.transport.Protocols.SetUnencryptedHTTP2(true)
		w.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: w.pings}
	})
	request, err := http.NewRequest("POST", w.scheme+"://example.com/", body)
	require.NoError(w.t, err)
	response, err := w.transport.RoundTrip(request)
	if err != nil {
		return ""
	}
	answer, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return ""
	}
	require.Equal(w.t, 2, response.ProtoMajor)
	return string(answer)
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener(c net.Conn) *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conns <- c
	return l
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// A deafConn stops reading once deaf is true. If split is true, its next Write sends the first byte
// by itself.
type deafConn struct {
	net.Conn
	split  bool
	deaf   atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (c *deafConn) Read(p []byte) (int, error) {
	if c.deaf.Load() {
		<-c.closed
	}
	return c.Conn.Read(p)
}

func (c *deafConn) Write(p []byte) (int, error) {
	if !c.split {
		return c.Conn.Write(p)
	}
	c.split = false
	n, err := c.Conn.Write(p[:1])
	if err == nil {
		n, err = c.Conn.Write(p[1:])
		n++
	}
	return n, err
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
