//go:build linux && (386 || s390x)

package netidle

// sysGetsockopt is missing from package syscall, which has only socketcall, one system call for all
// operations on sockets. Linux has getsockopt since 4.3, under the same number on both platforms.
const sysGetsockopt = 365
