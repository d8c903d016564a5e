package netidle

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This file tests http.Server and package tls on top of a Listener, and a Conn on top of package
// tls.

// httpServer serves on a Listener and returns the address and a client that trusts it.
func httpServer(t *testing.T, limits Limits, useTLS bool, handler http.Handler,
	setUp func(*http.Server), opts ...Option) (string, *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Listener = NewListener(server.Listener, newWheel(t), limits, opts...)
	if setUp != nil {
		setUp(server.Config)
	}
	server.EnableHTTP2 = useTLS
	if useTLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

func TestHTTP(t *testing.T) {
	for _, test := range []struct {
		name   string
		useTLS bool
		opts   []Option
	}{
		{"close", false, nil}, {"expire", false, []Option{WithExpire()}},
		{"TLS close", true, nil}, {"TLS expire", true, []Option{WithExpire()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var hooked sync.WaitGroup
			hooked.Add(1)
			hook := WithOnTimeout(func(c *Conn, why Reason) {
				if why != Idle {
					t.Errorf("reason %v", why)
				}
				hooked.Done()
			})
			gone := make(chan struct{})
			url, client := httpServer(t, Limits{Idle: 300 * time.Millisecond}, test.useTLS,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					io.WriteString(w, r.Proto+" "+string(body))
				}),
				func(s *http.Server) {
					s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = time.Hour, time.Hour, time.Hour
					s.ConnState = func(_ net.Conn, state http.ConnState) {
						if state == http.StateClosed {
							close(gone)
						}
					}
				}, append(test.opts, hook)...)
			for range 3 {
				response, err := client.Get(url)
				require.NoError(t, err)
				body, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				response.Body.Close()
				proto := "HTTP/1.1 "
				if test.useTLS {
					proto = "HTTP/2.0 "
				}
				require.Equal(t, proto, string(body))
			}
			hooked.Wait() // the client keeps the connection open, and silent
			<-gone        // the server has noticed it
		})
	}
}

// A handler that takes longer than the limit keeps its connection if ConnState lifts it.
func TestHTTPSlowHandler(t *testing.T) {
	const limit = 50 * time.Millisecond
	for _, useTLS := range []bool{false, true} {
		idle := Limits{Idle: limit}
		hooked := make(chan struct{})
		url, client := httpServer(t, idle, useTLS,
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(4 * limit)
				io.WriteString(w, "done")
			}),
			func(s *http.Server) {
				s.ConnState = func(outer net.Conn, state http.ConnState) {
					c, ok := Find(outer)
					if !ok {
						t.Error("not found")
						return
					}
					switch state {
					case http.StateActive:
						c.SetLimits(Limits{})
					case http.StateIdle:
						c.SetLimits(idle)
					}
				}
			}, WithOnTimeout(func(*Conn, Reason) { close(hooked) }))
		response, err := client.Get(url)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, "done", string(body))
		response.Body.Close()
		<-hooked
	}
}

// http.FileServer passes the file to the inner connection in a LimitedReader.
func TestHTTPFile(t *testing.T) {
	dir := t.TempDir()
	data := make([]byte, 2*filePiece)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), data, 0o600))
	recorded := make(chan *recorder, 1)
	tw := newWheel(t)
	server := httptest.NewUnstartedServer(http.FileServer(http.Dir(dir)))
	server.Listener = NewListener(recordingListener{server.Listener, recorded}, tw,
		Limits{Idle: time.Minute})
	server.Start()
	defer server.Close()
	response, err := server.Client().Get(server.URL + "/file")
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, data, body)
	response.Body.Close()
	inner := <-recorded
	inner.mu.Lock()
	defer inner.mu.Unlock()
	require.Len(t, inner.calls, 2, "the server has sent the first 512 bytes itself")
	for _, call := range inner.calls {
		require.Contains(t, call, "bytes of *os.File")
	}
}

type recordingListener struct {
	net.Listener
	recorded chan *recorder
}

func (l recordingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	inner := &recorder{TCPConn: c.(*net.TCPConn)}
	l.recorded <- inner
	return inner, nil
}

// A Conn around a tls.Conn looks at the send queue of the socket underneath.
func TestAroundTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	tw := newWheel(t)
	a, b := tcpPair(t)
	outer := NewConn(tls.Server(a, server.TLS), tw, Limits{WriteIdle: 100 * time.Millisecond})
	defer outer.Close()
	require.Same(t, a, outer.config.Load().more.socket)
	client := tls.Client(b, &tls.Config{InsecureSkipVerify: true})
	defer client.Close()
	go client.HandshakeContext(context.Background()) // and then take nothing
	var err error
	for err == nil {
		_, err = outer.Write(make([]byte, 1<<20))
	}
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, outer.Close(), ErrTimeout, "it was closed already")
}

// Package tls says goodbye to a silent peer if the Conn is around it, or if it is on top of a Conn
// with WithExpire and Limits.ReadIdle.
func TestTLSGoodbye(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	server.TLS.MaxVersion = tls.VersionTLS12 // in which alerts can be seen from outside
	for _, test := range []struct {
		opts          []Option
		around, alert bool
	}{
		{[]Option{WithExpire()}, false, true},
		{nil, false, false},
		{nil, true, true},
	} {
		tw := newWheel(t)
		a, b := tcpPair(t)
		var conn net.Conn
		if test.around {
			conn = NewConn(tls.Server(a, server.TLS), tw, Limits{}, test.opts...)
		} else {
			conn = tls.Server(NewConn(a, tw, Limits{}, test.opts...), server.TLS)
		}
		served := make(chan error, 1)
		go func() {
			p := make([]byte, 1)
			_, err := conn.Read(p) // with the handshake
			if err == nil {
				c, _ := Find(conn)
				c.SetLimits(Limits{ReadIdle: 20 * time.Millisecond})
				_, err = conn.Read(p)
			}
			conn.Close()
			served <- err
		}()
		var received bytes.Buffer
		client := tls.Client(&teeConn{b, &received}, &tls.Config{InsecureSkipVerify: true})
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		_, err = client.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.ErrorIs(t, <-served, ErrTimeout) // before the client's goodbye can arrive
		client.Close()
		var last byte
		for p := received.Bytes(); len(p) > 0; p = p[5+int(p[3])<<8+int(p[4]):] { // records
			last = p[0]
		}
		const alert = 21
		require.Equal(t, test.alert, last == alert)
	}
}

// teeConn records what is read.
type teeConn struct {
	net.Conn
	read *bytes.Buffer
}

func (c *teeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Write(p[:n])
	return n, err
}
