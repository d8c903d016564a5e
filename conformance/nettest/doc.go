// Package nettest runs the suite of golang.org/x/net/nettest on the connections of package netidle.
// It is a module of its own, so the users of the wheel do not depend on golang.org/x/net. It holds
// tests only.
package nettest
