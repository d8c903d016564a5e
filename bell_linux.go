package timingwheel

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// A timerfd is a bell on a Linux timer file. The runtime looks at its timers when its poller
// returns. The poller sleeps for whole milliseconds, but a file that becomes readable ends its
// sleep at once. So a goroutine that reads such a file runs within some tens of microseconds of its
// time. The goroutine of a time.AfterFunc takes most of a millisecond.
//
// The goroutine is parked in the read while the bell is set, and calls ring instead
// of returning to the read: each setting has its own, as with time.AfterFunc.
type timerfd struct {
	fd   uintptr  // of file, whose Fd method would make it blocking
	file *os.File // closed by Stop
	ring func()

	mu  sync.Mutex
	set bool // a goroutine is on its way: it reads, or has read and not looked here yet
}

// newPreciseBell returns a bell that calls ring in d, or nil if it cannot make one: no file
// descriptor is left, or the clock is the fake one of a synctest bubble.
func newPreciseBell(d time.Duration, ring func()) bell {
	if isWallOnly(time.Now()) {
		return nil
	}
	const monotonic, flags = 1, syscall.O_NONBLOCK | syscall.O_CLOEXEC
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, flags, 0)
	if errno != 0 {
		return nil
	}
	b := &timerfd{fd: fd, file: os.NewFile(fd, "timerfd"), ring: ring}
	if b.file.SetReadDeadline(time.Time{}) != nil {
		b.file.Close() // the poller does not take it, and a read would not wait
		return nil
	}
	b.Reset(d)
	return b
}

// Reset sets the bell to ring in d, and reports whether it was set.
func (b *timerfd) Reset(d time.Duration) (moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Zero would switch it off. A year fits the seconds of 32-bit machines; a
	// ring before its time wakes a driver that finds nothing to do.
	const longest = 365 * 24 * time.Hour
	spec := struct{ interval, value syscall.Timespec }{
		value: syscall.NsecToTimespec(int64(min(max(d, 1), longest))),
	}
	// It fails only for a bad file or a bad time.
	syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, b.fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	if b.set {
		return true
	}
	b.set = true
	go b.wait()
	return false
}

// Stop makes the bell ring at once if it is set, because the goroutine that waits for it cannot end
// otherwise. The bell cannot be set again.
func (b *timerfd) Stop() (prevented bool) {
	b.file.Close()
	return false
}

func (b *timerfd) wait() {
	var expirations [8]byte
	b.file.Read(expirations[:]) // ends with an error if the file is closed
	b.mu.Lock()
	b.set = false
	b.mu.Unlock()
	b.ring()
}
