//go:build !linux

package netidle

import (
	"errors"
	"syscall"
)

// Where the kernel is not asked, Write goes in pieces and sockets are copied through a
// buffer.

const (
	canLook   = false
	canSplice = false
)

func look(syscall.RawConn) (sendQueue, bool) { return sendQueue{}, false }

func arrived(syscall.RawConn) (int, error) { return 0, errors.ErrUnsupported }
