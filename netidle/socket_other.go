//go:build !unix

package netidle

import (
	"errors"
	"syscall"
)

// This file is for systems that cannot be asked about a socket. Write splits its data, and sockets
// are copied through a buffer.

const (
	canAskReads = false
	canAskTCP   = false
	canSample   = false
	canSplice   = false
)

func askRaw(syscall.RawConn) (report, bool) { return report{}, false }

var errWouldBlock = errors.ErrUnsupported

func unread(syscall.RawConn) int { return 0 }

func readRaw(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
