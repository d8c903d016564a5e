package netidle

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests the limits of an http.Server's connections, phase by phase: on pipes in a
// bubble, to the tick, with and without TLS.

// Each phase has a limit of its own, so that one that is mistaken for another shows.
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

// runHTTP plays the client against a server in a bubble, and requires that the connection
// is closed for the reason at the time; if the reason is 0, only by the client.
func runHTTP(t *testing.T, useTLS bool, limits HTTPLimits, handler http.HandlerFunc,
	client func(w *httpWorld), why Reason, at time.Duration, protos ...string) {
	t.Helper()
	config := tlsConfig(t)
	synctest.Test(t, func(t *testing.T) {
		w := &httpWorld{t: t, start: time.Now(), scheme: "http"}
		tw := timingwheel.New()
		var s struck
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

// say writes at a time, and does not care whether anyone is left to hear it.
func (w *httpWorld) say(at time.Duration, what string) {
	time.Sleep(at - time.Since(w.start))
	w.client.Write([]byte(what))
}

// trickle writes one byte per step.
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

func TestHTTPPhases(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		client  func(w *httpWorld)
		why     Reason
		at      time.Duration
		limits  *HTTPLimits // httpLimits if nil
		plain   bool        // not with TLS, which adds bytes
	}{
		{name: "silent", handler: hello, client: func(w *httpWorld) {}, why: Overdue, at: 9 * second},
		{name: "silent, without a limit for the header", limits: &HTTPLimits{Idle: 60 * second}, handler: hello,
			client: func(w *httpWorld) {}, why: Idle, at: 60 * second},
		{name: "a header that trickles", handler: hello, client: func(w *httpWorld) {
			w.trickle(0, second, get)
		}, why: Overdue, at: 9 * second},
		{name: "a header just in time", handler: hello, client: func(w *httpWorld) {
			w.trickle(0, 8*second/time.Duration(len(get)), get)
			require.Equal(w.t, "hello", w.answer())
		}},
		{name: "a later header that trickles", handler: hello, client: func(w *httpWorld) {
			w.say(0, get)
			require.Equal(w.t, "hello", w.answer())
			w.trickle(50*second, second, get)
		}, why: Overdue, at: 59 * second},
		{name: "idle", handler: hello, client: func(w *httpWorld) {
			for i := range time.Duration(3) {
				w.say(i*55*second, get)
				require.Equal(w.t, "hello", w.answer())
			}
		}, why: Idle, at: 110*second + 60*second},
		{name: "a later header, after a first that looks like HTTP/2", handler: hello,
			client: func(w *httpWorld) {
				w.say(0, strings.Replace(get, "GET", "PRI", 1))
				require.Equal(w.t, "hello", w.answer())
				w.trickle(50*second, second, get)
			}, why: Overdue, at: 59 * second},
		{name: "pipelined", handler: hello, client: func(w *httpWorld) {
			go w.say(0, get+get+get[:10])
			require.Equal(w.t, "hello", w.answer())
			require.Equal(w.t, "hello", w.answer())
		}, why: Idle, at: 60 * second},
		{name: "a body that stalls", handler: echoBody, client: func(w *httpWorld) {
			w.say(0, post+"abc")
			w.say(15*second, "de")
		}, why: ReadIdle, at: 35 * second},
		{name: "a body in chunks that stalls", handler: echoBody, client: func(w *httpWorld) {
			w.say(0, postInBits+"3\r\nabc\r\n")
			w.say(15*second, "3")
		}, why: ReadIdle, at: 35 * second},
		{name: "a body that stalls before its first byte", handler: echoBody,
			client: func(w *httpWorld) {
				w.say(5*second, post)
			}, why: ReadIdle, at: 25 * second},
		{name: "a body that is slow but moves", handler: echoBody, client: func(w *httpWorld) {
			w.say(0, post)
			w.trickle(19*second, 19*second, "0123456789")
			require.Equal(w.t, "0123456789", w.answer())
		}},
		{name: "a body that the handler comes back to",
			handler: func(w http.ResponseWriter, r *http.Request) {
				r.Body.Read(make([]byte, 3))
				time.Sleep(time.Hour)
				echoBody(w, r)
			}, client: func(w *httpWorld) {
				w.say(0, post+"abc")
			}, why: ReadIdle, at: time.Hour + 20*second},
		{name: "a body that no one reads", handler: func(http.ResponseWriter, *http.Request) {},
			client: func(w *httpWorld) {
				w.say(5*second, post+"abc")
			}, why: ReadIdle, at: 25 * second},
		{name: "a body that the server reads in Write",
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.Write(make([]byte, 1<<20))
			}, client: func(w *httpWorld) {
				w.say(5*second, post+"abc")
			}, why: ReadIdle, at: 25 * second},
		{name: "Expect: 100-continue", handler: echoBody, client: func(w *httpWorld) {
			w.say(0, strings.Replace(post, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
			response, err := http.ReadResponse(w.in, nil)
			require.NoError(w.t, err)
			require.Equal(w.t, 100, response.StatusCode)
			w.say(15*second, "abc")
		}, why: ReadIdle, at: 35 * second},
		{name: "OPTIONS *", handler: nil, client: func(w *httpWorld) {
			w.say(5*second, strings.Replace(post, "POST /", "OPTIONS *", 1))
		}, why: ReadIdle, at: 25 * second},
		{name: "works", handler: works, client: func(w *httpWorld) {
			w.say(0, get)
			require.Equal(w.t, "hello", w.answer())
		}, why: Idle, at: time.Hour + 60*second},
		{name: "works with a body unread", handler: works, client: func(w *httpWorld) {
			w.say(0, post+"abc")
			w.say(time.Hour+19*second, "defghij")
			require.Equal(w.t, "hello", w.answer())
		}},
		{name: "works after a body", handler: func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			works(w, r)
		}, client: func(w *httpWorld) {
			w.say(0, post+"0123456789")
			require.Equal(w.t, "hello", w.answer())
		}},
		{name: "works after an unread body", handler: func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush() // the server reads the body
			works(w, r)
		}, client: func(w *httpWorld) {
			go w.say(0, post+"0123456789")
			require.Equal(w.t, "hello", w.answer())
		}},
		{name: "a response that is not taken", handler: func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			w.Write(make([]byte, 1<<20))
		}, client: func(w *httpWorld) {
			w.say(0, get)
		}, why: WriteIdle, at: time.Hour + 30*second},
		{name: "a response whose end is not taken", handler: hello, client: func(w *httpWorld) {
			w.say(5*second, get)
		}, why: WriteIdle, at: 35 * second},
		{name: "a response that stalls", handler: func(w http.ResponseWriter, r *http.Request) {
			w.Write(make([]byte, 1<<20))
		}, client: func(w *httpWorld) {
			w.say(0, get)
			for i := range 5 {
				time.Sleep(25*second*time.Duration(i+1) - time.Since(w.start))
				io.ReadFull(w.in, make([]byte, 100<<10))
			}
		}, why: WriteIdle, at: 155 * second},
		{name: "events", handler: func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				time.Sleep(10 * time.Minute)
				hello(w, r)
				w.(http.Flusher).Flush()
			}
		}, client: func(w *httpWorld) {
			w.say(0, get)
			require.Equal(w.t, strings.Repeat("hello", 10), w.answer())
		}},
		{name: "a response from a slow source", handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "2000")
			io.Copy(w, &slowSource{2000})
		}, client: func(w *httpWorld) {
			w.say(0, get)
			require.Len(w.t, w.answer(), 2000)
		}},
		{name: "hijacked", handler: func(w http.ResponseWriter, r *http.Request) {
			c, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			io.Copy(c, buffered)
		}, client: func(w *httpWorld) {
			w.say(0, get)
			for i := range time.Duration(5) { // not before it is hijacked
				w.say(second+i*90*second, "ping")
				io.ReadFull(w.in, make([]byte, 4))
			}
		}, why: ReadIdle, at: 461 * second},
		{name: "hijacked, with limits of its own",
			handler: func(w http.ResponseWriter, r *http.Request) {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					panic(err)
				}
				found, ok := Find(c)
				if !ok {
					panic("not found")
				}
				found.SetLimits(Limits{WriteIdle: 7 * second})
				for range 3 {
					time.Sleep(5 * second)
					c.Write([]byte("ping"))
				}
			}, client: func(w *httpWorld) {
				w.say(0, get)
				io.ReadFull(w.in, make([]byte, 12))
			}, why: WriteIdle, at: 22 * second},
		{name: "life", limits: &HTTPLimits{Lifetime: 100 * second}, handler: works,
			client: func(w *httpWorld) {
				w.say(50*second, get)
			}, why: Lifetime, at: 100 * second},
		{name: "life of what is hijacked", limits: &HTTPLimits{Lifetime: 100 * second},
			handler: func(w http.ResponseWriter, r *http.Request) {
				http.NewResponseController(w).Hijack()
			}, client: func(w *httpWorld) {
				w.say(50*second, get)
			}, why: Lifetime, at: 100 * second},
		{name: "life, with grace for what is under way",
			limits: &HTTPLimits{Lifetime: 100 * second, Grace: 2 * time.Hour}, handler: works,
			client: func(w *httpWorld) {
				w.say(50*second, get)
				require.Equal(w.t, "hello", w.answer())
			}, why: Lifetime, at: time.Hour + 52*second},
		{name: "life, with too little grace", limits: &HTTPLimits{Lifetime: 100 * second, Grace: 200 * second}, handler: works,
			client: func(w *httpWorld) { w.say(50*second, get) }, why: Lifetime, at: 300 * second},
		{name: "life, with grace, idle", limits: &HTTPLimits{Lifetime: 100 * second, Grace: 200 * second}, handler: hello,
			client: func(w *httpWorld) {
				w.say(50*second, get)
				require.Equal(w.t, "hello", w.answer())
			}, why: Lifetime, at: 100 * second},
		{name: "life, with grace, and more requests in the pipeline",
			limits: &HTTPLimits{Lifetime: 100 * second, Grace: 2 * time.Hour}, handler: works,
			client: func(w *httpWorld) {
				go w.say(50*second, get+get+get)
				for _, want := range []bool{false, true} {
					response, err := http.ReadResponse(w.in, nil)
					require.NoError(w.t, err)
					io.Copy(io.Discard, response.Body)
					require.Equal(w.t, want, response.Close)
				}
				_, err := w.in.ReadByte()
				require.ErrorIs(w.t, err, io.EOF)
			}},
		{name: "a body that trickles", plain: true, limits: &HTTPLimits{Body: 20 * second, MinBodyRate: 1}, handler: echoBody,
			client: func(w *httpWorld) {
				w.say(5*second, strings.Replace(post, ": 10", ": 100", 1))
				w.trickle(15*second, 10*second, strings.Repeat("a", 100))
			}, why: Overdue, at: 27 * second},
		{name: "a body that is fast enough, in the time that the server waits for it",
			limits: &HTTPLimits{Body: 20 * second, MinBodyRate: 1}, handler: func(w http.ResponseWriter, r *http.Request) {
				r.Body.Read(make([]byte, 3))
				time.Sleep(time.Hour)
				echoBody(w, r)
			}, client: func(w *httpWorld) {
				w.say(0, strings.Replace(post, ": 10", ": 33", 1)+"abc")
				w.trickle(time.Hour, second, strings.Repeat("a", 30))
				require.Equal(w.t, strings.Repeat("a", 30), w.answer())
			}},
		{name: "no limits", limits: &HTTPLimits{}, handler: echoBody, client: func(w *httpWorld) {
			w.say(time.Hour, post)
			w.trickle(time.Hour, time.Hour, "0123456789")
			require.Equal(w.t, "0123456789", w.answer())
			time.Sleep(time.Hour)
		}},
	} {
		for _, useTLS := range []bool{false, true} {
			if useTLS && test.plain {
				continue
			}
			t.Run(fmt.Sprintf("%s/TLS=%t", test.name, useTLS), func(t *testing.T) {
				limits := httpLimits
				if test.limits != nil {
					limits = *test.limits
				}
				runHTTP(t, useTLS, limits, test.handler, test.client, test.why, test.at)
			})
		}
	}
}

