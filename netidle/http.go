package netidle

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-timingwheel/timingwheel"
)

// This file gives the connections of an http.Server the limits of the phase they are in.
//
// # How it knows the phase
//
// Three sources, none of which is enough by itself:
//
//   - http.Server.ConnState tells of new, active, idle and hijacked connections. While a
//     connection is active it does not tell a client that stalls from a handler that works.
//   - httpConn, between the server and the Conn, sees each Read and Write. One that waits
//     waits for the client, with one exception: while a handler works the server keeps a
//     Read waiting in the background, to notice a client that leaves.
//   - The Handler and the request's Body, wrapped, tell whether the body has been read to its
//     end. Before that there is no Read in the background, after it there is no other.
//
// A body that the handler leaves unread is read by the server itself, past the wrapper, and
// then its Read in the background begins unseen. But the server lifts the deadline for
// reads before it begins one, and that httpConn sees. Should a later net/http do without,
// a handler that writes before it reads, and then works for longer than the limit Body,
// would lose its connection; TestHTTPWorksAfterUnreadBody would show it.
//
// Wrapping the ResponseWriter was rejected. A handler may spend hours in its ReadFrom
// because the source is slow, and the wrapper would need to have the optional methods of
// each kind of ResponseWriter.

// HTTPLimits are the limits of the connections of an http.Server, one for each phase. Zero
// means no limit.
//
// A handler that works, and waits neither for the body nor to write, has no limit but Lifetime,
// so it may compute for hours, or wait for an event.
type HTTPLimits struct {
	// Header limits how long a request's header may take to arrive, however its bytes
	// trickle in. For the first request it counts from Accept, with a TLS handshake, for
	// later ones from the first byte. If it is zero, Idle counts here too.
	Header time.Duration

	// Body limits how long a handler may wait in Body.Read without receiving a byte. It
	// applies to what the server reads of a body that the handler left unread, too.
	Body time.Duration

	// MinBodyRate is the least rate, in bytes per second, at which a body has to arrive. Of the
	// time that the server has waited for it, Body is free; the rest must not be longer than
	// what has come, with what TLS adds, takes at that rate. Zero means that any byte before
	// Body is over will do. Without Body it has no effect.
	MinBodyRate int

	// Response limits how long the server may wait in a Write that the client takes
	// nothing of.
	Response time.Duration

	// Idle limits how long a connection may wait for the next request. What is left of
	// the last response in the send queue counts as in Limits.Idle.
	Idle time.Duration

	// Hijacked are the limits once a handler has hijacked the connection, as those of
	// WebSockets do; they count from then. The handler may replace them by Find and
	// SetLimits. If Hijacked.Lifetime is zero, Lifetime holds on.
	Hijacked Limits

	// Lifetime limits how long a connection may live, whatever it does. Spread makes it longer by a
	// random time, as in Limits.
	Lifetime, Spread time.Duration

	// Grace is how much longer than Lifetime a request may take that is under way then. The
	// connection is closed two seconds after it is next idle. Responses to requests that begin
	// after Lifetime say Connection: close, which HTTP/2 turns into GOAWAY.
	Grace time.Duration
}

func (l HTTPLimits) check() {
	for _, limit := range [...]struct {
		name string
		d    time.Duration
	}{
		{"Header", l.Header}, {"Body", l.Body}, {"Response", l.Response}, {"Idle", l.Idle},
		{"Lifetime", l.Lifetime}, {"Spread", l.Spread}, {"Grace", l.Grace},
	} {
		if limit.d < 0 {
			panic("netidle: negative " + limit.name + " limit " + limit.d.String())
		}
	}
	if l.MinBodyRate < 0 {
		panic("netidle: negative MinBodyRate " + strconv.Itoa(l.MinBodyRate))
	}
	l.Hijacked.check()
}

