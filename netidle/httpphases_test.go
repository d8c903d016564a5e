package netidle

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This file tests the limits of an http.Server's connections, phase by phase and to the tick.

// A phase is a scenario in which the connection is closed for a reason at a time, as runHTTP says.
type phase struct {
	name    string
	handler http.HandlerFunc
	client  func(w *httpWorld)
	why     Reason
	at      time.Duration
	limits  *HTTPLimits // httpLimits if nil
	plain   bool        // not with TLS, which adds bytes
}

// run runs the phase with TLS and without.
func (p phase) run(t *testing.T, protos ...string) {
	limits := httpLimits
	if p.limits != nil {
		limits = *p.limits
	}
	for _, useTLS := range []bool{false, true} {
		if useTLS && p.plain {
			continue
		}
		t.Run(fmt.Sprintf("%s/TLS=%t", p.name, useTLS), func(t *testing.T) {
			runHTTP(t, useTLS, limits, p.handler, p.client, p.why, p.at, protos...)
		})
	}
}

func TestHTTPPhases(t *testing.T) {
	for _, test := range []phase{
		{name: "silent", handler: hello, client: func(w *httpWorld) {}, why: Overdue,
			at: 9 * second},
		{name: "silent, without a limit for the header", limits: &HTTPLimits{Idle: 60 * second},
			handler: hello,
			client:  func(w *httpWorld) {}, why: Idle, at: 60 * second},
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
		{name: "a body that the handler reads later on",
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
		{name: "a response that is not taken",
			handler: func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Hour)
				w.Write(make([]byte, 1<<20))
			}, client: func(w *httpWorld) {
				w.say(0, get)
			}, why: WriteIdle, at: time.Hour + 30*second},
		{name: "a response of which the end is not taken", handler: hello,
			client: func(w *httpWorld) {
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
		{name: "a response from a slow source",
			handler: func(w http.ResponseWriter, r *http.Request) {
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
		{name: "lifetime", limits: &HTTPLimits{Lifetime: 100 * second}, handler: works,
			client: func(w *httpWorld) {
				w.say(50*second, get)
			}, why: Lifetime, at: 100 * second},
		{name: "lifetime of a hijacked connection", limits: &HTTPLimits{Lifetime: 100 * second},
			handler: func(w http.ResponseWriter, r *http.Request) {
				http.NewResponseController(w).Hijack()
			}, client: func(w *httpWorld) {
				w.say(50*second, get)
			}, why: Lifetime, at: 100 * second},
		{name: "lifetime, with grace for a request under way",
			limits: &HTTPLimits{Lifetime: 100 * second, Grace: 2 * time.Hour}, handler: works,
			client: func(w *httpWorld) {
				w.say(50*second, get)
				require.Equal(w.t, "hello", w.answer())
			}, why: Lifetime, at: time.Hour + 52*second},
		{name: "lifetime, with too little grace",
			limits: &HTTPLimits{Lifetime: 100 * second, Grace: 200 * second}, handler: works,
			client: func(w *httpWorld) { w.say(50*second, get) }, why: Lifetime, at: 300 * second},
		{name: "lifetime, with grace, idle",
			limits: &HTTPLimits{Lifetime: 100 * second, Grace: 200 * second}, handler: hello,
			client: func(w *httpWorld) {
				w.say(50*second, get)
				require.Equal(w.t, "hello", w.answer())
			}, why: Lifetime, at: 100 * second},
		{name: "lifetime, with grace, and more requests in the pipeline",
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
		{name: "a body that trickles", plain: true,
			limits: &HTTPLimits{Body: 20 * second, MinBodyRate: 1}, handler: echoBody,
			client: func(w *httpWorld) {
				w.say(5*second, strings.Replace(post, ": 10", ": 100", 1))
				w.trickle(15*second, 10*second, strings.Repeat("a", 100))
			}, why: Overdue, at: 27 * second},
		{name: "a body that is fast enough while the server waits for it",
			limits: &HTTPLimits{Body: 20 * second, MinBodyRate: 1},
			handler: func(w http.ResponseWriter, r *http.Request) {
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
		test.run(t)
	}
}

// slowSource returns the bytes it has left. Each Read takes an hour.
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

// HTTP/2 has the same phases, with TLS and without.
func TestHTTP2Phases(t *testing.T) {
	const (
		preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		ping     = "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
	)
	for _, test := range []phase{
		{name: "silent", handler: hello, client: func(w *httpWorld) {}, why: Overdue,
			at: 9 * second},
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
		{name: "lifetime, with grace",
			limits:  &HTTPLimits{Lifetime: 100 * second, Grace: 2 * time.Hour},
			handler: works, client: func(w *httpWorld) {
				first := make(chan string, 1)
				time.AfterFunc(50*second, func() { first <- w.ask2(http.NoBody) })
				time.Sleep(60 * second)
				require.Equal(w.t, "hello", w.ask2(http.NoBody))
				require.Equal(w.t, "hello", <-first)
			}, why: Lifetime, at: time.Hour + 62*second},
		{name: "lifetime, with grace, and a later request",
			limits:  &HTTPLimits{Lifetime: 100 * second, Grace: 2 * time.Hour},
			handler: works, client: func(w *httpWorld) {
				first := make(chan string, 1)
				time.AfterFunc(50*second, func() { first <- w.ask2(http.NoBody) })
				time.Sleep(200 * second)
				require.Equal(w.t, "hello", w.ask2(http.NoBody))
				require.Equal(w.t, "hello", <-first)
				time.Sleep(1500 * time.Millisecond)
				require.Empty(w.t, w.ask2(http.NoBody), "the server has gone away")
			}},
		{name: "a response that is not taken",
			handler: func(rw http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Hour)
				rw.Write(make([]byte, 1<<20))
			}, client: func(w *httpWorld) {
				time.AfterFunc(time.Hour-second, func() { w.pipe.deaf.Store(true) })
				go w.ask2(http.NoBody)
			}, why: WriteIdle, at: time.Hour + 30*second},
	} {
		test.run(t, "h2")
	}
}

// A client's pings keep an idle connection alive, even if the server's first Read did not show that
// it is HTTP/2.
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
