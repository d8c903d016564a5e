package netidle

import "time"

// This file holds the limits of an http.Server's connections, and which of them hold in each phase
// of a connection. httpConn.mu guards an httpState.

// HTTPLimits are the limits for connections of an http.Server, one for each phase. Zero means no
// limit.
//
// While a handler works, and waits neither for the body nor in a Write, only Lifetime holds. So it
// may compute for hours, or wait for an event.
type HTTPLimits struct {
	// Header bounds the time for the header of a request to arrive. It counts from Accept for the
	// first request, including a TLS handshake, and from the first byte for later ones. The Reason
	// is Overdue. If Header is zero, Idle holds here, too.
	Header time.Duration

	// Body bounds how long a handler may wait in Body.Read without receiving a byte. It also holds
	// while the server reads what a handler has left of a body. The Reason is ReadIdle.
	Body time.Duration

	// MinBodyRate is the lowest rate, in bytes per second, at which a body may arrive. The server
	// waits for a body no longer, in all, than Body plus the time that the bytes received take at
	// this rate. They include those that TLS adds. The Reason is Overdue. If MinBodyRate or Body
	// is zero, a body may arrive at any rate within Body.
	MinBodyRate int

	// Response bounds how long the server may wait in a Write while the client takes nothing. The
	// Reason is WriteIdle.
	Response time.Duration

	// Idle bounds how long a connection may wait for the next request. Bytes of the last response
	// that are still in the send queue count as in Limits.Idle.
	Idle time.Duration

	// Hijacked are the limits of a connection once a handler has hijacked it, as for a WebSocket.
	// They count from then. The handler may replace them with Find and SetLimits. If
	// Hijacked.Lifetime is zero, Lifetime still holds.
	Hijacked Limits

	// Lifetime bounds how long a connection may live, whatever it does. Spread extends it by a
	// random time, as in Limits.
	Lifetime, Spread time.Duration

	// Grace extends Lifetime for a request that is under way at its end. The connection is then
	// closed two seconds after it becomes idle. Responses to requests that begin after Lifetime
	// have the header Connection: close, which HTTP/2 turns into GOAWAY.
	Grace time.Duration
}

// check panics if a limit is negative.
func (l HTTPLimits) check() {
	checkLimit("Header", l.Header)
	checkLimit("Body", l.Body)
	checkRate("MinBodyRate", l.MinBodyRate)
	checkLimit("Response", l.Response)
	checkLimit("Idle", l.Idle)
	checkLimit("Lifetime", l.Lifetime)
	checkLimit("Spread", l.Spread)
	checkLimit("Grace", l.Grace)
	l.Hijacked.check()
}

// httpState is what the limits depend on.
type httpState struct {
	phase  httpPhase
	heard  bool // the client has sent something
	http2  bool
	unread bool // HTTP/1: the request has a body whose end has not been read
	reads  int  // calls of httpConn.Read that are running
	writes int  // calls of httpConn.Write and ReadFrom that are running
	bodies int  // HTTP/2: calls of httpBody.Read that are running

	end time.Duration // replaces Lifetime in an idle connection that is on Grace

	// With MinBodyRate, while there are requests:
	received int64         // bytes
	waited   time.Duration // for bodies
	changed  int64         // when the state last changed
}

type httpPhase uint8

const (
	httpNew    httpPhase = iota // until the header of the first request has been read
	httpHeader                  // from the first byte of a later request
	httpActive
	httpIdle
	httpHijacked
)

// httpLinger is how long a connection that is on Grace may stay idle. HTTP/2 may still have to
// write the end of the response, and takes a second to close after GOAWAY.
const httpLinger = 2 * time.Second

// of returns the limits that hold in state s.
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
			limits.Lifetime = plus(l.Lifetime, l.Grace)
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

// waits reports whether the server waits for a body.
func (s *httpState) waits() bool { return s.unread && s.reads > 0 || s.bodies > 0 }

// left returns how much longer the server may wait for a body by MinBodyRate, or 0 if there is no
// limit.
func (s *httpState) left(l *HTTPLimits) time.Duration {
	if l.Body == 0 {
		return 0
	}
	allowed := atRate(l.Body, s.received, l.MinBodyRate)
	if allowed == forever {
		return 0
	}
	return max(allowed-s.waited, 1)
}

// concerns returns the part of the state on which the limits depend, except times.
func (s *httpState) concerns() (c struct {
	phase         httpPhase
	writes, waits bool
}) {
	c.phase, c.writes, c.waits = s.phase, s.writes > 0, s.waits()
	return c
}
