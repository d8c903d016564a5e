//go:build linux && (386 || s390x)

package netidle

// sysGetsockopt is missing in package syscall, which knows only socketcall, the one
// call for all sockets. The kernel has it by itself since 4.3, with this number on both.
const sysGetsockopt = 365
