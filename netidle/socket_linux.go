package netidle

import (
	"syscall"
	"unsafe"
)

// This file asks the kernel two things: how many bytes of a socket's are on the way
// to the peer, and how many have arrived. No lock; check calls look under Conn.mu.

const (
	canLook   = true
	canSplice = true

	fionread = syscall.TIOCINQ  // the same number, by its name for terminals
	siocoutq = syscall.TIOCOUTQ // the same
)

// look returns the state of the send queue. It returns false if that cannot be had:
// for a closed socket, or one of a kind that has none. It does not block.
func look(raw syscall.RawConn) (queue sendQueue, ok bool) {
	err := raw.Control(func(fd uintptr) {
		queue.bytes, ok = ioctlInt(fd, siocoutq)
		if queue.bytes > 0 {
			queue.acked = bytesAcked(fd)
		}
	})
	return queue, ok && err == nil
}

// ioctlInt returns the int, of 32 bits everywhere, that the request stores.
func ioctlInt(fd, request uintptr) (int, bool) {
	var value int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&value)))
	return int(value), errno == 0
}

// bytesAckedAt is the offset of tcpi_bytes_acked in the kernel's struct tcp_info. It is
// the same everywhere: what comes before it are 8 bytes, 24 words of 4 and 2 of 8.
const bytesAckedAt = 8 + 24*4 + 2*8

// bytesAcked returns how many bytes the peer has acknowledged in all, or 0 if the
// kernel does not tell: before Linux 4.1, and for what is not TCP.
//
// The length of the queue alone is not enough: while a Write fills it again as fast as
// the peer empties it, it may be as long each time one looks.
func bytesAcked(fd uintptr) uint64 {
	var info struct {
		_     [bytesAckedAt / 8]uint64
		acked uint64
	}
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.Syscall6(sysGetsockopt, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return info.acked
}

// arrived waits until something can be read and returns how many bytes; 0 at the end
// of the stream.
//
// That nothing is there does not mean that the end is: FIONREAD says 0 for both. A peek
// tells them apart. It also has to come before the wait, as the poller tells of a
// change once: waiting for one that has been told already would be for ever.
func arrived(raw syscall.RawConn) (n int, err error) {
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _ = ioctlInt(fd, fionread)
		if n > 0 {
			return true
		}
		var b [1]byte
		for {
			n, _, failed = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			switch failed {
			case syscall.EINTR:
				continue
			case syscall.EAGAIN:
				failed = nil
				return false
			}
			return true
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
