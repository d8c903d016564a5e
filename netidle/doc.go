/*
Package netidle closes connections that are idle, and those that live too long, by timers
of a timing wheel.

	tw := timingwheel.New()
	l, err := net.Listen("tcp", ":8080")
	...
	l = netidle.NewListener(l, tw, netidle.Limits{Idle: time.Minute, Lifetime: 12 * time.Hour},
		netidle.WithOnTimeout(func(c *netidle.Conn, why netidle.Reason) {
			log.Printf("%v closed: %v", c.RemoteAddr(), why)
		}))
	for {
		conn, err := l.Accept()
		...
	}

A Conn is a net.Conn with Limits: on the time without a read, without a write, without
either, on its life, and on a step such as a handshake. When one is reached the connection is
closed, or, with WithExpire, its deadline is set in the past. A hook is told why before that.
Conn.Reason and the errors of Read and Write (ErrTimeout) say it afterwards.

# When to use it

For servers of many connections that would otherwise set a deadline before each Read and
Write. It costs a fraction of that. It also sees what deadlines do not: activity in the
other direction, and an upper bound on a connection's life. If a Read has to end after a
time and the connection lives on, use a deadline. The deadlines of a Conn are those of the
inner connection, and both may be used at once.

# Cost

	Read, Write          a clock reading and an atomic operation more; no lock.
	                     Nothing for a direction that no limit asks for
	other connections    two mutexes and two clock readings more for each call: of what is no
	                     socket of package net, and on systems where the kernel is not asked
	TouchRead            an atomic operation
	SetLimits            two mutexes, a clock reading
	a connection         three allocations, 128 bytes with the Timer. More with two or three of
	                     Read, Write and Idle, or if it is not a TCP socket on Linux
	a busy connection    a callback of the wheel about once per limit

# What counts

A limit measures how long the peer keeps us waiting. A read counts when Read has returned some
bytes, a write when Write has. A connection is never closed before its limit, and late by what the
wheel's timers are: about a tick.

While bytes that the peer has sent are still unread, the peer waits for us, and time does not
count. A proxy whose client is slow does not lose its backend. On Linux and other Unix systems the
kernel is asked, when a limit would be reached, whether anything is unread, the end of the stream
included. A connection whose owner never reads what has come is closed by Limits.Lifetime only.

The kernel does not know of bytes in a buffer between the socket and the Conn, as that of a
*tls.Conn under a Conn, and on other systems it is not asked. There time counts while a call waits:
for Limits.ReadIdle a Read, for Limits.Idle a Read or a Write. Until the first Read begins, and after
the end was read, it counts always. What a layer on top of the Conn has read counts as read.

A handler that computes for longer than Limits.ReadIdle or Limits.Idle, with nothing unread, loses its
connection. Lift the limits with SetLimits while it works.

A direction that is finished has no limit: reading after the end of the stream or CloseRead,
writing after CloseWrite. Idle and Lifetime hold until the connection is closed.

# Slow peers

The kernel buffers megabytes, so a slow download may go on for long after Write has returned, or
before it does. For TCP on Linux bytes that the peer acknowledges count as written, too. The kernel
says when it last sent data and when it last had an answer, so a peer that takes nothing any more
is closed about on time: late by some 20 ms for the steps of the kernel's clock, and by up to twice
TCP's retransmission timeout, usually 0.4 s, if the connection was probed meanwhile. A receiver
whose buffer is full announces room only when a sixteenth of the buffer is free, or a segment's
worth. The sender cannot see less, so a peer that takes less within a limit is closed.

The send queue of a Unix socket, of Multipath TCP and of kernels that do not tell all, as gVisor, is
sampled every quarter of the limit while nothing is written: a peer that takes nothing is closed
late by up to a quarter. The queue of a Unix socket changes in steps of up to 32 KiB.

The socket is found under a *tls.Conn, under whatever else has a NetConn method, and under a struct
that embeds a net.Conn, as the connections of netutil.LimitListener do. WithSocket names it in other
cases. Where there is none, and on other systems, a large Write goes in pieces of 64 KiB, under a
lock of its own so that those of two goroutines do not mix. A blocked writer wakes only when a part
of the send buffer is free, on Linux a third: a peer that takes less within a limit is closed.
Writes to datagram connections are never split.

# HTTP

HTTPListener gives the connections of an http.Server the limits of the phase they are in:

	l = netidle.HTTPListener(server, l, tw, netidle.HTTPLimits{
		Header:   10 * time.Second, // for the header of a request to arrive, with the TLS handshake
		Body:     30 * time.Second, // while a handler waits for the body and nothing comes
		Response: 30 * time.Second, // while the client takes nothing of the response
		Idle:     time.Minute,      // between requests
		Hijacked: netidle.Limits{Idle: time.Minute},
		Lifetime:     12 * time.Hour,
	})
	server.Serve(l)

A handler may compute for longer than all of these. With a Listener it would lose its
connection, and with the limits lifted by http.Server.ConnState a client that stalls in the
middle of a body, takes nothing, or is hijacked would keep it for ever.

# Before a connection is closed

WithExtend is asked first, and may extend the limit. So a server pings a client that is silent,
and closes the connection if no answer comes, or grants time for a goodbye when Limits.Lifetime is
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

# io.Copy and net.Buffers

Files are sent by sendfile, and TCP connections filled from TCP and Unix connections by splice on
Linux, as without a Conn: in pieces of 256 KiB at most, of sockets only what has arrived, so that a
slow sender is not taken for idle. Small messages are read and written, by no more system calls than
a plain copy makes. From TCP to a Unix socket, for which package net knows splice, data is copied
through a buffer.

net.Buffers uses writev for types of package net only. Conn.WriteBuffers does for a Conn.

# Methods that the inner connection lacks

CloseWrite, CloseRead and SyscallConn are always there; the error of an inner connection that has
none wraps errors.ErrUnsupported. Types for each combination would give no *Conn on which to call
SetLimits. Code that asks whether there is a CloseWrite, and closes otherwise, should look at its
error.

# Layers

With TLS, put tls.Server or tls.NewListener on top of a Conn; Find gets the Conn back. A Conn under
TLS has no keys, so when a limit closes it the peer gets no close_notify. It gets one with
WithExpire and Limits.ReadIdle: the owner of the *tls.Conn sees an error and closes it while writing is
still possible. It also gets one from a Conn around a *tls.Conn, but the closing then waits, for up
to five seconds, until package tls has said goodbye. Callbacks of the wheel call the hook and close
connections: a wheel made WithInline, or with an executor that blocks, is held up by that.

A connection does not end with the wheel: if that is stopped, package time takes over
the limits of the connections that live, and of those made later.
*/
package netidle
