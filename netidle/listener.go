package netidle

import (
	"errors"
	"net"

	"github.com/go-timingwheel/timingwheel"
)

// This file holds the Listener, which takes no lock.

// A Listener accepts connections and gives them limits. For TLS, put tls.NewListener on top of it.
type Listener struct {
	net.Listener
	tw     *timingwheel.TimingWheel
	config *config
}

// NewListener returns a Listener that accepts connections from l. The connections have the given
// limits and options, and their timers are on tw. NewListener panics if l or tw is nil or if a
// limit is negative.
func NewListener(l net.Listener, tw *timingwheel.TimingWheel,
	limits Limits, opts ...Option) *Listener {
	if l == nil {
		panic("netidle: nil listener")
	}
	if tw == nil {
		panic("netidle: nil TimingWheel")
	}
	limits.check()
	return &Listener{l, tw, newOptions(opts).with(limits)}
}

// Accept waits for the next connection and returns it as a *Conn. It returns errors of the inner
// listener as they are; after Close they match net.ErrClosed. Accept calls no method of the new
// connection that may block. A connection whose LocalAddr waits for the peer, as with the PROXY
// protocol, does not hold up other connections.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if inner == nil {
		return nil, errors.New("netidle: the listener accepted a nil connection")
	}
	return newConn(inner, l.tw, l.config), nil
}
