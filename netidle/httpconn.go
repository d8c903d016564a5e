package netidle

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// This file holds the connection that an http.Server reads and writes. It keeps the state by which
// HTTPLimits chooses the Limits, under httpConn.mu, which comes before Conn.mu.

// An httpConn is what the server of an HTTPListener reads and writes.
type httpConn struct {
	*Conn
	limits *HTTPLimits // fixed, and shared

	mu    sync.Mutex // comes before Conn.mu
	state httpState
	set   Limits // the Limits of the Conn
}

// change changes the state, and the limits if they depend on the change.
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
		return // as after most changes
	}
	// A hijacked connection keeps its limits, which may be the handler's: of returns the same.
	if limits := h.limits.of(&h.state); limits != h.set {
		h.set = limits
		h.SetLimits(limits)
	}
}

// isOld reports whether the connection is on Grace.
func (h *httpConn) isOld() bool {
	life := h.lifetimeOf(Limits{Lifetime: h.limits.Lifetime, Spread: h.limits.Spread})
	return life > 0 && h.now()-h.born >= int64(life)
}

// connState follows http.Server.ConnState, which is called with outer: h or a layer on top of it.
func (h *httpConn) connState(outer net.Conn, state http.ConnState) {
	h.change(func(s *httpState) {
		switch state {
		case http.StateActive:
			if s.phase == httpNew {
				// Set before the first handler runs, so that an HTTP/2 connection without a
				// request, but with settings and pings, is idle.
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

// ReadFrom sends files as Conn.ReadFrom does. With another reader that would wait for the reader
// as well as for the client, so ReadFrom copies through Write.
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

// SetReadDeadline with the zero time announces the server's Read in the background. A handler that
// calls it through http.ResponseController waits for the body without a limit.
func (h *httpConn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		h.change(func(s *httpState) { s.unread = false })
	}
	return h.Conn.SetReadDeadline(t)
}

// NetConn returns the Conn, for Find.
func (h *httpConn) NetConn() net.Conn { return h.Conn }

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
