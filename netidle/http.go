package netidle

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/go-timingwheel/timingwheel"
)

// This file sets up an http.Server so that the phase of each connection is known. httpconn.go acts
// on it. The functions here take no lock themselves; httpConn.change takes httpConn.mu.
//
// # How the phase is known
//
// There are three sources, none of which is enough by itself:
//
//   - http.Server.ConnState reports new, active, idle and hijacked connections. While a connection
//     is active, it does not tell a client that stalls from a handler that works.
//   - httpConn, between the server and the Conn, sees each Read and Write. A call that waits is
//     waiting for the client, with one exception: while a handler works, the server keeps a Read
//     waiting in the background, to notice a client that leaves.
//   - Wrappers of the Handler and of the request's Body see when the end of the body is read.
//     Before that no Read is in the background, and after that every Read is.
//
// The server itself reads a body that the handler leaves unread. It does so past the wrapper, and
// then its Read in the background begins unseen. But the server removes the read deadline before
// that Read, and httpConn sees this. If a later net/http does not do so, a handler that writes
// before it reads, and then works for longer than Body, will lose its connection. TestHTTPPhases
// would show it.
//
// Wrapping the ResponseWriter was rejected. A handler may spend hours in its ReadFrom because the
// source is slow, and the wrapper would need the optional methods of each kind of ResponseWriter.

// HTTPListener sets up srv to have limits and returns a listener for srv.Serve or srv.ServeTLS.
// Connections that srv accepts from another listener have no limits. HTTPListener panics if srv, l
// or tw is nil or if a limit is negative.
//
//	l = netidle.HTTPListener(srv, l, tw, netidle.HTTPLimits{
//		Header: 10 * time.Second, Body: 30 * time.Second, Response: 30 * time.Second,
//		Idle: time.Minute, Hijacked: netidle.Limits{Idle: time.Minute},
//	})
//	err := srv.Serve(l)
//
// HTTPListener replaces srv.Handler, srv.ConnState and srv.ConnContext by functions that call the
// old ones, so set these first. It may be called again with the same srv and another listener. If
// another listener wraps connections, as netutil.LimitListener does, pass it as l.
//
// Limits hold for a connection, not for a stream of HTTP/2. If a client stalls one stream while
// others move, or leaves the window of a stream closed, no limit notices. Use
// http.Server.WriteTimeout or the deadlines of http.ResponseController, which hold for a stream. If
// a handler leaves so much of a body unread that no other body fits into the window, the handlers
// that wait for the others reach the limit Body. A connection on which the client sends pings is
// not idle for HTTPLimits.Idle. It is for http.Server.IdleTimeout, which sends GOAWAY.
//
// HTTPListener costs one allocation for each connection and two for each request with a body. A
// small request takes some 2 us more CPU, of 20 us without limits. The four timeouts of
// http.Server, which bound less, take about 1 us.
func HTTPListener(srv *http.Server, l net.Listener, tw *timingwheel.TimingWheel,
	limits HTTPLimits, opts ...Option) net.Listener {
	if srv == nil {
		panic("netidle: nil http.Server")
	}
	limits.check()
	guarded := NewListener(l, tw, limits.of(&httpState{}), opts...)
	if _, ok := srv.Handler.(httpHandler); !ok {
		srv.Handler = httpHandler{srv.Handler}
		srv.ConnState = httpConnState(srv.ConnState)
		srv.ConnContext = httpConnContext(srv.ConnContext)
	}
	return &httpListener{guarded, &limits}
}

type httpListener struct {
	*Listener
	limits *HTTPLimits
}

func (l *httpListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	h := &httpConn{Conn: c.(*Conn), limits: l.limits}
	if l.limits.MinBodyRate > 0 {
		h.ownLimits()
	}
	h.set = l.limits.of(&h.state)
	return h, nil
}

type connState = func(net.Conn, http.ConnState)

func httpConnState(next connState) connState {
	return func(c net.Conn, state http.ConnState) {
		if h := findHTTPConn(c); h != nil {
			h.connState(c, state)
		}
		if next != nil {
			next(c, state)
		}
	}
}

type httpConnKey struct{}

type connContext = func(context.Context, net.Conn) context.Context

// httpConnContext lets the Handler find the connection.
func httpConnContext(next connContext) connContext {
	return func(ctx context.Context, c net.Conn) context.Context {
		if next != nil {
			ctx = next(ctx, c)
		}
		if h := findHTTPConn(c); h != nil {
			ctx = context.WithValue(ctx, httpConnKey{}, h)
		}
		return ctx
	}
}

type httpHandler struct{ handler http.Handler } // nil for http.DefaultServeMux

func (g httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler := g.handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	h, ok := r.Context().Value(httpConnKey{}).(*httpConn)
	if !ok {
		handler.ServeHTTP(w, r)
		return
	}
	hasBody := r.Body != nil && r.Body != http.NoBody
	h.change(func(s *httpState) {
		s.http2 = r.ProtoMajor == 2
		s.unread = hasBody && !s.http2
	})
	if h.limits.Grace > 0 && h.isOld() {
		w.Header().Set("Connection", "close")
	}
	if !hasBody {
		handler.ServeHTTP(w, r)
		return
	}
	// The server uses its own request's Body later, and the type of it.
	inner := *r
	inner.Body = &httpBody{r.Body, h, r.ProtoMajor == 2}
	defer func() { r.MultipartForm = inner.MultipartForm }() // the server removes its files
	handler.ServeHTTP(w, &inner)
}

// An httpBody tells its connection when its end has been read. With HTTP/2 it tells when a Read of
// the body waits, because a Read of the connection always waits there.
type httpBody struct {
	io.ReadCloser
	conn  *httpConn
	http2 bool
}

func (b *httpBody) Read(p []byte) (int, error) {
	if b.http2 {
		b.conn.change(func(s *httpState) { s.bodies++ })
		defer b.conn.change(func(s *httpState) { s.bodies-- })
		return b.ReadCloser.Read(p)
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.conn.change(func(s *httpState) { s.unread = false })
	}
	return n, err
}
