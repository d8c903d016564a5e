package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// rabbitScript is Debian's program for any user; the one on PATH works for root alone.
const rabbitScript = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// bootTime is how long RabbitMQ may take to start. It takes 4 s on an idle machine.
const bootTime = 2 * time.Minute

// A RabbitMQ is a server that can be stopped and started again, with the same port and messages.
type RabbitMQ struct {
	URL string

	folder   string
	program  string
	port     int
	distPort int
	epmdPort int
	epmd     *exec.Cmd // the name server of Erlang, which would otherwise outlive RabbitMQ
	process
}

// FindRabbitMQ returns where RabbitMQ is installed.
func FindRabbitMQ() (program string, ok bool) { return Find("rabbitmq-server", rabbitScript) }

// StartRabbitMQ starts a server that keeps its files in folder. The caller has to Close it.
func StartRabbitMQ(program, folder string) (*RabbitMQ, error) {
	r := &RabbitMQ{folder: folder, program: program}
	for _, port := range []*int{&r.port, &r.distPort, &r.epmdPort} {
		var err error
		if *port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	r.URL = "amqp://guest:guest@" + address(r.port) + "/"
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return nil, err
	}
	r.epmd = exec.Command(epmd, "-address", "127.0.0.1", "-port", strconv.Itoa(r.epmdPort))
	r.epmd.SysProcAttr = endWithParent()
	if err := r.epmd.Start(); err != nil {
		return nil, err
	}
	if err := r.Start(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Start starts the server again after Stop or Kill. It returns when clients can connect.
func (r *RabbitMQ) Start() error {
	output := r.file("output")
	out, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(r.program)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(r.environment(),
		"RUNNING_UNDER_SYSTEMD=1", // no shell in between, so that signals reach the server
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT="+strconv.Itoa(r.port),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(r.distPort),
		"RABBITMQ_MNESIA_BASE="+r.file("mnesia"),
		"RABBITMQ_LOG_BASE="+r.file("log"),
		"RABBITMQ_CONFIG_FILE="+r.file("rabbitmq"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+r.file("plugins"),
		"RABBITMQ_PID_FILE="+r.file("pid"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}",
	)
	if err := r.process.start(cmd); err != nil {
		return err
	}
	for late := time.After(bootTime); ; {
		if conn, err := net.Dial("tcp", address(r.port)); err == nil {
			return conn.Close()
		}
		select {
		case err := <-r.ended:
			r.ended <- err
			said, _ := os.ReadFile(output)
			return fmt.Errorf("rabbitmq-server has ended: %v: %s", err, said)
		case <-late:
			return errors.New("rabbitmq-server does not start")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Control runs rabbitmqctl on the server.
func (r *RabbitMQ) Control(args ...string) error {
	ctl := filepath.Join(filepath.Dir(r.program), "rabbitmqctl")
	cmd := exec.Command(ctl, args...)
	cmd.Env = r.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rabbitmqctl %v: %w: %s", args, err, out)
	}
	return nil
}

// environment returns what the server and rabbitmqctl both need.
func (r *RabbitMQ) environment() []string {
	return append(os.Environ(),
		"HOME="+r.folder, // has the cookie
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_EPMD_PORT="+strconv.Itoa(r.epmdPort),
		"RABBITMQ_NODENAME=rabbit"+strconv.Itoa(r.port)+"@localhost",
		"RABBITMQ_CONF_ENV_FILE="+r.file("rabbitmq-env.conf"),
	)
}

func (r *RabbitMQ) file(name string) string { return filepath.Join(r.folder, name) }

// Close ends everything.
func (r *RabbitMQ) Close() {
	if r.ended != nil {
		r.Kill()
	}
	r.epmd.Process.Kill()
	r.epmd.Wait()
}
