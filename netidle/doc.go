/*
Package netidle closes network connections that are idle or too old. It runs on the timers of a
timing wheel.

	tw := timingwheel.New()
	l, err := net.Listen("tcp", ":8080")
	...
	limits := netidle.Limits{Idle: time.Minute, Lifetime: 12 * time.Hour}
	l = netidle.NewListener(l, tw, limits,
		netidle.WithOnTimeout(func(c *netidle.Conn, why netidle.Reason) {
			log.Printf("%v closed: %v", c.RemoteAddr(), why)
		}))
	for {
		conn, err := l.Accept()
		...
	}

A Conn is a net.Conn with Limits. They bound the time without a read, without a write, or without
either, the age of the connection, and the duration of a step such as a handshake. When a
connection reaches a limit, the package calls the hook of WithOnTimeout and closes the connection.
With WithExpire it sets a deadline in the past instead. Conn.Reason returns which limit was
reached, and errors.Is finds ErrTimeout in the errors of Read and Write.

# When to use it

Use it in a server that has many connections and would otherwise set a deadline before each Read
and Write. It costs a fraction of that. It also covers what deadlines do not: activity in the other
direction, and the age of a connection. Use a deadline if one Read must end after some time and the
connection lives on. The deadlines of a Conn are those of the inner connection. Deadlines and
limits may be used together.

# Cost

	Read, Write        one more clock reading and atomic operation, and no lock; nothing in a
	                   direction that no limit covers
	other connections  two more mutexes and clock readings for each call, if the inner connection
	                   is not a socket of package net or the system cannot be asked about it
	TouchRead          one atomic operation
	SetLimits          two mutexes and one clock reading
	each connection    three allocations, 128 bytes with the Timer; more with two or more of
	                   ReadIdle, WriteIdle, Idle and Due, or if it is not a TCP socket on Linux
	busy connection    about one callback of the wheel per limit

# What counts

A limit measures how long the peer keeps the program waiting. A Read counts when it has returned
bytes, and a Write when it has written some. A connection is never closed before its limit. It is
closed as late as the wheel's timers fire, by about a tick.

While bytes from the peer are unread, the peer is waiting for the program, and time does not count.
So a proxy with a slow client does not lose its backend. On Linux and other Unix systems the
package asks the kernel, when a limit would be reached, whether anything is unread. The end of the
stream counts as unread, too. If a program never reads what has arrived, ReadIdle and Idle do not
close the connection, but Lifetime does.

The kernel does not know about bytes in a buffer between the socket and the Conn, such as that of a
*tls.Conn under a Conn, and other systems cannot be asked at all. There, time counts only while a
call waits: a Read for ReadIdle, a Read or a Write for Idle. It counts all the time before the
first Read begins and after the end of the stream has been read. Bytes that a layer on top of the
Conn has read and buffered count as read.

A handler that computes for longer than ReadIdle or Idle, while nothing is unread, loses its
connection. Lift the limits with SetLimits while it works.

A finished direction has no limit: reading after the end of the stream or CloseRead, and writing
after CloseWrite. Idle, Lifetime and Due hold until the connection is closed.

# Slow peers

The kernel buffers megabytes, so a slow download may continue long after Write has returned, or
long before it does. For TCP on Linux, bytes that the peer acknowledges count as written, too. The
kernel reports when it last sent data and when it last received an answer, so a peer that stops
taking data is closed about on time. It is late by up to 20 ms, because the kernel's clock has
steps. If the kernel has probed the connection meanwhile, it is late by up to twice TCP's
retransmission timeout, usually 0.4 s. A receiver with a full buffer announces room only when a
sixteenth of the buffer, or one segment, is free. The sender sees nothing smaller, so a peer that
takes less than that within a limit is closed.

Unix sockets, Multipath TCP and some kernels, such as gVisor, report less. There the package
samples the send queue every quarter of the limit while nothing is written. A peer that takes
nothing is closed late by up to a quarter of the limit. The queue of a Unix socket changes in steps
of up to 32 KiB.

The package finds the socket under a *tls.Conn, under any other type with a NetConn method, and
under a struct that embeds a net.Conn, as the connections of netutil.LimitListener do. WithSocket
names the socket in other cases. If there is none, and on other systems, Write splits its data into
pieces of 64 KiB, and holds a lock so that the pieces of two goroutines do not mix. A blocked
writer wakes only when part of the send buffer is free, on Linux a third. A peer that takes less
than that within a limit is closed. Writes to datagram connections are never split.

# HTTP

HTTPListener gives each connection of an http.Server the limits of its current phase:

	l = netidle.HTTPListener(server, l, tw, netidle.HTTPLimits{
		Header:   10 * time.Second, // until a request's header, or the TLS handshake, is complete
		Body:     30 * time.Second, // while a handler waits for the body and nothing arrives
		Response: 30 * time.Second, // while the client takes nothing of the response
		Idle:     time.Minute,      // between requests
		Hijacked: netidle.Limits{Idle: time.Minute},
		Lifetime: 12 * time.Hour,
	})
	server.Serve(l)

A handler may compute for longer than Header, Body, Response and Idle. With NewListener it would
lose its connection. Lifting the limits in http.Server.ConnState does not help: then a client keeps
its connection forever if it stalls in the middle of a body, takes nothing of the response, or is
hijacked.

# Before a connection is closed

WithExtend sets a function that may extend a limit when it is reached. A server can ping a silent
client and close the connection if no answer comes, or grant time for a goodbye at the end of
Lifetime. With WithActivity the function knows when bytes last moved, and can wait until the
connection is quiet:

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

Spread keeps connections that were made together from being closed together. Due ends a handshake,
a login or a header that takes too long, and MinRate ends one that trickles. WithReset frees at
once what a peer has not taken.

# io.Copy and net.Buffers

io.Copy to a Conn sends files by sendfile. On Linux it copies from TCP and Unix connections to TCP
connections by splice. Package net does the same without a Conn. The data goes in pieces of at most
256 KiB, and from a socket only as much as has arrived, so a slow sender does not look idle. Small
messages are read and written, with no more system calls than a plain copy makes. From TCP to a
Unix socket, where package net would splice, data goes through a buffer.

net.Buffers uses writev for types of package net only. Conn.WriteBuffers uses it for a Conn.

# Methods that the inner connection lacks

A Conn always has the methods CloseWrite, CloseRead and SyscallConn. If the inner connection lacks
one, its error wraps errors.ErrUnsupported. A type for each combination of methods would leave no
*Conn on which to call SetLimits. Code that closes a connection because it has no CloseWrite should
also do so if CloseWrite returns this error.

# Layers

For TLS, put tls.Server or tls.NewListener on top of a Conn; Find returns the Conn underneath. A
Conn under TLS has no keys, so when a limit closes it, the peer receives no close_notify. The peer
does receive one with WithExpire and ReadIdle: the owner of the *tls.Conn sees an error and closes
it while writing is still possible. It also receives one from a Conn around a *tls.Conn, but then
closing waits up to five seconds for package tls to send it. The wheel's callbacks call the hook
and close connections, so this delays a wheel made with WithInline or with an executor that blocks.

A connection outlives its wheel. When the wheel is stopped, package time takes over the limits of
all connections, including those made later.
*/
package netidle
