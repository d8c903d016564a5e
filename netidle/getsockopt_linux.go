//go:build !386 && !s390x

package netidle

import "syscall"

const sysGetsockopt = syscall.SYS_GETSOCKOPT
