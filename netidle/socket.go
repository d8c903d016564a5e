package netidle

import (
	"net"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// This file finds the socket under a connection and decides what to ask the kernel about it. No
// lock is needed, except that splits takes Conn.mu. socket_linux.go and its neighbours ask.

// A report is what the kernel says about a socket.
type report struct {
	unread bool // something can be read: bytes, or the end of the stream
	queued int  // bytes written that the peer has not taken

	// For TCP, if timed. The kernel's clock has steps of up to 10 ms.
	timed    bool
	received time.Duration // since data arrived
	sent     time.Duration // since data was sent
	answered time.Duration // since an acknowledgement arrived
	rto      time.Duration // retransmission timeout
	acked    uint64        // bytes acknowledged since the connection was made
}

// abilities returns the bits of Conn.state that say what the kernel knows about inner. It calls
// nothing that may block.
//
// The kernel knows of all unread bytes only if inner is a socket of package net. Any other type
// may keep some in a buffer of its own, as a *tls.Conn does.
func abilities(inner net.Conn) uint32 {
	bits := sendAbilities(inner)
	if canAskReads && isSocket(inner) {
		return bits | asksReads
	}
	return bits | tracked
}

// isSocket reports whether conn is a socket of package net.
func isSocket(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn:
		return true
	}
	return false
}

// sendAbilities returns what the kernel knows about the send queue of the socket, which may be nil
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

// socketUnder returns the socket of package net that conn is or that lies under it, or nil. It is
// called when a Conn is made, because a wrapper may change later what it embeds.
func socketUnder(conn net.Conn) net.Conn {
	for conn != nil && !isSocket(conn) {
		conn = unwrap(conn)
	}
	return conn
}

// unwrap returns the connection under the layer conn, or nil if it cannot be seen. An embedded
// connection comes first, because its methods, including NetConn, are conn's as well.
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

// Find returns c if it is a *Conn, or else the Conn under it. It looks through a *tls.Conn, through
// any other type with a NetConn method, and through a struct that embeds a net.Conn, as the
// connections of netutil.LimitListener do.
func Find(c net.Conn) (*Conn, bool) {
	for c != nil {
		if found, ok := c.(*Conn); ok {
			return found, true
		}
		c = unwrap(c)
	}
	return nil, false
}

// splits reports whether Write splits large data into pieces. It must not where writes are
// messages. splits may block, as a LocalAddr may wait for the peer. So only Write calls it, and
// only for data larger than most messages.
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

// isStream reports whether a write to conn may be split.
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
