//go:build unix && !linux

package netidle

import (
	"errors"
	"syscall"
)

// This file is for systems that are asked only whether something can be read. Write splits its
// data, and sockets are copied through a buffer.

const (
	canAskReads = true
	canAskTCP   = false
	canSample   = false
	canSplice   = false
)

// askRaw does not block, as package net's sockets do not. If the socket has an error, the peek
// leaves it for the next Read.
func askRaw(raw syscall.RawConn) (r report, ok bool) {
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		for {
			_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if err != syscall.EINTR {
				r.unread = err == nil
				return
			}
		}
	})
	return r, err == nil
}

var errWouldBlock = errors.ErrUnsupported

func unread(syscall.RawConn) int { return 0 }

func readRaw(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
