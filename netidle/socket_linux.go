package netidle

import (
	"syscall"
	"time"
	"unsafe"
)

// This file asks the kernel about a socket: how many bytes are unread, how many are on the way to
// the peer, and when some last moved. It takes no lock; check calls ask under Conn.mu.

const (
	canAskReads = true
	canAskTCP   = true
	canSample   = true
	canSplice   = true

	fionread = syscall.TIOCINQ  // the same number under its name for terminals
	siocoutq = syscall.TIOCOUTQ // likewise
)

// askRaw does not block. It returns false for a closed socket.
func askRaw(raw syscall.RawConn) (r report, ok bool) {
	err := raw.Control(func(fd uintptr) {
		var unread int
		unread, ok = ioctlInt(fd, fionread)
		r.unread = unread > 0
		r.queued, _ = ioctlInt(fd, siocoutq)
		r.askTCP(fd)
	})
	return r, ok && err == nil
}

// ioctlInt returns the C int that the request stores, which has 32 bits on all platforms.
func ioctlInt(fd, request uintptr) (int, bool) {
	var value int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&value)))
	return int(value), errno == 0
}

// tcpInfo is the beginning of the kernel's struct tcp_info, which is the same on all platforms.
type tcpInfo struct {
	syscall.TCPInfo
	_        [2]uint64
	acked    uint64 // since Linux 4.1
	_        uint64
	_        uint32
	segments uint32 // received; since Linux 4.2
}

// tcpCloseWait is the state of a TCP connection whose peer has closed its side.
const tcpCloseWait = 8

// askTCP adds what the kernel knows about a TCP socket. It leaves timed false if the socket is not
// TCP. It also does so for kernels that fill in only some fields, such as gVisor, as the others
// would say that data arrived just now, and for Multipath TCP, as only one path would be seen.
func (r *report) askTCP(fd uintptr) {
	var info tcpInfo
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.Syscall6(sysGetsockopt, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return
	}
	r.unread = r.unread || info.State == tcpCloseWait
	r.acked = info.acked
	r.timed = info.segments > 0 && !isMultipath(fd)
	r.received = time.Duration(info.Last_data_recv) * time.Millisecond
	r.sent = time.Duration(info.Last_data_sent) * time.Millisecond
	r.answered = time.Duration(info.Last_ack_recv) * time.Millisecond
	r.rto = time.Duration(info.Rto) * time.Microsecond
}

func isMultipath(fd uintptr) bool {
	const tcpIsMultipath = 43 // TCP_IS_MPTCP, since Linux 5.16
	var value int32
	size := uint32(unsafe.Sizeof(value))
	_, _, errno := syscall.Syscall6(sysGetsockopt, fd, syscall.IPPROTO_TCP, tcpIsMultipath,
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	return errno == 0 && value != 0
}

// unread returns how many bytes can be read.
func unread(raw syscall.RawConn) (n int) {
	raw.Control(func(fd uintptr) { n, _ = ioctlInt(fd, fionread) })
	return n
}

const errWouldBlock = syscall.EAGAIN

// readRaw reads from the socket. The error is errWouldBlock if there is nothing to read.
func readRaw(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
