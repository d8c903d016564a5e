package netidle

import (
	"net"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// This file finds the socket under a connection and says what the kernel can be asked about
// it. How the kernel is asked is in socket_linux.go and its neighbours.

// A report is what the kernel says about a socket.
type report struct {
	unread bool // something can be read: bytes, or the end of the stream
	queued int  // how many bytes were written that the peer has not taken

	// Of TCP, if timed. The kernel's clock has steps of up to 10 ms.
	timed                    bool
	received, sent, answered time.Duration // since data came, data was sent, anything was acknowledged
	rto                      time.Duration // what TCP itself grants an acknowledgement
	acked                    uint64        // how many bytes were acknowledged in the connection's life
}

// abilities returns the bits of Conn.state that say what the kernel knows of inner. It calls
// nothing that may block.
//
// Only if inner is a socket of package net does the kernel know of all bytes that are unread.
// Any other type may keep some in a buffer of its own, as a *tls.Conn does.
func abilities(inner net.Conn) uint32 {
	bits := sendAbilities(inner)
	switch inner.(type) {
	case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn:
		if canAskReads {
			return bits | asksReads
		}
	}
	return bits | tracked
}

// sendAbilities returns what the kernel knows of the send queue of the socket, which may be nil
// or of any type.
func sendAbilities(socket net.Conn) uint32 {
	switch socket := socket.(type) {
	case *net.TCPConn:
		if canAskTCP {
			return asksTCP
		}
		return pieces
	case *net.UnixConn:
		if !isStream(socket) {
			return 0
		}
		if canSample {
			return samples | pieces
		}
		return pieces
	}
	return 0
}

// socketUnder returns the socket of package net that conn is or that lies under it, or nil. It
// is called when a Conn is made: a wrapper may change what it embeds later on.
func socketUnder(conn net.Conn) net.Conn {
	for conn != nil {
		switch conn.(type) {
		case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn:
			return conn
		}
		conn = unwrap(conn)
	}
	return nil
}

// unwrap returns the connection that conn is a layer on, or nil if that cannot be seen. What is
// embedded comes first: its methods, NetConn among them, are conn's as well.
func unwrap(conn net.Conn) net.Conn {
	v := reflect.ValueOf(conn)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.Anonymous || !field.IsExported() || !field.Type.Implements(connType) {
				continue
			}
			if kind := field.Type.Kind(); kind != reflect.Interface && kind != reflect.Pointer {
				continue
			}
			if v.Field(i).IsNil() {
				return nil
			}
			return v.Field(i).Interface().(net.Conn)
		}
	}
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return outer.NetConn()
	}
	return nil
}

var connType = reflect.TypeFor[net.Conn]()

// Find returns the Conn that c is, or that lies under it: under a *tls.Conn, whatever else has a
// NetConn method, or a struct that embeds a net.Conn, as netutil.LimitListener's connections do.
func Find(c net.Conn) (*Conn, bool) {
	for c != nil {
		if found, ok := c.(*Conn); ok {
			return found, true
		}
		c = unwrap(c)
	}
	return nil, false
}

// splits reports whether a large Write goes in pieces. Where writes are messages it must not.
// It may block: a LocalAddr may wait for the peer. So it is called by Write, and only for what
// is too large for most messages.
func (c *Conn) splits() bool {
	if c.has(pieces | whole) {
		return c.has(pieces)
	}
	decision := whole
	socket := c.config.Load().more.socket
	if socket == nil && isStream(c.inner) || sendAbilities(socket)&pieces != 0 {
		decision = pieces
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Or(decision)
	return decision == pieces
}

// isStream reports that what is written to conn may be split.
func isStream(conn net.Conn) bool {
	addr := conn.LocalAddr()
	if addr == nil {
		return true
	}
	network := addr.Network()
	return network != "unixgram" && network != "unixpacket" &&
		!strings.HasPrefix(network, "udp") && !strings.HasPrefix(network, "ip")
}

// ask asks the kernel about the socket.
func ask(socket net.Conn) (report, bool) {
	s, ok := socket.(syscall.Conn)
	if !ok {
		return report{}, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return report{}, false
	}
	return askRaw(raw)
}
