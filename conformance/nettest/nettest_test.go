package nettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/go-timingwheel/timingwheel"
	"github.com/go-timingwheel/timingwheel/netidle"
)

// TestMain skips three parts of the suite that package tls fails by itself: they continue after a
// Write that ran into its deadline.
func TestMain(m *testing.M) {
	skip := flag.Lookup("test.skip")
	if skip.Value.String() == "" {
		skip.Value.Set("TestConn/TLS/(PastTimeout|FutureTimeout|ConcurrentMethods)")
	}
	os.Exit(m.Run())
}

// limits are all set, and none is reached.
var limits = netidle.Limits{
	ReadIdle: time.Minute, WriteIdle: time.Minute, Idle: time.Minute, Lifetime: time.Hour,
}

// A wrapper puts a netidle.Conn around a connection.
type wrapper func(net.Conn) net.Conn

func TestConn(t *testing.T) {
	config := tlsConfig(t)
	secure := func(c net.Conn, server bool) net.Conn {
		if server {
			return tls.Server(c, config)
		}
		return tls.Client(c, config)
	}
	plain := func(wrap wrapper, _ bool, c net.Conn) net.Conn { return wrap(c) }
	under := func(wrap wrapper, server bool, c net.Conn) net.Conn {
		return secure(wrap(c), server)
	}
	around := func(wrap wrapper, server bool, c net.Conn) net.Conn {
		return wrap(secure(c, server))
	}
	for _, kind := range []struct {
		name string
		pair func() (a, b net.Conn, err error)
		make func(wrap wrapper, server bool, c net.Conn) net.Conn
	}{
		{"TCP", tcpPair, plain},
		{"Unix", unixPair, plain},
		{"Pipe", pipePair, plain},
		{"under TLS", tcpPair, under},
		{"around TLS", tcpPair, around},
	} {
		for name, opts := range map[string][]netidle.Option{
			"close": nil, "expire": {netidle.WithExpire()},
		} {
			t.Run(kind.name+" "+name, func(t *testing.T) {
				if kind.name == "Unix" && !nettest.TestableNetwork("unix") {
					t.Skip("no Unix sockets here")
				}
				tw := timingwheel.New()
				defer tw.Stop()
				never := func(_ *netidle.Conn, why netidle.Reason) {
					t.Errorf("reached a limit: %v", why)
				}
				opts := append(opts, netidle.WithOnTimeout(never))
				wrap := func(c net.Conn) net.Conn { return netidle.NewConn(c, tw, limits, opts...) }
				nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
					a, b, err := kind.pair()
					if err != nil {
						return nil, nil, nil, err
					}
					c1, c2 = kind.make(wrap, true, a), kind.make(wrap, false, b)
					return c1, c2, func() { c1.Close(); c2.Close() }, shakeHands(c1, c2)
				})
				require.Zero(t, tw.Len(), "a closed connection has no timer")
			})
		}
	}
}

// shakeHands does the handshake of TLS connections, because the deadlines of the suite do not allow
// for it.
func shakeHands(conns ...net.Conn) error {
	done := make(chan error, len(conns))
	for _, c := range conns {
		go func() {
			if idle, ok := c.(*netidle.Conn); ok {
				c = idle.NetConn()
			}
			var err error
			if secure, ok := c.(*tls.Conn); ok {
				err = secure.Handshake()
			}
			done <- err
		}()
	}
	var err error
	for range conns {
		err = errors.Join(err, <-done)
	}
	return err
}

func tcpPair() (a, b net.Conn, err error) { return accept(net.Listen("tcp", "127.0.0.1:0")) }

func unixPair() (a, b net.Conn, err error) {
	dir, err := os.MkdirTemp("", "netidle")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	return accept(net.Listen("unix", filepath.Join(dir, "s")))
}

func pipePair() (a, b net.Conn, err error) {
	a, b = net.Pipe()
	return a, b, nil
}

// accept returns both ends of a connection to l, and closes l.
func accept(l net.Listener, err error) (a, b net.Conn, _ error) {
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if b, err = net.Dial(l.Addr().Network(), l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if a, err = l.Accept(); err != nil {
		b.Close()
	}
	return a, b, err
}

func tlsConfig(t *testing.T) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return &tls.Config{
		Certificates: []tls.Certificate{
			{Certificate: [][]byte{certificate}, PrivateKey: key},
		},
		InsecureSkipVerify: true, // both ends are in this test
	}
}
