// Package servers starts server programs for tests and examples: on free ports of the loopback
// interface, with all their files in one folder, apart from any server that the machine runs.
package servers

import (
	"net"
	"os"
	"os/exec"
	"strconv"
)

// A T is what the functions for tests need of testing.TB.
type T interface {
	Helper()
	Fatal(...any)
	Skip(...any)
}

// Missing skips a test whose program is missing, with a message that says how to install it. If
// JOBQUEUE_SERVERS is "required", the test fails.
func Missing(t T, message string) {
	t.Helper()
	if os.Getenv("JOBQUEUE_SERVERS") == "required" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// Find looks for a program at certain paths, and then on PATH.
func Find(program string, paths ...string) (path string, ok bool) {
	for _, path := range append(paths, program) {
		if found, err := exec.LookPath(path); err == nil {
			return found, true
		}
	}
	return "", false
}

// FreePort returns a port that no one listens on. Another process may take it before it is used.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