// slowSource gives what is left of it, after an hour for each Read.
type slowSource struct{ left int }

func (s *slowSource) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Hour)
	n := min(len(p), s.left)
	s.left -= n
	return n, nil
}

// HTTP/2, with TLS and without.
func TestHTTP2Phases(t *testing.T) {
	const (
		preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		ping     = "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
	)
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		client  func(w *httpWorld)
		why     Reason
		at      time.Duration
		limits  *HTTPLimits // httpLimits if nil
	}{
		{name: "silent", handler: hello, client: func(w *httpWorld) {}, why: Overdue, at: 9 * second},
		{name: "a preface that trickles", handler: hello, client: func(w *httpWorld) {
			go io.Copy(io.Discard, w.in)
			w.trickle(0, second, preface)
		}, why: Overdue, at: 9 * second},
		{name: "without a request", handler: hello, client: func(w *httpWorld) {
			go io.Copy(io.Discard, w.in)
			w.say(0, preface+settings)
			w.say(50*second, ping)
			w.say(100*second, ping)
		}, why: Idle, at: 160 * second},
		{name: "idle", handler: hello, client: func(w *httpWorld) {
			require.Equal(w.t, "hello", w.ask2(http.NoBody))
			time.Sleep(55 * second)
			require.Equal(w.t, "hello", w.ask2(http.NoBody))
		}, why: Idle, at: 115 * second},
		{name: "works", handler: works, client: func(w *httpWorld) {
			require.Equal(w.t, "hello", w.ask2(http.NoBody))
		}, why: Idle, at: time.Hour + 60*second},
		{name: "works with a body unread", handler: works, client: func(w *httpWorld) {
			r, _ := io.Pipe()
			require.Equal(w.t, "hello", w.ask2(r))
		}},
		{name: "works after a body", handler: func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			works(w, r)
		}, client: func(w *httpWorld) {
			require.Equal(w.t, "hello", w.ask2(strings.NewReader("0123456789")))
		}},
		{name: "a body that stalls", handler: echoBody, client: func(w *httpWorld) {
			r, in := io.Pipe()
			time.AfterFunc(15*second, func() { in.Write([]byte("abc")) })
			w.ask2(r)
		}, why: ReadIdle, at: 35 * second},
		{name: "a body that is slow but moves", handler: echoBody, client: func(w *httpWorld) {
			r, in := io.Pipe()
			go func() {
				for range 10 {
					time.Sleep(19 * second)
					in.Write([]byte("a"))
				}
				in.Close()
			}()
			require.Equal(w.t, "aaaaaaaaaa", w.ask2(r))
		}},
		{name: "life, with grace", limits: &HTTPLimits{Lifetime: 100 * second, Grace: 2 * time.Hour},
			handler: works, client: func(w *httpWorld) {
				first := make(chan string, 1)
				time.AfterFunc(50*second, func() { first <- w.ask2(http.NoBody) })
				time.Sleep(60 * second)
				require.Equal(w.t, "hello", w.ask2(http.NoBody))
				require.Equal(w.t, "hello", <-first)
			}, why: Lifetime, at: time.Hour + 62*second},
		{name: "life, with grace, and a later request", limits: &HTTPLimits{Lifetime: 100 * second, Grace: 2 * time.Hour},
			handler: works, client: func(w *httpWorld) {
				first := make(chan string, 1)
				time.AfterFunc(50*second, func() { first <- w.ask2(http.NoBody) })
				time.Sleep(200 * second)
				require.Equal(w.t, "hello", w.ask2(http.NoBody))
				require.Equal(w.t, "hello", <-first)
				time.Sleep(1500 * time.Millisecond)
				require.Empty(w.t, w.ask2(http.NoBody), "the server has gone away")
			}},
		{name: "a response that is not taken", handler: func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			rw.Write(make([]byte, 1<<20))
		}, client: func(w *httpWorld) {
			time.AfterFunc(time.Hour-second, func() { w.pipe.deaf.Store(true) })
			go w.ask2(http.NoBody)
		}, why: WriteIdle, at: time.Hour + 30*second},
	} {
		for _, useTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/TLS=%t", test.name, useTLS), func(t *testing.T) {
				limits := httpLimits
				if test.limits != nil {
					limits = *test.limits
				}
				runHTTP(t, useTLS, limits, test.handler, test.client, test.why, test.at, "h2")
			})
		}
	}
}

