//go:build !linux

package redisstore_test

import "syscall"

func dieWithUs() *syscall.SysProcAttr { return nil }
