package netidle

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel"
)

// This file tests HTTPListener over TCP, where the kernel buffers, and together with what the user
// of an http.Server has set.

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

// Over TCP, a slow client receives the whole response, by Write and by sendfile, including what is
// in the send queue when the handler returns.
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

// Over TCP, a client that takes nothing loses its connection, whether the handler writes, sends a
// file, or has already returned.
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

// If a later server begins its Read in the background without removing the deadline, the wrappers
// of the Handler and the Body suffice as long as the handler reads the body.
func TestHTTPWithoutDeadlines(t *testing.T) {
	for _, request := range []string{get, post + "0123456789"} {
		synctest.Test(t, func(t *testing.T) {
			tw := timingwheel.New()
			handler := func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				works(w, r)
			}
			server := &http.Server{Handler: http.HandlerFunc(handler)}
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

// bareListener hides deadlines from the httpConns that it accepts.
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

// io.Copy to a hijacked connection uses splice.
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

// HTTPListener calls once what the user has set, and connections from other listeners have no
// limits.
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

// The server removes the files of a multipart form after the request.
func TestHTTPMultipartFilesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var name string
	handler := func(w http.ResponseWriter, r *http.Request) {
		f, _, err := r.FormFile("file")
		if err == nil {
			defer f.Close()
			name = f.(*os.File).Name()
			_, err = os.Stat(name)
		}
		if err != nil {
			panic(err)
		}
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(handler))
	server.Listener = HTTPListener(server.Config, server.Listener, newWheel(t), httpLimits)
	server.Start()
	defer server.Close()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "file")
	require.NoError(t, err)
	file.Write(make([]byte, 33<<20)) // more than the server keeps in memory
	require.NoError(t, form.Close())
	response, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, 200, response.StatusCode)
	server.Close()
	require.NotEmpty(t, name)
	require.NoFileExists(t, name)
}

// Without a Handler, the server uses http.DefaultServeMux, as it does without limits.
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
	panics := func(want string, server *http.Server, l net.Listener, tw *timingwheel.TimingWheel,
		limits HTTPLimits) {
		t.Helper()
		require.PanicsWithValue(t, "netidle: "+want, func() { HTTPListener(server, l, tw, limits) })
	}
	panics("nil http.Server", nil, l, tw, HTTPLimits{})
	panics("nil listener", server, nil, tw, HTTPLimits{})
	panics("nil TimingWheel", server, l, nil, HTTPLimits{})
	for name, limits := range map[string]HTTPLimits{
		"Header": {Header: -1}, "Body": {Body: -1}, "Response": {Response: -1}, "Idle": {Idle: -1},
		"Lifetime": {Lifetime: -1}, "Spread": {Spread: -1}, "Grace": {Grace: -1},
		"ReadIdle": {Hijacked: Limits{ReadIdle: -1}},
	} {
		panics("negative "+name+" limit -1ns", server, l, tw, limits)
	}
	require.Nil(t, server.Handler, "a refused server stays as it was")
	require.Nil(t, server.ConnState)
	require.Nil(t, server.ConnContext)
}

// BenchmarkHTTP serves requests on one connection, with the deadlines of http.Server or the limits
// of an HTTPListener.
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
