package servers

import "syscall"

// endWithParent has a server end with the process that started it, even if that is killed.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