// A client's pings keep an idle connection, also if the server's first Read did not show
// that it is HTTP/2.
func TestHTTP2Pings(t *testing.T) {
	for _, useTLS := range []bool{false, true} {
		runHTTP(t, useTLS, httpLimits, hello, func(w *httpWorld) {
			w.pipe.split, w.pings = true, 30*second
			require.Equal(w.t, "hello", w.ask2(http.NoBody))
			time.Sleep(time.Hour)
			w.transport.CloseIdleConnections()
		}, 0, 0, "h2")
	}
}

// Should the server ever begin its Read in the background without lifting the deadline,
// what the Handler and the Body tell is enough, as long as the handler reads the body.
func TestHTTPWithoutDeadlines(t *testing.T) {
	for _, request := range []string{get, post + "0123456789"} {
		synctest.Test(t, func(t *testing.T) {
			tw := timingwheel.New()
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				works(w, r)
			})}
			conn, peer := net.Pipe()
			var served sync.WaitGroup
			l := HTTPListener(server, newPipeListener(conn), tw, httpLimits)
			served.Go(func() { server.Serve(bareListener{l}) })
			io.WriteString(peer, request)
			_, err := http.ReadResponse(bufio.NewReader(peer), nil)
			require.NoError(t, err)
			peer.Close()
			server.Close()
			served.Wait()
		})
	}
}

