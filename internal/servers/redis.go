package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// NoRedis says how to get what FindRedis looks for.
const NoRedis = "redis-server is not installed: " +
	"apt-get install redis-server redis-sentinel redis-tools"

// A Redis is a redis-server, alone, in a Cluster, or as a Sentinel. It can be stopped and started
// again, with the same address and files.
type Redis struct {
	Addr string
	Port int

	folder  string
	program string
	args    []string
	process
}

// FindRedis returns where redis-server is installed.
func FindRedis() (program string, ok bool) { return Find("redis-server") }

// StartRedis starts a server that keeps its files in folder. It writes nothing to disk unless args
// say so. Among args, "$port" is the port and "$bus" another free one, for a Cluster. The caller
// has to Close it.
func StartRedis(program, folder string, args ...string) (*Redis, error) {
	r := &Redis{folder: folder, program: program}
	r.args = append([]string{"--bind", "127.0.0.1", "--port", "$port", "--dir", folder,
		"--save", "", "--daemonize", "no"}, args...)
	return r, r.first()
}

// StartSentinel starts a Sentinel whose configuration has these lines.
func StartSentinel(program, folder string, lines ...string) (*Redis, error) {
	r := &Redis{folder: folder, program: program}
	file := filepath.Join(folder, "sentinel.conf")
	r.args = []string{file, "--bind", "127.0.0.1", "--port", "$port", "--dir", folder, "--sentinel"}
	var text bytes.Buffer
	for _, line := range lines {
		fmt.Fprintln(&text, line)
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	return r, r.first()
}

// first starts the server on ports that no other process takes meanwhile.
func (r *Redis) first() (err error) {
	args := r.args
	for range 3 {
		var bus int
		if r.Port, err = FreePort(); err != nil {
			return err
		}
		if bus, err = FreePort(); err != nil {
			return err
		}
		r.Addr, r.args = address(r.Port), nil
		for _, arg := range args {
			switch arg {
			case "$port":
				arg = strconv.Itoa(r.Port)
			case "$bus":
				arg = strconv.Itoa(bus)
			}
			r.args = append(r.args, arg)
		}
		if err = r.Start(); err == nil {
			return nil
		}
		r.Close()
	}
	return err
}

// Start starts the server again after Stop or Kill. It returns when clients can connect.
func (r *Redis) Start() error {
	output := filepath.Join(r.folder, "output")
	out, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	before, err := out.Stat()
	if err != nil {
		return err
	}
	cmd := exec.Command(r.program, r.args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := r.process.start(cmd); err != nil {
		return err
	}
	// Another program may have taken the port, so a connection proves nothing.
	for late := time.After(bootTime); ; {
		text, err := os.ReadFile(output)
		if err != nil {
			return err
		}
		said := text[before.Size():]
		if bytes.Contains(said, []byte("eady to accept connections")) ||
			bytes.Contains(said, []byte("Sentinel ID is")) {
			return nil
		}
		select {
		case err := <-r.ended:
			r.ended <- err
			return fmt.Errorf("redis-server has ended: %v: %s", err, said)
		case <-late:
			return errors.New("redis-server does not start")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Output returns what the server has logged.
func (r *Redis) Output() string {
	text, _ := os.ReadFile(filepath.Join(r.folder, "output"))
	return string(text)
}

// Close ends the server.
func (r *Redis) Close() {
	if r.ended != nil {
		r.Kill()
	}
}