// HTTPListener sets up srv to have limits, and returns the listener for its Serve or
// ServeTLS. Connections that srv accepts otherwise have none. It panics if srv, l or tw
// is nil or a limit negative.
//
//	l = netidle.HTTPListener(srv, l, tw, netidle.HTTPLimits{
//		Header: 10 * time.Second, Body: 30 * time.Second, Response: 30 * time.Second,
//		Idle: time.Minute, Hijacked: netidle.Limits{Idle: time.Minute},
//	})
//	err := srv.Serve(l)
//
// It replaces srv.Handler, srv.ConnState and srv.ConnContext by functions that call what
// was there, so set these first. It may be called again with the same srv and another
// listener. A listener that wraps the connections, as netutil.LimitListener does, belongs
// under it: given as l.
//
// The limits count for a connection, not for a stream of HTTP/2. A client that stalls one
// stream while others move is not noticed, nor is one that leaves the window of a stream
// closed; http.Server.WriteTimeout and the deadlines of http.ResponseController hold for a
// stream. If a handler leaves so much of a body unread that no other body fits into the
// window, those who wait for one reach the limit Body. An idle connection on which the client
// sends pings is not idle; with http.Server.IdleTimeout it is, and is told to go away.
//
// Cost: an allocation for each connection; two for each request with a body. For a small
// request some 2 us of CPU, of 20 without limits; the four timeouts of http.Server, which
// bound less, take about 1.
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