// bareListener hides deadlines from the httpConns that are accepted.
type bareListener struct{ net.Listener }

type bareConn struct{ net.Conn }

func (l bareListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return bareConn{c}, err
}

func (c bareConn) NetConn() net.Conn { return c.Conn }
func (c bareConn) SetReadDeadline(t time.Time) error {
	return c.Conn.(*httpConn).Conn.SetReadDeadline(t)
}

// A tunnel in a hijacked connection is spliced.
func TestHTTPHijackedSplice(t *testing.T) {
	if !canSplice {
		t.Skip("no splice")
	}
	c, _ := pair(t, newWheel(t), Limits{})
	from, feed := tcpPair(t)
	defer feed.Close()
	h := &httpConn{Conn: c, limits: &HTTPLimits{}}
	h.connState(h, http.StateHijacked)
	copied := make(chan error)
	go func() {
		_, err := io.Copy(h, from)
		copied <- err
	}()
	stacks := make([]byte, 1<<20)
	require.Eventually(t, func() bool {
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("netidle.splice("))
	}, 10*time.Second, time.Millisecond)
	from.Close()
	require.Error(t, <-copied)
}

// ask2 sends a request with the body by HTTP/2 and returns that of the response, or, if
// the connection was closed, nothing.
func (w *httpWorld) ask2(body io.Reader) string {
	w.t.Helper()
	w.once.Do(func() {
		dial := func(context.Context, string, string) (net.Conn, error) { return w.client, nil }
		w.transport = &http.Transport{DialContext: dial, DialTLSContext: dial, Protocols: new(http.Protocols)}
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

// A deafConn stops reading when it is told to, and writes its first byte alone if it is
// told so.
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

// serveHTTP serves over TCP with small buffers and returns a client's connection.
func serveHTTP(t *testing.T, limits HTTPLimits, handler http.Handler,
	opts ...Option) (client *net.TCPConn, stop func()) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: handler}
	l := HTTPListener(server, slowListener{inner}, newWheel(t), limits, opts...)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	client = c.(*net.TCPConn)
	require.NoError(t, client.SetReadBuffer(16<<10))
	return client, sync.OnceFunc(func() {
		client.Close()
		server.Close()
		<-served
	})
}

type slowListener struct{ net.Listener }

func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c.(*net.TCPConn).SetWriteBuffer(200 << 10) // Linux doubles it
	}
	return c, err
}

