// Package nettest runs the suite for connections of golang.org/x/net/nettest on those of
// package netidle. It is a module of its own, so that nobody who uses the wheel gets
// golang.org/x/net into his go.sum. It holds tests only.
package nettest