// findHTTPConn returns the httpConn that c is, or that lies under it, or nil.
func findHTTPConn(c net.Conn) *httpConn {
	for {
		if h, ok := c.(*httpConn); ok {
			return h
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = outer.NetConn()
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
	// The server looks at its own request's Body later, and at the type of that.
	inner := *r
	inner.Body = &httpBody{r.Body, h, r.ProtoMajor == 2}
	defer func() { r.MultipartForm = inner.MultipartForm }() // the server removes its files
	handler.ServeHTTP(w, &inner)
}

// An httpBody tells its connection when it has been read to its end. With HTTP/2 it tells
// when someone waits for it, as a Read of the connection always waits there.
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

// An httpConn is what the server of an HTTPListener reads and writes.
type httpConn struct {
	*Conn
	limits *HTTPLimits // fixed, and shared

	mu    sync.Mutex // taken before Conn.mu
	state httpState
	set   Limits // the Conn's
}

// httpState is what the limits depend on.
type httpState struct {
	phase  httpPhase
	heard  bool // anything from the client
	http2  bool
	unread bool // HTTP/1: the request has a body whose end has not been read
	reads  int  // calls of httpConn.Read under way
	writes int  // calls of httpConn.Write and ReadFrom under way
	bodies int  // HTTP/2: calls of httpBody.Read under way

	end time.Duration // of its life, if it lives on Grace and is idle

	// With MinBodyRate, while there are requests:
	received int64         // bytes
	waited   time.Duration // for bodies
	changed  int64         // when the state last changed
}

// httpLinger is how long a connection that lives on Grace stays when it is idle. HTTP/2 may still
// have to write the end of the response then, and takes a second to close after GOAWAY.
const httpLinger = 2 * time.Second

type httpPhase uint8

const (
	httpNew    httpPhase = iota // until the header of the first request has been read
	httpHeader                  // from the first byte of a later request
	httpActive
	httpIdle
	httpHijacked
)

// of returns the limits in state s.
func (l *HTTPLimits) of(s *httpState) Limits {
	limits := Limits{Lifetime: l.Lifetime, Spread: l.Spread}
	switch s.phase {
	case httpNew, httpHeader:
		limits.Due = l.Header
		if l.Header == 0 {
			limits.Idle = l.Idle
		}
	case httpActive:
		if l.Lifetime > 0 {
			limits.Lifetime += min(l.Grace, forever-l.Lifetime)
		}
		if s.writes > 0 {
			limits.WriteIdle = l.Response
		}
		if s.waits() {
			limits.ReadIdle = l.Body
			if l.MinBodyRate > 0 {
				limits.Due = s.left(l)
			}
		}
	case httpIdle:
		limits.Idle = l.Idle
		if s.end > 0 {
			limits.Lifetime, limits.Spread = s.end, 0
		}
	case httpHijacked:
		limits = l.Hijacked
		if limits.Lifetime == 0 {
			limits.Lifetime, limits.Spread = l.Lifetime, l.Spread
		}
	}
	return limits
}

// concerns is what of the state the limits depend on, but for times.
func (s *httpState) concerns() (c struct {
	phase         httpPhase
	writes, waits bool
}) {
	c.phase, c.writes, c.waits = s.phase, s.writes > 0, s.waits()
	return c
}

// waits reports that the server waits for a body.
func (s *httpState) waits() bool { return s.unread && s.reads > 0 || s.bodies > 0 }

// left returns how long the server may wait for a body by MinBodyRate.
func (s *httpState) left(l *HTTPLimits) time.Duration {
	if l.Body == 0 {
		return 0
	}
	granted := float64(s.received) / float64(l.MinBodyRate) * float64(time.Second)
	if granted >= float64(forever-l.Body) {
		return 0
	}
	return max(l.Body+time.Duration(granted)-s.waited, 1)
}

// change changes the state, and the limits if that changes them.
func (h *httpConn) change(f func(s *httpState)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.limits.MinBodyRate > 0 {
		now := h.now()
		if h.state.waits() {
			h.state.waited += time.Duration(now - h.state.changed)
		}
		h.state.changed = now
	}
	before := h.state.concerns()
	f(&h.state)
	if h.state.concerns() == before && h.limits.MinBodyRate == 0 {
		return // as most changes
	}
	// Once the connection is hijacked they stay as they are: they may be the handler's.
	if limits := h.limits.of(&h.state); limits != h.set {
		h.set = limits
		h.SetLimits(limits)
	}
}

// isOld reports that the connection lives on Grace.
func (h *httpConn) isOld() bool {
	life := h.lifetimeOf(Limits{Lifetime: h.limits.Lifetime, Spread: h.limits.Spread})
	return life > 0 && h.now()-h.born >= int64(life)
}

// connState follows http.Server.ConnState, which is called with outer, h or what is
// around it.
func (h *httpConn) connState(outer net.Conn, state http.ConnState) {
	h.change(func(s *httpState) {
		switch state {
		case http.StateActive:
			if s.phase == httpNew {
				// Known before the first handler runs, so that an HTTP/2 connection that
				// has had no request yet, but settings and pings, is idle.
				if t, ok := outer.(*tls.Conn); ok {
					s.http2 = t.ConnectionState().NegotiatedProtocol == "h2"
				}
			}
			s.phase = httpActive
			s.received, s.waited = 0, 0
			s.unread = !s.http2 // until the Handler knows, or the server reads in the background
		case http.StateIdle:
			s.phase = httpIdle
			if h.limits.Grace > 0 && h.isOld() {
				s.end = time.Duration(h.now()-h.born) + httpLinger
			}
		case http.StateHijacked:
			s.phase = httpHijacked
		}
	})
}

func (h *httpConn) Read(p []byte) (int, error) {
	h.change(func(s *httpState) { s.reads++ })
	n, err := h.Conn.Read(p)
	h.change(func(s *httpState) {
		s.reads--
		if n == 0 {
			return
		}
		s.received += int64(n)
		if !s.heard {
			s.heard = true
			s.http2 = bytes.HasPrefix(p[:n], []byte("PRI ")) // without TLS
		}
		if s.phase == httpIdle && !s.http2 {
			s.phase = httpHeader
		}
	})
	return n, err
}

func (h *httpConn) Write(p []byte) (int, error) {
	h.change(func(s *httpState) { s.writes++ })
	defer h.change(func(s *httpState) { s.writes-- })
	return h.Conn.Write(p)
}

// ReadFrom sends files as Conn.ReadFrom does. With other readers it waits for the reader
// as well as for the client, so it copies through Write.
func (h *httpConn) ReadFrom(r io.Reader) (int64, error) {
	h.mu.Lock()
	hijacked := h.state.phase == httpHijacked
	h.mu.Unlock()
	if hijacked {
		return h.Conn.ReadFrom(r)
	}
	if source, _ := unlimit(r); !isRegularFile(source) {
		return io.Copy(writerOnly{h}, r)
	}
	h.change(func(s *httpState) { s.writes++ })
	defer h.change(func(s *httpState) { s.writes-- })
	return h.Conn.ReadFrom(r)
}

// SetReadDeadline without a deadline is what the server begins its Read in the background
// with. A handler that calls it by http.ResponseController waits for the body without limit.
func (h *httpConn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		h.change(func(s *httpState) { s.unread = false })
	}
	return h.Conn.SetReadDeadline(t)
}

// NetConn returns the Conn, for Find.
func (h *httpConn) NetConn() net.Conn { return h.Conn }