// Over TCP, where the kernel buffers: a slow client gets all, by Write and by sendfile,
// also what is left in the send queue when the handler is done.
func TestHTTPSlowClient(t *testing.T) {
	if !canAskTCP {
		t.Skip("the kernel cannot be asked")
	}
	f, data := randomFile(t, 550<<10)
	for name, handler := range map[string]http.HandlerFunc{
		"Write":    func(w http.ResponseWriter, _ *http.Request) { w.Write(data) },
		"sendfile": func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, f.Name()) },
		"queue":    func(w http.ResponseWriter, _ *http.Request) { w.Write(data[:300<<10]) },
	} {
		t.Run(name, func(t *testing.T) {
			limits := HTTPLimits{Header: movingLimit, Response: movingLimit, Idle: movingLimit}
			moving(t, movingLimit, func(t *testing.T, opt Option, step func()) error {
				client, stop := serveHTTP(t, limits, handler, opt)
				defer stop()
				io.WriteString(client, get)
				paced := &pacedReader{client, step}
				response, err := http.ReadResponse(bufio.NewReaderSize(paced, 4<<10), nil)
				if err != nil {
					return err
				}
				n, err := io.Copy(io.Discard, response.Body)
				if err == nil && n != response.ContentLength && response.ContentLength >= 0 {
					err = io.ErrUnexpectedEOF
				}
				return err
			})
		})
	}
}

