package redisstore_test

import "syscall"

// dieWithUs has a server end with the test, even if that is killed.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
