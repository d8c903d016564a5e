/*
Package netidle closes connections that are idle, and those that live too long, by timers
of a timing wheel.

	tw := timingwheel.New()
	l, err := net.Listen("tcp", ":8080")
	...
	l = netidle.NewListener(l, tw, netidle.Limits{Idle: time.Minute, Life: 12 * time.Hour},
		netidle.WithOnTimeout(func(c *netidle.Conn, why netidle.Reason) {
			log.Printf("%v closed: %v", c.RemoteAddr(), why)
		}))
	for {
		conn, err := l.Accept()
		...
	}

A Conn is a net.Conn with Limits: on the time without a read, without a write, without
either, on its life, and on a step such as a handshake. When one is reached the connection is
closed, or, with WithExpire, its deadline is set in the past. A hook says why, and so do Conn.Reason and the errors of
Read and Write (ErrTimeout).

# When to use it

For servers of many connections that would otherwise set a deadline before each Read and
Write. It costs a fraction of that. It also sees what deadlines do not: activity in the
other direction, and an upper bound on a connection's life. If a Read has to end after a
time and the connection lives on, use a deadline. The deadlines of a Conn are those of the
inner connection, and both may be used at once.

# Cost

	Read, Write          a clock reading and an atomic operation more, some 30 ns; no lock.
	                     Nothing for a direction that no limit asks for
	Write in pieces      a mutex more: of what is no TCP socket on Linux
	TouchRead            an atomic operation
	SetLimits            two mutexes, a clock reading
	a connection         three allocations, some 300 bytes with the Timer
	a busy connection    a callback of the wheel about once per limit

# What counts

A read counts when Read has returned some bytes, a write when Write has. A connection is
never closed before its limit, and late by what the wheel's timers are: about a tick.

While no one reads, nothing is read: a server that computes for longer than Limits.Read or
Limits.Idle loses its connection. It lifts the limits with SetLimits while it works.

On Linux bytes that the peer takes from the send queue count as written, too. The kernel
buffers megabytes, so a slow download may go on for long after Write has returned, or
before it does. It is looked at when a limit would be reached, and while something is queued
every quarter of the limit. A peer that takes nothing at all is closed late for that, by a
quarter of the limit in a long transfer, and by up to one limit after a short one. Limits of
Write and Idle so tolerate a receiver that pauses for up to a limit. Of Unix sockets the
queue changes in steps of up to 32 KiB.

Elsewhere a large Write goes in pieces of 64 KiB, under a lock of its own so that those of
two goroutines do not mix, and a peer that takes less than a piece within a limit is closed.
Writes to datagram connections are never split.

# HTTP

HTTPListener gives the connections of an http.Server the limits of the phase they are in:

	l = netidle.HTTPListener(server, l, tw, netidle.HTTPLimits{
		Header:   10 * time.Second, // for the header of a request to arrive, with the TLS handshake
		Body:     30 * time.Second, // while a handler waits for the body and nothing comes
		Response: 30 * time.Second, // while the client takes nothing of the response
		Idle:     time.Minute,      // between requests
		Hijacked: netidle.Limits{Idle: time.Minute},
		Life:     12 * time.Hour,
	})
	server.Serve(l)

A handler may compute for longer than all of these. With a Listener it would lose its
connection, and with the limits lifted by http.Server.ConnState a client that stalls in the
middle of a body, takes nothing, or is hijacked would keep it for ever.

# Before a connection is closed

WithExtend is asked first, and may extend the limit. So a server pings a client that is silent,
and closes the connection if no answer comes, or grants time for a goodbye when Limits.Life is
over. With WithActivity it sees when bytes last moved, and closes when the connection is quiet:

	netidle.WithExtend(func(c *netidle.Conn, why netidle.Reason, n int) time.Duration {
		switch quiet := time.Since(c.LastRead()); {
		case why == netidle.ReadIdle && n == 0:
			ping(c)
			return 10 * time.Second
		case why == netidle.Lifetime && n < 100 && quiet < time.Second:
			return time.Second - quiet
		}
		return 0
	})

Limits.Spread keeps connections that were made together from leaving together. Limits.Due ends
a handshake, a login or a header that takes too long, and with Limits.MinRate one that trickles.
WithReset frees what a peer has not taken.

# io.Copy

Files are sent by sendfile, and TCP connections filled from TCP and Unix connections by
splice on Linux, as without a Conn: in pieces of 256 KiB at most, of sockets only what has
arrived, so that a slow sender is not taken for idle. From TCP to a Unix socket, for which
package net knows splice, it is copied through a buffer.

# Methods that the inner connection has not

CloseWrite, CloseRead and SyscallConn are always there; the error of an inner connection that
has none wraps errors.ErrUnsupported. Types for each combination would give no *Conn that
SetLimits could be called on. Code that asks whether there is a CloseWrite, and closes
otherwise, should look at its error.

# Layers

With TLS, put tls.Server or tls.NewListener on top of a Conn; Find gets the Conn back. The
other way round works as well, but the closing then waits, for up to five seconds, until
package tls has said goodbye. Callbacks of the wheel close connections and call the hook: a
wheel made WithInline, or with an executor that blocks, is held up by that.

A connection does not end with the wheel: if that is stopped, package time takes over
the limits of the connections that live, and of those made later.
*/
package netidle