type pacedReader struct {
	io.Reader
	step func()
}

func (r *pacedReader) Read(p []byte) (int, error) {
	time.Sleep(movingStep)
	defer r.step()
	return r.Reader.Read(p)
}

// Over TCP: a client that takes nothing is cut, whether the handler writes, sends a file,
// or was done long before.
func TestHTTPStuckClient(t *testing.T) {
	f, data := randomFile(t, 8<<20)
	const limit = 100 * time.Millisecond
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		limits  HTTPLimits
		why     Reason
	}{
		{"Write", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(data)
		}, HTTPLimits{Response: limit}, WriteIdle},
		{"sendfile", func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, f.Name())
		}, HTTPLimits{Response: limit}, WriteIdle},
		{"queue", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(data[:100<<10])
		}, HTTPLimits{Idle: limit}, Idle},
	} {
		t.Run(test.name, func(t *testing.T) {
			start, cut := time.Now(), make(chan Reason, 1)
			hook := WithOnTimeout(func(_ *Conn, why Reason) { cut <- why })
			client, stop := serveHTTP(t, test.limits, test.handler, hook)
			defer stop()
			io.WriteString(client, get)
			require.Equal(t, test.why, <-cut)
			require.GreaterOrEqual(t, time.Since(start), limit)
		})
	}
}

// What the user had set is called, once, and connections that were accepted otherwise
// have no limits.
func TestHTTPListenerChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var mu sync.Mutex
		var states []http.ConnState
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, isOurs := r.Body.(*httpBody)
				fmt.Fprint(w, r.Context().Value(key{}), isOurs)
			}),
			ConnState: func(_ net.Conn, state http.ConnState) {
				mu.Lock()
				defer mu.Unlock()
				states = append(states, state)
			},
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, key{}, "value")
			},
		}
		tw := timingwheel.New()
		var served sync.WaitGroup
		for i := range 3 {
			conn, peer := net.Pipe()
			var l net.Listener = newPipeListener(conn)
			want := "valuefalse"
			if i < 2 {
				l = HTTPListener(server, l, tw, HTTPLimits{Idle: second})
				want = "valuetrue"
			}
			served.Go(func() { server.Serve(l) })
			go io.WriteString(peer, post+"0123456789")
			response, err := http.ReadResponse(bufio.NewReader(peer), nil)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, want, string(body))
			peer.Close()
			synctest.Wait()
			require.Equal(t, []http.ConnState{
				http.StateNew, http.StateActive, http.StateIdle, http.StateClosed,
			}, states)
			states = nil
		}
		require.IsType(t, http.HandlerFunc(nil), server.Handler.(httpHandler).handler)
		server.Close()
		served.Wait()
		require.Zero(t, tw.Len())
	})
}

// The server removes the files of a multipart form when the request is over.
func TestHTTPMultipartFilesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var name string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, _, err := r.FormFile("file")
		if err == nil {
			defer f.Close()
			name = f.(*os.File).Name()
			_, err = os.Stat(name)
		}
		if err != nil {
			panic(err)
		}
	}))
	server.Listener = HTTPListener(server.Config, server.Listener, newWheel(t), httpLimits)
	server.Start()
	defer server.Close()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "file")
	require.NoError(t, err)
	file.Write(make([]byte, 33<<20)) // more than stays in memory
	require.NoError(t, form.Close())
	response, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, 200, response.StatusCode)
	server.Close()
	require.NotEmpty(t, name)
	require.NoFileExists(t, name)
}

