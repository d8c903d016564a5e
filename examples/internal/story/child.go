package story

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
)

// This file runs a part of a story in another process, which the story may kill and start again.

// childMark is in the environment of a child.
const childMark = "TIMINGWHEEL_STORY_CHILD"

// A Child is a process of the same program that runs Program.Child. It ends when the story does,
// however that ends.
type Child struct {
	cmd *exec.Cmd
	in  io.Closer // its standard input, which tells it to end
	out *bufio.Reader
}

// Start starts a child with these arguments.
func Start(args ...string) *Child {
	program, err := os.Executable()
	Must(err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), childMark+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	Must(err)
	out, err := cmd.StdoutPipe()
	Must(err)
	Must(cmd.Start())
	return &Child{cmd, in, bufio.NewReader(out)}
}

// Said returns the next line that the child prints. A child that ends instead fails the story.
func (c *Child) Said() string {
	line, err := c.out.ReadString('\n')
	if err != nil {
		Must(fmt.Errorf("the other process has ended: %w", errors.Join(err, c.cmd.Wait())))
	}
	return strings.TrimSpace(line)
}

// Kill ends the child as kill -9 does, in the middle of whatever it does.
func (c *Child) Kill() {
	Must(c.cmd.Process.Kill())
	c.wait()
}

// End asks the child to end, and waits for it.
func (c *Child) End() { Must(c.wait()) }

func (c *Child) wait() error {
	c.in.Close()
	io.Copy(io.Discard, c.out)
	return c.cmd.Wait()
}

// child runs f in a child. Its context ends when the story asks the child to end, or has ended.
func child(f func(ctx context.Context, args []string) error) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	slog.SetLogLoggerLevel(slog.LevelError) // attempts that fail are part of the story
	Must(f(ctx, flag.Args()))
}
