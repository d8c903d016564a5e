package netidle

import (
	"errors"
	"net"

	"github.com/go-timingwheel/timingwheel"
)

// A Listener accepts connections that have limits. It has no lock of its own. With TLS, put
// tls.NewListener on top of it.
type Listener struct {
	net.Listener
	tw     *timingwheel.TimingWheel
	config *config
}

// NewListener returns a Listener whose connections have the given limits on the wheel. It
// panics if l or tw is nil or a limit negative.
func NewListener(l net.Listener, tw *timingwheel.TimingWheel, limits Limits, opts ...Option) *Listener {
	if l == nil {
		panic("netidle: nil listener")
	}
	if tw == nil {
		panic("netidle: nil TimingWheel")
	}
	limits.check()
	return &Listener{l, tw, newOptions(opts).with(limits)}
}

// Accept waits for a connection and returns it as a *Conn. Errors of the inner listener are
// returned as they are; that of a closed one is net.ErrClosed. Once the inner listener has
// returned a connection, Accept calls nothing that may block: a connection whose LocalAddr
// waits for the peer, as that of a PROXY protocol may, does not hold up the others.
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