// Without a Handler it is http.DefaultServeMux, as it is without limits.
func TestHTTPDefaultServeMux(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Listener = HTTPListener(server.Config, server.Listener, newWheel(t), httpLimits)
	server.Start()
	defer server.Close()
	response, err := server.Client().Get(server.URL + "/netidle")
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusNotFound, response.StatusCode)
}

func TestHTTPMisuse(t *testing.T) {
	tw := timingwheel.New()
	l := newPipeListener(nil)
	server := &http.Server{}
	panics := func(want string, server *http.Server, l net.Listener, tw *timingwheel.TimingWheel, limits HTTPLimits) {
		t.Helper()
		require.PanicsWithValue(t, "netidle: "+want, func() { HTTPListener(server, l, tw, limits) })
	}
	panics("nil http.Server", nil, l, tw, HTTPLimits{})
	panics("nil listener", server, nil, tw, HTTPLimits{})
	panics("nil TimingWheel", server, l, nil, HTTPLimits{})
	for name, limits := range map[string]HTTPLimits{
		"Header": {Header: -1}, "Body": {Body: -1}, "Response": {Response: -1}, "Idle": {Idle: -1},
		"Lifetime": {Lifetime: -1}, "Spread": {Spread: -1}, "Grace": {Grace: -1}, "ReadIdle": {Hijacked: Limits{ReadIdle: -1}},
	} {
		panics("negative "+name+" limit -1ns", server, l, tw, limits)
	}
	require.Nil(t, server.Handler, "a server that was refused is as it was")
	require.Nil(t, server.ConnState)
	require.Nil(t, server.ConnContext)
}

// BenchmarkHTTP serves requests on one kept connection, with the deadlines of http.Server
// or the limits of an HTTPListener.
func BenchmarkHTTP(b *testing.B) {
	body := make([]byte, 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })
	for _, guard := range []string{"none", "deadlines", "limits"} {
		b.Run(guard, func(b *testing.B) {
			server := &http.Server{Handler: handler}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			addr := l.Addr().String()
			switch guard {
			case "deadlines":
				server.ReadHeaderTimeout, server.ReadTimeout = 10*second, 30*second
				server.WriteTimeout, server.IdleTimeout = 30*second, 60*second
			case "limits":
				l = HTTPListener(server, l, newWheel(b), httpLimits)
			}
			var served sync.WaitGroup
			served.Go(func() { server.Serve(l) })
			client, err := net.Dial("tcp", addr)
			require.NoError(b, err)
			answer := make([]byte, 4<<10)
			for b.Loop() {
				io.WriteString(client, get)
				if _, err := client.Read(answer); err != nil {
					b.Fatal(err)
				}
			}
			client.Close()
			server.Close()
			served.Wait()
		})
	}
}

// Many clients at once: handlers that work for longer than the limits answer, and clients that
// stall are cut.
func TestHammerHTTP(t *testing.T) {
	const limit = 250 * time.Millisecond // as a loaded machine may stall
	for _, useTLS := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/reads":
				io.Copy(io.Discard, r.Body)
			case "/flushes":
				w.(http.Flusher).Flush()
			}
			time.Sleep(2 * limit)
			hello(w, r)
		}))
		server.Listener = HTTPListener(server.Config, server.Listener, newWheel(t), HTTPLimits{
			Header: time.Minute, Body: limit, MinBodyRate: 1, Response: limit,
			Idle: time.Minute, Lifetime: time.Hour, Grace: time.Hour,
		})
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		if useTLS {
			server.StartTLS()
		} else {
			server.Start()
		}
		client := server.Client() // which sends a short body together with the header
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for j := range 4 {
					path := []string{"/", "/reads", "/flushes"}[(i+j)%3]
					response, err := client.Post(server.URL+path, "", strings.NewReader("0123456789"))
					if err != nil {
						t.Error(err)
						return
					}
					body, err := io.ReadAll(response.Body)
					response.Body.Close()
					if err != nil || string(body) != "hello" {
						t.Errorf("%s: %q, %v", path, body, err)
					}
				}
			})
			all.Go(func() {
				for range 2 {
					c, err := net.Dial("tcp", server.Listener.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					if useTLS {
						c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
					}
					io.WriteString(c, strings.Replace(post, "/", "/reads", 1)+"abc")
					io.Copy(io.Discard, c) // to the end
					c.Close()
				}
			})
		}
		all.Wait()
		server.Close()
	}
}
