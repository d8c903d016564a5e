package servers

import (
	"os"
	"os/exec"
	"syscall"
)

// A process is a server program. Each server embeds one, which may be started again after it ended.
type process struct {
	cmd   *exec.Cmd
	ended chan error // has how it ended, once it has; nil before the first start
}

// start starts a command that ends with this process at the latest, where the platform can do that.
func (p *process) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = endWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.ended = cmd, make(chan error, 1)
	go func(ended chan error) { ended <- cmd.Wait() }(p.ended)
	return nil
}

// Stop stops the server in good order and waits until it has ended.
func (p *process) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the server as kill -9 does. It may be called twice.
func (p *process) Kill() { p.end(syscall.SIGKILL) }

func (p *process) end(signal os.Signal) {
	p.cmd.Process.Signal(signal)
	p.ended <- <-p.ended // for another call
}

// Freeze has the server do nothing until Thaw, with its connections open.
func (p *process) Freeze() error { return freeze(p.cmd.Process) }

// Thaw ends Freeze.
func (p *process) Thaw() error { return thaw(p.cmd.Process) }
